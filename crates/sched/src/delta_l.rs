//! Slack of the worst moment of all: delta-L, corrected and as published.
//!
//! # Definition (Bosch 1999, 6.2; Bosch and Mullender 2000), corrected
//!
//! ```text
//! M(L)    = L - sum over j of floor(L / T_j) C_j
//! N(i, L) = L - C_i - sum over j < i of floor((L - 1) / T_j) C_j
//! dL      = min( min over all L >= T_1 of M(L),  min over 1 < i <= n, T_1 <= L <= T_i of N(i, L) )
//! ```
//!
//! The papers stop at L = T_n for M, in the belief that longer intervals only leave more. They do not: 33
//! tasks (4, 200) and 34 tasks (3, 300) have M(L) >= 66 up to 300 and M(600) = 0. (The papers let L go to T_n
//! for N too, which makes no difference: for L >= T_i, M(L) <= N(i, L).) The C_i of N is the longest piece of
//! a task that is served in pieces.
//!
//! # Work
//!
//! M(L) >= L (1 - U): once a value m is known, only L < m / (1 - U) can beat it; the hyperperiod bounds
//! it where U = 1. Where that is still more than [`LOOKS_MAX`], the result is 0 and says that it is a
//! bound. How the minimum is found is in [`crate::demand`].

use crate::admission::{Admission, fits_whole_disk};
use crate::demand::{Demand, End, Group, Low};
use crate::units::Nanos;

/// The most looks at a task in one search: about 50 ms on a machine of 2020.
pub const LOOKS_MAX: u64 = 1 << 24;

/// A value of delta-L.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeltaL {
    /// The slack that every request of the set has.
    pub value: Nanos,
    /// True if this is the exact value; false if the search was cut short and this is a safe bound.
    pub exact: bool,
}

impl DeltaL {
    /// The value for a disk without tasks: nothing is ever late.
    pub const UNBOUNDED: Self = Self {
        value: Nanos(i64::MAX as u64),
        exact: true,
    };

    /// The one that is safe for both sets.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.value < self.value {
            other
        } else {
            self
        }
    }
}

/// Corrected delta-L of an admitted set.
#[must_use]
pub fn delta_l(set: &Admission) -> DeltaL {
    of_groups(set.groups(), None)
}

/// Delta-L as published: M only up to the longest period. Too large for some sets (see the module).
#[must_use]
pub fn delta_l_published(set: &Admission) -> DeltaL {
    of_groups(set.groups(), set.groups().last().map(|group| group.period))
}

const BOUND: DeltaL = DeltaL {
    value: Nanos::ZERO,
    exact: false,
};

fn of_groups(groups: &[Group], horizon: Option<u64>) -> DeltaL {
    let (Some(first), Some(last)) = (groups.first(), groups.last()) else {
        return DeltaL::UNBOUNDED;
    };
    if !fits_whole_disk(groups) {
        return DeltaL {
            value: Nanos::ZERO,
            exact: true,
        };
    }
    let mut demand = Demand::new(groups, LOOKS_MAX);
    let mut low = Low {
        value: first.period as i64 - first.cost as i64,
        interval: first.period,
    };
    if let Some(blocking) = demand.longest_after_first() {
        low.value = low.value.min(first.period as i64 - blocking as i64);
    }
    if demand.behind_a_blocker(&mut low, false) != End::Complete {
        return BOUND;
    }
    // A first look over one longest period makes `low` small, and with it the reach.
    if demand.in_order(last.period, &mut low) != End::Complete {
        return BOUND;
    }
    if horizon.is_none() {
        let cycle = groups.iter().try_fold(1, |cycle, group| {
            crate::core::common_multiple(cycle, group.period)
        });
        let Some(reach) = [cycle, demand.reach(low.value)].into_iter().flatten().min() else {
            return BOUND;
        };
        if demand.in_order(reach, &mut low) != End::Complete {
            return BOUND;
        }
    }
    DeltaL {
        value: Nanos(low.value.max(0) as u64),
        exact: true,
    }
}
