//! Health of disks and metadata: stalls, errors and freezes. It is polled often to log each change, so it
//! costs a disk's thread little.

use std::sync::atomic::Ordering::Relaxed;

use sched::units::{Nanos, Time};
use serde::Serialize;

use crate::clock;
use crate::state::disk::core::DiskCore;
use crate::state::pool::core::PoolCore;
use crate::state::pool::frozen::Recovery;
use crate::state::pool::io::IoCore;

/// The pool's metadata: its volumes, their places, and their written chunks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MetadataStatus {
    /// The reason for a freeze, if the metadata is frozen because a disk does not accept a write of it.
    pub frozen: Option<String>,
    /// Duration of the current freeze.
    pub frozen_ns: u64,
    /// True if the freeze ends once the disk accepts that write; false if the server has to be restarted.
    pub goes_on: bool,
    /// Number of freezes.
    pub freezes: u64,
    /// Number of freezes that have ended.
    pub resumes: u64,
}

/// Health of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskHealth {
    /// Its name.
    pub name: String,
    /// Time for which it, or the host for it, has not answered, if that counts as stalled; otherwise 0.
    pub stalled_ns: u64,
    /// Number of stalls.
    pub stalls: u64,
    /// Number of times that it has answered again after a stall.
    pub comebacks: u64,
    /// Number of times that it was given up.
    pub given_ups: u64,
    /// Requests that took longer than predicted, net of the host's lateness.
    pub overruns: u64,
    /// Deadlines missed, net of the host's lateness.
    pub misses: u64,
    /// Reads that failed on the disk.
    pub read_errors: u64,
    /// Writes that failed on the disk.
    pub write_errors: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// The reason why it is not served any more, or why nothing on it can be made durable.
    pub failed: Option<String>,
}

/// Health of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolHealth {
    /// Health of each disk.
    pub disks: Vec<DiskHealth>,
    /// Health of the metadata.
    pub metadata: MetadataStatus,
}

pub(crate) fn pool(core: &PoolCore) -> PoolHealth {
    PoolHealth {
        disks: core.io.disks.iter().map(|of| disk(&core.io, of)).collect(),
        metadata: metadata(core, clock::now()),
    }
}

pub(crate) fn metadata(core: &PoolCore, now: Time) -> MetadataStatus {
    let health = core.meta_watch.health();
    let frozen = health.frozen.as_ref();
    MetadataStatus {
        frozen_ns: frozen.map_or(0, |frozen| now.saturating_since(frozen.since).0),
        goes_on: frozen.is_some_and(|frozen| frozen.recovery == Recovery::ByRetry),
        frozen: frozen.map(|frozen| frozen.reason.to_string()),
        freezes: health.freezes,
        resumes: health.resumes,
    }
}

pub(crate) fn disk(io: &IoCore, disk: &DiskCore) -> DiskHealth {
    let sync = disk.sync_health();
    let mut health = DiskHealth {
        name: disk.name.clone(),
        stalled_ns: sync.stalled.unwrap_or(Nanos::ZERO).0,
        stalls: sync.stalls,
        comebacks: sync.comebacks,
        given_ups: sync.given_ups,
        overruns: 0,
        misses: 0,
        read_errors: disk.read_errors.load(Relaxed),
        write_errors: disk.write_errors.load(Relaxed),
        last_error: disk.last_error(),
        failed: None,
    };
    let lost = sync.failed.map(|failure| {
        format!("nothing on it can be made durable until the server is restarted: {failure}")
    });
    let Ok((known, silent)) = disk.handle.health() else {
        // When the pool is closed its disks are not served any more; that is no failure of the disk.
        health.failed = (!io.is_closed()).then(|| "the server does not use it any more".to_owned());
        return health;
    };
    if known.stalled {
        health.stalled_ns = health.stalled_ns.max(silent.0);
    }
    health.overruns = known.overruns;
    health.misses = known.misses;
    health.stalls += known.stalls;
    health.comebacks += known.comebacks;
    health.given_ups += known.given_ups;
    health.failed = if let Some(error) = known.gone {
        Some(error.to_string())
    } else if known.given_up || sync.given_up {
        Some("it did not answer in time".to_owned())
    } else {
        lost
    };
    health
}
