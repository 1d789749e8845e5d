//! Finds a request that may go when the next best-effort request does not fit into the slack.
//!
//! First choice is the request itself, cut to the slack: that costs more positioning, but no long request
//! makes a disk stand still. Second choice is a request that may pass it (`best_effort::held_up`), also cut.
//! If the disk would otherwise wait with no end known, every queued request is examined. So a disk that
//! reports an endless wait has no request that it could serve; only a stream's next request, or the leaving
//! of a task, ends the wait.
//!
//! The core is then asked again with the piece that was found, so early requests keep their share.

use super::DiskScheduler;
use crate::best_effort::Pick;
use crate::request::Dispatch;
use crate::units::{Nanos, Sector, SectorCount, Time};

/// The request that goes in place of one that does not fit.
pub(super) enum Instead {
    /// This piece.
    Piece(Pick, Dispatch),
    /// Nothing before this instant, unless the request itself: it is its own turn.
    Hold(Time),
    /// Nothing.
    Nothing,
}

impl DiskScheduler {
    /// Finds the request that goes in place of `pick`. `last_resort`: no event would end the wait if none
    /// goes.
    pub(super) fn instead(&mut self, now: Time, pick: Pick, last_resort: bool) -> Instead {
        let room = self.core.room(now);
        if room < self.predictor.shortest() {
            return Instead::Nothing;
        }
        if let Some(piece) = self.cut(pick.slot, room) {
            return Instead::Piece(pick.shortened(), piece);
        }
        let periods = self.tasks.iter().map(|task| task.params.period());
        let longest = periods.max().unwrap_or_default();
        if let Some(until) = self.queue.holds_until(pick, now, longest) {
            return Instead::Hold(until);
        }
        let fits = |slot| self.cut(slot, room).is_some();
        let mut found = None;
        let mut put_off = false;
        if pick.is_aged() {
            found = self.queue.aged_that(now, fits);
            put_off = found.is_none();
        }
        found = found.or_else(|| self.queue.neighbour_that(self.head, fits));
        if last_resort {
            found = found.or_else(|| self.queue.any_that(fits));
        }
        if put_off {
            self.queue.put_off_aged();
        }
        match found.and_then(|pick| Some((pick, self.cut(pick.slot, room)?))) {
            Some((pick, piece)) => Instead::Piece(pick, piece),
            None => Instead::Nothing,
        }
    }

    /// The longest beginning of a request's next piece that takes no longer than `room`, ending on a
    /// whole physical sector if there is more to come.
    pub(super) fn cut(&self, slot: u32, room: Nanos) -> Option<Dispatch> {
        let whole = self.piece(slot);
        if self.need(&whole) <= room {
            return Some(whole);
        }
        let (start, unit) = (whole.start.get(), self.physical_sectors);
        let end = start + whole.count.get();
        // Boundaries of physical sectors within the piece are multiples first..=last of the unit.
        let (first, last) = (start / unit + 1, (end - 1) / unit);
        let of = |boundary: u64| {
            let count = SectorCount(boundary * unit - start);
            let predicted = self.predict(whole.op, Sector(start), count);
            Dispatch {
                count,
                predicted,
                ..whole
            }
        };
        if first > last || self.need(&of(first)) > room {
            return None;
        }
        let (mut fits, mut too_long) = (first, last + 1);
        while fits + 1 < too_long {
            let middle = fits.midpoint(too_long);
            if self.need(&of(middle)) <= room {
                fits = middle;
            } else {
                too_long = middle;
            }
        }
        Some(of(fits))
    }
}
