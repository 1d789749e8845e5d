//! The sets that are searched.

use super::common::{self, Pair, admit};

/// The longest period.
const LONGEST: u64 = 12;

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

/// All pairs with periods up to `pairs_until`, all triples with periods up to `triples_until`, and every
/// `stride`-th triple with a longer one up to [`LONGEST`].
///
/// In the heavier form of the tests all pairs and triples, or every `CLOCKWISE_TEST_STRIDE`-th of them.
pub(super) fn family(pairs_until: u64, triples_until: u64, stride: usize) -> Vec<Vec<Pair>> {
    if common::long() {
        let all = [admitted_sets(2, LONGEST), admitted_sets(3, LONGEST)].concat();
        return thinned(all.into_iter(), stride_given()).collect();
    }
    let mut sets = admitted_sets(2, pairs_until);
    sets.extend(admitted_sets(3, triples_until));
    let longer = admitted_sets(3, LONGEST)
        .into_iter()
        .filter(|set| set[2].1 > triples_until);
    sets.extend(thinned(longer, stride));
    sets
}

/// One in so many, from the middle of the first so many: the very first have hardly any states.
fn thinned(
    sets: impl Iterator<Item = Vec<Pair>>,
    stride: usize,
) -> impl Iterator<Item = Vec<Pair>> {
    sets.skip(stride / 2).step_by(stride)
}

fn stride_given() -> usize {
    let given = std::env::var("CLOCKWISE_TEST_STRIDE").ok();
    given.map_or(1, |text| {
        text.parse().expect("CLOCKWISE_TEST_STRIDE is a number")
    })
}
