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
//! The transfer of n sectors in order takes `n m` on the media, `n b` on the bus, and S(k) for the head and
//! cylinder switches among the first k; tracks are skewed, so a switch costs its time rounded up to a sector
//! and no rotation, except into another zone. The two overlap: no sector leaves before it has come, so it
//! ends at the latest after `max over k of (k m + S(k) + (n - k) b)`, and a sector each. If the bus is the
//! faster of the two that is at k = n. Otherwise the bus loses on each track, and what it loses on the tracks
//! of a cylinder covers their switches or not: the maximum is after the first switch, after the last to
//! another cylinder, or after the last.
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
//! If measured requests exceeded these bounds, the profile has been widened: E and C both grow by that
//! percentage. On a link that other disks share, both grow by what these may delay the transfer ([`crate::link`]).
//!
//! Deliberately absent: average service times, the angle of the platters (E allows for a whole
//! rotation), caches.
//!
//! References: thesis 4.3, 6.3.1, 6.5, 7.2.1; Ruemmler and Wilkes 1994 on disk models.

mod measured;
mod mechanics;
mod proposals;
mod sweep;
mod tracks;

use crate::link::{LinkDrive, LinkShare};
use crate::profile::{DriveProfile, FlatSpec};
use crate::request::Op;
use crate::units::{Nanos, SECTOR_BYTES, Sector, SectorCount};
use alloc::vec::Vec;
use core::ops::Range;
use measured::Measured;
use mechanics::{Layout, Mechanics, Place, Zone, flat_zone, zones};

/// Predicts service times on one drive; made once from its profile.
#[derive(Clone, Debug)]
pub struct Predictor {
    capacity: SectorCount,
    physical_sectors: u64,
    zones: Vec<Zone>,
    measured: Vec<Measured>,
    trusts_measured: bool,
    model: Model,
    /// Percentage added to all modelled times.
    widened_percent: u64,
    /// The share of a link that the drive has, and its own part in the delays there.
    link: Option<(LinkShare, LinkDrive)>,
    /// No prediction is shorter.
    shortest: Nanos,
}

