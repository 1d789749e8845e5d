//! The sets that are searched.

use super::common::{self, Pair, admit};

/// All admitted sets of `n` tasks with periods from 2 to `period_max`, by rising period.
fn admitted_sets(n: usize, period_max: u64) -> Vec<Vec<Pair>> {
    fn extend(set: &mut Vec<Pair>, n: usize, period_max: u64, all: &mut Vec<Vec<Pair>>) {
        if set.len() == n {
            if admit(set).is_ok() {
                all.push(set.clone());
            }
            return;
        }
        let last = set.last().copied().unwrap_or((1, 2));
        for period in last.1..=period_max {
            for service in 1..=period {
                if (service, period) >= last || period > last.1 {
                    set.push((service, period));
                    extend(set, n, period_max, all);
                    set.pop();
                }
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut Vec::new(), n, period_max, &mut all);
    all
}

/// All pairs and triples up to a period, and every `stride`-th triple with a longer one up to 12.
fn family(pairs_until: u64, triples_until: u64, stride: usize) -> Vec<Vec<Pair>> {
    let mut sets = admitted_sets(2, pairs_until);
    sets.extend(admitted_sets(3, triples_until));
    let longer = admitted_sets(3, 12)
        .into_iter()
        .filter(|set| set[2].1 > triples_until);
    sets.extend(longer.step_by(stride));
    sets
}

/// The family for plans without early requests.
pub(super) fn sporadic_family() -> Vec<Vec<Pair>> {
    if common::long() {
        family(12, 12, 1)
    } else {
        family(12, 8, 25)
    }
}

/// A smaller one, for plans with many more states.
pub(super) fn small_family() -> Vec<Vec<Pair>> {
    if common::long() {
        family(12, 8, 50)
    } else {
        family(8, 6, 1_000_000)
    }
}
