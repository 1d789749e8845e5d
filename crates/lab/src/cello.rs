//! Best-effort load like that of CELLO on 1 June 1992, whose trace is not public. It is generated from the
//! thesis's description (section 6.5 and chapter 7).
//!
//! # Met exactly
//!
//! The number of requests of each of the eight disks, in the day and in the busy 1,300 seconds; the largest
//! number for one disk in a minute of the day, and in a second of the busy period.
//!
//! # Met on average
//!
//! 44 % reads; 7.7 % of reads and 6.3 % of writes that begin where the request before them on their disk ended; about
//! 16 % of requests less than a millisecond after the one before them on their disk (the thesis: 10 to 20 %), and
//! 78 % less than 40 ms (80 %). A disk that takes 25.9 ms for each has 15 requests queued when another comes, with a
//! deviation of 48 (8.9 and 36.0 over the two months of the trace, of which this is the busiest day).
//!
//! # Guessed
//!
//! The thesis says of sizes that most are 8 KB, and nothing of places. Here 80 % are; places are drawn
//! around a few spots of each disk, as file systems have them, and the rest from the whole disk. The order of
//! busy minutes is not known either: they are drawn from a log-normal distribution as wide as the peak
//! demands, with neighbours alike. [`arrivals`] has the order of requests within a minute.

mod arrivals;
mod shape;

use std::ops::Range;

use arrivals::Flushes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::request::{Op, Urgency};
use sched::units::{Bytes, Nanos, Time};

use crate::dice::Dice;
use crate::trace::TraceRequest;

/// Requests to a disk in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskLoad {
    /// Requests in the whole period.
    pub requests: u64,
    /// The most of these in one [slot](Period::slot).
    pub peak: u64,
}

/// A part of the trace of which the thesis has numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Period {
    /// Length in slots.
    pub slots: u64,
    /// Length of the slots in which peaks were counted.
    pub slot: Nanos,
    /// The eight disks.
    pub disks: [DiskLoad; 8],
    /// When in it the [busy period](Period::busy) begins, if that is a part of it.
    pub busy_from: Option<Nanos>,
}

const fn load(requests: u64, peak: u64) -> DiskLoad {
    DiskLoad { requests, peak }
}

impl Period {
    /// The whole day (thesis, table 6.5), counted by the minute.
    #[must_use]
    pub const fn day() -> Self {
        Self {
            slots: 24 * 60,
            slot: Nanos::from_secs(60),
            disks: [
                load(200_796, 2_654),
                load(3_973, 1_777),
                load(193_539, 2_840),
                load(2_054, 994),
                load(431, 144),
                load(122_730, 2_598),
                load(249_801, 2_412),
                load(27_683, 1_349),
            ],
            // 16:48:00.
            busy_from: Some(Nanos::from_secs((16 * 60 + 48) * 60)),
        }
    }

    /// The busy 1,300 seconds from 16:48:00 to 17:09:40 (thesis, table 7.1), counted by the second.
    #[must_use]
    pub const fn busy() -> Self {
        Self {
            slots: 1_300,
            slot: Nanos::from_secs(1),
            disks: [
                load(31_066, 130),
                load(0, 0),
                load(1_015, 42),
                load(6, 6),
                load(6, 6),
                load(8_401, 88),
                load(12_427, 207),
                load(831, 31),
            ],
            busy_from: None,
        }
    }

    /// Length.
    #[must_use]
    pub fn length(&self) -> Nanos {
        Nanos(self.slots * self.slot.get())
    }

    /// Its requests in the order of their times, of disks of so many bytes each.
    #[must_use]
    pub fn requests(&self, disk_bytes: Bytes, seed: u64) -> Vec<TraceRequest> {
        let mut all = Vec::new();
        for (device, load) in (0..).zip(self.disks) {
            let dice = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(device) + 1) << 32);
            let mut source = Source::new(device, disk_bytes, Dice(dice));
            let mut others = load;
            let mut kept_free = 0..0;
            if let Some(from) = self.busy_from {
                let busy = Self::busy();
                let of_busy = busy.disks[device as usize];
                let first = from.get() / self.slot.get();
                kept_free = first..(from + busy.length()).get().div_ceil(self.slot.get());
                others.requests -= of_busy.requests;
                source.requests(&busy, (of_busy, 0..0), from, &mut all);
            }
            source.requests(self, (others, kept_free), Nanos::ZERO, &mut all);
        }
        // Stable, and by disk where two are at the same instant: the same seed is the same trace.
        all.sort_by_key(|request| request.at);
        all
    }
}

