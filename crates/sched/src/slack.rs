//! Exact slack: how long the disk may do something else at this instant.
//!
//! # Problem
//!
//! A request without a deadline that is started now holds the disk for up to E. Delta-L ([`crate::delta_l`])
//! bounds the harmless E at the worst instant of all. This module bounds it at this instant, from the queued
//! requests and from those that may still come.
//!
//! # Model
//!
//! The demand of a task is a [`Line`]: a first request due at some instant and then, a period apart, one
//! after another. For a task with a queued request the first is that request, with its remaining cost; for an
//! idle one it is the request that might arrive this very moment, due a period after the later of now and the
//! task's last deadline. `demand(t, d)` is the sum over the lines of the costs due at or before d, and with
//! the disk free from `f >= t` on
//!
//! ```text
//! S(t) = min over deadlines d > t of  d - f - demand(t, d)
//! ```
//!
//! # Algorithm
//!
//! Backwards, with the jumps of Zhang and Burns' quick processor-demand analysis, adapted from a
//! yes-or-no question to a minimum. Let m be the least value seen. At a deadline d with demand h no
//! deadline in [f + h + m, d] can have a value below m, because demand does not grow towards the
//! left; so the next one to look at is the last before f + h + m. The first d comes from a bound:
//! demand(t, d) <= U (d - t) + K, where K adds up, over the lines, the part of the first request
//! that is not yet covered by the task's share, so beyond (m + f - t + K) / (1 - U) nothing can be
//! below m. For U = 1 the hyperperiod bounds it, where it is known.
//!
//! # Work
//!
//! Every step looks once at every line whose first deadline has not been passed; there are at most
//! [`LINE_VISITS_MAX`] looks in one computation. A computation that would need more is abandoned
//! ([`Found::Unknown`]), and the caller falls back on a bound that it has anyway.
//!
//! A computation is also abandoned where the lines' shares add up to more than the disk. Admission prevents
//! that at every single instant. But tasks that are planned for later have their lines already, and the lines
//! do not tell that other tasks will have ended by then. The minimum would be below zero, at deadlines that
//! never come.
//!
//! # References
//!
//! Zhang and Burns, "Schedulability analysis for real-time systems with EDF scheduling", IEEE TC
//! 58(9), 2009. The definition of S is in docs/design/scheduling.md, with the proof that nothing
//! larger is safe.

use alloc::vec::Vec;

/// The fixed point of utilizations: this is a whole disk.
const ONE: u128 = 1 << 60;

/// The most looks at a line in one computation: about 0.3 ms on a machine of 2020.
pub(crate) const LINE_VISITS_MAX: usize = 1 << 16;

/// Later than any instant that matters, and far enough from the end of the integers to add to.
const FAR: u64 = u64::MAX / 4;

/// The value for a disk on which nothing will ever be due.
pub(crate) const UNBOUNDED: i64 = i64::MAX;

/// The demand that one task can still make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The deadline of the queued request, or of an idle task the earliest next release.
    pub(crate) at: u64,
    /// Remaining cost of the first request.
    pub(crate) first: u64,
    /// Cost of each later request.
    pub(crate) service: u64,
    /// Distance of deadlines.
    pub(crate) period: u64,
    /// Largest number of requests after the first.
    pub(crate) more: u64,
    /// True if a request is queued.
    pub(crate) pending: bool,
    /// service / period in parts of 2^60, rounded up; zero where `more` is bounded.
    pub(crate) share: u64,
}

/// service / period, rounded up.
pub(crate) fn share(service: u64, period: u64) -> u64 {
    (u128::from(service) * ONE).div_ceil(u128::from(period)) as u64
}

impl Line {
    /// The first deadline, if the idle task's next request came at `now`.
    #[inline]
    pub(crate) fn due(&self, now: u64) -> u64 {
        if self.pending {
            self.at
        } else {
            self.at.max(now) + self.period
        }
    }

    /// Number of deadlines after the first, which is `due`, and at or before `d`.
    #[inline]
    fn later(&self, due: u64, d: u64) -> u64 {
        // Most often there is none, and a division costs more than all else.
        let after = d - due;
        if after < self.period {
            0
        } else {
            (after / self.period).min(self.more)
        }
    }

