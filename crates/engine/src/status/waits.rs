//! Flushes that wait for a stalled disk.
//!
//! A stalled disk delays more than its own requests: a flush of a volume on other disks waits if its log
//! record lies on the stalled disk. This report names that disk.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use sched::units::Nanos;
use serde::Serialize;

use super::health;
use crate::clock;
use crate::state::pool::core::PoolCore;
use crate::state::round::Round;

/// A flush of a volume, or a forced write, that waits for a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WaitStatus {
    /// The volume.
    pub volume: String,
    /// The disk.
    pub disk: String,
    /// Time since the flush round began.
    pub waits_ns: u64,
    /// Time for which the disk has not answered.
    pub stalled_ns: u64,
}

impl fmt::Display for WaitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (volume, disk) = (&self.volume, &self.disk);
        let stalled = Nanos(self.stalled_ns);
        write!(
            f,
            "flush of volume {volume:?} waits for disk {disk:?} (stalled for {stalled})"
        )
    }
}

/// Flushes that wait for a stalled disk. Disks are queried only while a flush is under way.
pub(crate) fn waits(core: &PoolCore) -> Vec<WaitStatus> {
    let now = clock::now();
    let volumes: Vec<_> = core.volumes.read().values().cloned().collect();
    let mut waits = Vec::new();
    for volume in volumes {
        let round = volume.rounds.lock().current.upgrade();
        let Some(round) = round.filter(|round| round.began() < now) else {
            continue;
        };
        for (disk, stalled) in stalled_disks(core, &round) {
            waits.push(WaitStatus {
                volume: volume.name.clone(),
                disk: core.io.disks[disk].name.clone(),
                waits_ns: now.saturating_since(round.began()).0,
                stalled_ns: stalled.0,
            });
        }
    }
    waits
}

/// The stalled disks that a round waits for, each with the time for which it has not answered.
fn stalled_disks(core: &PoolCore, round: &Round) -> Vec<(usize, Nanos)> {
    let unsynced = round.unsynced();
    let in_the_way = |index: &usize| {
        if unsynced.is_empty() {
            core.io.disks[*index].metadata.load(Relaxed) > 0
        } else {
            unsynced.contains(index)
        }
    };
    let stalled = |index: usize| {
        let stalled = Nanos(health::disk(&core.io, &core.io.disks[index]).stalled_ns);
        (!stalled.is_zero()).then_some((index, stalled))
    };
    (0..core.io.disks.len())
        .filter(in_the_way)
        .filter_map(stalled)
        .collect()
}
