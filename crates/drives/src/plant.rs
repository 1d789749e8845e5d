//! A plant: the mechanical model of a disk drive, in integer nanoseconds.
//!
//! # Purpose
//!
//! Each claim about the schedulers is tried on drives, and only models are drives that everybody has. This
//! model tells when a request completes, from the position of the arm and the time. The emulator completes
//! real I/O at these times, the virtual-time harness advances its clock by them. The predictor of `sched`
//! must never promise less than the plant takes, so the two share no code and no file: if they did, every
//! experiment would confirm itself.
//!
//! # Model
//!
//! There are two kinds of plants. One with a controller has a cache, reads ahead, may write behind, and may have
//! slips and spares: see `controller`. Of the other kind, mechanics alone, this holds:
//!
//! * The platters turn with constant speed; their angle is a function of absolute time alone.
//! * Sectors are numbered along a track, then along the heads of a cylinder, then along cylinders
//!   ([`geometry`]). Tracks are skewed so that a sequential transfer survives a head or cylinder
//!   switch without losing a rotation.
//! * A seek over a distance takes a random time between the fastest and the slowest that was
//!   measured for that distance, with the measured mean ([`seek`]).
//! * Commands cost overhead, data crosses a bus in logical order at the bus's rate, and the drive has a
//!   policy for data on its way between media and bus ([`transfer`]).
//!
//! State is the arm's place, the time until which the drive is busy, and a random generator: same
//! seed, same requests, same nanoseconds.
//!
//! # Deliberately absent
//!
//! Without a controller: caching (measured drives had it off; Clockwise turns it off) and remapped sectors. In both
//! kinds: command queueing inside the drive, retries (faults are injected by the emulator), thermal
//! recalibration, and several drives on one bus (see [`link`](crate::link)). `docs/design/emulator.md` lists the
//! simplifications.

pub(crate) mod controller;
mod divisor;
pub mod geometry;
pub mod seek;
pub mod spec;
pub mod transfer;
mod truth;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use controller::Controller;
use geometry::{Geometry, Track};
pub use spec::{PlantSpec, SpecError};
pub use truth::{Location, TrueZone};

/// Parts of the time of one request. They add up to its service time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Breakdown {
    /// Command decoding and status.
    pub overhead: Nanos,
    /// Moving the arm or selecting another head, before the first sector.
    pub seek: Nanos,
    /// Waiting for the place on the track at which the drive begins.
    pub rotation: Nanos,
    /// From there until the last sector is across the bus or on the media, switches included.
    pub transfer: Nanos,
}

impl Breakdown {
    /// The whole service time.
    #[must_use]
    pub fn total(self) -> Nanos {
        self.overhead + self.seek + self.rotation + self.transfer
    }
}

impl std::ops::AddAssign for Breakdown {
    fn add_assign(&mut self, other: Self) {
        self.overhead += other.overhead;
        self.seek += other.seek;
        self.rotation += other.rotation;
        self.transfer += other.transfer;
    }
}

/// Result of serving one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// When the drive turned to it: the instant of issue, or the end of the request before it.
    pub begun: Time,
    /// When it is complete.
    pub completed: Time,
    /// Parts of the time in between.
    pub breakdown: Breakdown,
}

/// Fractions in units of 2^-32, drawn once per request, so that two drives of the same seed meet
/// the same luck whatever the requests are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Luck {
    pub(crate) overhead: u32,
    pub(crate) seek: u32,
    pub(crate) transfer: u32,
}

/// `range` scaled by `luck` / 2^32.
pub(crate) const fn share(range: u64, luck: u32) -> u64 {
    (range * luck as u64) >> 32
}

/// A drive.
#[derive(Clone, Debug)]
pub struct Plant {
    spec: PlantSpec,
    model: Model,
    busy_until: Time,
    random: Xoshiro256PlusPlus,
}

/// How it works.
#[derive(Clone, Debug)]
enum Model {
    /// Mechanics without a cache.
    Plain {
        geometry: Geometry,
        arm: Track,
    },
    Controller(Box<Controller>),
}

