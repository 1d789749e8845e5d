//! Measurements of a disk of a running pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::faults::FaultOp;

/// How to measure a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginMeasurement {
    /// Lend free extents to the measurement, which it may write to.
    #[serde(default)]
    pub write: bool,
}

/// A measurement that has begun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MeasurementView {
    /// Names the measurement in its calls.
    pub token: String,
    /// The disk's name.
    pub disk: String,
    /// The absolute path of its device or file.
    pub path: String,
    /// True for an emulated drive.
    pub is_emulated: bool,
    /// Its sectors of 512 bytes.
    pub sectors: u64,
    /// The alignment of requests, in sectors.
    pub unit_sectors: u64,
    /// The physical sector of its present profile, in sectors.
    pub physical_sectors: u64,
    /// The largest request, in sectors: a piece of best effort.
    pub request_sectors_max: u64,
    /// The free extents that are lent: the only sectors that may be written.
    pub writable: Vec<SectorRange>,
    /// The server's time, which `not_before_ns` and the samples count in: its host's monotonic clock.
    pub now_ns: u64,
}

/// Consecutive sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SectorRange {
    /// The first one.
    pub start_sector: u64,
    /// Their number.
    pub sectors: u64,
}

/// Requests of a measurement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasurementRequests {
    /// The measurement.
    pub token: String,
    /// At most 256 requests, which are served in this order, one at a time.
    pub requests: Vec<MeasurementRequest>,
}

/// A request of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasurementRequest {
    /// The direction.
    pub op: FaultOp,
    /// The first sector.
    pub start_sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// It is not issued before this time of the server, which is at most 60 s ahead.
    #[serde(default)]
    pub not_before_ns: u64,
}

/// Samples of the requests of a call, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MeasurementSamples {
    /// One for each request.
    pub samples: Vec<MeasurementSample>,
}

/// Times of a served request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MeasurementSample {
    /// When it was given to the disk.
    pub issued_ns: u64,
    /// When the disk completed it.
    pub completed_ns: u64,
    /// True if nothing else was given to the disk since the measurement's request before.
    pub alone: bool,
    /// The error number, if the disk failed it.
    pub errno: Option<i32>,
}

/// A measurement that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MeasurementEnd {
    /// The requests that were served.
    pub served: u64,
}
