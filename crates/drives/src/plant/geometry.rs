//! Positions of sectors: zone, cylinder, head, place on the track, and the angle at which they pass.
//!
//! Numbering runs along the track, then the heads of the cylinder, then inwards. On a serpentine drive it runs
//! along the cylinders of a band with one head, back with the next, and so on; then follows the next band. The
//! first sector of a track is skewed against that of the track before by a little more than the switch between
//! them takes, so that after the switch it is just about to pass; across the boundary of two zones as well.

use sched::units::{Nanos, Sector, SectorCount, Time};

mod band;

use super::divisor::Divisor;
use super::spec::PlantSpec;
use band::{Band, InBand};

/// A sector is caught by up to this much too late: where sectors begin is rounded to nanoseconds,
/// several times over in a request, and no rotation may be lost by that.
const ROUNDING_NS: u64 = 10;

/// A track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Track {
    /// The zone, an index from the outside.
    pub zone: usize,
    /// The cylinder, counted from the outside over the whole drive.
    pub cylinder: u64,
    /// The head.
    pub head: u64,
}

/// A sector's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its track.
    pub track: Track,
    /// Its number on the track, from 0.
    pub index: u64,
}

/// Cylinders with the same number of sectors on a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Its first sector.
    pub first_sector: Sector,
    /// Its first cylinder.
    pub first_cylinder: u64,
    /// Number of cylinders.
    pub cylinders: u64,
    /// Sectors on each track.
    pub sectors_per_track: u64,
    per_track: Divisor,
    head_skew: u64,
    cylinder_skew: u64,
    band_skew: u64,
    /// The angle at which the first sector of its first track begins to pass, as a time.
    angle: u64,
}

impl Zone {
    /// By how many sectors a track of this zone begins after the zone's first.
    fn slot_of(&self, band: Option<Band>, cylinder: u64, head: u64, heads: u64) -> u64 {
        let sectors = match band {
            None => {
                let head_switches = cylinder * (heads - 1) + head;
                head_switches * self.head_skew + cylinder * self.cylinder_skew
            }
            Some(band) => {
                let InBand {
                    first,
                    cylinders,
                    index,
                } = band.of(self, cylinder, head);
                let bands = first / band.cylinders;
                let of_head = |cylinders: u64| (cylinders - 1) * self.cylinder_skew;
                let of_band = heads * of_head(band.cylinders) + (heads - 1) * self.head_skew;
                bands * (of_band + self.band_skew)
                    + head * (of_head(cylinders) + self.head_skew)
                    + index * self.cylinder_skew
            }
        };
        self.per_track.rem(sectors)
    }

    /// Cylinder of the zone and head of its last track.
    fn last_track(&self, band: Option<Band>, heads: u64) -> (u64, u64) {
        match band {
            None => (self.cylinders - 1, heads - 1),
            Some(band) => band.locate(self, self.cylinders * heads - 1, heads),
        }
    }
}

/// The sectors of a request that lie on one track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) track: Track,
    /// The number on the track of the first.
    pub(crate) index: u64,
    pub(crate) count: u64,
}

/// The layout of a drive.
#[derive(Clone, Debug)]
pub struct Geometry {
    zones: Vec<Zone>,
    heads: Divisor,
    rotation: Divisor,
    phase: u64,
    head_switch: Nanos,
    cylinder_switch: Nanos,
    band: Option<Band>,
    sectors: SectorCount,
}

impl Geometry {
    pub(crate) fn new(spec: &PlantSpec) -> Self {
        let rotation = spec.rotation().get();
        let heads = spec.heads();
        let band = spec
            .band()
            .map(|(cylinders, switch)| Band { cylinders, switch });
        let zone_switch = band.map_or(spec.cylinder_switch(), |band| band.switch);
        let (mut sector, mut cylinder, mut angle) = (0, 0, 0);
        let zones = spec
            .zones()
            .map(|(cylinders, sectors_per_track)| {
                let skew = |switch: Nanos| (switch.get() * sectors_per_track).div_ceil(rotation);
                let zone = Zone {
                    first_sector: Sector(sector),
                    first_cylinder: cylinder,
                    cylinders,
                    sectors_per_track,
                    per_track: Divisor::new(sectors_per_track),
                    head_skew: skew(spec.head_switch()),
                    cylinder_skew: skew(spec.cylinder_switch()),
                    band_skew: skew(zone_switch),
                    angle,
                };
                sector += cylinders * heads * sectors_per_track;
                cylinder += cylinders;
                // A track ends at the angle at which it began.
                let (last, head) = zone.last_track(band, heads);
                let last = zone.slot_of(band, last, head, heads);
                let begins = angle + last * rotation / sectors_per_track;
                angle = (begins + zone_switch.get()) % rotation;
                zone
            })
            .collect();
        Self {
            zones,
            heads: Divisor::new(heads),
            rotation: Divisor::new(rotation),
            phase: spec.phase().get() % rotation,
            head_switch: spec.head_switch(),
            cylinder_switch: spec.cylinder_switch(),
            band,
            sectors: spec.sectors(),
        }
    }

    /// The zones, from the outside.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Number of addressable sectors.
    #[must_use]
    pub fn sectors(&self) -> SectorCount {
        self.sectors
    }

    /// The time of one rotation.
    #[must_use]
    pub fn rotation(&self) -> Nanos {
        Nanos(self.rotation.get())
    }

    /// Position of `sector`. Meaningless past the end of the drive.
    #[must_use]
    pub fn locate(&self, sector: Sector) -> Place {
        let number = self
            .zones
            .partition_point(|zone| zone.first_sector <= sector)
            - 1;
        let zone = &self.zones[number];
        let offset = (sector - zone.first_sector).get();
        let (track, index) = zone.per_track.div_rem(offset);
        let (cylinder, head) = match self.band {
            None => self.heads.div_rem(track),
            Some(band) => band.locate(zone, track, self.heads.get()),
        };
        Place {
            track: Track {
                zone: number,
                cylinder: zone.first_cylinder + cylinder,
                head,
            },
            index,
        }
    }

