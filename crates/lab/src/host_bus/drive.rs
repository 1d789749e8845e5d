//! A light drive: a head over turning tracks, and a segment of buffer between it and the channel.
//!
//! It reads or writes the sectors of a request in order. Reading, sector `s` passes the head as soon as there is room for
//! it, that is when sector `s - segment` has left on the channel; a head that had to stop waits until the sector comes
//! round again. Writing is the same the other way: `s` passes the head when it has come, and comes when `s - segment`
//! is on the medium. So each time follows from earlier ones.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::request::Op;
use sched::units::{Nanos, Time};

use crate::dice::Dice;

/// Parameters of a drive in one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mechanics {
    /// Of a rotation.
    pub rotation: Nanos,
    /// Sectors of a track.
    pub sectors_per_track: u64,
    /// Tracks of a cylinder.
    pub heads: u64,
    /// Sectors that pass during a head switch.
    pub track_skew: u64,
    /// Sectors that pass during a step to the next cylinder.
    pub cylinder_skew: u64,
    /// From the issue of a command to the drive's search for the first sector.
    pub overhead: Nanos,
    /// The same for sectors that the drive reads ahead.
    pub hit_overhead: Nanos,
    /// Sectors that the buffer holds for a request.
    pub segment: u64,
    /// Sectors in the buffer, or room for them, when the drive asks for the channel.
    pub burst: u64,
}

impl Mechanics {
    /// A Seagate Cheetah 4LP in its outer zone: geometry, skews, segment and overhead of DiskSim's validated model; a
    /// burst of a track, with which a connection at 40 MB/s moves the 170 KB in 4.3 ms of the thesis (7.2.5).
    pub const CHEETAH: Self = Self {
        rotation: Nanos(5_980_265),
        sectors_per_track: 195,
        heads: 8,
        track_skew: 22,
        cylinder_skew: 37,
        overhead: Nanos(607_730),
        hit_overhead: Nanos(68_000),
        segment: 282,
        burst: 195,
    };

    /// A Quantum Atlas-II in its outer zone (thesis 4.2, 4.3): 0.6 ms for a head switch, 1.7 ms for a step, about 2 ms
    /// of overhead, bursts of nearly a track. The segment of 256 KB is assumed.
    pub const ATLAS: Self = Self {
        rotation: Nanos(8_333_333),
        sectors_per_track: 179,
        heads: 10,
        track_skew: 13,
        cylinder_skew: 37,
        overhead: Nanos(2_000_000),
        hit_overhead: Nanos(2_000_000),
        segment: 512,
        burst: 161,
    };

    /// The time in which so many sectors pass.
    fn passing(&self, sectors: u64) -> u64 {
        self.rotation.get() * sectors / self.sectors_per_track
    }

    /// The switch before a sector of a cylinder, counted from the cylinder's first.
    fn switch(&self, index: u64) -> u64 {
        match index {
            0 => self.cylinder_skew,
            _ if index.is_multiple_of(self.sectors_per_track) => self.track_skew,
            _ => 0,
        }
    }
}

/// Where the blocks of a drive's requests are. The arm is on the track of each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Places {
    /// At random; the platters have a random angle.
    Random,
    /// One behind the other. A drive that reads goes on with the next while it has room.
    Sequential,
}

/// A drive with a request. Sectors are counted from the first of the request or, with sequential requests, of all.
pub(super) struct Drive {
    mechanics: Mechanics,
    dice: Dice,
    op: Op,
    places: Places,
    /// Sectors of a request.
    block: u64,
    /// The first sector behind the request.
    end: u64,
    /// The place of sector 0 in its cylinder.
    first: u64,
    /// Passings of switches and sectors from sector 0 to sector `media.len()`.
    passed: u64,
    /// When sector 0 began to pass, later by a rotation for each time that the head had to wait.
    origin: Time,
    /// When sectors of the request may cross the channel.
    begins: Time,
    pub(super) issued: Time,
    /// Ends of passings under the head.
    media: Vec<Time>,
    /// Ends of transfers on the channel.
    channel: Vec<Time>,
}

