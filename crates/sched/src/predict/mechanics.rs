//! A rotating drive: its zones, how a transfer lies on its tracks, and how long each part of it takes at
//! most. The model is in the [module above](super).

use alloc::vec;
use alloc::vec::Vec;

use super::{NANOS_PER_MICRO, NANOS_PER_SECOND};
use crate::profile::RotatingSpec;
use crate::request::Op;
use crate::units::SECTOR_BYTES;

/// A zone: where it is and how long its sectors take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) start: u64,
    pub(super) end: u64,
    first_cylinder: u64,
    pub(super) sectors_per_track: u64,
    pub(super) heads: u64,
}

/// Mechanics of a rotating drive, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Mechanics {
    pub(super) rotation: u64,
    pub(super) overhead: u64,
    head_switch: u64,
    cylinder_switch: u64,
    pub(super) write_settle: u64,
    /// Time of a sector on the bus: to the host, and from it.
    bus_sector: u64,
    write_bus_sector: u64,
    pub(super) retry: u64,
    pub(super) exact_tracks: bool,
    track_reads: bool,
    track_writes_tail: bool,
    /// (distance, bound), ascending, from distance 0 to the full stroke.
    pub(super) seek: Vec<(u64, u64)>,
    /// The bends of the least concave curve above these points.
    concave: Vec<(u64, u64)>,
}

/// Knowledge about the position of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// No more than how long it is.
    Anywhere,
    /// Its tracks, once and for all.
    Known,
}

/// Layout of a transfer on the tracks.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) zone: Zone,
    pub(super) count: u64,
    /// Tracks touched, at most.
    pub(super) tracks: u64,
    /// Cylinder boundaries crossed, at most.
    pub(super) cylinder_crossings: u64,
    /// Zone boundaries crossed, at most; tracks are not skewed over these.
    pub(super) zone_crossings: u64,
    /// True if the first sector is the first of a track.
    pub(super) begins_track: bool,
}

impl Zone {
    pub(super) fn cylinder(self, sector: u64) -> u64 {
        let within = sector.min(self.end - 1) - self.start;
        self.first_cylinder + within / (self.sectors_per_track * self.heads)
    }
}

impl Layout {
    /// The most tracks and cylinders that `count` sectors can touch, wherever they begin.
    pub(super) fn anywhere(zone: Zone, count: u64) -> Self {
        let crossings = count.saturating_sub(1).div_ceil(zone.sectors_per_track);
        let cylinder_crossings = crossings.div_ceil(zone.heads);
        Self {
            zone,
            count,
            tracks: crossings + 1,
            cylinder_crossings,
            zone_crossings: 0,
            begins_track: false,
        }
    }

    /// The layout over some zone boundaries, each of which ends a track and a cylinder early.
    pub(super) fn over(mut self, boundaries: usize) -> Self {
        let boundaries = boundaries as u64;
        self.tracks += boundaries;
        self.cylinder_crossings += boundaries;
        self.zone_crossings += boundaries;
        self
    }
}

impl Mechanics {
    pub(super) fn new(spec: &RotatingSpec) -> Self {
        let head_switch = spec.head_switch_us * NANOS_PER_MICRO;
        let mut seek: Vec<_> = spec
            .seek
            .iter()
            .map(|point| (point.cylinders, point.us * NANOS_PER_MICRO))
            .collect();
        if seek.first().is_none_or(|first| first.0 > 0) {
            seek.insert(0, (0, head_switch));
        }
        let rotation = spec.rotation_us * NANOS_PER_MICRO;
        Self {
            rotation,
            overhead: spec.command_overhead_us * NANOS_PER_MICRO,
            head_switch,
            cylinder_switch: spec.cylinder_switch_us * NANOS_PER_MICRO,
            write_settle: spec.write_settle_us * NANOS_PER_MICRO,
            bus_sector: sector_at(spec.bus_bytes_per_second),
            write_bus_sector: sector_at(
                spec.write_bus_bytes_per_second
                    .unwrap_or(spec.bus_bytes_per_second),
            ),
            retry: spec.retry_rotations * rotation,
            exact_tracks: spec.exact_tracks,
            track_reads: spec.track_reads,
            track_writes_tail: spec.track_writes_tail,
            concave: concave_above(&seek),
            seek,
        }
    }

    /// True if reads take whole tracks from any angle.
    pub(super) fn reads_tracks(&self) -> bool {
        self.track_reads
    }

    pub(super) fn seek_max(&self) -> u64 {
        self.seek.last().map_or(0, |last| last.1)
    }

