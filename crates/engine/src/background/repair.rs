//! The pool's repair thread: records bad and slow places, makes failed writes elsewhere, and moves extents away.
//!
//! A write that failed waits here while its extent is moved to another place of the same disk; then it is issued again
//! ([`crate::volume_io::issue::rewrite`]). Nobody has been told of the failure. If there is no other place, or that one
//! fails as well, the write fails as it would have at once.
//!
//! A *sweep* moves extents with a grade: those at bad places, and those at slow places that a stream has reserved. It
//! is best effort, and gives way to failed writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sched::request::Urgency;
use volume::chunks::ChunkSet;
use volume::{DiskNumber, Grade, Place, PoolState, VolumeId};

use super::mover::{self, Escape};
use crate::state::error::PoolError;
use crate::state::op::FailedWrite;
use crate::state::pool::core::PoolCore;
use crate::state::pool::repair::Repairs;
use crate::state::request::IoFailure;
use crate::state::volume::VolumeCore;
use crate::state::warning::Warning;
use crate::volume_io::issue;

/// The largest part of a disk's extents, as a fraction, that may be slow. If more take longer than predicted, the
/// profile is to blame and not the places.
const SLOW_FRACTION: usize = 64;

/// Extents that may be slow on any disk.
const SLOW_LEAST: usize = 16;

/// Places that are tried for an extent that has to leave its own.
const TARGETS_MAX: u32 = 8;

/// Extents of a volume, by number and index.
type Extents = BTreeSet<(VolumeId, u32)>;

impl Repairs {
    /// Starts the thread.
    pub(crate) fn start(&self, pool: &Arc<PoolCore>) {
        let pool = Arc::clone(pool);
        let body = move || {
            // Extents that the present sweep has yet to look at.
            let mut left = Extents::new();
            while let Some(batch) = pool.repairs.next() {
                record(&pool, batch.grades);
                rewrite_all(&pool, batch.writes);
                if batch.sweep {
                    left.extend(extents_to_move(&pool));
                }
                sweep(&pool, &mut left);
            }
        };
        *self.thread.lock() = Some(std::thread::spawn(body));
    }
}

/// Records grades, those that are news, and has extents moved away for them.
fn record(pool: &PoolCore, grades: BTreeMap<Place, Grade>) {
    let mut too_many = BTreeSet::new();
    let is_news = |(place, grade): &(Place, Grade)| {
        let disk = &pool.io.disks[usize::from(place.disk.0)];
        let known = disk.grades.lock();
        let most = (pool.io.extents_on(disk) / SLOW_FRACTION).max(SLOW_LEAST);
        let is_first = !known.contains_key(&place.extent);
        if is_first && known.len() >= most {
            too_many.insert(place.disk);
            return false;
        }
        known.get(&place.extent).is_none_or(|known| known < grade)
    };
    let news: Vec<(Place, Grade)> = grades.into_iter().filter(is_news).collect();
    for disk in too_many {
        warn_of_disk(pool, disk);
    }
    if news.is_empty() {
        return;
    }
    // A grade that cannot be recorded now is noticed again when the place fails again.
    let recorded = pool
        .meta
        .lock()
        .change(pool, |state: &mut PoolState| state.set_grades(&news));
    if recorded.is_ok() {
        pool.take_grades(news.into_iter());
        pool.repairs.sweep();
    }
}

/// Warns once of a disk with too many bad or slow places.
fn warn_of_disk(pool: &PoolCore, disk: DiskNumber) {
    let name = &pool.io.disks[usize::from(disk.0)].name;
    let what = format!(
        "{name}: requests fail or take longer than predicted at more places than the pool records: the disk is failing, or its profile is too tight. Replace the disk, or measure its profile again"
    );
    let mut warnings = pool.warnings.lock();
    if !warnings.iter().any(|known| known.what == what) {
        let concerns = vec![name.clone()];
        warnings.push(Warning { what, concerns });
    }
}

