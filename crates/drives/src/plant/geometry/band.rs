//! Serpentine order of tracks: along the cylinders of a band with one head, back with the next.

use sched::units::Nanos;

use super::Zone;

/// A serpentine: the tracks of so many cylinders are numbered head by head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Band {
    pub(super) cylinders: u64,
    /// The time to go on to the next band.
    pub(super) switch: Nanos,
}

/// A track's place in the band of a zone.
pub(super) struct InBand {
    /// The band's first cylinder, and their number, counted from the zone's first.
    pub(super) first: u64,
    pub(super) cylinders: u64,
    /// Number of the track with this head, in the order of sectors.
    pub(super) index: u64,
}

impl Band {
    /// The cylinders of the band that begins with cylinder `first` of a zone: the last one may have fewer.
    fn size(self, zone: &Zone, first: u64) -> u64 {
        self.cylinders.min(zone.cylinders - first)
    }

    /// The place of a track, given by its cylinder in the zone and its head.
    pub(super) fn of(self, zone: &Zone, cylinder: u64, head: u64) -> InBand {
        let first = cylinder / self.cylinders * self.cylinders;
        let cylinders = self.size(zone, first);
        let inwards = cylinder - first;
        let index = if head.is_multiple_of(2) {
            inwards
        } else {
            cylinders - 1 - inwards
        };
        InBand {
            first,
            cylinders,
            index,
        }
    }

    /// Cylinder of the zone and head of its track `number`.
    pub(super) fn locate(self, zone: &Zone, number: u64, heads: u64) -> (u64, u64) {
        let first = number / (self.cylinders * heads) * self.cylinders;
        let cylinders = self.size(zone, first);
        let (head, index) = {
            let inside = number - first * heads;
            (inside / cylinders, inside % cylinders)
        };
        let inwards = if head.is_multiple_of(2) {
            index
        } else {
            cylinders - 1 - index
        };
        (first + inwards, head)
    }
}
