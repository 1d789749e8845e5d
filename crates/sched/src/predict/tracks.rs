//! Reads that are extended to the end of their last track (thesis 7.2.2).
//!
//! A drive that reads whole tracks from any angle has the rest of a request's last track under its head anyway: it
//! costs the bus alone. A sequential reader that keeps this rest saves the drive from reading the track again. On a
//! drive that sends sectors in order, the rest costs as much now as later.

use core::ops::Range;

use super::{Model, Predictor};
use crate::request::Op;
use crate::units::{Nanos, Sector, SectorCount};

impl Predictor {
    /// True if the drive reads whole tracks from any angle, so that the rest of a track is worth keeping.
    #[must_use]
    pub fn reads_tracks(&self) -> bool {
        matches!(&self.model, Model::Rotating(mechanics) if mechanics.reads_tracks())
    }

    /// Number of sectors by which a read of `count` sectors from `start` on should be extended, for its reader to keep:
    /// to the end of its last track, but not beyond `end`. Zero if that does not pay, or if the extended read can
    /// take longer than `service`, from wherever the head is.
    #[must_use]
    pub fn rest_of_track(
        &self,
        start: Sector,
        count: SectorCount,
        end: Sector,
        service: Nanos,
    ) -> SectorCount {
        let wanted = start + count;
        if !self.reads_tracks() || count.is_zero() || wanted >= end {
            return SectorCount::ZERO;
        }
        let Some(track) = self.track(Sector(wanted.get() - 1)) else {
            return SectorCount::ZERO;
        };
        let rest = track.end.min(end).min(Sector(self.capacity().get())) - wanted;
        if self.worst_known(Op::Read, start, count + rest) > service {
            return SectorCount::ZERO;
        }
        rest
    }

    /// The longest that a request at this place takes from wherever the head is on the disk. It is no longer than
    /// [`Predictor::worst_case`] of the place, which does not count on where on its tracks the request begins.
    #[must_use]
    pub fn worst_known(&self, op: Op, start: Sector, count: SectorCount) -> Nanos {
        let whole: Range<Sector> = Sector(0)..Sector(self.capacity().get());
        self.worst_within(&whole, op, start, count)
    }
}
