//! Chen and Thapar's video server: viewers, movies striped over all disks of several channels, and the largest number of
//! streams without a late request.
//!
//! # The model
//!
//! A viewer thinks, watches a movie, and thinks again. A stream has a buffer of some segments; when one has been played, the
//! next segment of the movie is requested into it, with the play time of the others as deadline. Before play begins, the buffer
//! is filled at the same rate, so all requests of a stream are alike. Movies lie one behind the other, striped over all disks
//! by segments; a segment is a stripe unit. Channels take turns in the stripe, so each has the same load.
//!
//! Requests do not wait for each other, so no channel has an influence on another: each is run alone, in any order and by any
//! thread.

pub mod figures;
mod file;
pub mod guarantee;
mod outcome;
mod search;
mod viewers;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use crate::arms::{ArmRequest, ArmScheduler, CScan, Edf, FdScan, Gss, RtWindow, ScanEdf};
use crate::channel::drive::{Drive, Place};
use crate::channel::{Bus, Discipline, Setup, Tally};
use crate::dice::Dice;

pub use file::{Plan, VideoError};
pub use outcome::{IdOutcome, Outcome};
pub use search::{Runs, Search};

/// Chooses the next request of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arm {
    /// By place, in one direction.
    CScan,
    /// By deadline.
    Edf,
    /// By deadline, and by place between equal deadlines.
    ScanEdf,
    /// Towards the most urgent request that can still be in time, as far as its seek, a rotation and the longest transfer from the
    /// media tell.
    FdScan,
    /// Groups of streams in turn.
    Gss {
        /// Their number.
        groups: NonZeroU32,
    },
    /// Chen and Thapar's.
    RtWindow {
        /// The number of most urgent requests of which it chooses.
        window: NonZeroUsize,
        /// It serves the most urgent request if less than this remains.
        threshold: Nanos,
    },
}

impl Arm {
    fn scheduler(self, stripe: &Stripe) -> Box<dyn ArmScheduler> {
        match self {
            Self::CScan => Box::new(CScan),
            Self::Edf => Box::new(Edf),
            Self::ScanEdf => Box::new(ScanEdf::default()),
            Self::Gss { groups } => Box::new(Gss::new(groups)),
            Self::RtWindow { window, threshold } => Box::new(RtWindow { window, threshold }),
            Self::FdScan => {
                let (drive, longest) = (Arc::clone(&stripe.drive), stripe.longest_after_seek());
                let service = move |arm: u32, request: &ArmRequest| {
                    drive.seek(arm.abs_diff(request.cylinder)) + longest
                };
                Box::new(FdScan { service })
            }
        }
    }
}

/// A kind of drive, divided into stripe units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripe {
    drive: Arc<Drive>,
    unit: Bytes,
    places: Arc<Vec<Place>>,
}

