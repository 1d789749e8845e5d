//! What the host keeps the disk from, as far as it can be seen from here.
//!
//! | when | seen by |
//! |---|---|
//! | a decision was due, by an event or an alarm, and was made later | the next decision |
//! | the disk had a piece later than it was decided | [`DispatcherState::issued_late`] |
//! | a completion was taken later than the drive had it | [`Done::host_late`](crate::disk::Done) |

use sched::request::RequestId;
use sched::units::{Nanos, Time};

use super::super::counters::HOST_LATE_LIMIT;
use super::super::slots::index_of;
use super::{DispatcherState, Phase};

impl DispatcherState {
    /// The disk had the piece `tag`, of the decision that was made last, so long after it: the thread was
    /// kept from its work in between. Ordinary costs of issuing are none of this.
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

    /// The host kept the disk from its work between these instants.
    pub(super) fn host_took(&mut self, from: Time, to: Time) {
        self.counters.host_was_late(to.saturating_since(from));
        self.debt.took(from, to);
    }

    /// A decision is made, which the host may have put off; and the scheduler says by how much requests
    /// may be late from now on.
    pub(super) fn decision_made(&mut self, now: Time) {
        let event = self.decision_due.take();
        let event = event.filter(|due| now.saturating_since(*due) > HOST_LATE_LIMIT);
        let due = [event, self.alarm.take()].into_iter().flatten().min();
        if let Some(due) = due {
            // Before it was released nothing was kept waiting.
            let released = self.scheduler.busy_since(now).unwrap_or(now);
            self.counters.host_was_late(now.saturating_since(due));
            self.debt.took(due.max(released).min(now), now);
        }
        self.limit_debt(now);
    }

    /// Something has been completed: the disk may have caught up.
    pub(super) fn limit_debt(&mut self, now: Time) {
        if self.debt.owed() > Nanos::ZERO
            && let Some(shortfall) = self.scheduler.shortfall(now)
        {
            self.debt.limit(shortfall);
        }
    }
}
