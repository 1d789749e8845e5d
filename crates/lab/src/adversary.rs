//! Schedulers against tasks that do all they may to be late.
//!
//! # What it is for
//!
//! A rule that is claimed to keep every deadline is tried on random sets of tasks that admission has let in, with
//! releases at the worst moments that are known and best-effort requests as long as the rule accepts. It is the
//! scheduler's own [core](sched::core) that decides; the disk takes exactly as long as it was said to. A rule that
//! is wrong is caught, and the smallest set that it was caught with is kept as a [`Case`] to be
//! [played again](replay) and looked at ([`gantt`]).
//!
//! # Deliberately absent
//!
//! Completeness: `crates/sched/tests/sched/exhaustive` visits every state of small sets. Positions and
//! mechanics: what the rules are about is time.

mod attack;
mod case;
#[doc(hidden)]
pub mod fuzzing;
mod gantt;
pub mod link;
mod play;
mod shrink;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use attack::{Pattern, attack};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::admission::Admission;
use sched::delta_l::{delta_l, delta_l_published};
use sched::policy::Policy;
use sched::task::TaskId;

use crate::dice::Dice;
pub use case::{Ask, Case, CaseError, CaseEvent, CaseTask, Way};
pub use gantt::gantt;
use play::{Game, TaskSet};
pub use play::{Happening, Step, replay};

/// Options of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The rule.
    pub scheduler: Policy,
    /// Number of admitted sets.
    pub sets: u64,
    /// Decides everything that is random.
    pub seed: u64,
    /// Extra time of jobs for the arm's way. Sets with less slack than the way back are not admitted.
    pub way: Way,
    /// Number of threads.
    pub threads: usize,
}

/// Result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Findings {
    /// Sets tried, all of them admitted.
    pub sets: u64,
    /// Sets with which a job was late.
    pub sets_with_misses: u64,
    /// Number of the first set with a miss, from 1.
    pub first_miss: Option<u64>,
    /// The smallest case that was found.
    pub smallest: Option<Case>,
}

/// Sets that a thread takes at a time.
const BATCH: u64 = 64;

/// The tasks with their Delta-L. A set that is not admitted has none.
fn set_of(tasks: Vec<CaseTask>, way: Way) -> TaskSet {
    admitted(&tasks, way).map_or(
        TaskSet {
            tasks,
            delta_l: 0,
            published: 0,
            way,
        },
        |set| set,
    )
}

/// The set, if admission lets it in, with slack enough for the way back.
fn admitted(tasks: &[CaseTask], way: Way) -> Option<TaskSet> {
    let mut admission = Admission::new();
    for (id, task) in (0..).zip(tasks) {
        admission.insert(TaskId(id), task.params(way)?).ok()?;
    }
    let delta_l = delta_l(&admission).value.get();
    (delta_l >= way.away).then(|| TaskSet {
        tasks: tasks.to_vec(),
        delta_l,
        published: delta_l_published(&admission).value.get(),
        way,
    })
}

/// A random set that is admitted: two to six tasks with periods from 4 to 60, which ask for half to all of the disk. No
/// job is shorter than `least`.
fn drawn(dice: &mut Dice, way: Way, least: u64) -> TaskSet {
    loop {
        let count = 2 + dice.below(5);
        let percent = 50 + dice.below(51);
        let shares: Vec<u64> = (0..count).map(|_| 1 + dice.below(100)).collect();
        let sum: u64 = shares.iter().sum();
        let tasks: Vec<CaseTask> = shares
            .iter()
            .map(|share| {
                let period = 4 + dice.below(57);
                let service = period * percent * share / (100 * sum);
                CaseTask {
                    service: service.max(least).min(period),
                    period,
                }
            })
            .collect();
        if tasks.iter().any(|task| task.service < least) {
            continue;
        }
        if let Some(set) = admitted(&tasks, way) {
            return set;
        }
    }
}

/// The seed of one thing among many, which depends on nothing but its number.
fn seed_of(seed: u64, number: u64) -> u64 {
    let mixed =
        (seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 32)
}

/// The first game of a set in which a job is late, over all patterns.
fn late_game(set: &TaskSet, policy: Policy, seed: u64) -> Option<(Pattern, Game<'_>)> {
    Pattern::ALL
        .into_iter()
        .zip(0..)
        .find_map(|(pattern, number)| {
            let game = attack(set, policy, pattern, seed_of(seed, number));
            game.map(|game| (pattern, game))
        })
}

/// Calls `try_set` with the number of each set, on threads. `progress` is told how many sets have been tried, from any
/// thread.
fn each_set(
    sets: u64,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
    try_set: &(dyn Fn(u64) + Sync),
) {
    let (next, tried) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            if from >= sets {
                return;
            }
            let to = sets.min(from + BATCH);
            (from..to).for_each(try_set);
            progress(tried.fetch_add(to - from, Ordering::Relaxed) + to - from);
        }
    };
    std::thread::scope(|scope| {
        (1..threads.max(1)).for_each(|_| drop(scope.spawn(work)));
        work();
    });
}

/// Tries to make a scheduler late. `progress` is told how many sets have been tried, from any thread.
#[must_use]
pub fn search(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Findings {
    // By number: what is found does not depend on who was first.
    let late: Mutex<Vec<(u64, Case)>> = Mutex::default();
    let count = AtomicU64::new(0);
    each_set(options.sets, options.threads, progress, &|number| {
        let seed = seed_of(options.seed, number);
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let set = drawn(dice, options.way, options.way.service_min());
        if let Some((pattern, game)) = late_game(&set, options.scheduler, seed) {
            count.fetch_add(1, Ordering::Relaxed);
            let case = case_of(options.scheduler, pattern, &set, &game);
            let mut late = late.lock().unwrap_or_else(PoisonError::into_inner);
            late.push((number, case));
            keep_few(&mut late);
        }
    });
    let mut late = late.into_inner().unwrap_or_else(PoisonError::into_inner);
    let first = late.iter().map(|(number, _)| *number).min();
    late.sort_by_key(|(number, case)| (size(case), *number));
    let smallest = late.into_iter().next().map(|(_, case)| case);
    Findings {
        sets: options.sets,
        sets_with_misses: count.into_inner(),
        first_miss: first.map(|number| number + 1),
        smallest: smallest.map(|case| shrink::shrunk(&case, options.seed)),
    }
}

/// Size of a case for its reader: tasks, then events, then numbers.
fn size(case: &Case) -> (usize, usize, u64) {
    let numbers = case
        .task
        .iter()
        .map(|task| task.service + task.period)
        .sum();
    (case.task.len(), case.event.len(), numbers)
}

/// Keeps the first case and the smallest ones.
fn keep_few(late: &mut Vec<(u64, Case)>) {
    const MANY: usize = 1_000;
    if late.len() < MANY {
        return;
    }
    late.sort_by_key(|(number, case)| (size(case), *number));
    let first = late.iter().map(|(number, _)| *number).min();
    let mut index = 0;
    late.retain(|(number, _)| {
        index += 1;
        index <= MANY / 2 || Some(*number) == first
    });
}

fn case_of(scheduler: Policy, pattern: Pattern, set: &TaskSet, game: &Game<'_>) -> Case {
    Case {
        scheduler,
        found: format!(
            "Found by releases in the pattern `{}`. Delta-L is {}, as published {}.",
            pattern.name(),
            set.delta_l,
            set.published
        ),
        way: set.way,
        task: set.tasks.clone(),
        event: game.events.clone(),
    }
}