impl Plant {
    /// A drive as `spec` describes it, with the arm on its first track. `seed` decides its luck
    /// with seeks and overheads.
    #[must_use]
    pub fn new(spec: PlantSpec, seed: u64) -> Self {
        let model = match spec.controller() {
            Some(description) => Model::Controller(Box::new(Controller::new(description.clone()))),
            None => {
                let geometry = Geometry::new(&spec);
                let arm = geometry.locate(Sector(0)).track;
                Model::Plain { geometry, arm }
            }
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            spec,
            model,
            busy_until: Time::ZERO,
            random,
        }
    }

    /// The description it was made from.
    #[must_use]
    pub fn spec(&self) -> &PlantSpec {
        &self.spec
    }

    /// Number of its sectors.
    #[must_use]
    pub fn sectors(&self) -> SectorCount {
        match &self.model {
            Model::Plain { geometry, .. } => geometry.sectors(),
            Model::Controller(controller) => SectorCount(controller.sectors()),
        }
    }

    /// True if there are `count` sectors from `start` on, and at least one.
    #[must_use]
    pub fn contains(&self, start: Sector, count: SectorCount) -> bool {
        !count.is_zero()
            && start
                .checked_add(count)
                .is_some_and(|end| end.get() <= self.sectors().get())
    }

    /// The cylinder the arm is on.
    #[must_use]
    pub fn cylinder(&self) -> u64 {
        match &self.model {
            Model::Plain { arm, .. } => arm.cylinder,
            Model::Controller(controller) => controller.cylinder(),
        }
    }

    /// Until when the drive is busy with what it was given.
    #[must_use]
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Keeps the drive busy until `until` at least: it tried again, or was held up.
    pub fn busy_at_least_until(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Puts the arm where a request for `sector` would leave it at once, as if by a seek long ago.
    /// For measurements of what a request costs without one.
    pub fn place(&mut self, sector: Sector) {
        match &mut self.model {
            Model::Plain { geometry, arm } => *arm = geometry.locate(sector).track,
            Model::Controller(controller) => controller.place(sector.get()),
        }
    }

    /// Serves a request that is issued at `now`, and says when it completes. The drive does one
    /// thing at a time: if it is still busy, it turns to this one when it is done.
    ///
    /// # Panics
    /// When the sectors do not exist; see [`Self::contains`].
    pub fn service(&mut self, now: Time, op: Op, start: Sector, count: SectorCount) -> Service {
        assert!(
            self.contains(start, count),
            "no such sectors on this drive: {start:?}, {count:?}"
        );
        let begun = now.max(self.busy_until);
        let luck = self.draw();
        let (completed, breakdown) = match &mut self.model {
            Model::Plain { geometry, arm } => {
                serve_plain(&self.spec, geometry, arm, luck, (begun, op, start, count))
            }
            Model::Controller(controller) => {
                controller.service(begun, op, start.get(), count.get())
            }
        };
        self.busy_until = completed;
        Service {
            begun,
            completed,
            breakdown,
        }
    }

    fn draw(&mut self) -> Luck {
        let (a, b) = (self.random.next_u64(), self.random.next_u64());
        Luck {
            overhead: (a >> 32) as u32,
            seek: a as u32,
            transfer: (b >> 32) as u32,
        }
    }
}

/// Serves a request without a cache.
fn serve_plain(
    spec: &PlantSpec,
    geometry: &Geometry,
    arm: &mut Track,
    luck: Luck,
    (begun, op, start, count): (Time, Op, Sector, SectorCount),
) -> (Time, Breakdown) {
    let first = geometry.locate(start);
    let overhead = spec.overhead(op, luck.overhead);
    let seek = reach(spec, *arm, first.track, luck.seek);
    let decoded = begun + overhead;
    let there = decoded + seek;
    let moved = match op {
        Op::Read => transfer::read(spec, geometry, first, count, there, luck),
        Op::Write => transfer::write(spec, geometry, first, count, decoded, there, luck),
    };
    *arm = moved.last;
    let breakdown = Breakdown {
        overhead,
        seek,
        rotation: moved.started - there,
        transfer: moved.completed - moved.started,
    };
    (moved.completed, breakdown)
}

/// The time to get from one track to another: a seek, or at least a head switch.
fn reach(spec: &PlantSpec, from: Track, to: Track, luck: u32) -> Nanos {
    let distance = from.cylinder.abs_diff(to.cylinder);
    let switch = if from.head == to.head {
        Nanos::ZERO
    } else {
        spec.head_switch()
    };
    spec.seeks().time(distance, luck).max(switch)
}
