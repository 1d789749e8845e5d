//! The numbers of a refused reservation.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a reservation was refused: the disk, the failed condition, the load, and the rate that would fit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    /// The first disk that refused.
    pub disk: String,
    /// The promised part of that disk's time, from 0 to 1.
    pub utilization: f64,
    /// The worst-case service time of a block on that disk.
    pub service_ns: u64,
    /// The period of the stream's blocks on that disk.
    pub period_ns: u64,
    /// The condition of the admission test that failed: `utilization` or `blocking`.
    pub refused_by: String,
    /// The interval length at which it failed.
    pub interval_ns: Option<u64>,
    /// The disk time that is missing in that interval.
    pub short_by_ns: Option<u64>,
    /// The name of the stream or export whose task is at fault, or `the floor`; absent if it is the requested
    /// stream itself. A task is at fault if one request of it takes so long that tasks with shorter periods
    /// would be late.
    pub task: Option<String>,
    /// The kind of that task: `floor`, `stream`, `share` (disk time that is reserved for an export), or
    /// `leaving` (a task that has ended or changed and keeps its share until its last deadline).
    #[serde(default)]
    pub task_is: Option<String>,
    /// The part of the load that belongs to streams and exports that have ended: each keeps its share until
    /// its last deadline.
    #[serde(default)]
    pub utilization_leaving: f64,
    /// The time until all of that part is free.
    #[serde(default)]
    pub leaving_ns: Option<u64>,
    /// The largest rate of this stream that all disks could carry at present.
    pub rate_that_fits: Option<u64>,
}