    /// The bound for a distance: between two points as the chord has it.
    pub(super) fn seek(&self, distance: u64) -> u64 {
        if distance == 0 {
            return self.seek[0].1;
        }
        let index = self.seek.partition_point(|point| point.0 < distance);
        match self.seek.get(index) {
            None => self.seek_max(),
            // Not to mix staying on the cylinder with leaving it.
            Some(&(_, bound)) if index == 1 => bound,
            Some(&(to, above)) => {
                let (from, below) = self.seek[index - 1];
                below + ((above - below) * (distance - from)).div_ceil(to - from)
            }
        }
    }

    /// The most that so many seeks take that together go no further than `distance`: of a concave curve that is when
    /// they are equal, so it is that of the least concave curve that is nowhere below the bounds.
    pub(super) fn seeks(&self, count: u64, distance: u64) -> u64 {
        let (count, distance) = (u128::from(count), u128::from(distance));
        let end = self
            .concave
            .partition_point(|point| u128::from(point.0) * count < distance);
        let most = |bound: u64| u128::from(bound) * count;
        let time = match (end.checked_sub(1), self.concave.get(end)) {
            (_, None) => most(self.concave.last().map_or(0, |last| last.1)),
            (None, Some(first)) => most(first.1),
            (Some(before), Some(&(to, above))) => {
                let (from, below) = self.concave[before];
                let into = distance - u128::from(from) * count;
                most(below) + (u128::from(above - below) * into).div_ceil(u128::from(to - from))
            }
        };
        u64::try_from(time).unwrap_or(u64::MAX / 4)
    }

    /// Everything but the seek.
    pub(super) fn after_seek(&self, op: Op, layout: Layout, place: Place) -> u64 {
        let transfer = match op {
            Op::Read if self.track_reads => self.track_by_track(layout, place),
            Op::Read => self.rotation + self.in_order(op, layout),
            Op::Write => {
                let tail = self.track_writes_tail && layout.tracks > 1;
                let tail = if tail { self.rotation } else { 0 };
                self.write_settle + self.rotation + self.in_order(op, layout) + tail
            }
        };
        self.overhead + transfer
    }

    fn bus(&self, op: Op, sectors: u64) -> u64 {
        match op {
            Op::Read => sectors * self.bus_sector,
            Op::Write => sectors * self.write_bus_sector,
        }
    }

    fn media(&self, sectors: u64, zone: Zone) -> u64 {
        (sectors * self.rotation).div_ceil(zone.sectors_per_track)
    }

    /// The switches of a transfer, each rounded up to a sector.
    fn switches(&self, layout: Layout) -> u64 {
        let crossings = layout.tracks.saturating_sub(1);
        let longer = self.cylinder_switch - self.head_switch;
        crossings * self.usual_switch(layout.zone)
            + layout.cylinder_crossings * longer
            + layout.zone_crossings * self.rotation
    }

    /// From the first sector's passing until the last is across, in order (see the module's header).
    pub(super) fn in_order(&self, op: Op, layout: Layout) -> u64 {
        let zone = layout.zone;
        let one_each = self.media(1, zone) + self.bus(op, 1);
        if self.bus_longer(op, zone) == 0 {
            return self.media(layout.count, zone) + self.switches(layout) + one_each;
        }
        self.bus(op, layout.count)
            + self.behind(op, layout)
            + layout.zone_crossings * self.rotation
            + one_each
    }

    /// Time by which a whole track takes longer on the bus than under the head.
    fn bus_longer(&self, op: Op, zone: Zone) -> u64 {
        self.bus(op, zone.sectors_per_track)
            .saturating_sub(self.rotation)
    }

    /// A switch to the next head, rounded up to a sector.
    fn usual_switch(&self, zone: Zone) -> u64 {
        self.head_switch + self.media(1, zone)
    }

    /// Longest time by which the medium may be behind a slower bus, because of switches. The first switch may
    /// come at once, and to another cylinder; each later one comes after a track on which the bus loses. So
    /// the maximum is just after the first switch, after the last one to another cylinder, or after the last
    /// one.
    fn behind(&self, op: Op, layout: Layout) -> u64 {
        let (zone, switches) = (layout.zone, layout.tracks.saturating_sub(1));
        let longer = self.cylinder_switch - self.head_switch;
        let after = |switch: u64| {
            let taken = switch * self.usual_switch(zone) + switch.div_ceil(zone.heads) * longer;
            taken.saturating_sub(switch.saturating_sub(1) * self.bus_longer(op, zone))
        };
        let to_last_cylinder = switches.saturating_sub(1) / zone.heads * zone.heads + 1;
        let most = [1, to_last_cylinder, switches].map(after);
        if switches == 0 {
            0
        } else {
            most.into_iter().max().unwrap_or_default()
        }
    }

