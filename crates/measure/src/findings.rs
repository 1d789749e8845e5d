//! Results of a measurement, for a report.

use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount};
use serde::Serialize;

/// How the figures of a profile were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Tracks were told apart: zones, heads, skews and seeks by cylinders.
    Geometry,
    /// Bounds by distance, size and position, without tracks.
    Envelope,
    /// A drive without rotation: overhead and rate.
    Flat,
}

/// The rotation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RotationFound {
    /// One rotation, in nanoseconds.
    pub nanos: f64,
    /// Its standard error, in parts per million.
    pub error_ppm: f64,
    /// True if the drive answers repeated reads of a sector from a cache.
    pub has_cache: bool,
}

/// A zone.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ZoneFound {
    /// Its first sector.
    pub first_sector: u64,
    /// Sectors on a track; in an envelope those that pass in a rotation of a long transfer.
    pub sectors_per_track: u64,
    /// The sustained rate of a long read, switches included.
    pub bytes_per_second: f64,
}

/// The tracks.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct TracksFound {
    /// Tracks of a cylinder; 1 if heads cannot be told apart.
    pub heads: u64,
    /// Skews between consecutive tracks, at three places from the outside inwards, in nanoseconds.
    pub skews: Vec<Vec<f64>>,
    /// The longest skew within a cylinder.
    pub head_switch: Nanos,
    /// The longest skew to the next cylinder.
    pub cylinder_switch: Nanos,
}

/// A distance of the arm.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SeekFound {
    /// Cylinders, in the coordinates of the profile.
    pub cylinders: u64,
    /// Direction: true towards higher sector numbers.
    pub inwards: bool,
    /// The shortest time from the issue of a read until the head was ready, overhead included.
    pub fastest: Nanos,
    /// The longest.
    pub slowest: Nanos,
    /// The bound in the profile, overhead included.
    pub bound: Nanos,
    /// Number of seeks.
    pub samples: u32,
}

/// Queue depth of a flat drive.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DepthFound {
    /// Requests at a time.
    pub depth: u32,
    /// Reads of 4 KiB in a second.
    pub reads_per_second: f64,
    /// The slowest of them.
    pub slowest: Nanos,
}

/// A request that was compared with its prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Compared {
    /// The direction.
    #[serde(serialize_with = "op_name")]
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// Where the head was: the last sector of the request before.
    pub head: Option<Sector>,
    /// The prediction.
    pub predicted: Nanos,
    /// The time.
    pub actual: Nanos,
    /// True if the profile was widened after it, so that the prediction is of a narrower one.
    pub widened_since: bool,
}

/// A request that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct FailedRequest {
    /// The direction.
    #[serde(serialize_with = "op_name")]
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// The error number.
    pub errno: i32,
}

fn op_name<S: serde::Serializer>(op: &Op, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match op {
        Op::Read => "read",
        Op::Write => "write",
    })
}

/// The validation.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Validation {
    /// Requests since the last excess; none took longer than predicted.
    pub requests: u64,
    /// Reads among them.
    pub reads: u64,
    /// Sum of the predictions over the sum of the times.
    pub predicted_over_actual: f64,
    /// How often an excess widened the profile.
    pub widened: u32,
    /// By how much all requests became longer.
    pub widened_by: Nanos,
    /// Predicted minus actual, in milliseconds rounded down, from 0; the last counts all above.
    pub margin_ms: Vec<u64>,
    /// The requests that came closest to their prediction, or took longest beside it, the worst first.
    pub closest: Vec<Compared>,
    /// The slowest requests of all parts that were compared, the slowest first.
    pub slowest: Vec<Compared>,
}

impl Validation {
    /// With 95 % confidence fewer than this part of the requests take longer than predicted (the rule of three).
    #[must_use]
    pub fn excess_below(&self) -> f64 {
        3.0 / self.requests.max(3) as f64
    }
}

/// Everything that was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Findings {
    /// How the figures were found.
    pub method: Method,
    /// The rotation; `None` for a flat drive.
    pub rotation: Option<RotationFound>,
    /// The zones, from the outside; one for a flat drive.
    pub zones: Vec<ZoneFound>,
    /// The tracks, where they were told apart.
    pub tracks: Option<TracksFound>,
    /// Seeks by distance.
    pub seeks: Vec<SeekFound>,
    /// Depths of a flat drive.
    pub depths: Vec<DepthFound>,
    /// Longest time of the overhead and the settling of a read on the same track.
    pub overhead: Nanos,
    /// Extra time of a write; `None` if nothing was written.
    pub write_settle: Option<Nanos>,
    /// True if tracks are read whole, from any angle.
    pub reads_whole_tracks: bool,
    /// True if a long write takes its last track whole; assumed if nothing was written.
    pub writes_whole_last_track: bool,
    /// Requests that took over a rotation longer than others of their kind.
    pub late: u64,
    /// All requests.
    pub served: u64,
    /// Requests that came after those of others, so that the head was elsewhere.
    pub after_others: u64,
    /// Requests that failed.
    pub failed: u64,
    /// The first of them.
    pub failures: Vec<FailedRequest>,
    /// The validation.
    pub validation: Validation,
    /// Sentences for people about what was found and what it means.
    pub notes: Vec<String>,
}
