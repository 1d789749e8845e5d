//! Stretches of the disk where requests take longer than the profile says: retries, replaced sectors.
//!
//! Only the predictions of best effort know them. A stream was admitted by the profile, and its requests keep
//! that prediction; the pool moves their data away.

use core::ops::Range;

use super::DiskScheduler;
use crate::request::Op;
use crate::units::{Nanos, Sector, SectorCount};
use alloc::vec::Vec;

/// Slow stretches, ascending and apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowStretches(Vec<(Range<Sector>, Nanos)>);

impl SlowStretches {
    fn set(&mut self, range: Range<Sector>, extra: Nanos) {
        let at = self
            .0
            .partition_point(|(other, _)| other.start < range.start);
        match self.0.get_mut(at) {
            Some((other, known)) if other.start == range.start => *known = extra,
            _ => self.0.insert(at, (range, extra)),
        }
    }

    /// The time that a request takes beyond its prediction: the sum over all stretches that it touches.
    fn extra(&self, start: Sector, count: SectorCount) -> Nanos {
        let from = self.0.partition_point(|(range, _)| range.end <= start);
        let touched = self.0[from..].iter();
        let touched = touched.take_while(|(range, _)| range.start < start + count);
        touched.fold(Nanos::ZERO, |sum, (_, extra)| sum.saturating_add(*extra))
    }
}

impl DiskScheduler {
    /// From now on, best-effort requests that touch `range` are predicted to take `extra` longer. `range` is one set
    /// before, or apart from all of them.
    pub fn set_slow(&mut self, range: Range<Sector>, extra: Nanos) {
        self.slow.set(range, extra);
    }

    /// The time of a best-effort piece from where the head is.
    pub(super) fn predict(&self, op: Op, start: Sector, count: SectorCount) -> Nanos {
        let plain = self.predictor.predict(self.head, op, start, count);
        plain.saturating_add(self.slow.extra(start, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_longer_by_what_every_stretch_says_that_it_touches() {
        let mut slow = SlowStretches::default();
        slow.set(Sector(200)..Sector(300), Nanos(7));
        slow.set(Sector(100)..Sector(200), Nanos(1));
        slow.set(Sector(200)..Sector(300), Nanos(5));
        let extra = |start, count| slow.extra(Sector(start), SectorCount(count)).0;
        assert_eq!(
            [extra(0, 100), extra(0, 101), extra(199, 1), extra(199, 2)],
            [0, 1, 1, 6]
        );
        assert_eq!([extra(299, 900), extra(300, 900), extra(250, 1)], [5, 0, 5]);
    }
}
