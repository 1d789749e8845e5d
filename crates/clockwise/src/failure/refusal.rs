//! Why the disks do not carry a reservation, in numbers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a reservation was refused: which disk, which condition, under what load, and what would fit.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusalView {
    /// The first disk that refused.
    pub disk: String,
    /// The load already promised on it, of 1.
    pub utilization: f64,
    /// The worst-case service time of a block there.
    pub service_ns: u64,
    /// How often a block would fall on it.
    pub period_ns: u64,
    /// Which condition of the admission test failed: `utilization` or `blocking`.
    pub refused_by: String,
    /// At which interval length.
    pub interval_ns: Option<u64>,
    /// By how much.
    pub short_by_ns: Option<u64>,
    /// The task at fault, if it is not the one asked for, by the name of its stream or export, or `the floor`:
    /// one request of it takes so long that those with shorter periods would be late.
    pub task: Option<String>,
    /// What that task is: `floor`, `stream`, `share` (disk time that is reserved for an export), or
    /// `leaving` (what has ended or changed and holds its share until its last deadline).
    #[serde(default)]
    pub task_is: Option<String>,
    /// The part of the load that is still being given back by streams and exports that have ended: each
    /// keeps its share until its last deadline.
    #[serde(default)]
    pub utilization_leaving: f64,
    /// In how long all of that is free.
    #[serde(default)]
    pub leaving_ns: Option<u64>,
    /// The largest rate of this stream that all the disks would carry now.
    pub rate_that_fits: Option<u64>,
}
