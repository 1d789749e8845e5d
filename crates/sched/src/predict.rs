//! The predictor: upper bounds of service times from a drive profile.
//!
//! # Problem
//!
//! Admission needs the longest that a request of some size can take anywhere in a range (C), and
//! best effort is let through on the longest that one request can take from where the head is now
//! (E). A guarantee rests on both, so neither may ever be too small; every microsecond by which they
//! are too large is disk time that nobody gets.
//!
//! # Model of a rotating drive
//!
//! ```text
//! E = overhead + seek(distance) + one rotation + transfer + what the drive's ways add
//! C = overhead + longest seek + one rotation + worst transfer in the slowest zone + retries
//! ```
//!
//! The transfer of n sectors in order takes `n m` on the media, `n b` on the bus, and S(k) for the
//! head and cylinder switches among the first k; tracks are skewed, so a switch costs its time
//! rounded up to a sector and no rotation, except into another zone. The two overlap: no sector leaves before it has come, so it
//! ends at the latest after `max over k of (k m + S(k) + (n - k) b)`, and a sector each. If the bus
//! is the faster of the two that is at k = n. Otherwise what is gained on a track covers
//! switches or not, and the maximum is after the first switch or after the last.
//!
//! A drive that reads whole tracks (`track_reads`) takes up to a rotation for each track it touches,
//! however little is wanted of it, and one more when its buffer has run empty and it falls back to
//! reading in order; the bus follows a track behind. One that writes tails
//! (`track_writes_tail`) takes up to a rotation more for a write over several tracks that ends within
//! one. A physical sector that is written in part is read first: another rotation.
//!
//! A flat drive takes `overhead + n / rate`, so E = C.
//!
//! Where the profile has measured worst-case times (thesis table 6.1), C is not less than those,
//! interpolated between block sizes. It may be more: the thesis took the "95th percentile or
//! higher", which no guarantee can rest on. [`Predictor::measured`] is the table alone, for
//! reproducing the papers.
//!
//! Deliberately absent: average service times, the angle of the platters (E allows for a whole
//! rotation), caches.
//!
//! References: thesis 4.3, 6.3.1, 6.5, 7.2.1; Ruemmler and Wilkes 1994 for what a disk model needs.

use crate::profile::{DriveProfile, FlatSpec, RotatingSpec, WorstCaseSpec};
use crate::request::Op;
use crate::units::{Bytes, BytesPerSecond, Nanos, SECTOR_BYTES, Sector, SectorCount};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Seconds of a stream in one block: more would make it wait too long for its first, and need more
/// memory than the disk time saved is worth.
const BLOCK_SECONDS_MAX: u64 = 4;
/// No block smaller than this is proposed: below, a disk does nothing but seek.
const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Extents between 1 MiB, the papers' size, and what a volume map of chunks can describe.
const EXTENT_BYTES: Range<u64> = 1 << 20..1 << 26;
/// "About 90 % transfer" (thesis 5.2.1), as the least share that the next smaller power of two would
/// not reach: the papers' own 1 MiB on the Atlas-II is 86 % in the fastest zone.
const EXTENT_TRANSFER_PERCENT: u64 = 85;
/// Entering and leaving a burst takes two long seeks and the rotations after them; a burst worth
/// leaving serves best effort for this many times as long.
const BURST_SWITCHES: u64 = 8;
/// A drive that reads whole tracks needs this many to get anything done in a piece.
const PIECE_TRACKS_MIN: u64 = 5;

/// Predicts service times on one drive; made once from its profile.
#[derive(Clone, Debug)]
pub struct Predictor {
    capacity: SectorCount,
    physical_sectors: u64,
    zones: Vec<Zone>,
    measured: Vec<Measured>,
    model: Model,
}

/// A zone: where it is and how long its sectors take.
#[derive(Clone, Copy, Debug)]
struct Zone {
    start: u64,
    end: u64,
    first_cylinder: u64,
    sectors_per_track: u64,
    heads: u64,
}

