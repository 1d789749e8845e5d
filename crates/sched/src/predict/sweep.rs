//! Requests in one sweep of the arm: what each takes but for the seek, and what their seeks take together.
//!
//! A sweep serves requests that lie within some sectors in ascending order, so its seeks together go no
//! further than from the first of these sectors to the last, and once more over each request (two may
//! overlap). How the way is divided is not known when the sweep is promised. The longest that n seeks can
//! take which share a way is found on the least concave curve above the bounds of seeks: there it is n times
//! what the n-th part takes. Each seek is charged by that curve, too, so no sweep can be charged more than
//! was promised.

use core::ops::Range;

use super::{COUNT_MAX, FOREVER, Model, Predictor, widened};
use crate::request::Op;
use crate::units::{Nanos, Sector, SectorCount};

impl Predictor {
    /// The longest that a request takes that begins where it lies, whatever its seek: retries included, as the
    /// profile's policy says.
    #[must_use]
    pub fn swept(&self, op: Op, start: Sector, count: SectorCount) -> Nanos {
        let mechanics = match &self.model {
            Model::Flat(_) => return self.worst_case(start..start + count, op, count),
            Model::Rotating(mechanics) => mechanics,
        };
        if count > COUNT_MAX {
            return FOREVER;
        }
        let modelled = self.known_after_seek(mechanics, op, start, count, 0);
        self.on_link(widened(Nanos(modelled), self.widened_percent), op, count)
    }

    /// Seek time charged in a sweep, from the last sector of one request to the first of the next.
    #[must_use]
    pub fn seek_in_sweep(&self, from: Sector, to: Sector) -> Nanos {
        self.seeks(1, self.cylinder(from).abs_diff(self.cylinder(to)))
    }

    /// Bound on all seeks of a sweep. It has `requests` requests within the sectors `of` its streams, none
    /// over more than `cylinders` cylinders; the arm starts anywhere `within` the sectors of all streams. The
    /// way over these is added once more, for a sweep that this one interrupts.
    #[must_use]
    pub fn seeks_of_sweep(
        &self,
        within: &Range<Sector>,
        of: &Range<Sector>,
        requests: u64,
        cylinders: u64,
    ) -> Nanos {
        let between = requests.saturating_sub(1);
        let distance = self.span(of) + requests * cylinders;
        let way = self.way_over(within);
        way + way
            + if between == 0 {
                Nanos::ZERO
            } else {
                self.seeks(between, distance) + Nanos(2 * between)
            }
    }

    /// Number of cylinder boundaries within a request.
    #[must_use]
    pub fn cylinders_across(&self, start: Sector, count: SectorCount) -> u64 {
        let last = (start + count).get().saturating_sub(1).max(start.get());
        self.cylinder(Sector(last)) - self.cylinder(start)
    }

    /// The longest seek between two of these sectors.
    #[must_use]
    pub fn way_over(&self, within: &Range<Sector>) -> Nanos {
        self.seeks(1, self.span(within))
    }

    /// The longest seek from where the head is to one of these sectors; `None`: from anywhere.
    #[must_use]
    pub fn way_into(&self, within: &Range<Sector>, head: Option<Sector>) -> Nanos {
        let Model::Rotating(mechanics) = &self.model else {
            return Nanos::ZERO;
        };
        let Some(head) = head else {
            return widened(Nanos(mechanics.seek_max()), self.widened_percent);
        };
        let here = self.cylinder(head);
        let (first, last) = self.cylinders(within);
        self.seeks(1, here.abs_diff(first).max(here.abs_diff(last)))
    }

    fn seeks(&self, count: u64, distance: u64) -> Nanos {
        match &self.model {
            Model::Flat(_) => Nanos::ZERO,
            Model::Rotating(mechanics) => widened(
                Nanos(mechanics.seeks(count, distance)),
                self.widened_percent,
            ),
        }
    }
}
