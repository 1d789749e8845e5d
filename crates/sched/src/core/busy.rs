//! Busy intervals: for how long released jobs have been present without a break.
//!
//! A *busy interval* is a stretch of time in which at every instant some released job is queued or in
//! service. A job can be late only for what happened in the busy interval in which it was served, and
//! for the service that was on the disk when that interval began. So the search for the cause of a miss
//! ([`Core::busy_since`], [`Core::shortfall`]) looks no further back.

use super::{Core, Policy};
use crate::slack::Found;
use crate::units::{Nanos, Time};

impl Core {
    /// A service without a claim delays the job that was just released.
    pub(super) fn note_release(&mut self, at: Time) {
        for entry in self.in_service.iter_mut().filter(|entry| entry.in_slack) {
            let at = at.max(entry.started);
            entry.delays_since = Some(entry.delays_since.map_or(at, |since| since.min(at)));
        }
    }

    /// Early jobs whose time has come are released.
    pub(super) fn promote(&mut self, now: Time) {
        while let Some(((release, id), slot)) = self.releases.first()
            && release <= now
        {
            self.releases.remove(slot);
            self.early.remove(slot);
            self.released.insert(
                (self.tasks[slot as usize].queue[0].window.deadline, id),
                slot,
            );
            self.busy_since.get_or_insert(release);
            self.note_release(release);
        }
    }

    pub(super) fn catch_up(&mut self, now: Time) {
        self.promote(now);
        if self.leaving > 0 {
            self.bid_farewell(now);
        }
    }

    /// No released job queued or in service: every deadline is a whole period away again.
    pub(super) fn rest(&mut self, now: Time) {
        self.note_busy(now);
        if !self.released.is_empty() {
            return;
        }
        if self.released_in_service(now).is_none() {
            self.busy_since = None;
        }
        let delays = |entry: &super::InService| !entry.in_slack || entry.delays_since.is_some();
        if !self.in_service.iter().any(delays) {
            self.allowance.replenish();
        }
    }

    /// Notes what has been released by `now`, in the queue and on the disk.
    pub(super) fn note_busy(&mut self, now: Time) {
        let in_service = self.released_in_service(now);
        let queued = self.next_release().filter(|release| *release <= now);
        if let Some(first) = [in_service, queued].into_iter().flatten().min() {
            self.busy_since.get_or_insert(first);
        }
        self.promote(now);
    }

    /// The first release of a job in service. One that was started early has a claim from then on.
    fn released_in_service(&self, now: Time) -> Option<Time> {
        let releases = self.in_service.iter().filter_map(|entry| entry.release);
        releases.filter(|release| *release <= now).min()
    }

    /// When the busy interval began that holds `now`; `None`: no released job is queued or in service.
    pub fn busy_since(&mut self, now: Time) -> Option<Time> {
        self.note_busy(now);
        self.busy_since
    }

    /// True if a released job is still queued after its deadline.
    pub(super) fn is_late(&self, now: Time) -> bool {
        let first = self.released.first();
        first.is_some_and(|((deadline, _), _)| deadline <= now)
    }

    /// By how much a job may be late at most, now or later, if from now on the disk is kept from nothing
    /// and takes no longer than predicted. `None`: this rule cannot tell.
    ///
    /// Zero where no released job waits. Otherwise only `exact` looks at the clock: where S(t) is below
    /// zero, it is what is missing (docs/design/scheduling.md, section 12).
    pub fn shortfall(&mut self, now: Time) -> Option<Nanos> {
        self.catch_up(now);
        if self.busy_since(now).is_none() {
            return Some(Nanos::ZERO);
        }
        let (exact, places) = (
            self.options.policy == Policy::Exact,
            self.options.outstanding,
        );
        if !exact || places > 1 || self.is_late(now) || !self.in_service.is_empty() {
            return None;
        }
        if self.at_least(now, Nanos::ZERO) {
            return Some(Nanos::ZERO);
        }
        match self.compute(now, u64::MAX) {
            Found::Least { value, .. } => Some(Nanos(value.min(0).unsigned_abs())),
            Found::Unknown => None,
        }
    }
}