/// Moves the extents of failed writes, and makes the writes there.
fn rewrite_all(pool: &Arc<PoolCore>, writes: Vec<FailedWrite>) {
    let mut by_extent: BTreeMap<(VolumeId, u32), Vec<FailedWrite>> = BTreeMap::new();
    for write in writes {
        let key = (write.volume.id, write.extent);
        by_extent.entry(key).or_default().push(write);
    }
    for ((_, extent), writes) in by_extent {
        let volume = Arc::clone(&writes[0].volume);
        make_room(pool, &volume, extent, &writes);
        // The result is the extent's place. An earlier write may have moved it already.
        let place = volume.map().places().nth(extent as usize);
        for write in writes {
            if place == Some(write.place) {
                issue::give_up(write);
            } else {
                issue::rewrite(write);
            }
        }
    }
}

/// Moves the extent of failed writes to a place that takes it. Data that cannot be read is left behind only if the writes
/// replace it. A pool that closes waits for no copy.
fn make_room(pool: &Arc<PoolCore>, volume: &Arc<VolumeCore>, extent: u32, writes: &[FailedWrite]) {
    let replaced = writes.iter().map(issue::replaced_by);
    let escape = Escape {
        urgency: Urgency::Sync,
        replaced: replaced.fold(ChunkSet::EMPTY, |all, more| all.or(&more)),
    };
    for _ in 0..TARGETS_MAX {
        let moved = mover::escape(pool, volume, extent, escape, &mut || !pool.io.is_closed());
        let is_target = matches!(
            moved,
            Err(PoolError::Io(IoFailure::Disk { op: "write", .. }))
        );
        let news = pool.repairs.take_grades();
        let is_next_another = is_target && !news.is_empty();
        // A place that was to take it and is bad itself is not chosen again.
        record(pool, news);
        if !is_next_another {
            return;
        }
    }
}

/// The extents that are at bad places, and those at slow places that a stream has reserved.
fn extents_to_move(pool: &PoolCore) -> Extents {
    let grades: Vec<BTreeMap<u32, Grade>> = (pool.io.disks.iter())
        .map(|disk| disk.grades.lock().clone())
        .collect();
    if grades.iter().all(BTreeMap::is_empty) {
        return Extents::new();
    }
    let volumes: Vec<Arc<VolumeCore>> = pool.volumes.read().values().cloned().collect();
    let mut found = Extents::new();
    for volume in volumes {
        for (index, place) in (0..).zip(volume.map().places()) {
            let is_due = match grades[usize::from(place.disk.0)].get(&place.extent) {
                None => false,
                Some(Grade::Bad) => true,
                Some(Grade::Slow { .. }) => is_reserved(pool, &volume, index),
            };
            if is_due {
                found.insert((volume.id, index));
            }
        }
    }
    found
}

fn is_reserved(pool: &PoolCore, volume: &VolumeCore, index: u32) -> bool {
    let bytes = pool.io.extent_bytes().0;
    let start = u64::from(index) * bytes;
    let admission = pool.admission.lock();
    let range = Some(start..start + bytes);
    admission.reserver(volume.id, range).is_some()
}

/// Moves extents until something more urgent comes, or the pool closes. An extent that cannot be moved stays, until the next
/// sweep.
fn sweep(pool: &Arc<PoolCore>, left: &mut Extents) {
    while let Some((id, index)) = left.first().copied() {
        if pool.io.is_closed() {
            return;
        }
        if pool.repairs.is_urgent() {
            pool.repairs.sweep();
            return;
        }
        let volume = pool.volumes.read().values().find(|of| of.id == id).cloned();
        let Some(volume) = volume else {
            left.remove(&(id, index));
            continue;
        };
        let escape = Escape {
            urgency: Urgency::Async,
            replaced: ChunkSet::EMPTY,
        };
        let go_on = &mut || !pool.repairs.is_urgent() && !pool.io.is_closed();
        let moved = mover::escape(pool, &volume, index, escape, go_on);
        if !matches!(moved, Err(PoolError::Stopped)) {
            left.remove(&(id, index));
        }
    }
}