#[derive(Clone, Debug)]
enum Model {
    Rotating(Mechanics),
    Flat(FlatSpec),
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
        let widened_percent = spec.widened_percent;
        Self {
            capacity: profile.capacity(),
            physical_sectors: profile.physical_sector().get() / SECTOR_BYTES,
            shortest: widened(shortest(&zones, &model), widened_percent),
            zones,
            measured: spec.worst_case.iter().map(Measured::new).collect(),
            trusts_measured: spec.trust_worst_case,
            link: profile.link().map(|link| (link, link_drive(profile))),
            model,
            widened_percent,
        }
    }

    /// A time below every prediction: what cannot wait so long need not be asked about.
    #[must_use]
    pub fn shortest(&self) -> Nanos {
        self.shortest
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
        let alone = widened(self.modelled(head, op, start, count), self.widened_percent);
        self.on_link(alone, op, count)
    }

    fn modelled(&self, head: Option<Sector>, op: Op, start: Sector, count: SectorCount) -> Nanos {
        let mechanics = match &self.model {
            Model::Flat(flat) => return flat_time(flat, op, count),
            Model::Rotating(mechanics) => mechanics,
        };
        if count > COUNT_MAX {
            return FOREVER;
        }
        let zone = self.zone(start.get());
        let layout = self.layout(mechanics, zone, start.get(), count.get());
        let seek = match head {
            None => mechanics.seek_max(),
            Some(head) => {
                let from = self.zone(head.get()).cylinder(head.get());
                mechanics.seek(from.abs_diff(zone.cylinder(start.get())))
            }
        };
        Nanos(
            seek + mechanics.after_seek(op, layout, Place::Anywhere)
                + self.partial_write(mechanics, op, start, count),
        )
    }

    /// C: the longest that a request of `count` sectors anywhere within `range` takes, from wherever
    /// the head is, retries included as the profile's policy says. It is assumed to begin and end on
    /// whole physical sectors if `range` and `count` do.
    #[must_use]
    pub fn worst_case(&self, range: Range<Sector>, op: Op, count: SectorCount) -> Nanos {
        let alone = widened(self.worst_modelled(range, op, count), self.widened_percent);
        self.on_link(alone, op, count)
    }

    /// The time of a transfer that other disks of the link may delay.
    fn on_link(&self, alone: Nanos, op: Op, count: SectorCount) -> Nanos {
        let Some((link, drive)) = self.link else {
            return alone;
        };
        let bytes = count.bytes().get();
        let delay = match op {
            Op::Read => link.delay(bytes, drive),
            Op::Write => link.write_delay(bytes, drive),
        };
        alone.saturating_add(delay).min(FOREVER)
    }

    fn worst_modelled(&self, range: Range<Sector>, op: Op, count: SectorCount) -> Nanos {
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
                // A request that ends in this zone may have begun so many further out.
                let slowest = self.slowest(first.max(zone.saturating_sub(boundaries)), zone);
                let measured = self.measured(zone, count);
                if let Some(measured) = measured.filter(|_| self.trusts_measured) {
                    return measured;
                }
                let bound = self.anywhere(mechanics, slowest, boundaries, op, count);
                bound.max(measured.unwrap_or_default())
            })
            .max();
        let slowest = slowest.unwrap_or_default();
        slowest
            + Nanos(mechanics.retry)
            + Nanos(self.partial_write(mechanics, op, range.start, count))
    }

    /// C where all requests of streams lie `within` these sectors: the longest that this one takes from wherever
    /// the head is there, retries included as the profile's policy says. Wherever else the head is, it takes
    /// [`Predictor::way_back`] longer.
    #[must_use]
    pub fn worst_within(
        &self,
        within: &Range<Sector>,
        op: Op,
        start: Sector,
        count: SectorCount,
    ) -> Nanos {
        let mechanics = match &self.model {
            Model::Flat(_) => return self.worst_case(start..start + count, op, count),
            Model::Rotating(mechanics) => mechanics,
        };
        if count > COUNT_MAX {
            return FOREVER;
        }
        let seek = mechanics.seek(self.span(within));
        let modelled = self.known_after_seek(mechanics, op, start, count, seek);
        self.on_link(widened(Nanos(modelled), self.widened_percent), op, count)
    }

    /// A request whose place is known, from a seek of that time on, retries included.
    fn known_after_seek(
        &self,
        mechanics: &Mechanics,
        op: Op,
        start: Sector,
        count: SectorCount,
        seek: u64,
    ) -> u64 {
        let zone = self.zone(start.get());
        let layout = self.layout(mechanics, zone, start.get(), count.get());
        let bound = seek + mechanics.after_seek(op, layout, Place::Known);
        // The table's times are with the longest seek of all.
        let measured = self
            .measured(self.zone_of(start), count)
            .unwrap_or_default();
        let measured = (measured.get() + seek).saturating_sub(mechanics.seek_max());
        bound.max(measured) + mechanics.retry + self.partial_write(mechanics, op, start, count)
    }

    /// Time by which a request within these sectors exceeds [`Predictor::worst_within`] from the present head
    /// position. `None`: the head is at an unknown place, which gives the largest value. Zero within the
    /// sectors.
    #[must_use]
    pub fn way_back(&self, within: &Range<Sector>, head: Option<Sector>) -> Nanos {
        let Model::Rotating(mechanics) = &self.model else {
            return Nanos::ZERO;
        };
        let from_here = match head {
            None => mechanics.seek_max(),
            Some(head) => {
                let here = self.cylinder(head);
                let (first, last) = self.cylinders(within);
                mechanics.seek(here.abs_diff(first).max(here.abs_diff(last)))
            }
        };
        let longer = from_here.saturating_sub(mechanics.seek(self.span(within)));
        widened(Nanos(longer), self.widened_percent)
    }

    /// The first cylinder of these sectors and the last.
    fn cylinders(&self, of: &Range<Sector>) -> (u64, u64) {
        let last = of.end.get().saturating_sub(1).max(of.start.get());
        (self.cylinder(of.start), self.cylinder(Sector(last)))
    }

    fn span(&self, of: &Range<Sector>) -> u64 {
        let (first, last) = self.cylinders(of);
        last - first
    }

    /// The sectors of the track that a sector lies on; `None` where tracks are not known.
    #[must_use]
    pub fn track(&self, sector: Sector) -> Option<Range<Sector>> {
        let Model::Rotating(Mechanics {
            exact_tracks: true, ..
        }) = self.model
        else {
            return None;
        };
        let zone = self.zone(sector.get());
        let into_track = (sector.get() - zone.start) % zone.sectors_per_track;
        let start = Sector(sector.get() - into_track);
        Some(start..start + SectorCount(zone.sectors_per_track))
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

    /// Number of zones; 1 for drives without.
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

    fn zone(&self, sector: u64) -> Zone {
        self.zones[self.zone_of(Sector(sector))]
    }

    fn layout(&self, mechanics: &Mechanics, zone: Zone, start: u64, count: u64) -> Layout {
        let end = start.saturating_add(count);
        if end > zone.end && self.zones.len() > 1 {
            // Over several zones: as slow as the innermost, and a boundary more for each.
            let (first, last) = (self.zone_of(Sector(start)), self.zone_of(Sector(end - 1)));
            return Layout::anywhere(self.slowest(first, last), count).over(last - first);
        }
        if !mechanics.exact_tracks {
            return Layout::anywhere(zone, count);
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
            begins_track: into_track == 0,
        }
    }

    /// A request as slow as those in this zone that may reach over some zone boundaries.
    fn anywhere(
        &self,
        mechanics: &Mechanics,
        zone: Zone,
        boundaries: usize,
        op: Op,
        count: SectorCount,
    ) -> Nanos {
        let layout = Layout::anywhere(zone, count.get()).over(boundaries);
        Nanos(mechanics.seek_max() + mechanics.after_seek(op, layout, Place::Anywhere))
    }

    /// A zone that is not faster than any of these: tracks as short as those of the last, and no more
    /// heads than any of them has before it needs another cylinder.
    fn slowest(&self, first: usize, last: usize) -> Zone {
        let heads = self.zones[first..=last].iter().map(|zone| zone.heads);
        let mut slowest = self.zones[last];
        slowest.heads = heads.min().unwrap_or(slowest.heads);
        slowest
    }

    /// Number of zone boundaries that a request of this size can reach over.
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
}

