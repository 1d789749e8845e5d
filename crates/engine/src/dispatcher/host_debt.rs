//! The host's part of a deadline miss.
//!
//! A host that keeps a disk from its work for 300 ms delays the requests on the disk, the queued ones, and
//! those that arrive before the disk has caught up. The time lost is therefore kept as a *debt* of the
//! host, and a request is excused by the debt at its end. Two rules keep the debt from hiding a miss of
//! the scheduler:
//!
//! * The debt ends when the disk has caught up: at a completion or a decision without any released
//!   real-time request queued or on the disk.
//! * A better bound of the scheduler limits it. If `exact` finds that no future request need be late by
//!   more than x, the debt becomes at most x; if S(t) is not negative, the debt becomes zero.
//!
//! The debt never exceeds the measured time: overlapping delays count once. For the argument see
//! docs/design/scheduling.md, section 12.

use sched::units::{Nanos, Time};

/// The time that the host owes a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostDebt {
    owed: Nanos,
    /// Delays up to this time have been counted.
    counted_until: Time,
}

impl HostDebt {
    /// Adds a delay by the host.
    pub(super) fn took(&mut self, from: Time, to: Time) {
        self.owed += to.saturating_since(from.max(self.counted_until));
        self.counted_until = self.counted_until.max(to);
    }

    /// The current debt.
    pub(super) fn owed(&self) -> Nanos {
        self.owed
    }

    /// Limits the debt: no request can be late by more than `shortfall`, unless the host delays more.
    pub(super) fn limit(&mut self, shortfall: Nanos) {
        self.owed = self.owed.min(shortfall);
    }
}
