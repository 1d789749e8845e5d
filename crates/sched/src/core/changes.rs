//! Tasks that join and leave.

use super::{Core, Known, Policy, signed};
use crate::jobs::TaskJobs;
use crate::slack::{self, Found, Line};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};

impl Core {
    /// An admitted task joins. Returns its first release: `first_release` or, where best effort has already
    /// been given the time it would need, the first instant after that is shown to be safe; and not within a
    /// period of early jobs of a task that is leaving. Jobs that come before it are early.
    ///
    /// # Panics
    /// When a task of that id is there.
    pub fn join(&mut self, now: Time, id: TaskId, params: TaskParams, first_release: Time) -> Time {
        let place = self
            .index
            .binary_search_by_key(&id, |entry| entry.0)
            .expect_err("a task joins once");
        let share = slack::share(params.service().0, params.period().0);
        let release = first_release.max(self.clear_of_early(now, params.period()));
        let slot = self.vacant.pop().unwrap_or(self.tasks.len() as u32);
        let mut question = self.question(now, u64::MAX);
        question.free = question.free.saturating_add(self.away.0);
        // All jobs of an admitted set that may be due are released from now on: no debt is left.
        let is_at_rest =
            self.leaving == 0 && self.released.is_empty() && self.in_service.is_empty();
        let safe = slack::safe_first_release(&self.lines, &question, share);
        let task = TaskJobs::new(id, params, release);
        let line = task.line(share);
        if slot as usize == self.tasks.len() {
            self.tasks.push(task);
            self.lines.push(line);
            self.near.reserve(self.lines.len());
            self.shares.push(share);
            for heap in [&mut self.released, &mut self.early, &mut self.releases] {
                heap.admit(slot);
            }
        } else {
            self.tasks[slot as usize] = task;
            self.lines[slot as usize] = line;
            self.shares[slot as usize] = share;
        }
        self.index.insert(place, (id, slot));
        self.hyperperiod = self
            .hyperperiod
            .and_then(|cycle| common_multiple(cycle, params.period().0));
        self.known = Known::default();
        let release = if self.options.outstanding == 1 && !is_at_rest {
            self.settle(now, slot, release, safe)
        } else {
            release
        };
        self.tasks[slot as usize].begin_at(release);
        self.lines[slot as usize].at = release.0;
        if let Found::Least { value, .. } = self.compute(now, u64::MAX) {
            self.allowance.left = self.allowance.left.min(value);
        } else {
            self.allowance.left = self.allowance.left.min(0);
        }
        release
    }

    /// The first instant at which a task of this period may begin without meeting the early jobs of
    /// tasks that are leaving.
    ///
    /// Condition 2 is about the set before and the set after. An interval that begins with the service
    /// of a third task and holds both early jobs of the one and first jobs of the other belongs to
    /// neither. With the longest of their periods between the two, one of the sets has as much due in
    /// it (docs/design/scheduling.md, section 6).
    fn clear_of_early(&self, now: Time, period: Nanos) -> Time {
        let early = self.tasks.iter().filter(|task| {
            task.leaving
                && task
                    .queue
                    .back()
                    .is_some_and(|job| job.window.release > now)
        });
        let ends = early.map(|task| (task.last_deadline(), task.params.period()));
        let (last, longest) = ends.fold((now, period), |(last, longest), (at, period)| {
            (last.max(at), longest.max(period))
        });
        if last > now { last + longest } else { now }
    }

    /// The earliest first release of the task in `slot`, between `wanted` and `safe`, that is shown
    /// to leave S(t) at or above zero. S does not fall when the release is later.
    pub(super) fn settle(&mut self, now: Time, slot: u32, wanted: Time, safe: u64) -> Time {
        let shown = |core: &mut Self, at: u64| {
            core.lines[slot as usize].at = at;
            let least = signed(core.away);
            matches!(core.compute(now, u64::MAX), Found::Least { value, .. } if value >= least)
        };
        if safe <= wanted.0 || shown(self, wanted.0) {
            return wanted;
        }
        let (mut unsafe_at, mut safe_at) = (wanted.0, safe);
        while safe_at - unsafe_at > 1 {
            let middle = unsafe_at + (safe_at - unsafe_at) / 2;
            if shown(self, middle) {
                safe_at = middle;
            } else {
                unsafe_at = middle;
            }
        }
        Time(safe_at)
    }

    /// A task takes no more jobs; those queued are still served. Returns from when its share is free:
    /// its last deadline, or now if it has used nothing; who follows it must not begin before it was to
    /// begin, if it followed somebody itself. Withdraw what it need not have served before this, or it
    /// keeps its share for every early job it has queued.
    pub fn leave(&mut self, now: Time, id: TaskId) -> Option<Time> {
        let slot = self.slot(id)?;
        let task = &mut self.tasks[slot as usize];
        if !task.leaving {
            task.leave(now);
            self.leaving += 1;
        }
        let free_from = task.last_deadline().max(now);
        self.refresh(slot, now);
        Some(free_from)
    }

    /// Delta-L of the set from now on, corrected and as published; to be called with every join and
    /// leave. While a task is leaving, the smaller of the old value and the new one holds.
    pub fn set_delta_l(&mut self, now: Time, corrected: Nanos, published: Nanos) {
        self.allowance.set(corrected, published, self.leaving > 0);
        if self.released.is_empty() {
            self.allowance.published_left = self.allowance.published;
        }
        self.rest(now);
    }

    /// When the next task that leaves is gone, where that changes what may go.
    pub(super) fn next_farewell(&self, now: Time) -> Option<Time> {
        if self.leaving == 0 || self.options.policy != Policy::DeltaL {
            return None;
        }
        let leaving = self
            .tasks
            .iter()
            .filter(|task| task.leaving && task.spent_until > now);
        leaving.map(|task| task.spent_until).min()
    }

    /// Forgets the tasks that have left.
    pub(super) fn bid_farewell(&mut self, now: Time) {
        let (tasks, lines, vacant) = (&mut self.tasks, &mut self.lines, &mut self.vacant);
        let before = self.index.len();
        self.index.retain(|&(_, slot)| {
            let task = &tasks[slot as usize];
            let gone = task.leaving && task.is_idle() && task.spent_until <= now;
            if gone {
                lines[slot as usize] = Line {
                    at: 0,
                    first: 0,
                    service: 0,
                    period: 1,
                    more: 0,
                    pending: false,
                    share: 0,
                };
                vacant.push(slot);
            }
            !gone
        });
        self.leaving -= before - self.index.len();
        if before == self.index.len() {
            return;
        }
        let mut periods = self
            .index
            .iter()
            .map(|&(_, slot)| self.tasks[slot as usize].params.period().0);
        self.hyperperiod = periods.try_fold(1, common_multiple);
        if self.leaving == 0 {
            let slack = match self.compute(now, u64::MAX) {
                Found::Least { value, .. } => value,
                Found::Unknown => self.bound(now).max(0),
            };
            self.allowance.transition_over(slack);
            self.rest(now);
        }
    }
}

/// The least common multiple, unless it is beyond any instant that matters.
pub(crate) fn common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x)
        .checked_mul(b)
        .filter(|&multiple| multiple < u64::MAX / 4)
}
