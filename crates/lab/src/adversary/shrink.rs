//! Making a case smaller as long as a job is late in it.

use super::{Case, CaseTask, admitted, case_of, late_game, seed_of, size};

/// Games that are tried with each smaller set.
const TRIES: u64 = 24;
/// Smaller sets that are tried at most.
const SETS_MAX: usize = 4_000;

/// The smallest case that is found from this one: with fewer tasks, with shorter times.
pub(super) fn shrunk(case: &Case, seed: u64) -> Case {
    let mut smallest = case.clone();
    let mut tried = 0;
    'smaller: loop {
        for tasks in smaller(&smallest.task) {
            tried += 1;
            if tried > SETS_MAX {
                return smallest;
            }
            if let Some(found) = late_with(&smallest, &tasks, seed)
                && size(&found) < size(&smallest)
            {
                smallest = found;
                continue 'smaller;
            }
        }
        return smallest;
    }
}

/// The smallest of a few cases with these tasks, if there is one.
fn late_with(case: &Case, tasks: &[CaseTask], seed: u64) -> Option<Case> {
    let set = admitted(tasks, case.way)?;
    (0..TRIES)
        .filter_map(|number| {
            let (pattern, game) = late_game(&set, case.scheduler, seed_of(seed, number))?;
            Some(case_of(case.scheduler, pattern, &set, &game))
        })
        .min_by_key(size)
}

/// Sets a little smaller: without a task, with a shorter service or period; and the same once more, which other
/// releases may make late sooner.
fn smaller(tasks: &[CaseTask]) -> Vec<Vec<CaseTask>> {
    let mut sets = Vec::new();
    let mut with = |change: &dyn Fn(&mut Vec<CaseTask>)| {
        let mut set = tasks.to_vec();
        change(&mut set);
        sets.push(set);
    };
    for index in 0..tasks.len() {
        if tasks.len() > 1 {
            with(&|set| {
                set.remove(index);
            });
        }
    }
    for index in 0..tasks.len() {
        let CaseTask { service, period } = tasks[index];
        for less in [period / 2, period.saturating_sub(5), period - 1] {
            if less >= service && less < period {
                with(&|set| set[index].period = less);
            }
        }
        for less in [service / 2, service - 1] {
            if less >= 1 && less < service {
                with(&|set| set[index].service = less);
            }
        }
    }
    with(&|_| {});
    sets
}
