//! Positions of sectors: zone, cylinder, head, place on the track, and the angle at which they pass.
//!
//! Numbering runs along the track, then the heads of the cylinder, then inwards. The first sector of
//! a track is skewed against that of the track before by a little more than a head switch takes (or a
//! cylinder switch, for the first head), so that after the switch it is just about to pass; across
//! the boundary of two zones as well.

use sched::units::{Nanos, Sector, SectorCount, Time};

use super::divisor::Divisor;
use super::spec::PlantSpec;

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
    /// The angle at which the first sector of its first track begins to pass, as a time.
    angle: u64,
}

impl Zone {
    /// By how many sectors a track of this zone begins after the zone's first.
    fn slot_of(&self, cylinders: u64, head: u64, heads: u64) -> u64 {
        let head_switches = cylinders * (heads - 1) + head;
        let sectors = head_switches * self.head_skew + cylinders * self.cylinder_skew;
        self.per_track.rem(sectors)
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
    sectors: SectorCount,
}

impl Geometry {
    pub(crate) fn new(spec: &PlantSpec) -> Self {
        let rotation = spec.rotation().get();
        let heads = spec.heads();
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
                    angle,
                };
                sector += cylinders * heads * sectors_per_track;
                cylinder += cylinders;
                // A track ends at the angle at which it began.
                let last = zone.slot_of(cylinders - 1, heads - 1, heads);
                let begins = angle + last * rotation / sectors_per_track;
                angle = (begins + spec.cylinder_switch().get()) % rotation;
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
        let (cylinder, head) = self.heads.div_rem(track);
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
mod tests {
    use super::*;

    fn geometry(name: &str) -> Geometry {
        Geometry::new(&PlantSpec::built_in(name).unwrap())
    }

    #[test]
    fn sectors_are_numbered_along_tracks_heads_and_cylinders() {
        let geometry = geometry("quantum-atlas-ii");
        let at = |sector| geometry.locate(Sector(sector));
        let track = |zone, cylinder, head| Track {
            zone,
            cylinder,
            head,
        };
        assert_eq!(
            at(0),
            Place {
                track: track(0, 0, 0),
                index: 0
            }
        );
        assert_eq!(
            at(178),
            Place {
                track: track(0, 0, 0),
                index: 178
            }
        );
        assert_eq!(
            at(179),
            Place {
                track: track(0, 0, 1),
                index: 0
            }
        );
        assert_eq!(
            at(1_790),
            Place {
                track: track(0, 1, 0),
                index: 0
            }
        );
        let second = geometry.zones()[1].first_sector.get();
        assert_eq!(
            at(second - 1),
            Place {
                track: track(0, 1_771, 9),
                index: 178
            }
        );
        assert_eq!(
            at(second),
            Place {
                track: track(1, 1_772, 0),
                index: 0
            }
        );
        let last = geometry.sectors().get() - 1;
        assert_eq!(
            at(last),
            Place {
                track: track(11, 5_811, 9),
                index: 106
            }
        );
    }

    #[test]
    fn runs_cover_a_request_track_by_track() {
        let geometry = geometry("quantum-atlas-ii");
        let start = geometry.zones()[1].first_sector.get() - 10;
        let runs: Vec<(Run, Nanos)> = geometry.runs(geometry.locate(Sector(start)), 200).collect();
        let shape: Vec<(u64, u64, u64, u64)> = runs
            .iter()
            .map(|(r, s)| (r.track.cylinder, r.index, r.count, s.get()))
            .collect();
        assert_eq!(
            shape,
            [
                (1_771, 169, 10, 0),
                (1_772, 0, 170, 1_700_000),
                (1_772, 0, 20, 600_000)
            ]
        );
    }

    #[test]
    fn a_sequential_transfer_loses_no_rotation_at_any_switch() {
        for name in super::super::spec::BUILT_IN {
            let geometry = geometry(name);
            for zone in geometry.zones() {
                for tracks_before in [1, 2, 9, 10, 11, 3_217] {
                    let sectors = (tracks_before * zone.sectors_per_track)
                        .min(zone.first_sector.get().max(zone.sectors_per_track));
                    let mut place = geometry.locate(Sector(
                        (zone.first_sector.get() + sectors).saturating_sub(2 * sectors),
                    ));
                    place.index = 0;
                    let (next, switch) = geometry.next_track(place.track);
                    let begun = geometry.passes(place.track, 0, Time(1_000_000_000));
                    let at = begun + geometry.rotation() + switch;
                    let wait = geometry.passes(next, 0, at) - at;
                    // At most the sector by which the skew is rounded up, and no rotation.
                    assert!(
                        wait < geometry.passing(next, 1) + Nanos(20),
                        "{name} {place:?}: {wait}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_next_boundary_is_where_a_sector_begins() {
        let geometry = geometry("hdd-8tb-7200");
        for i in 0..2_000_u64 {
            let place = geometry.locate(Sector(i * 7_654_321));
            let at = Time(i * 1_234_567);
            let (index, boundary) = geometry.next_boundary(place.track, at);
            assert!(boundary - at <= geometry.passing(place.track, 1));
            assert_eq!(geometry.passes(place.track, index, boundary), boundary);
        }
    }
}
