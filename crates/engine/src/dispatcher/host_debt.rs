//! How much of a miss is the host's.
//!
//! A host that keeps a disk from its work for 300 ms makes late what was on the disk, what was queued,
//! and what comes while the disk has not caught up. So what the host took is kept as a *debt* of the
//! disk, and a request is excused by the debt at its end. Two things keep the debt from hiding a miss
//! that is the scheduler's:
//!
//! * It is gone when the disk has caught up: when it has completed something, or is to be given something,
//!   and no released real-time request is queued or on it.
//! * A scheduler that knows better is taken at its word. Where `exact` finds that from now on nobody
//!   need be late by more than x, then no more than x is owed from now on; where S(t) is not negative,
//!   nothing.
//!
//! And never is more owed than was measured: stretches of time that overlap count once. The argument is in
//! docs/design/scheduling.md, section 12.

use sched::units::{Nanos, Time};

/// What the host owes a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostDebt {
    owed: Nanos,
    /// What the host did until then has been counted.
    counted_until: Time,
}

impl HostDebt {
    /// The host kept the disk from its work between these instants.
    pub(super) fn took(&mut self, from: Time, to: Time) {
        self.owed += to.saturating_since(from.max(self.counted_until));
        self.counted_until = self.counted_until.max(to);
    }

    /// What is owed.
    pub(super) fn owed(&self) -> Nanos {
        self.owed
    }

    /// No request can be late by more than this, now or later, unless more goes wrong.
    pub(super) fn limit(&mut self, shortfall: Nanos) {
        self.owed = self.owed.min(shortfall);
    }
}