#[derive(Clone, Debug)]
enum Model {
    Rotating(Mechanics),
    Flat(FlatSpec),
}

#[derive(Clone, Debug)]
struct Mechanics {
    rotation: u64,
    overhead: u64,
    head_switch: u64,
    cylinder_switch: u64,
    write_settle: u64,
    /// What a sector takes on the bus.
    bus_sector: u64,
    retry: u64,
    track_reads: bool,
    track_writes_tail: bool,
    /// (distance, bound), ascending, from distance 0 to the full stroke.
    seek: Vec<(u64, u64)>,
}

/// A row of measured worst cases: (sectors, nanoseconds), ascending.
#[derive(Clone, Debug)]
struct Measured {
    zone: usize,
    points: Vec<(u64, u64)>,
}

/// How a transfer lies on the tracks.
#[derive(Clone, Copy)]
struct Layout {
    zone: Zone,
    count: u64,
    /// Tracks touched, at most.
    tracks: u64,
    /// Cylinder boundaries crossed, at most.
    cylinder_crossings: u64,
    /// Zone boundaries crossed, at most; tracks are not skewed over these.
    zone_crossings: u64,
}

/// A tebibyte. No drive is given more in one request, and times stay within 64 bits.
const COUNT_MAX: SectorCount = SectorCount(1 << 31);
/// The time of what is never given to a drive.
const FOREVER: Nanos = Nanos(u64::MAX / 4);
const NANOS_PER_MICRO: u64 = 1_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

impl Predictor {
    /// The predictor for drives of this profile.
    #[must_use]
    pub fn new(profile: &DriveProfile) -> Self {
        let spec = profile.spec();
        let (zones, model) = match (&spec.rotating, &spec.flat) {
            (Some(rotating), _) => (zones(rotating), Model::Rotating(Mechanics::new(rotating))),
            (None, Some(flat)) => (flat_zone(spec.capacity_sectors), Model::Flat(*flat)),
            (None, None) => unreachable!("a checked profile describes its drive"),
        };
        Self {
            capacity: profile.capacity(),
            physical_sectors: profile.physical_sector().get() / SECTOR_BYTES,
            zones,
            measured: spec.worst_case.iter().map(Measured::new).collect(),
            model,
        }
    }

    /// Addressable sectors.
    #[must_use]
    pub fn capacity(&self) -> SectorCount {
        self.capacity
    }

    /// E: the longest that a request takes when it starts with the head where `head` says;
    /// `None`: anywhere. The head is said to be at the last sector transferred.
    #[must_use]
    pub fn predict(
        &self,
        head: Option<Sector>,
        op: Op,
        start: Sector,
        count: SectorCount,
    ) -> Nanos {
        let mechanics = match &self.model {
            Model::Flat(flat) => return flat_time(flat, op, count),
            Model::Rotating(mechanics) => mechanics,
        };
        if count > COUNT_MAX {
            return FOREVER;
        }
        let zone = self.zone(start.get());
        let layout = self.layout(zone, start.get(), count.get());
        let seek = match head {
            None => mechanics.seek_max(),
            Some(head) => {
                let from = self.zone(head.get()).cylinder(head.get());
                mechanics.seek(from.abs_diff(zone.cylinder(start.get())))
            }
        };
        Nanos(
            seek + mechanics.after_seek(op, layout)
                + self.partial_write(mechanics, op, start, count),
        )
    }

    /// C: the longest that a request of `count` sectors anywhere within `range` takes, from wherever
    /// the head is, retries included as the profile's policy says. It is assumed to begin and end on
    /// whole physical sectors if `range` and `count` do.
    #[must_use]
    pub fn worst_case(&self, range: Range<Sector>, op: Op, count: SectorCount) -> Nanos {
        let mechanics = match &self.model {
            Model::Flat(flat) => {
                let table = self.measured(0, count).unwrap_or_default();
                return flat_time(flat, op, count).max(table);
            }
            Model::Rotating(mechanics) => mechanics,
        };
        if count > COUNT_MAX {
            return FOREVER;
        }
        let last = range.end.get().saturating_sub(1).max(range.start.get());
        let (first, last) = (self.zone_of(range.start), self.zone_of(Sector(last)));
        let boundaries = self.boundaries(count).min(last - first);
        let slowest = (first..=last)
            .map(|zone| {
                let bound = self.anywhere(mechanics, zone, boundaries, op, count);
                bound.max(self.measured(zone, count).unwrap_or_default())
            })
            .max();
        let slowest = slowest.unwrap_or_default();
        slowest
            + Nanos(mechanics.retry)
            + Nanos(self.partial_write(mechanics, op, range.start, count))
    }

