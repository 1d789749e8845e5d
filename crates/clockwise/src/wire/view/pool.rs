//! A summary of the pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{StatusView, WarningView};

/// A summary of the pool.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// The time since it was opened.
    pub uptime_ns: u64,
    /// Its extent size.
    pub extent_bytes: u64,
    /// Bytes in volumes.
    pub allocated_bytes: u64,
    /// Bytes that are free for volumes.
    pub free_bytes: u64,
    /// Total memory for buffers.
    pub memory_bytes: u64,
    /// Its disks, by name.
    pub disks: Vec<String>,
    /// Number of its volumes.
    pub volumes: u64,
    /// Number of open streams.
    pub streams: u64,
    /// Warnings.
    pub warnings: Vec<WarningView>,
}

impl From<StatusView> for PoolView {
    fn from(status: StatusView) -> Self {
        Self {
            disks: status.disks.iter().map(|disk| disk.name.clone()).collect(),
            volumes: status.volumes.len() as u64,
            streams: status.streams.len() as u64,
            name: status.name,
            scheduler: status.scheduler,
            uptime_ns: status.uptime_ns,
            extent_bytes: status.extent_bytes,
            allocated_bytes: status.allocated_bytes,
            free_bytes: status.free_bytes,
            memory_bytes: status.memory_bytes,
            warnings: status.warnings,
        }
    }
}