    /// The first deadline after `now`, if there is one.
    fn next_after(&self, from: u64, now: u64) -> Option<u64> {
        let due = self.due(from);
        let skipped = if due > now {
            0
        } else {
            (now - due) / self.period + 1
        };
        (!self.is_over() && skipped <= self.more).then(|| due + skipped * self.period)
    }

    /// True if no request will ever come from this line.
    fn is_over(&self) -> bool {
        self.first == 0 && self.more == 0
    }
}

/// Demand up to an instant.
struct Demand {
    /// The sum of the costs that are due.
    cost: u64,
    /// The last deadline at or before the instant; 0 if there is none.
    last: u64,
}

/// demand(from, d), in one pass.
fn demand(lines: &[Line], from: u64, d: u64) -> Demand {
    let mut sum = Demand { cost: 0, last: 0 };
    for line in lines {
        let due = line.due(from);
        if due <= d && !line.is_over() {
            let later = line.later(due, d);
            let (cost, last) = (later * line.service, due + later * line.period);
            sum.add(line.first + cost, last);
        }
    }
    sum
}

impl Demand {
    #[inline]
    fn add(&mut self, cost: u64, last: u64) {
        self.cost = self.cost.saturating_add(cost);
        self.last = self.last.max(last);
    }
}

/// Demand of a line up to an instant that moves backwards.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The line's first deadline.
    due: u64,
    /// Its last one that counts.
    last: u64,
    /// Cost that is due up to that instant.
    cost: u64,
    service: u64,
    period: u64,
}

impl Asked {
    /// Moves back to the last deadline at or before `d`; false if there is none.
    #[inline]
    fn back_to(&mut self, d: u64) -> bool {
        if self.due > d {
            return false;
        }
        if self.last > d {
            let beyond = self.last - d;
            // Most often it is one period, and a division costs more than all else.
            let periods = if beyond <= self.period {
                1
            } else {
                beyond.div_ceil(self.period)
            };
            self.last -= periods * self.period;
            self.cost -= periods * self.service;
        }
        true
    }
}

/// The lines that count at an instant that moves backwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Near(Vec<Asked>);

impl Near {
    /// With room for so many lines without another allocation.
    pub(crate) fn reserve(&mut self, lines: usize) {
        self.0.reserve(lines.saturating_sub(self.0.len()));
    }

    /// Those that count at `d`.
    fn set(&mut self, lines: &[Line], from: u64, d: u64) {
        self.0.clear();
        for line in lines {
            let due = line.due(from);
            if due <= d && !line.is_over() {
                let later = line.later(due, d);
                self.0.push(Asked {
                    due,
                    last: due + later * line.period,
                    cost: line.first + later * line.service,
                    service: line.service,
                    period: line.period,
                });
            }
        }
    }

    /// demand(from, d), for a d no later than the last time. Lines that count no more are not visited again.
    fn demand(&mut self, d: u64) -> Demand {
        let mut sum = Demand { cost: 0, last: 0 };
        let mut place = 0;
        while let Some(asked) = self.0.get_mut(place) {
            if asked.back_to(d) {
                sum.add(asked.cost, asked.last);
                place += 1;
            } else {
                self.0.swap_remove(place);
            }
        }
        sum
    }
}

/// d - free - demand(now, d) at the last deadline d in (now, at], and d, if there is one.
pub(crate) fn value_at(lines: &[Line], q: &Question, at: u64) -> Option<(i64, u64)> {
    let demand = demand(lines, q.from, at);
    let value = demand.last as i64 - q.free as i64 - demand.cost as i64;
    (demand.last > q.now).then_some((value, demand.last))
}

/// The result of a computation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The least value and a deadline that has it.
    Least {
        /// S.
        value: i64,
        /// The deadline.
        at: u64,
    },
    /// The computation would have taken too long.
    Unknown,
}

/// The instant of a question, and what is known before it is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Now.
    pub(crate) now: u64,
    /// The earliest instant at which a job can still be released: now, or right after if a service
    /// was started now.
    pub(crate) from: u64,
    /// When the disk is free: now, or the predicted end of what is in service.
    pub(crate) free: u64,
    /// Only deadlines before this one count.
    pub(crate) before: u64,
    /// A deadline at which the value may be low.
    pub(crate) hint: u64,
    /// The least common multiple of the periods, if it is known.
    pub(crate) hyperperiod: Option<u64>,
}

