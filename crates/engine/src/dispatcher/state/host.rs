//! Delays that the host causes, as far as they are visible here.
//!
//! | delay | measured by |
//! |---|---|
//! | from an event or alarm to the decision | the next decision |
//! | from a decision to the disk having the piece | [`DispatcherState::issued_late`] |
//! | from a completion at the drive to its arrival here | [`Done::host_late`](crate::disk::Done) |

use sched::request::RequestId;
use sched::units::{Nanos, Time};

use super::super::counters::HOST_LATE_LIMIT;
use super::super::slots::index_of;
use super::{DispatcherState, Phase};

impl DispatcherState {
    /// Records that the piece `tag` of the last decision reached the disk this late, because the thread was
    /// interrupted in between. Ordinary costs of issuing, up to [`HOST_LATE_LIMIT`], are ignored.
    pub fn issued_late(&mut self, tag: u64, by: Nanos) {
        if by <= HOST_LATE_LIMIT {
            return;
        }
        let id = RequestId(tag);
        let entry = self.entries.get_mut(index_of(id)).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| entry.id == id && entry.phase == Phase::OnDisk) {
            entry.issued_late = by;
            let decided = self.last;
            let issued = self.event(decided.saturating_add(by));
            self.host_took(decided, issued);
        }
    }

    /// Records that the host kept the disk from its work between these times.
    pub(super) fn host_took(&mut self, from: Time, to: Time) {
        self.counters.host_was_late(to.saturating_since(from));
        self.debt.took(from, to);
    }

    /// Records a decision, which the host may have delayed, and limits the debt by the scheduler's bound.
    pub(super) fn decision_made(&mut self, now: Time) {
        let event = self.decision_due.take();
        let event = event.filter(|due| now.saturating_since(*due) > HOST_LATE_LIMIT);
        let due = [event, self.alarm.take()].into_iter().flatten().min();
        if let Some(due) = due {
            // Before the first release nothing was delayed.
            let released = self.scheduler.busy_since(now).unwrap_or(now);
            self.counters.host_was_late(now.saturating_since(due));
            self.debt.took(due.max(released).min(now), now);
        }
        self.limit_debt(now);
    }

    /// Limits the debt by the scheduler's bound, because the disk may have caught up.
    pub(super) fn limit_debt(&mut self, now: Time) {
        if self.debt.owed() > Nanos::ZERO
            && let Some(shortfall) = self.scheduler.shortfall(now)
        {
            self.debt.limit(shortfall);
        }
    }
}