    /// The sectors on each track of `track`'s zone.
    pub(crate) fn sectors_per_track(&self, track: Track) -> u64 {
        self.zones[track.zone].sectors_per_track
    }

    /// The track after `track` in the numbering, and the time to switch to it.
    pub(crate) fn next_track(&self, track: Track) -> (Track, Nanos) {
        if let Some(band) = self.band {
            return self.next_in_band(track, band);
        }
        if track.head + 1 < self.heads.get() {
            return (
                Track {
                    head: track.head + 1,
                    ..track
                },
                self.head_switch,
            );
        }
        let zone = &self.zones[track.zone];
        let cylinder = track.cylinder + 1;
        let zone_ends = cylinder == zone.first_cylinder + zone.cylinders;
        let next = Track {
            zone: track.zone + usize::from(zone_ends),
            cylinder,
            head: 0,
        };
        (next, self.cylinder_switch)
    }

    fn next_in_band(&self, track: Track, band: Band) -> (Track, Nanos) {
        let zone = &self.zones[track.zone];
        let at = band.of(zone, track.cylinder - zone.first_cylinder, track.head);
        if at.index + 1 < at.cylinders {
            let cylinder = if track.head.is_multiple_of(2) {
                track.cylinder + 1
            } else {
                track.cylinder - 1
            };
            return (Track { cylinder, ..track }, self.cylinder_switch);
        }
        if track.head + 1 < self.heads.get() {
            let head = track.head + 1;
            return (Track { head, ..track }, self.head_switch);
        }
        let next = at.first + at.cylinders;
        let track = Track {
            zone: track.zone + usize::from(next == zone.cylinders),
            cylinder: zone.first_cylinder + next,
            head: 0,
        };
        (track, band.switch)
    }

    /// The time `count` sectors of `track` take to pass, rounded up.
    pub(crate) fn passing(&self, track: Track, count: u64) -> Nanos {
        let per_track = self.zones[track.zone].per_track;
        Nanos(per_track.div_ceil(count * self.rotation.get()))
    }

    /// The first instant at or after `at`, but for rounding, at which sector `index` of `track`
    /// begins to pass.
    pub(crate) fn passes(&self, track: Track, index: u64, at: Time) -> Time {
        let per_track = self.zones[track.zone].per_track;
        let slot = per_track.rem(index + self.slot(track));
        let target = per_track.div(slot * self.rotation.get());
        let angle = self.angle(track, at);
        let late = if angle >= target {
            angle - target
        } else {
            angle + self.rotation.get() - target
        };
        if late <= ROUNDING_NS {
            at
        } else {
            at + Nanos(self.rotation.get() - late)
        }
    }

    /// The first sector of `track` to begin passing at or after `at`, and when.
    pub(crate) fn next_boundary(&self, track: Track, at: Time) -> (u64, Time) {
        let per_track = self.zones[track.zone].per_track;
        let spt = per_track.get();
        let angle = self.angle(track, at);
        // Slot s begins at floor(s * rotation / spt): the least s with that >= angle.
        let slot = self.rotation.div_ceil(angle * spt);
        let begins = per_track.div(slot * self.rotation.get());
        debug_assert!(begins >= angle);
        let index = per_track.rem(slot + spt - self.slot(track));
        (index, at + Nanos(begins - angle))
    }

    /// When the sector of `place` begins to pass, as the time since the index mark.
    pub(crate) fn begins(&self, place: Place) -> Nanos {
        let zone = &self.zones[place.track.zone];
        let slot = zone.per_track.rem(place.index + self.slot(place.track));
        let angle = zone.per_track.div(slot * self.rotation.get()) + zone.angle;
        Nanos(self.rotation.rem(angle))
    }

    /// The angle of the platters at `at`, counted from where the zone of `track` begins, as a time.
    fn angle(&self, track: Track, at: Time) -> u64 {
        let zone = &self.zones[track.zone];
        let rotation = self.rotation;
        rotation.rem(at.get() + self.phase + rotation.get() - zone.angle)
    }

    /// By how many sectors `track` begins after the first track of its zone.
    fn slot(&self, track: Track) -> u64 {
        let zone = &self.zones[track.zone];
        zone.slot_of(
            self.band,
            track.cylinder - zone.first_cylinder,
            track.head,
            self.heads.get(),
        )
    }

    /// Splits `count` sectors from `first` on into runs, a run for each track.
    pub(crate) fn runs(&self, first: Place, count: u64) -> Runs<'_> {
        Runs {
            geometry: self,
            next: Some((first.track, Nanos::ZERO)),
            index: first.index,
            left: count,
        }
    }
}

/// The runs of a request, each with the time to switch to its track from the one before.
pub(crate) struct Runs<'a> {
    geometry: &'a Geometry,
    next: Option<(Track, Nanos)>,
    index: u64,
    left: u64,
}

impl Runs<'_> {
    /// Number of sectors still to come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

impl Iterator for Runs<'_> {
    type Item = (Run, Nanos);

    fn next(&mut self) -> Option<(Run, Nanos)> {
        let (track, switch) = self.next?;
        let count = self
            .left
            .min(self.geometry.sectors_per_track(track) - self.index);
        let run = Run {
            track,
            index: self.index,
            count,
        };
        self.index = 0;
        self.left -= count;
        self.next = (self.left > 0).then(|| self.geometry.next_track(track));
        Some((run, switch))
    }
}

#[cfg(test)]
mod tests;