    /// The measured worst case of a request of `count` sectors in a zone, interpolated between block
    /// sizes, without retries: the papers' C. `None` where nothing that large has been measured.
    #[must_use]
    pub fn measured(&self, zone: usize, count: SectorCount) -> Option<Nanos> {
        self.measured
            .iter()
            .find(|row| row.zone == zone)?
            .at(count.get())
    }

    /// The cylinder a sector lies on; 0 where there are none.
    #[must_use]
    pub fn cylinder(&self, sector: Sector) -> u64 {
        match self.model {
            Model::Rotating(_) => self.zone(sector.get()).cylinder(sector.get()),
            Model::Flat(_) => 0,
        }
    }

    /// How many zones there are; 1 for drives without.
    #[must_use]
    pub fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// The zone a sector lies in; that of the last sector for one past the end.
    #[must_use]
    pub fn zone_of(&self, sector: Sector) -> usize {
        let index = self.zones.partition_point(|zone| zone.end <= sector.get());
        index.min(self.zones.len() - 1)
    }

    /// The sectors of a zone, `None` if there is no such zone.
    #[must_use]
    pub fn zone_range(&self, zone: usize) -> Option<Range<Sector>> {
        let zone = self.zones.get(zone)?;
        let end = zone.end.min(self.capacity.get());
        Some(Sector(zone.start.min(end))..Sector(end))
    }

    /// The extent size for this drive: the smallest power of two whose access is about 90 % transfer
    /// where transfer is fastest, after a seek over a third of the stroke and half a rotation.
    #[must_use]
    pub fn extent_bytes(&self) -> Bytes {
        let mut bytes = EXTENT_BYTES.start;
        while bytes < EXTENT_BYTES.end {
            let (positioning, transfer) = self.usual(Bytes(bytes));
            if transfer * 100 >= (positioning + transfer) * EXTENT_TRANSFER_PERCENT {
                break;
            }
            bytes *= 2;
        }
        Bytes(bytes)
    }

    /// A block size to propose for a stream: a power of two, at most the extent size, at most what a
    /// few seconds of it are, and two of them within `memory_max`; but at least 64 KiB.
    #[must_use]
    pub fn block_bytes(&self, rate: BytesPerSecond, memory_max: Bytes) -> Bytes {
        let seconds = rate.get().saturating_mul(BLOCK_SECONDS_MAX);
        let most = self
            .extent_bytes()
            .get()
            .min(seconds)
            .min(memory_max.get() / 2);
        let most = most.max(BLOCK_BYTES_MIN);
        Bytes(1 << most.ilog2())
    }

    /// The longest that a piece of a best-effort request may be predicted to take: so long that even
    /// after the longest way to it about half of it is transfer.
    #[must_use]
    pub fn piece_limit(&self) -> Nanos {
        let positioning = self.positioning_max();
        let transfer = match &self.model {
            Model::Rotating(mechanics) => positioning.max(mechanics.rotation * PIECE_TRACKS_MIN),
            Model::Flat(_) => positioning,
        };
        Nanos(positioning + transfer)
    }

