//! What is wrong with disks and metadata, and how often it was. It is asked often, so that each change of it can be
//! told: it costs a disk's thread little.

use std::sync::atomic::Ordering::Relaxed;

use sched::units::{Nanos, Time};
use serde::Serialize;

use crate::clock;
use crate::state::disk::core::DiskCore;
use crate::state::pool::core::PoolCore;
use crate::state::pool::io::IoCore;

/// The pool's metadata: what volumes there are, where they lie, and what of them has been written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MetadataStatus {
    /// Why it is frozen, if it is: a disk does not take a write of it.
    pub frozen: Option<String>,
    /// For how long it has been frozen.
    pub frozen_ns: u64,
    /// Whether it goes on by itself when the disk takes that write; otherwise when the server is started again.
    pub goes_on: bool,
    /// How often it was frozen.
    pub freezes: u64,
    /// How often it has gone on.
    pub resumes: u64,
}

/// What is wrong with one disk, or was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskHealth {
    /// Its name.
    pub name: String,
    /// For how long it, or the host for it, has not answered; 0 unless that counts as stalled.
    pub stalled_ns: u64,
    /// How often it has stalled.
    pub stalls: u64,
    /// How often it has answered again after that.
    pub comebacks: u64,
    /// How often it was given up.
    pub given_ups: u64,
    /// Reads that were on it and failed.
    pub read_errors: u64,
    /// Writes that were on it and failed.
    pub write_errors: u64,
    /// What the last of them failed of.
    pub last_error: Option<String>,
    /// Why it is not served any more, or nothing on it can be made durable.
    pub failed: Option<String>,
}

/// What is wrong with a pool, or was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolHealth {
    /// Of each disk.
    pub disks: Vec<DiskHealth>,
    /// Of the metadata.
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
        goes_on: frozen.is_some_and(|frozen| frozen.goes_on),
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
        read_errors: disk.read_errors.load(Relaxed),
        write_errors: disk.write_errors.load(Relaxed),
        last_error: disk.last_error(),
        failed: None,
    };
    let lost = sync.failed.map(|failure| {
        format!("nothing on it can be made durable until the server is started again: {failure}")
    });
    let Ok((known, silent)) = disk.handle.health() else {
        // A pool that ends serves no disk any more. That is no failure of the disk.
        health.failed = (!io.is_closed()).then(|| "it is not served any more".to_owned());
        return health;
    };
    if known.stalled {
        health.stalled_ns = health.stalled_ns.max(silent.0);
    }
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
