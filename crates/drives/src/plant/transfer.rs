//! From the arrival of the head on the first track to the completion of the request.
//!
//! # Reading with a track buffer (thesis 4.3.4)
//!
//! The drive reads each track of the request from wherever the head comes down, so a whole track
//! takes one rotation from any angle. Data crosses the bus in logical order. The first burst of a
//! request of up to about a track begins when half the track and the first sector are in the
//! buffer; that of a longer one when nearly all of its first track is, and from then on the bus moves
//! one track while the next is read. Where a track takes the bus less time than the media, the
//! buffer drains, and then the drive waits for the first sector of the track and goes on in order. The
//! thesis saw this "between two and three track transfers" in the inner zones and after "an entire
//! cylinder" (ten tracks) in zone 4: after as many tracks as it takes the bus to make up the
//! rotation it began with, which is 2.3 in zone 11 and 9 in zone 4.
//!
//! # Reading as a stream
//!
//! Wait for the first sector, read in order, send as it comes.
//!
//! # Writing (thesis 4.3.5, 7.2.3)
//!
//! Data crosses the bus while the arm moves. A track is begun at the passing of its first sector,
//! as soon as the data will arrive in time to go through without stopping. A bus that is slower than
//! the media therefore loses a rotation now and then, which is why writing a megabyte to the
//! Atlas-II's zone 0 was measured at 111-120 ms over Fast SCSI-2 and one rotation less over a faster bus.
//! The last track of a long write takes the Atlas-II a whole rotation even if only one sector of it is
//! written ("complete in exactly the same time as the nearest larger whole-track size request").
//! A drive whose physical sectors hold several logical ones reads one that is written in part
//! before it writes it, which takes a rotation.

use sched::request::Op;
use sched::units::{Nanos, SectorCount, Time};

use super::geometry::{Geometry, Place, Run, Track};
use super::spec::{PlantSpec, ReadPolicy};
use super::{Luck, share};

/// Result of a transfer.
pub(crate) struct Moved {
    /// When the first sector in time, not necessarily in number, began to pass.
    pub(crate) started: Time,
    pub(crate) completed: Time,
    /// The track on which the head is left.
    pub(crate) last: Track,
}

/// Passage of a run under the head.
struct Passed {
    started: Time,
    ended: Time,
    /// Sectors from this one to the end of the run passed first, the others after it; 0 sectors
    /// when the run was read in order.
    ahead: u64,
    /// When the run's first sector had passed.
    first_sector: Time,
    /// When the others began, if any were read ahead.
    wrapped: Time,
}

fn in_order(geometry: &Geometry, run: Run, at: Time) -> Passed {
    let started = geometry.passes(run.track, run.index, at);
    Passed {
        started,
        ended: started + geometry.passing(run.track, run.count),
        ahead: 0,
        first_sector: started + geometry.passing(run.track, 1),
        wrapped: started,
    }
}

fn from_anywhere(geometry: &Geometry, run: Run, at: Time) -> Passed {
    let (index, boundary) = geometry.next_boundary(run.track, at);
    let end = run.index + run.count;
    if index <= run.index || index >= end {
        return in_order(geometry, run, boundary);
    }
    let ahead = end - index;
    let wrapped = geometry.passes(
        run.track,
        run.index,
        boundary + geometry.passing(run.track, ahead),
    );
    Passed {
        started: boundary,
        ended: wrapped + geometry.passing(run.track, run.count - ahead),
        ahead,
        first_sector: wrapped + geometry.passing(run.track, 1),
        wrapped,
    }
}

impl Passed {
    /// When `count` sectors of the run are in the buffer.
    fn buffered(&self, geometry: &Geometry, track: Track, count: u64) -> Time {
        if count <= self.ahead {
            self.started + geometry.passing(track, count)
        } else {
            self.wrapped + geometry.passing(track, count - self.ahead)
        }
    }
}

/// Reads `count` sectors from `first` on; the head is there at `there`.
pub(crate) fn read(
    spec: &PlantSpec,
    geometry: &Geometry,
    first: Place,
    count: SectorCount,
    there: Time,
    luck: Luck,
) -> Moved {
    match spec.read_policy() {
        ReadPolicy::Streaming {} => read_streaming(spec, geometry, first, count.get(), there),
        ReadPolicy::TrackBuffer {
            zero_latency_track_percent_max,
            first_burst_track_percent,
            long_burst_track_percent,
            burst_delay_us_max,
        } => {
            let spt = geometry.sectors_per_track(first.track);
            let delayed = count.get() * 2 >= spt;
            let delay = Nanos::from_micros(if delayed { burst_delay_us_max } else { 0 });
            let buffer = Buffer {
                geometry,
                bus_sector: spec.bus_sector(Op::Read),
                head_switch: spec.head_switch(),
            };
            if count.get() * 100 <= spt * zero_latency_track_percent_max {
                let needed = (spt * first_burst_track_percent)
                    .div_ceil(100)
                    .min(count.get());
                let delay = Nanos(share(delay.get(), luck.transfer));
                buffer.read_short(first, count.get(), there, needed, delay)
            } else {
                buffer.read_long(first, count.get(), there, long_burst_track_percent)
            }
        }
    }
}

fn read_streaming(
    spec: &PlantSpec,
    geometry: &Geometry,
    first: Place,
    count: u64,
    there: Time,
) -> Moved {
    let bus_sector = spec.bus_sector(Op::Read);
    let mut started = None;
    let (mut head_free, mut bus_free) = (there, there);
    let mut last = first.track;
    for (run, switch) in geometry.runs(first, count) {
        let passed = in_order(geometry, run, head_free + switch);
        started.get_or_insert(passed.started);
        bus_free = (bus_free.max(passed.first_sector) + bus_sector * run.count)
            .max(passed.ended + bus_sector);
        head_free = passed.ended;
        last = run.track;
    }
    Moved {
        started: started.unwrap_or(there),
        completed: bus_free,
        last,
    }
}