    /// The most sectors of a piece that lies within `zone` and is predicted to take no longer than
    /// `limit` from wherever the head is; whole physical sectors, and at least one of them.
    #[must_use]
    pub fn piece_sectors(&self, zone: usize, limit: Nanos) -> SectorCount {
        let unit = self.physical_sectors;
        let fits = |units: u64| {
            let count = SectorCount(units * unit);
            [Op::Read, Op::Write]
                .into_iter()
                .all(|op| self.piece_worst(zone, op, count) <= limit)
        };
        let (mut fitting, mut too_many) = (1, 2);
        while fits(too_many) && too_many * unit < self.capacity.get() {
            (fitting, too_many) = (too_many, too_many * 2);
        }
        while fitting + 1 < too_many {
            let middle = fitting.midpoint(too_many);
            if fits(middle) {
                fitting = middle
            } else {
                too_many = middle
            }
        }
        SectorCount(fitting * unit)
    }

    /// The longest prediction for a piece of [`Predictor::piece_sectors`] in any zone.
    #[must_use]
    pub fn piece_max(&self, limit: Nanos) -> Nanos {
        let worst = |zone| {
            let count = self.piece_sectors(zone, limit);
            let partial = match &self.model {
                Model::Rotating(mechanics) if self.physical_sectors > 1 => mechanics.rotation,
                _ => 0,
            };
            [Op::Read, Op::Write]
                .map(|op| self.piece_worst(zone, op, count) + Nanos(partial))
                .into_iter()
                .max()
        };
        (0..self.zones.len())
            .filter_map(worst)
            .max()
            .unwrap_or_default()
    }

    /// The slack at which it is worth leaving a real-time burst: a multiple of the two long seeks, and
    /// the rotations after them, that leaving and entering again cost.
    #[must_use]
    pub fn burst_threshold(&self) -> Nanos {
        let switch = match &self.model {
            Model::Rotating(mechanics) => mechanics.seek_max() + mechanics.rotation,
            Model::Flat(flat) => {
                flat.read_overhead_us.max(flat.write_overhead_us) * NANOS_PER_MICRO
            }
        };
        Nanos(2 * switch * BURST_SWITCHES)
    }

    fn zone(&self, sector: u64) -> Zone {
        self.zones[self.zone_of(Sector(sector))]
    }

    fn layout(&self, zone: Zone, start: u64, count: u64) -> Layout {
        let end = start.saturating_add(count);
        if end > zone.end && self.zones.len() > 1 {
            // Over several zones: as slow as the innermost, and a boundary more for each.
            let last = self.zone_of(Sector(end - 1));
            let boundaries = last - self.zone_of(Sector(start));
            return Layout::anywhere(self.zones[last], count).over(boundaries);
        }
        let into_track = (start - zone.start) % zone.sectors_per_track;
        let tracks = (into_track + count).div_ceil(zone.sectors_per_track);
        let cylinder_crossings = tracks.saturating_sub(1).div_ceil(zone.heads);
        Layout {
            zone,
            count,
            tracks,
            cylinder_crossings,
            zone_crossings: 0,
        }
    }

    /// A request as slow as those in this zone that may reach over some zone boundaries.
    fn anywhere(
        &self,
        mechanics: &Mechanics,
        zone: usize,
        boundaries: usize,
        op: Op,
        count: SectorCount,
    ) -> Nanos {
        let layout = Layout::anywhere(self.zones[zone], count.get()).over(boundaries);
        Nanos(mechanics.seek_max() + mechanics.after_seek(op, layout))
    }

    /// How many zone boundaries a request of this size can reach over.
    fn boundaries(&self, count: SectorCount) -> usize {
        let smallest = self
            .zones
            .iter()
            .map(|zone| zone.end - zone.start)
            .min()
            .unwrap_or(1);
        let over = 1 + count.get() / smallest;
        usize::try_from(over)
            .unwrap_or(usize::MAX)
            .min(self.zones.len() - 1)
    }

    /// The longest a piece within this zone takes.
    fn piece_worst(&self, zone: usize, op: Op, count: SectorCount) -> Nanos {
        match &self.model {
            Model::Flat(flat) => flat_time(flat, op, count),
            Model::Rotating(_) if count > COUNT_MAX => FOREVER,
            Model::Rotating(mechanics) => self.anywhere(mechanics, zone, 0, op, count),
        }
    }