/// Beyond which deadline no value is below `least`, if that can be told.
fn horizon(lines: &[Line], q: &Question, least: i64) -> Option<u64> {
    let mut used: u128 = 0;
    let mut backlog: u64 = 0;
    let mut latest = q.now;
    for line in lines.iter().filter(|line| !line.is_over()) {
        let due = line.due(q.from);
        used += u128::from(line.share);
        if line.more == u64::MAX {
            // The share is rounded up by less than one part; take that part off again.
            let covered =
                (u128::from(line.share - 1) * u128::from(due.saturating_sub(q.now)) / ONE) as u64;
            backlog = backlog.saturating_add(line.first.saturating_sub(covered));
            latest = latest.max(due);
        } else {
            backlog = backlog.saturating_add(line.first + line.more * line.service);
            latest = latest.max(due + line.more * line.period);
        }
    }
    // Each share is rounded up by less than one part.
    if used > ONE + lines.len() as u128 {
        return None;
    }
    let cycle = q.hyperperiod.and_then(|cycle| latest.checked_add(cycle));
    let slope = (used < ONE).then(|| {
        let room = i128::from(least) + i128::from(q.free - q.now) + i128::from(backlog);
        let reach = u128::try_from(room).unwrap_or(0) * ONE / (ONE - used);
        u64::try_from(reach)
            .unwrap_or(FAR)
            .saturating_add(q.now)
            .min(FAR)
    });
    match (cycle, slope) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A value and its deadline to begin with, where there is any deadline: at the hint, or the first.
fn begin(lines: &[Line], q: &Question) -> Option<(i64, u64)> {
    if q.hint > q.now
        && q.hint < q.before
        && let Some(seen) = value_at(lines, q, q.hint)
    {
        return Some(seen);
    }
    let first = lines
        .iter()
        .filter_map(|line| line.next_after(q.from, q.now))
        .min()
        .filter(|&d| d < q.before)?;
    value_at(lines, q, first)
}

/// The least of d - free - demand(now, d) over the deadlines now < d < before; `seen` is one of them
/// with its value, where it is known. `near` is scratch.
pub(crate) fn least(
    lines: &[Line],
    q: &Question,
    seen: Option<(i64, u64)>,
    near: &mut Near,
) -> Found {
    let Some(mut found) = seen.or_else(|| begin(lines, q)) else {
        return Found::Least {
            value: UNBOUNDED,
            at: q.now,
        };
    };
    let mut d = match horizon(lines, q, found.0) {
        Some(reach) => reach.min(q.before - 1),
        None if q.before <= FAR => q.before - 1,
        None => return Found::Unknown,
    };
    near.set(lines, q.from, d);
    for _ in 0..LINE_VISITS_MAX / lines.len() {
        let demand = near.demand(d);
        if demand.last <= q.now {
            return Found::Least {
                value: found.0,
                at: found.1,
            };
        }
        let value = demand.last as i64 - q.free as i64 - demand.cost as i64;
        if value < found.0 {
            found = (value, demand.last);
        }
        let next = q.free as i64 + demand.cost as i64 + found.0 - 1;
        if next <= q.now as i64 {
            return Found::Least {
                value: found.0,
                at: found.1,
            };
        }
        d = next as u64;
    }
    Found::Unknown
}

/// The first release of a joining task with which every value stays at or above zero whatever the
/// others do, if the set is admitted: its share of the time up to then pays for the backlog.
pub(crate) fn safe_first_release(lines: &[Line], q: &Question, joining_share: u64) -> u64 {
    let mut backlog = q.free - q.now;
    for line in lines.iter().filter(|line| !line.is_over()) {
        let whole = if line.more == u64::MAX {
            let covered = u128::from(line.share - 1)
                * u128::from(line.due(q.from).saturating_sub(q.now))
                / ONE;
            line.first.saturating_sub(covered as u64)
        } else {
            line.first + line.more * line.service
        };
        backlog = backlog.saturating_add(whole);
    }
    let wait = u128::from(backlog) * ONE / u128::from(joining_share.saturating_sub(1).max(1)) + 1;
    q.now
        .saturating_add(u64::try_from(wait).unwrap_or(FAR))
        .min(FAR)
}

#[cfg(test)]
mod tests;