/// Per mille of reads, and of writes, that begin at the end of the request before.
const SEQUENTIAL_READS_PERMILLE: u64 = 77;
const SEQUENTIAL_WRITES_PERMILLE: u64 = 63;

/// Sizes in KiB, and how many of a hundred have them.
const SIZES: [(u64, u64); 6] = [(8, 80), (4, 7), (2, 5), (1, 4), (16, 2), (32, 2)];

/// Spots of a disk around which its requests are, how many of a hundred are at one of these, and how far they reach.
const SPOTS: u64 = 12;
const AT_SPOTS_PERCENT: u64 = 75;
const SPOT_BYTES: u64 = 8 << 20;

const ALIGN_BYTES: u64 = 1 << 10;

/// One disk's requests.
struct Source {
    device: u32,
    disk_bytes: u64,
    dice: Dice,
    spots: Vec<u64>,
    /// End of the request before.
    next: u64,
}

impl Source {
    fn new(device: u32, disk_bytes: Bytes, mut dice: Dice) -> Self {
        let disk_bytes = disk_bytes.get();
        let room = disk_bytes.saturating_sub(SPOT_BYTES).max(1);
        Self {
            device,
            disk_bytes,
            spots: (0..SPOTS).map(|_| dice.below(room)).collect(),
            next: 0,
            dice,
        }
    }

    /// Adds the requests of a load in a period that begins at `from`, none of them in the slots that are kept free.
    fn requests(
        &mut self,
        period: &Period,
        (load, kept_free): (DiskLoad, Range<u64>),
        from: Nanos,
        all: &mut Vec<TraceRequest>,
    ) {
        let counts = shape::counts(load, period.slots, kept_free, &mut self.dice);
        let flushes = Flushes::new(&mut self.dice);
        let mut times = Vec::new();
        for (slot, count) in (0..).zip(counts) {
            let begin = Time::ZERO + from + Nanos(slot * period.slot.get());
            times.clear();
            flushes.times(begin, period.slot, count, &mut self.dice, &mut times);
            // Stable: two at the same instant are in the order in which they were drawn.
            times.sort_by_key(|(at, _)| *at);
            all.extend(times.iter().map(|(at, op)| self.request(*at, *op)));
        }
    }

    fn request(&mut self, at: Time, op: Op) -> TraceRequest {
        let dice = &mut self.dice;
        let (urgency, sequential) = match op {
            Op::Read => (Urgency::Sync, SEQUENTIAL_READS_PERMILLE),
            Op::Write => (Urgency::Async, SEQUENTIAL_WRITES_PERMILLE),
        };
        let length = size(dice.below(100)).min(self.disk_bytes);
        let last = self.disk_bytes - length;
        let follows = self.next > 0 && self.next <= last && dice.below(1_000) < sequential;
        let start = if follows {
            self.next
        } else if dice.below(100) < AT_SPOTS_PERCENT {
            let spot = self.spots[dice.below(SPOTS) as usize];
            (spot + dice.below(SPOT_BYTES)).min(last) / ALIGN_BYTES * ALIGN_BYTES
        } else {
            dice.below(last + 1) / ALIGN_BYTES * ALIGN_BYTES
        };
        self.next = start + length;
        TraceRequest {
            at,
            device: self.device,
            op,
            start: Bytes(start),
            length: Bytes(length),
            urgency,
        }
    }
}

/// The size of a request, given a number below 100.
fn size(mut percent: u64) -> u64 {
    for (kib, share) in SIZES {
        if percent < share {
            return kib << 10;
        }
        percent -= share;
    }
    SIZES[0].0 << 10
}

#[cfg(test)]
mod tests;