    fn partial_write(
        &self,
        mechanics: &Mechanics,
        op: Op,
        start: Sector,
        count: SectorCount,
    ) -> u64 {
        let whole = (start.get() | count.get()).is_multiple_of(self.physical_sectors);
        if op == Op::Read || whole {
            0
        } else {
            mechanics.rotation
        }
    }

    fn positioning_max(&self) -> u64 {
        match &self.model {
            Model::Rotating(mechanics) => {
                mechanics.overhead
                    + mechanics.seek_max()
                    + mechanics.write_settle
                    + mechanics.rotation
            }
            Model::Flat(flat) => {
                flat.read_overhead_us.max(flat.write_overhead_us) * NANOS_PER_MICRO
            }
        }
    }

    /// The usual positioning and transfer times of a whole block in the fastest zone, reading.
    fn usual(&self, bytes: Bytes) -> (u64, u64) {
        let count = bytes.get() / SECTOR_BYTES;
        match &self.model {
            Model::Rotating(mechanics) => {
                let cylinders = mechanics.seek.last().map_or(0, |last| last.0);
                let seek = mechanics.seek(cylinders / 3);
                let positioning = mechanics.overhead + seek + mechanics.rotation / 2;
                (
                    positioning,
                    mechanics.in_order(Layout::anywhere(self.zones[0], count)),
                )
            }
            Model::Flat(flat) => {
                let overhead = flat.read_overhead_us * NANOS_PER_MICRO;
                let whole = flat_time(flat, Op::Read, SectorCount(count)).get();
                (overhead, whole - overhead)
            }
        }
    }
}

impl Zone {
    fn cylinder(self, sector: u64) -> u64 {
        let within = sector.min(self.end - 1) - self.start;
        self.first_cylinder + within / (self.sectors_per_track * self.heads)
    }
}

impl Layout {
    /// The most tracks and cylinders that `count` sectors can touch, wherever they begin.
    fn anywhere(zone: Zone, count: u64) -> Self {
        let crossings = count.saturating_sub(1).div_ceil(zone.sectors_per_track);
        let cylinder_crossings = crossings.div_ceil(zone.heads);
        Self {
            zone,
            count,
            tracks: crossings + 1,
            cylinder_crossings,
            zone_crossings: 0,
        }
    }

    /// The same over some zone boundaries, each of which ends a track and a cylinder early.
    fn over(mut self, boundaries: usize) -> Self {
        let boundaries = boundaries as u64;
        self.tracks += boundaries;
        self.cylinder_crossings += boundaries;
        self.zone_crossings += boundaries;
        self
    }
}