impl Drive {
    /// A drive for requests of `block` sectors.
    pub(super) fn new(mechanics: Mechanics, op: Op, places: Places, block: u64, seed: u64) -> Self {
        let mut drive = Self {
            mechanics,
            dice: Dice(Xoshiro256PlusPlus::seed_from_u64(seed)),
            op,
            places,
            block,
            end: 0,
            first: 0,
            passed: 0,
            origin: Time::ZERO,
            begins: Time::ZERO,
            issued: Time::ZERO,
            media: Vec::new(),
            channel: Vec::new(),
        };
        // Drives begin at different times of a rotation.
        let begin = drive.dice.below(mechanics.rotation.get());
        drive.find(Time(begin));
        drive
    }

    /// The next request.
    pub(super) fn issue(&mut self, now: Time) {
        if self.places == Places::Random {
            return self.find(now);
        }
        self.issued = now;
        self.begins = now + self.mechanics.hit_overhead;
        self.end += self.block;
    }

    /// A request at a random place.
    fn find(&mut self, now: Time) {
        let Mechanics {
            rotation,
            sectors_per_track,
            heads,
            overhead,
            ..
        } = self.mechanics;
        self.first = self.dice.below(sectors_per_track * heads);
        let wait = self.dice.below(rotation.get());
        self.issued = now;
        self.begins = now + overhead;
        self.origin = self.begins + Nanos(wait);
        self.end = self.block;
        self.passed = 0;
        self.media.clear();
        self.channel.clear();
    }

    /// Sectors that have crossed the channel.
    pub(super) fn crossed(&self) -> u64 {
        self.channel.len() as u64
    }

    pub(super) fn is_transferred(&self) -> bool {
        self.crossed() == self.end
    }

    pub(super) fn op(&self) -> Op {
        self.op
    }

    /// When a sector has passed the head. The channel has moved what this depends on.
    fn passes(&mut self, sector: u64) -> Time {
        let Mechanics {
            rotation, segment, ..
        } = self.mechanics;
        let in_cylinder = self.mechanics.sectors_per_track * self.mechanics.heads;
        while self.media.len() as u64 <= sector {
            let next = self.media.len() as u64;
            if next > 0 {
                let index = (self.first + next) % in_cylinder;
                self.passed += self.mechanics.switch(index);
            }
            let after = match self.op {
                Op::Read => next.checked_sub(segment),
                Op::Write => Some(next),
            };
            let not_before = after.map_or(Time::ZERO, |at| self.channel[at as usize]);
            let begins = self.origin + Nanos(self.mechanics.passing(self.passed));
            let late = not_before.saturating_since(begins).get();
            self.origin += rotation * late.div_ceil(rotation.get());
            self.passed += 1;
            let ends = self.origin + Nanos(self.mechanics.passing(self.passed));
            self.media.push(ends);
        }
        self.media[sector as usize]
    }

    /// When a sector can cross the channel; those before it have.
    pub(super) fn crosses(&mut self, sector: u64) -> Time {
        let there = match (self.op, sector.checked_sub(self.mechanics.segment)) {
            (Op::Read, _) => self.passes(sector),
            (Op::Write, None) => Time::ZERO,
            (Op::Write, Some(written)) => self.passes(written),
        };
        there.max(self.begins)
    }

    /// When it asks for the channel.
    pub(super) fn asks(&mut self) -> Time {
        let burst = self.crossed() + self.mechanics.burst;
        self.crosses(burst.min(self.end) - 1)
    }

    /// A sector has crossed the channel.
    pub(super) fn has_crossed(&mut self, at: Time) {
        self.channel.push(at);
    }

    /// When the medium is done with a request whose last sector has crossed.
    pub(super) fn completes(&mut self) -> Time {
        self.passes(self.end - 1)
    }
}