impl Stripe {
    /// A drive with stripe units of this size.
    #[must_use]
    pub fn new(drive: Drive, unit: Bytes) -> Self {
        Self {
            places: Arc::new(drive.places(unit)),
            drive: Arc::new(drive),
            unit,
        }
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    /// The longest time from the end of a seek to the end of a read.
    fn longest_after_seek(&self) -> Nanos {
        let media = self.places.iter().map(|place| place.media).max();
        self.drive.rotation() + media.unwrap_or_default()
    }

    /// The size of a stripe unit, which is a segment of a stream's buffer.
    #[must_use]
    pub fn unit(&self) -> Bytes {
        self.unit
    }
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// The number of channels.
    pub channels: u32,
    /// The ids of the disks of each channel.
    pub ids: Vec<u8>,
    /// The kind of channel.
    pub bus: Bus,
    /// The disks.
    pub stripe: Stripe,
    /// The rate of a stream.
    pub rate: BytesPerSecond,
    /// The segments of a stream's buffer, at least 2.
    pub buffer: u32,
    /// The shortest and the longest movie.
    pub movie: (Nanos, Nanos),
    /// The most different movies.
    pub library: u32,
    /// The mean time between two movies of a viewer.
    pub think: Nanos,
    /// The scheduler of each disk.
    pub arm: Arm,
    /// The side that decides about the bus.
    pub discipline: Discipline,
    /// The most requests that a disk may have outstanding.
    pub outstanding: u32,
    /// The number of movies that a run shows.
    pub movies: u32,
}

impl Server {
    /// The paper's server: four fast and wide channels with disks of ids from 0, 3 Mbit/s, movies of 100 to 120 minutes, and 500
    /// of them in a run.
    #[must_use]
    pub fn of_the_paper(drive: Drive, disks: u8) -> Self {
        let ids = (0..16).filter(|id| *id != crate::channel::HOST_ID);
        Self {
            channels: 4,
            ids: ids.take(disks.into()).collect(),
            bus: Bus::built_in("fast-wide-scsi").expect("it comes with the program"),
            stripe: Stripe::new(drive, Bytes::from_kib(128)),
            rate: BytesPerSecond(375_000),
            buffer: 4,
            movie: (Nanos::from_secs(6_000), Nanos::from_secs(7_200)),
            library: u32::MAX,
            think: Nanos::from_secs(60),
            arm: Arm::CScan,
            discipline: Discipline::Plain,
            outstanding: 2,
            movies: 500,
        }
    }

    /// The time in which a segment is played.
    #[must_use]
    pub fn period(&self) -> Nanos {
        let period = self.rate.period_of(self.stripe.unit);
        period.expect("the rate of a stream is not 0")
    }

    /// The time from a request to its deadline.
    #[must_use]
    pub fn life(&self) -> Nanos {
        self.period() * u64::from(self.buffer - 1)
    }

    /// Stripe units of all disks.
    fn units(&self) -> u32 {
        self.channels * self.ids.len() as u32 * self.stripe.places.len() as u32
    }

    /// Runs so many viewers.
    #[must_use]
    pub fn run(&self, streams: u32, seed: u64, stop_when_late: bool) -> Outcome {
        self.run_until(Time::MAX, streams, seed, stop_when_late)
    }

    /// As `run`, without the requests from a time on.
    fn run_until(&self, until: Time, streams: u32, seed: u64, stop_when_late: bool) -> Outcome {
        let mut sessions = viewers::sessions(self, streams, seed);
        viewers::clip(&mut sessions, until, self.period());
        self.run_sessions(&sessions, streams, seed, stop_when_late)
    }

    fn run_sessions(
        &self,
        sessions: &[viewers::Session],
        streams: u32,
        seed: u64,
        stop_when_late: bool,
    ) -> Outcome {
        let mut tallies = Vec::new();
        for channel in 0..self.channels {
            let tally = self.run_channel(sessions, channel, seed, stop_when_late);
            let is_late = tally.late() > 0;
            tallies.push(tally);
            if stop_when_late && is_late {
                break;
            }
        }
        Outcome::new(self, streams, tallies)
    }

    fn run_channel(
        &self,
        sessions: &[viewers::Session],
        channel: u32,
        seed: u64,
        stop_when_late: bool,
    ) -> Tally {
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(
            seed ^ u64::from(channel + 1) << 48,
        ));
        let drive = self.stripe.drive();
        let spindle = |_: &u8| Nanos(dice.below(drive.rotation().get()));
        let spindles: Vec<Nanos> = self.ids.iter().map(spindle).collect();
        let setup = Setup {
            bus: &self.bus,
            drive,
            places: &self.stripe.places,
            unit: self.stripe.unit,
            ids: &self.ids,
            spindles: &spindles,
            outstanding: self.outstanding,
            discipline: self.discipline,
            scheduler: &|| self.arm.scheduler(&self.stripe),
            stop_when_late,
        };
        let mut requests = viewers::Requests::new(self, sessions, channel);
        crate::channel::run(&setup, &mut requests, &mut ())
    }
}