impl Mechanics {
    fn new(spec: &RotatingSpec) -> Self {
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
            bus_sector: (SECTOR_BYTES * NANOS_PER_SECOND).div_ceil(spec.bus_bytes_per_second),
            retry: spec.retry_rotations * rotation,
            track_reads: spec.track_reads,
            track_writes_tail: spec.track_writes_tail,
            seek,
        }
    }

    fn seek_max(&self) -> u64 {
        self.seek.last().map_or(0, |last| last.1)
    }

    /// The bound for a distance: between two points as the chord has it.
    fn seek(&self, distance: u64) -> u64 {
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

    /// Everything but the seek.
    fn after_seek(&self, op: Op, layout: Layout) -> u64 {
        let transfer = match op {
            Op::Read if self.track_reads => self.track_by_track(layout),
            Op::Read => self.rotation + self.in_order(layout),
            Op::Write => {
                let tail = self.track_writes_tail && layout.tracks > 1;
                let tail = if tail { self.rotation } else { 0 };
                self.write_settle + self.rotation + self.in_order(layout) + tail
            }
        };
        self.overhead + transfer
    }

    fn bus(&self, sectors: u64) -> u64 {
        sectors * self.bus_sector
    }

    fn media(&self, sectors: u64, zone: Zone) -> u64 {
        (sectors * self.rotation).div_ceil(zone.sectors_per_track)
    }

    /// The switches of a transfer, each rounded up to a sector.
    fn switches(&self, layout: Layout) -> u64 {
        let crossings = layout.tracks.saturating_sub(1);
        let longer = self.cylinder_switch - self.head_switch;
        crossings * (self.head_switch + self.media(1, layout.zone))
            + layout.cylinder_crossings * longer
            + layout.zone_crossings * self.rotation
    }

    /// From the first sector's passing until the last is across, in order (see the module's header).
    fn in_order(&self, layout: Layout) -> u64 {
        let zone = layout.zone;
        let (media, bus) = (self.media(layout.count, zone), self.bus(layout.count));
        let one_each = self.media(1, zone) + self.bus(1);
        let switches = self.switches(layout);
        if bus <= media {
            return media + switches + one_each;
        }
        // A switch may come at once; each later one comes after a track on which the bus loses.
        let crossings = layout.tracks.saturating_sub(1);
        let first = if crossings == 0 {
            0
        } else {
            self.cylinder_switch + self.media(1, zone)
        };
        let first = first + layout.zone_crossings * self.rotation;
        let per_track = self
            .bus(zone.sectors_per_track)
            .saturating_sub(self.rotation);
        let lost = per_track * crossings.saturating_sub(1);
        bus + first.max(switches.saturating_sub(lost)) + one_each
    }

    /// Whole tracks into the buffer, and from there across the bus a track behind.
    fn track_by_track(&self, layout: Layout) -> u64 {
        let Layout {
            zone,
            count,
            tracks,
            ..
        } = layout;
        let refill = if count > zone.sectors_per_track {
            self.rotation
        } else {
            0
        };
        let switches = self.switches(layout);
        let read = tracks * self.rotation + refill + switches;
        let last_burst = self.bus(count.min(zone.sectors_per_track) + 1);
        // Where the bus is the slower one it is busy from the second track at the latest.
        let switch = if tracks > 1 {
            self.cylinder_switch + self.media(1, zone)
        } else {
            0
        };
        let switch = switch + layout.zone_crossings * self.rotation;
        let first = tracks.min(2) * self.rotation + switch;
        let bus = first + self.bus(count + tracks);
        self.media(1, zone) + bus.max(read + last_burst)
    }
}

impl Measured {
    fn new(row: &WorstCaseSpec) -> Self {
        let points = row.bytes.iter().zip(&row.service_us);
        Self {
            zone: usize::try_from(row.zone).unwrap_or(usize::MAX),
            points: points
                .map(|(bytes, us)| (bytes / SECTOR_BYTES, us * NANOS_PER_MICRO))
                .collect(),
        }
    }

    fn at(&self, count: u64) -> Option<Nanos> {
        let index = self.points.partition_point(|point| point.0 < count);
        let &(to, above) = self.points.get(index)?;
        let Some(&(from, below)) = index.checked_sub(1).map(|before| &self.points[before]) else {
            return Some(Nanos(above));
        };
        Some(Nanos(
            below + ((above - below) * (count - from)).div_ceil(to - from),
        ))
    }
}

fn zones(spec: &RotatingSpec) -> Vec<Zone> {
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
fn flat_zone(capacity: u64) -> Vec<Zone> {
    vec![Zone {
        start: 0,
        end: capacity,
        first_cylinder: 0,
        sectors_per_track: capacity,
        heads: 1,
    }]
}

fn flat_time(flat: &FlatSpec, op: Op, count: SectorCount) -> Nanos {
    let (overhead_us, rate) = match op {
        Op::Read => (flat.read_overhead_us, flat.read_bytes_per_second),
        Op::Write => (flat.write_overhead_us, flat.write_bytes_per_second),
    };
    let nanos = u128::from(count.get()) * u128::from(SECTOR_BYTES * NANOS_PER_SECOND);
    let transfer = u64::try_from(nanos.div_ceil(u128::from(rate))).unwrap_or(u64::MAX / 2);
    Nanos(overhead_us * NANOS_PER_MICRO + transfer)
}

#[cfg(test)]
mod tests;
