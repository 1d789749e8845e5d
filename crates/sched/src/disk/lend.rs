//! A disk's place on a link, lent to another disk for one best-effort piece (thesis 8.1).
//!
//! To this disk the loan is a best-effort piece of its own that moves no arm: it starts only if it fits into the
//! slack, and while it lasts nothing else is on the disk. So a disk that lends is late no more than one that does
//! not.

use super::DiskScheduler;
use crate::best_effort::Scope;
use crate::core::Service;
use crate::units::{Nanos, Time};

/// A loan that has not come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lent {
    service: Nanos,
    since: Time,
}

impl DiskScheduler {
    /// True if another disk may be lent the place although best effort waits here: the last loan was not the last
    /// best effort that was served.
    #[must_use]
    pub fn is_turn_to_lend(&self) -> bool {
        !self.lent_last
    }

    /// Lends the place for `service` if that fits. False: not now; ask again after each event.
    pub fn lend(&mut self, now: Time, service: Nanos) -> bool {
        if !self.flights.is_empty() || self.passing.is_some() || self.lent.is_some() {
            return false;
        }
        self.advance(now);
        self.stop_lingering(now, None);
        let away = self.core.away();
        if self.linger.is_some() || !self.core.lets_go(now, service.saturating_add(away)) {
            return false;
        }
        self.core
            .start_ending_away(now, Service::BestEffort(service), away);
        self.lent = Some(Lent {
            service,
            since: now,
        });
        self.lent_last = true;
        true
    }

    /// The place has come back, or its time is over. Nothing happens if it was not lent.
    pub fn returned(&mut self, now: Time) {
        if let Some(Lent { service, since }) = self.lent.take() {
            self.advance(now);
            self.core
                .finish_one(now, Service::BestEffort(service), since);
        }
    }

    /// The slack that a disk without tasks asks another one for: the predicted time of its next piece, at most that of its
    /// longest. A piece that takes longer because the disk is slow there might never fit; the rest is an overrun, as in a
    /// container. `None`: it has nothing to do, or is doing it.
    pub fn piece_to_borrow_for(&mut self, now: Time) -> Option<Nanos> {
        if !self.flights.is_empty() {
            return None;
        }
        let (_, piece) = self.pick(Scope::All, now)?;
        Some(piece.predicted.min(self.piece_max))
    }
}
