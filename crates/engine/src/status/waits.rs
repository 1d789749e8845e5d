//! Who waits for a disk that does not answer.
//!
//! A disk that stalls holds up more than what was asked of it: a flush of a volume on other disks waits if
//! its record of the log lies there. Whoever sees the flush hang wants to be told where to look.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use sched::units::Nanos;
use serde::Serialize;

use super::health;
use crate::clock;
use crate::state::pool::core::PoolCore;
use crate::state::round::Round;

/// A flush of a volume, or a write that must be durable, that waits for a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WaitStatus {
    /// The volume.
    pub volume: String,
    /// The disk.
    pub disk: String,
    /// For how long it has been under way.
    pub waits_ns: u64,
    /// For how long the disk has not answered.
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

/// The flushes that wait for a disk that does not answer. No disk is asked while no flush is under way.
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

/// The disks that a round waits for and that do not answer, each with for how long not.
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
