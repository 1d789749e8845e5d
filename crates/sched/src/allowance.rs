//! Delta-L as a budget: corrected, and as published.
//!
//! Corrected: the remaining budget dL_r is a lower bound of the exact slack at every instant. It starts at
//! dL; every instant in which the disk does something else while a released real-time request is
//! there is taken off it; and it is put back to dL only when no released real-time request is queued
//! or in service, because only then is every deadline a whole period away again. A service that began before
//! a release and is still on the disk is charged from the release on.
//!
//! As published (thesis 6.3.2): the predicted time is taken off when a best-effort request is started
//! ahead of queued real-time requests, nothing is taken off for one started while none is queued, and
//! the budget is put back when the last queued real-time request is *taken from the queue*.

use crate::units::{Nanos, Time};

/// Both budgets; which one counts is the policy's business.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    /// Corrected dL in force.
    pub(crate) corrected: i64,
    /// dL_r; below zero after an overrun.
    pub(crate) left: i64,
    /// Corrected dL once those who leave have left.
    next: i64,
    /// Published dL.
    pub(crate) published: i64,
    /// Published dL_r.
    pub(crate) published_left: i64,
}

impl Allowance {
    /// The set has changed. While somebody is still leaving, the smaller dL holds.
    pub(crate) fn set(&mut self, corrected: Nanos, published: Nanos, somebody_leaves: bool) {
        self.next = i64::try_from(corrected.0).unwrap_or(i64::MAX);
        self.corrected = if somebody_leaves {
            self.corrected.min(self.next)
        } else {
            self.next
        };
        self.left = self.left.min(self.corrected);
        self.published = i64::try_from(published.0).unwrap_or(i64::MAX);
        self.published_left = self.published_left.min(self.published);
    }

    /// Everybody who was leaving has left, with this much exact slack at that instant.
    pub(crate) fn transition_over(&mut self, slack: i64) {
        self.corrected = self.next;
        self.left = self.left.min(slack);
    }

    /// Takes off what the disk did since `from` for somebody without a claim.
    pub(crate) fn charge(&mut self, from: Time, now: Time) {
        self.left -= now.saturating_since(from).0 as i64;
    }

    /// No released real-time request is queued or in service.
    pub(crate) fn replenish(&mut self) {
        self.left = self.corrected;
    }
}
