//! Several disks with volumes, streams and traced best effort on them, in virtual time.
//!
//! # What it is for
//!
//! The experiments of the papers, and others like them: disks in a row, streams admitted to them by what their
//! blocks need where they lie, and beside them the requests of a trace. Everything that decides is the server's
//! own: volumes are placed by [`volume`], needs computed by [`engine::stream::needs`], admitted by
//! [`sched::admission`], and each disk is run by its [`sched::disk::DiskScheduler`].
//!
//! # Model
//!
//! Traces ask at times that do not depend on how they are served, and a stream waits with a disk's blocks for
//! that disk's buffers only. So the disks of a farm do not depend on each other: each is run on its own, from
//! the first event to the last, and requests that lie on several disks are put together afterwards. Within a
//! disk, everything that happens at one instant is delivered before the scheduler decides.
//!
//! # Deliberately absent
//!
//! Memory, processors and networks: what they cost is not modelled. Tasks that join or leave on the way.

mod admit;
mod arm;
mod band;
mod disk;
mod feed;
mod load;
mod outcome;
mod real;
mod scatter;
mod track;

use std::sync::Arc;

use sched::disk::SchedulerConfig;
use sched::predict::Predictor;
use sched::profile::{DriveProfile, ProfileError};
use sched::units::{Nanos, Time};

use drives::plant::{Plant, PlantSpec};

use crate::arms::ArmScheduler;
use crate::run::Decider;

pub use admit::{Admitted, NotAdmitted};
pub use band::{Band, BandError, PlacedVolume, VolumeSpec};
pub use load::{Load, Traced, WHOLE};
pub use outcome::{FarmOutcome, Slot, SourceOutcome};
pub use real::{RealOutcome, RealTimeError};
pub use scatter::{align_to_tracks, shuffle};
pub use track::{Lane, Part, Track, where_they_lie};

/// Disks, all alike.
#[derive(Clone, Debug)]
pub struct Disks {
    /// The drive as it is.
    pub plant: PlantSpec,
    /// The drive as the scheduler knows it.
    pub profile: Arc<DriveProfile>,
    /// Number of sectors.
    pub count: usize,
}

impl Disks {
    /// The profile's predictor.
    #[must_use]
    pub fn predictor(&self) -> Predictor {
        Predictor::new(&self.profile)
    }

    /// The longest that a piece of a best-effort request takes.
    #[must_use]
    pub fn piece_max(&self) -> Nanos {
        let predictor = self.predictor();
        predictor.piece_max(predictor.piece_limit())
    }
}

/// The drive with its measured service times taken as bounds. They are percentiles, and requests may take
/// longer. Blocks twice as large as the largest measured ones take longer by the difference of the last two
/// columns.
///
/// # Errors
/// No valid profile.
pub fn by_measured_times(profile: &DriveProfile) -> Result<DriveProfile, ProfileError> {
    let mut spec = profile.spec().clone();
    spec.trust_worst_case = true;
    for row in &mut spec.worst_case {
        if let ([.., half, whole], [.., of_half, of_whole]) =
            (row.bytes.as_slice(), row.service_us.as_slice())
        {
            let (bytes, us) = (
                2 * whole,
                of_whole + (of_whole - of_half) * whole / (whole - half),
            );
            row.bytes.push(bytes);
            row.service_us.push(us);
        }
    }
    DriveProfile::new(spec)
}

/// When a stream asks for its blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// One after another, evenly.
    Even {
        /// The first.
        first: Time,
        /// The time from one to the next.
        every: Nanos,
    },
    /// At these times, in order; and for no more.
    Listed(Arc<[Time]>),
}

impl Arrivals {
    /// When it asks for the block of that number.
    #[must_use]
    pub fn at(&self, block: u64) -> Option<Time> {
        match self {
            Self::Even { first, every } => {
                let after = every.get().checked_mul(block)?;
                first.checked_add(Nanos(after))
            }
            Self::Listed(times) => times.get(usize::try_from(block).ok()?).copied(),
        }
    }
}

/// A stream: blocks of a volume, one after another, around and around.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its blocks.
    pub track: Arc<Track>,
    /// The period that it reserves for a block.
    pub period: Nanos,
    /// The block that it begins with.
    pub first_block: u64,
    /// When it asks.
    pub arrivals: Arrivals,
    /// The most blocks that it has asked a disk for and not had yet: it has no buffers for more, and asks when it
    /// has had one.
    pub depth: u32,
}

/// Disk time that a best-effort source has reserved on every disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Whose.
    pub source: usize,
    /// Disk time in each period.
    pub slice: Nanos,
    /// The period.
    pub period: Nanos,
    /// The longest that one of its pieces takes ([`Disks::piece_max`], unless pieces are limited otherwise).
    pub piece_max: Nanos,
}

/// A run of admitted streams beside a load.
#[derive(Clone, Copy, Debug)]
pub struct FarmRun<'a> {
    /// The disks.
    pub disks: &'a Disks,
    /// Streams admitted to them.
    pub admitted: &'a Admitted,
    /// Best effort.
    pub load: &'a Load,
    /// Options of each disk's scheduler.
    pub config: &'a SchedulerConfig,
    /// Streams ask for nothing after this.
    pub end: Time,
    /// The seed of the drives' luck.
    pub seed: u64,
    /// Best effort is accounted for in slots of this length as well.
    pub slot: Option<Nanos>,
    /// The slack of each disk is looked at so often.
    pub slack_every: Option<Nanos>,
}

impl FarmRun<'_> {
    /// The seed of a disk's luck.
    fn seed_of(&self, number: usize) -> u64 {
        self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number as u64
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self) -> FarmOutcome {
        self.run_with(|number| disk::scheduler(self, number))
    }

    /// Runs it with a rule for the arm in place of each disk's scheduler, by the number of the disk.
    #[must_use]
    pub fn run_by<A: ArmScheduler>(&self, rule: impl Fn(usize) -> A) -> FarmOutcome {
        self.run_with(|number| arm::ArmDisk::new(self, number, rule(number)))
    }

    fn run_with<D: Decider>(&self, decider: impl Fn(usize) -> D) -> FarmOutcome {
        let outcomes = (0..self.disks.count).map(|number| {
            let plant = Plant::new(self.disks.plant.clone(), self.seed_of(number));
            disk::run(self, number, plant, decider(number))
        });
        outcome::merged(self.load, self.admitted.streams(), outcomes)
    }
}