/// Reading by way of a track buffer.
struct Buffer<'a> {
    geometry: &'a Geometry,
    bus_sector: Nanos,
    head_switch: Nanos,
}

impl Buffer<'_> {
    /// When the bus has moved a run that it may begin with at `begins`: it runs at its own rate, but
    /// no sector leaves before it has come, and those read ahead leave after the others.
    fn moved(&self, begins: Time, run: Run, passed: &Passed) -> Time {
        (begins + self.bus_sector * run.count)
            .max(passed.ended + self.bus_sector * (1 + passed.ahead))
    }

    /// Up to about a track: one burst that begins when the first sector and `needed` sectors
    /// altogether are in the buffer, and `delay` after that.
    fn read_short(
        &self,
        first: Place,
        count: u64,
        there: Time,
        needed: u64,
        delay: Nanos,
    ) -> Moved {
        let mut started = None;
        let mut head_free = there;
        let mut first_sector = there;
        let (mut bus_free, mut buffered) = (None, 0);
        let mut last = first.track;
        for (run, switch) in self.geometry.runs(first, count) {
            let passed = from_anywhere(self.geometry, run, head_free + switch);
            if started.is_none() {
                started = Some(passed.started);
                first_sector = passed.first_sector;
            }
            bus_free = match bus_free {
                Some(free) => Some(self.moved(free, run, &passed)),
                None if buffered + run.count < needed => None,
                None => {
                    let enough = passed.buffered(self.geometry, run.track, needed - buffered);
                    let begins = first_sector.max(enough) + delay;
                    Some(self.moved(begins + self.bus_sector * buffered, run, &passed))
                }
            };
            buffered += run.count;
            head_free = passed.ended;
            last = run.track;
        }
        let completed = bus_free.unwrap_or(head_free);
        Moved {
            started: started.unwrap_or(there),
            completed,
            last,
        }
    }

    /// Several tracks: a burst for each, that begins when its first sector and `percent` of it are
    /// in the buffer.
    fn read_long(&self, first: Place, count: u64, there: Time, percent: u64) -> Moved {
        let geometry = self.geometry;
        let mut started = None;
        let (mut head_free, mut bus_free) = (there, there);
        let mut last = first.track;
        for (number, (run, switch)) in (0..).zip(geometry.runs(first, count)) {
            let at = head_free + switch;
            let passed = if self.drained(run.track, number) {
                in_order(geometry, run, at)
            } else {
                from_anywhere(geometry, run, at)
            };
            let enough = (run.count * percent).div_ceil(100);
            let begins = bus_free
                .max(passed.first_sector)
                .max(passed.buffered(geometry, run.track, enough));
            started.get_or_insert(passed.started);
            bus_free = self.moved(begins, run, &passed);
            head_free = passed.ended;
            last = run.track;
        }
        Moved {
            started: started.unwrap_or(there),
            completed: bus_free,
            last,
        }
    }

    /// True if the buffer has run empty after `number` whole tracks like this one: the bus began a rotation
    /// late and gains on the media with every track.
    fn drained(&self, track: Track, number: u64) -> bool {
        let on_bus = self.bus_sector * self.geometry.sectors_per_track(track);
        let gain = (self.geometry.rotation() + self.head_switch).saturating_sub(on_bus);
        gain * number >= self.geometry.rotation()
    }
}

/// Writes `count` sectors from `first` on. The command is decoded at `decoded`, the head is there
/// at `there`.
pub(crate) fn write(
    spec: &PlantSpec,
    geometry: &Geometry,
    first: Place,
    count: SectorCount,
    decoded: Time,
    there: Time,
    luck: Luck,
) -> Moved {
    let bus_sector = spec.bus_sector(Op::Write);
    let setup = Nanos(share(spec.write_setup_max().get(), luck.transfer));
    let mut head_free = (there + spec.write_settle()).max(decoded + setup);
    let mut started = None;
    let mut arrived = decoded;
    let mut last = first.track;
    let mut runs = geometry.runs(first, count.get());
    let mut number = 0;
    while let Some((run, switch)) = runs.next() {
        let first_there = arrived + bus_sector;
        arrived += bus_sector * run.count;
        let passing = geometry.passing(run.track, run.count);
        // The last sector must have arrived before it passes, if the bus is the slower of the two.
        let streams = Time((arrived - Time::ZERO).saturating_sub(passing).get());
        let at = (head_free + switch).max(first_there).max(streams);
        let begins = geometry.passes(run.track, run.index, at);
        started.get_or_insert(begins);
        let tail =
            runs.left() == 0 && number > 0 && run.count < geometry.sectors_per_track(run.track);
        head_free = if tail && spec.partial_tail_takes_rotation() {
            begins + geometry.rotation()
        } else {
            begins + passing
        };
        last = run.track;
        number += 1;
    }
    // A sector of the medium that is written in part is read first, and written a rotation later.
    let unit = spec.physical_sectors();
    let in_part =
        !first.index.is_multiple_of(unit) || !(first.index + count.get()).is_multiple_of(unit);
    let again = if in_part {
        geometry.rotation()
    } else {
        Nanos::ZERO
    };
    Moved {
        started: started.unwrap_or(there),
        completed: head_free + again,
        last,
    }
}
