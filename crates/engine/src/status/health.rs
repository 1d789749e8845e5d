//! What is wrong with disks and metadata, and how often it was. It is asked often, so that each change of it can be
//! told: it costs a disk's thread little.

use std::sync::atomic::Ordering::Relaxed;

use sched::units::{Nanos, Time};

use super::{DiskHealth, MetadataStatus, PoolHealth};
use crate::clock;
use crate::state::disk::core::DiskCore;
use crate::state::pool::core::PoolCore;

pub(crate) fn pool(core: &PoolCore) -> PoolHealth {
    PoolHealth {
        disks: core.disks.iter().map(|of| disk(core, of)).collect(),
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

pub(crate) fn disk(core: &PoolCore, disk: &DiskCore) -> DiskHealth {
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
        health.failed = (!core.is_closed()).then(|| "it is not served any more".to_owned());
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
