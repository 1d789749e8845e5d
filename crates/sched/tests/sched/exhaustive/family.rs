//! The sets that are searched.

use crate::common::design::{number, rows};
use crate::common::{self, Pair, admit};

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

/// All admitted pairs and triples that are searched in full.
pub(super) fn all() -> Vec<Vec<Pair>> {
    [admitted_sets(2, LONGEST), admitted_sets(3, LONGEST)].concat()
}

/// Sets to search.
pub(super) struct Family {
    pub(super) sets: Vec<Vec<Pair>>,
    /// The row of the design document, between the name of a search and its result.
    documented_as: Vec<String>,
}

/// All pairs with periods up to `pairs_until`, all triples with periods up to `triples_until`, and every
/// `stride`-th triple with a longer one up to [`LONGEST`].
///
/// In the full form of a test every `full_stride`-th of all pairs and triples.
pub(super) fn family(
    pairs_until: u64,
    triples_until: u64,
    stride: usize,
    full_stride: usize,
) -> Family {
    if testkit::is_full() {
        let sets: Vec<_> = thinned(all().into_iter(), full_stride).collect();
        let documented_as = vec![number(full_stride), number(sets.len())];
        return Family {
            sets,
            documented_as,
        };
    }
    let mut sets = admitted_sets(2, pairs_until);
    sets.extend(admitted_sets(3, triples_until));
    let longer = admitted_sets(3, LONGEST)
        .into_iter()
        .filter(|set| set[2].1 > triples_until);
    sets.extend(thinned(longer, stride));
    let parts = format!("{pairs_until}, {triples_until}");
    let documented_as = vec![number(sets.len()), parts, number(stride)];
    Family {
        sets,
        documented_as,
    }
}

impl Family {
    /// The design says that this came of a search.
    pub(super) fn assert_documented(&self, search: &str, states: usize, missing: usize) {
        common::report_search(search, self.sets.len(), states, missing);
        let row = [&self.documented_as[..], &[number(states), number(missing)]].concat();
        let mut documented = rows(search);
        documented.retain(|cells| cells.len() == row.len());
        for cells in &mut documented {
            // The row may say beside the number that the search ended at the first miss.
            if let Some(states) = cells.iter_mut().nth_back(1) {
                states.truncate(states.find(' ').unwrap_or(states.len()));
            }
        }
        assert!(
            documented.contains(&row),
            "{search}: {row:?}, but docs/design/scheduling.md says {documented:?}"
        );
    }
}

/// One in so many, from the middle of the first so many: the very first have hardly any states.
fn thinned(
    sets: impl Iterator<Item = Vec<Pair>>,
    stride: usize,
) -> impl Iterator<Item = Vec<Pair>> {
    sets.skip(stride / 2).step_by(stride)
}
