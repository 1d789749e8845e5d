//! Types that a measurement and its driver exchange: requests, samples, progress, and the result.

use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::findings::Findings;

/// A request that the measurement wants served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The direction. What is written does not matter.
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// The request is not issued before this instant, and as soon as possible after it.
    pub not_before: Time,
}

/// Times of a served request, on any clock that runs evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When it was given to the drive.
    pub issued: Time,
    /// When it was complete.
    pub completed: Time,
    /// True if the drive served no other request since the one before, so that the head was where that one left it.
    pub alone: bool,
    /// The error number, if it failed.
    pub error: Option<i32>,
}

impl Sample {
    /// No measurement lasts longer: 104 days. Up to here times are exact as floating-point numbers, and the sums and
    /// multiples of a few of them fit into 64 bits.
    pub const TIME_MAX: Time = Time(1 << 53);

    /// Time from issue to completion.
    #[must_use]
    pub fn took(&self) -> Nanos {
        self.completed.saturating_since(self.issued)
    }
}

/// The next step of a measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Serve these requests in their order, at most `depth` at a time, and pass on their samples.
    Serve {
        /// The requests; at least one.
        requests: Vec<Request>,
        /// The most requests on the drive at a time.
        depth: u32,
    },
    /// The measurement is over; [`Measurement::result`](crate::Measurement::result) has the result.
    Finished,
}

/// Progress of a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The present part, in words.
    pub part: &'static str,
    /// Requests served.
    pub served: u64,
    /// Requests still to serve, as far as is known.
    pub left: u64,
    /// The expected time for these.
    pub time_left: Nanos,
}

/// Reasons why a measurement ends without a profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeasureError {
    /// The drive is too small.
    #[error("the drive has {sectors} sectors; at least {min} are needed to measure it")]
    TooSmall {
        /// Its sectors.
        sectors: u64,
        /// The minimum.
        min: u64,
    },
    /// Requests fail.
    #[error(
        "{failed} of {served} requests failed, the last one at sector {sector} with error {errno}"
    )]
    Failing {
        /// Requests that failed.
        failed: u64,
        /// Requests served.
        served: u64,
        /// Start of the last one that failed.
        sector: u64,
        /// Its error number.
        errno: i32,
    },
    /// Others use the drive all the time.
    #[error(
        "others used the drive between all requests by which its seeks were to be measured: {after_others} of {served} requests came after theirs"
    )]
    Crowded {
        /// Requests that came after those of others.
        after_others: u64,
        /// Requests served.
        served: u64,
    },
    /// The fitted figures are not a profile.
    #[error("the times that were measured do not make a profile: {0}")]
    NoProfile(String),
    /// Validation does not come to an end.
    #[error(
        "the drive's times do not settle: requests exceeded a bound that was widened {0} times"
    )]
    Unsettled(u32),
}

/// A profile and the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The profile.
    pub profile: DriveProfile,
    /// The evidence.
    pub findings: Findings,
}