fn link_drive(profile: &DriveProfile) -> LinkDrive {
    let rotating = profile.spec().rotating.as_ref();
    let track_sectors = rotating
        .filter(|rotating| rotating.track_reads)
        .and_then(|rotating| {
            rotating
                .zones
                .iter()
                .map(|zone| zone.sectors_per_track)
                .max()
        });
    LinkDrive {
        rate: profile.fastest(),
        at_once_bytes: track_sectors.unwrap_or(0) * SECTOR_BYTES,
        rotation: Nanos::from_micros(rotating.map_or(0, |rotating| rotating.rotation_us)),
    }
}

/// The time with `percent` added, up to the longest time that a drive is ever given.
fn widened(time: Nanos, percent: u64) -> Nanos {
    if percent == 0 {
        return time.min(FOREVER);
    }
    let wider = u128::from(time.0) * u128::from(100 + percent);
    Nanos(u64::try_from(wider.div_ceil(100)).map_or(FOREVER.0, |wider| wider.min(FOREVER.0)))
}

/// A sector where the head is, in the zone and direction that takes the least.
fn shortest(zones: &[Zone], model: &Model) -> Nanos {
    let of = |zone: &Zone, op| match model {
        Model::Flat(flat) => flat_time(flat, op, SectorCount(1)),
        Model::Rotating(mechanics) => {
            let layout = Layout::anywhere(*zone, 1);
            Nanos(
                mechanics.seek(0).min(mechanics.seek(1))
                    + mechanics.after_seek(op, layout, Place::Anywhere),
            )
        }
    };
    let times = zones
        .iter()
        .flat_map(|zone| [Op::Read, Op::Write].map(|op| of(zone, op)));
    times.min().unwrap_or_default()
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
