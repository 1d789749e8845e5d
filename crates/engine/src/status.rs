//! Reports on the pool as plain values, for people and programs. Times are in nanoseconds.

mod disks;
pub(crate) mod health;
mod places;
mod shares;
pub(crate) mod streams;
pub(crate) mod volumes;
mod waits;

use serde::Serialize;

use crate::clock;
use crate::state::pool::core::PoolCore;

pub use crate::latency::{BUCKET_LIMITS, BucketCounts, Latency};
pub use crate::state::warning::Warning;
pub use disks::{ByClass, Completed, DiskStatus, LinkStatus};
pub use health::{DiskHealth, MetadataStatus, PoolHealth};
pub(crate) use shares::shares;
pub use shares::{ShareDisk, ShareStatus};
pub use streams::{StreamDisk, StreamStatus};
pub use waits::WaitStatus;
pub(crate) use waits::waits;

/// One volume.
pub type VolumeStatus = volumes::VolumeInfo;

/// One account of buffers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MemoryStatus {
    /// Name of the client.
    pub client: String,
    /// Guaranteed bytes.
    pub fixed_bytes: u64,
    /// Bytes of the shared part that it holds.
    pub variable_bytes: u64,
    /// Number of its buffers.
    pub buffers: u64,
    /// Bytes that it has been asked to give back and still holds.
    pub asked_back_bytes: u64,
}

/// The pool.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its scheduler.
    pub scheduler: String,
    /// Time since it was opened.
    pub uptime_ns: u64,
    /// Time since the window for latencies began.
    pub window_ns: u64,
    /// Warnings for the operator.
    pub warnings: Vec<Warning>,
    /// Its extent size.
    pub extent_bytes: u64,
    /// Bytes in volumes.
    pub allocated_bytes: u64,
    /// Bytes that are free for volumes.
    pub free_bytes: u64,
    /// Its metadata.
    pub metadata: MetadataStatus,
    /// Its disks.
    pub disks: Vec<DiskStatus>,
    /// Its open streams.
    pub streams: Vec<StreamStatus>,
    /// Disk time that best-effort clients have reserved.
    pub reservations: Vec<ShareStatus>,
    /// Its volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Flushes that wait for a disk that does not answer.
    pub waits: Vec<WaitStatus>,
    /// Size of the memory for buffers.
    pub memory_bytes: u64,
    /// The accounts of that memory.
    pub memory: Vec<MemoryStatus>,
    /// Best-effort latency of all disks in the window.
    pub best_effort: Latency,
}

/// The current state of the pool.
pub(crate) fn pool(core: &PoolCore) -> PoolStatus {
    let now = clock::now();
    let disks = (0..core.io.disks.len())
        .map(|index| disks::disk(core, index, now))
        .collect();
    let streams: Vec<_> = core.admission.lock().streams.values().cloned().collect();
    let volumes: Vec<_> = core.volumes.read().values().cloned().collect();
    let volumes: Vec<_> = volumes
        .iter()
        .map(|volume| volumes::info(&core.io, volume))
        .collect();
    let allocated = volumes.iter().map(|volume| volume.extents).sum::<u64>();
    let memory = core
        .io
        .memory
        .usage()
        .into_iter()
        .map(|usage| MemoryStatus {
            client: usage.name,
            fixed_bytes: usage.fixed.0,
            variable_bytes: usage.variable.0,
            buffers: u64::from(usage.buffers),
            asked_back_bytes: usage.asked_back.0,
        });
    PoolStatus {
        name: core.name.clone(),
        scheduler: core.policy.name().to_owned(),
        uptime_ns: now.saturating_since(core.opened).0,
        window_ns: now.saturating_since(core.io.window()).0,
        warnings: core.warnings.lock().clone(),
        extent_bytes: core.io.extent_bytes().0,
        allocated_bytes: allocated * core.io.extent_bytes().0,
        free_bytes: core.free_bytes(),
        metadata: health::metadata(core, now),
        disks,
        streams: streams
            .iter()
            .map(|stream| streams::stream(&core.io, stream))
            .collect(),
        reservations: shares(core),
        volumes,
        waits: waits(core),
        memory_bytes: core.io.memory.size().0,
        memory: memory.collect(),
        best_effort: core.io.latency.summary(),
    }
}