    /// Whole tracks into the buffer, and from there across the bus a track behind.
    fn track_by_track(&self, layout: Layout, place: Place) -> u64 {
        let Layout {
            zone,
            count,
            tracks,
            ..
        } = layout;
        let switches = self.switches(layout);
        let media = tracks * self.rotation + switches;
        let is_long = count > zone.sectors_per_track;
        let refill = if is_long && self.drains(layout, media, place) {
            self.rotation
        } else {
            0
        };
        let read = media + refill;
        let last_burst = self.bus(Op::Read, count.min(zone.sectors_per_track) + 1);
        // If the next tracks make up for switches, the bus may be the later one from any track on. Otherwise
        // it is later at the first one, or the data read is still later at the last.
        let behind = if self.bus_longer(Op::Read, zone) > self.usual_switch(zone) {
            self.behind(Op::Read, layout)
        } else if tracks > 1 {
            self.cylinder_switch + self.media(1, zone)
        } else {
            0
        };
        let begins_track = layout.begins_track && count >= zone.sectors_per_track;
        let first = if place == Place::Known && begins_track {
            // From the end of the first track on the bus is busy, but for what a cylinder takes longer than a head.
            self.rotation + layout.cylinder_crossings * (self.cylinder_switch - self.head_switch)
        } else {
            // A slower bus is busy from the second track at the latest.
            tracks.min(2) * self.rotation + behind + layout.zone_crossings * self.rotation
        };
        let caught_up = if is_long && behind >= self.rotation / 2 {
            self.rotation
        } else {
            0
        };
        let bus = first + caught_up + self.bus(Op::Read, count + tracks);
        self.media(1, zone) + bus.max(read + last_burst)
    }

    /// True if the buffer may run empty. For a known place, that needs a bus that makes up half of the
    /// rotation by which it is behind.
    fn drains(&self, layout: Layout, media: u64, place: Place) -> bool {
        let on_bus = self.bus(Op::Read, layout.tracks * layout.zone.sectors_per_track);
        place == Place::Anywhere || media.saturating_sub(on_bus) >= self.rotation / 2
    }
}

/// The time of a sector at this rate, rounded up.
fn sector_at(bytes_per_second: u64) -> u64 {
    (SECTOR_BYTES * NANOS_PER_SECOND).div_ceil(bytes_per_second)
}

/// The bends of the least concave curve that is nowhere below a bound of seeks.
fn concave_above(seek: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut above: Vec<(u64, u64)> = Vec::new();
    let beyond_none = seek.get(1).map(|&(_, bound)| (1, bound));
    let points = seek.iter().take(1).copied().chain(beyond_none);
    for point in points.chain(seek.iter().skip(1).copied()) {
        if above.last().is_some_and(|last| last.0 == point.0) {
            continue;
        }
        while let [.., first, middle] = above[..]
            && is_below(middle, first, point)
        {
            above.pop();
        }
        above.push(point);
    }
    above
}

/// True if a point lies on or below the chord between its neighbours.
fn is_below(point: (u64, u64), from: (u64, u64), to: (u64, u64)) -> bool {
    let rise = |a: (u64, u64), b: (u64, u64)| i128::from(b.1) - i128::from(a.1);
    let run = |a: (u64, u64), b: (u64, u64)| i128::from(b.0) - i128::from(a.0);
    rise(from, point) * run(from, to) <= rise(from, to) * run(from, point)
}

/// The zones of a drive, outermost first.
pub(super) fn zones(spec: &RotatingSpec) -> Vec<Zone> {
    let mut start = 0;
    let zones = spec.zones.iter().map(|zone| {
        let end = start + zone.cylinders * zone.heads * zone.sectors_per_track;
        let made = Zone {
            start,
            end,
            first_cylinder: zone.first_cylinder,
            sectors_per_track: zone.sectors_per_track,
            heads: zone.heads,
        };
        start = end;
        made
    });
    zones.collect()
}

/// A drive without zones is one zone.
pub(super) fn flat_zone(capacity: u64) -> Vec<Zone> {
    vec![Zone {
        start: 0,
        end: capacity,
        first_cylinder: 0,
        sectors_per_track: capacity,
        heads: 1,
    }]
}
