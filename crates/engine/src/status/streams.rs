//! Reports on streams.

use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use crate::state::pool::io::IoCore;
use crate::state::stream::core::{StreamCore, StreamTask, op_name};

/// A stream's part of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamDisk {
    /// The disk's name.
    pub disk: String,
    /// The worst-case service time of a block.
    pub service_ns: u64,
    /// The least time between two blocks.
    pub period_ns: u64,
}

/// One stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// Its volume.
    pub volume: String,
    /// `record` or `play`.
    pub op: String,
    /// Its rate in bytes per second.
    pub rate_bytes_per_second: u64,
    /// Its block size.
    pub block_bytes: u64,
    /// Its tasks on the disks.
    pub disks: Vec<StreamDisk>,
    /// Blocks done.
    pub blocks: u64,
    /// Blocks past their deadline, net of the host's own lateness.
    pub misses: u64,
    /// Blocks past their deadline, whatever the cause.
    pub misses_gross: u64,
    /// The largest lateness.
    pub late_max_ns: u64,
    /// The same net of the host's own lateness.
    pub late_net_max_ns: u64,
    /// Requests served before their release.
    pub early: u64,
    /// Requests that took longer than predicted.
    pub overruns: u64,
    /// Bytes that were read with the rest of the previous block's last track, and not again.
    pub kept_bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Completion times of the latest blocks, oldest first, in nanoseconds of the monotonic clock.
    pub recent_blocks_ns: Vec<u64>,
    /// The first failure of a block, if there was one.
    pub failed: Option<String>,
}

/// The current state of a stream.
pub(crate) fn stream(io: &IoCore, core: &StreamCore) -> StreamStatus {
    let stats = &core.stats;
    let disk = |task: &StreamTask| StreamDisk {
        disk: io.disks[task.disk].name.clone(),
        service_ns: task.params.service().0,
        period_ns: task.params.period().0,
    };
    StreamStatus {
        name: core.name.clone(),
        volume: core.volume_name.clone(),
        op: op_name(core.op).to_owned(),
        rate_bytes_per_second: core.rate().0,
        block_bytes: core.block().0,
        disks: core.tasks().iter().map(disk).collect(),
        blocks: stats.blocks.load(Relaxed),
        misses: stats.misses.load(Relaxed),
        misses_gross: stats.misses_gross.load(Relaxed),
        late_max_ns: stats.late_max.load(Relaxed),
        late_net_max_ns: stats.late_net_max.load(Relaxed),
        early: stats.early.load(Relaxed),
        overruns: stats.overruns.load(Relaxed),
        kept_bytes: stats.kept_bytes.load(Relaxed),
        errors: stats.errors.load(Relaxed),
        recent_blocks_ns: stats.recent(),
        failed: stats.failed.lock().clone(),
    }
}
