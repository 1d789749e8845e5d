//! Demand of a set of tasks that start from rest, and where it comes closest to what there is.
//!
//! Admission and delta-L ask the same two questions of a set, about
//!
//! ```text
//! M(L) = L - sum over all j of floor(L / T_j) C_j                                      (in order of deadline)
//! N(L) = L - max { Q_i : T_i >= L } - sum over all j of floor((L - 1) / T_j) C_j       (behind a blocker)
//! ```
//!
//! with Q_i the longest that task i keeps the disk without a break, C_i unless it is served in pieces,
//!
//! namely their minimum (delta-L), or whether N falls below zero (condition 2; the sum over j < i and
//! the sum over all j are the same, because a task with T_j >= L adds nothing). Both only fall at
//! scheduling points, L = k T_j and L = k T_j + 1.
//!
//! Tasks of one period are one [`Group`]. The walk goes backwards with the jumps of Zhang and Burns'
//! quick processor-demand analysis: where the demand up to L is h, no value below m lies in
//! [h + m, L]. The blocking term is a falling step function of L; a run of its steps is first tried
//! with the largest of them, and halved only where that is not good enough, so that a set with ten
//! thousand different service times costs hardly more than one with a single one.

use crate::task::TaskParams;
use alloc::vec::Vec;

/// The fixed point of utilizations: this is a whole disk.
const ONE: u128 = 1 << 64;

/// Tasks of one period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) period: u64,
    /// Sum of their service times.
    pub(crate) cost: u64,
    /// The longest that one of them keeps the disk without a break.
    pub(crate) longest: u64,
}

impl Group {
    /// One task.
    pub(crate) fn of(task: TaskParams) -> Self {
        Self {
            period: task.period().0,
            cost: task.service().0,
            longest: task.longest().0,
        }
    }

    /// Another task of the same period.
    pub(crate) fn join(&mut self, task: TaskParams) {
        self.cost = self.cost.saturating_add(task.service().0);
        self.longest = self.longest.max(task.longest().0);
    }
}

/// Result of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Low {
    pub(crate) value: i64,
    /// The interval length L that has it.
    pub(crate) interval: u64,
}

/// The end of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Everything was looked at.
    Complete,
    /// The limit on looks was reached.
    CutShort,
    /// A value below the one that was asked for.
    Below,
}

/// Groups by rising period, with what the walks need.
#[derive(Clone, Debug)]
pub(crate) struct Demand<'a> {
    groups: &'a [Group],
    /// The longest that a task keeps the disk, from each group on.
    blocking: Vec<u64>,
    /// Utilization of the groups up to and including each, in parts of 2^64, rounded up.
    used: Vec<u128>,
    /// Remaining looks at a group.
    looks: u64,
}

impl<'a> Demand<'a> {
    /// A walk over these groups, with at most `looks` looks at a group.
    pub(crate) fn new(groups: &'a [Group], looks: u64) -> Self {
        let mut blocking: Vec<u64> = groups.iter().map(|group| group.longest).collect();
        for k in (1..blocking.len()).rev() {
            blocking[k - 1] = blocking[k - 1].max(blocking[k]);
        }
        let used = groups.iter().scan(0u128, |sum, group| {
            *sum += (u128::from(group.cost) * ONE).div_ceil(u128::from(group.period));
            Some(*sum)
        });
        Self {
            groups,
            blocking,
            used: used.collect(),
            looks,
        }
    }

    /// Sum of floor(x / T_j) C_j and the last scheduling point at or before x. Groups beyond x add
    /// nothing.
    fn up_to(&mut self, x: u64) -> (u64, u64) {
        let (mut cost, mut last) = (0u64, 0u64);
        let mut seen = 0;
        for group in self.groups {
            if group.period > x {
                break;
            }
            let times = x / group.period;
            cost = cost.saturating_add(times * group.cost);
            last = last.max(times * group.period);
            seen += 1;
        }
        self.looks = self.looks.saturating_sub(seen.max(1));
        (cost, last)
    }

    /// Lowers `low` to the least M(L) over T_1 <= L <= `until`.
    pub(crate) fn in_order(&mut self, until: u64, low: &mut Low) -> End {
        let mut x = until;
        loop {
            let (cost, last) = self.up_to(x);
            if last == 0 {
                return End::Complete;
            }
            let value = last as i64 - cost as i64;
            if value < low.value {
                *low = Low {
                    value,
                    interval: last,
                };
            }
            let next = cost as i64 + low.value - 1;
            if next <= 0 {
                return End::Complete;
            }
            if self.looks == 0 {
                return End::CutShort;
            }
            x = next as u64;
        }
    }

    /// Lowers `low` to the least N(L) over T_1 < L <= T_n; with `stop`, ends at the first one found.
    pub(crate) fn behind_a_blocker(&mut self, low: &mut Low, stop: bool) -> End {
        if self.groups.len() < 2 {
            End::Complete
        } else {
            self.steps(1, self.groups.len(), low, stop)
        }
    }

    /// The steps of the blocking term from group `from` to before `to`: T_(from-1) < L <= T_(to-1).
    fn steps(&mut self, from: usize, to: usize, low: &mut Low, stop: bool) -> End {
        let first = self.groups[from - 1].period;
        let last = self.groups[to - 1].period - 1;
        let single = self.blocking[from] == self.blocking[to - 1];
        let mut tried = *low;
        match self.step(
            first,
            last,
            (self.blocking[from], self.used[to - 2]),
            &mut tried,
            stop || !single,
        ) {
            End::Complete if single => *low = tried,
            End::Complete => {}
            End::Below if single => {
                *low = tried;
                return End::Below;
            }
            End::Below => {
                let middle = from + (to - from) / 2;
                for (from, to) in [(middle, to), (from, middle)] {
                    match self.steps(from, to, low, stop) {
                        End::Complete => {}
                        end => return end,
                    }
                }
            }
            End::CutShort => return End::CutShort,
        }
        End::Complete
    }

    /// One blocking term, first <= x <= last with x = L - 1.
    fn step(
        &mut self,
        first: u64,
        last: u64,
        (blocking, used): (u64, u128),
        low: &mut Low,
        stop: bool,
    ) -> End {
        let blocking = blocking as i64;
        let mut x = last;
        if used < ONE {
            // Above (B + m - 1) / (1 - U) no value can be below m.
            let reach = u128::try_from(blocking + low.value - 1).unwrap_or(0) * ONE / (ONE - used);
            x = x.min(u64::try_from(reach).unwrap_or(u64::MAX));
        }
        while x >= first {
            let (cost, point) = self.up_to(x);
            if point < first {
                return End::Complete;
            }
            let value = point as i64 + 1 - blocking - cost as i64;
            if value < low.value {
                *low = Low {
                    value,
                    interval: point + 1,
                };
                if stop {
                    return End::Below;
                }
            }
            if self.looks == 0 {
                return End::CutShort;
            }
            let next = blocking + cost as i64 + low.value - 2;
            if next <= 0 {
                return End::Complete;
            }
            x = next as u64;
        }
        End::Complete
    }

    /// Beyond which L no M(L) is below `value`, if the set leaves anything over.
    pub(crate) fn reach(&self, value: i64) -> Option<u64> {
        let used = self.used.last().copied().unwrap_or(0);
        let room = u128::try_from(value).unwrap_or(0);
        (used < ONE).then(|| u64::try_from(room * ONE / (ONE - used)).unwrap_or(u64::MAX))
    }

    /// The longest service time of groups after the first.
    pub(crate) fn longest_after_first(&self) -> Option<u64> {
        self.blocking.get(1).copied()
    }
}
