//! Moving a volume's extents while they are in use.
//!
//! For each extent outside of the wanted placement: reserve a place, copy the written chunks, copy again the
//! chunks written meanwhile, and when nothing is left to copy and no write is under way, switch and commit
//! ([`volume::Move`] has the steps). Copies are best effort of low urgency.
//!
//! A busy extent may never be idle. After [`PASSES_FREE`] passes, best-effort writes are held back for the last
//! pass; they wait until a few chunks have been copied. A stream's writes are never held back: an extent that a
//! stream may write is switched only when it is idle, which it becomes when the stream proceeds to the next
//! extent. Admission of a stream that writes ends the holding back, and the pass continues as an ordinary one.
//!
//! A reservation keeps its extents on their disk, in places where its blocks take no longer than it was admitted
//! for. That is checked when the copy begins, to refuse early, and again under the admission lock at the switch,
//! because a stream may have been admitted in between.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::MutexGuard;
use sched::request::{Op as Direction, Urgency};
use sched::units::{Nanos, SectorCount};
use volume::chunks::ChunkSet;
use volume::limits::CHUNK_BYTES_MIN;
use volume::moving::Copy;
use volume::{DiskNumber, DiskRange, Grade, Move, Place, Placement, VolumeError};

use super::raw::{RawWrite, raw_failure, sync_all};
use crate::clock;
use crate::state::error::{PoolError, reserved};
use crate::state::options::Progress;
use crate::state::pool::admission::Admission;
use crate::state::pool::core::PoolCore;
use crate::state::raw::RawIo;
use crate::state::request::IoFailure;
use crate::state::volume::VolumeCore;

/// Passes over an extent before best-effort writes are held back.
const PASSES_FREE: u32 = 8;

/// The largest number of chunks that a move leaves behind. A disk that fails at more may be out for a while.
const LEFT_MAX: u32 = 64;

/// Time that a move spends with transfers that fail before it is given up. The drive may try each for seconds.
const FAILING_MAX: Nanos = Nanos::from_secs(10);

/// Interval of checks if reads of an extent's previous place have ended. They do not signal their end, because
/// that would cost every read a check.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Moves the extents of a volume that are outside of `placement`.
pub(crate) fn run(
    pool: &Arc<PoolCore>,
    volume: &Arc<VolumeCore>,
    placement: &Placement,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(), PoolError> {
    let raw = RawIo::for_copies(&pool.io.memory, "move", Urgency::Async).map_err(raw_failure)?;
    let total = volume.map().extents().len() as u64;
    for index in 0..total {
        let at = Progress { done: index, total };
        if !progress(at) {
            return Err(PoolError::Stopped);
        }
        // The volume may grow and shrink meanwhile.
        let Some(place) = volume.map().places().nth(index as usize) else {
            break;
        };
        if !suits(pool, placement, place) {
            let mover = Mover {
                pool,
                volume,
                raw: &raw,
                index: index as u32,
                target: Quality::Any,
                replaced: ChunkSet::EMPTY,
                failing: Cell::new(Nanos::ZERO),
            };
            mover.run(placement, &mut || progress(at))?;
        }
    }
    progress(Progress { done: total, total });
    Ok(())
}

/// True if an extent at `place` is within the placement.
fn suits(pool: &PoolCore, placement: &Placement, place: Place) -> bool {
    let start = pool.io.geometry.sector_of(place);
    let end = start + pool.io.geometry.extent_sectors();
    let on_disk = placement.disks.is_empty() || placement.disks.contains(&place.disk);
    let within = placement.within.is_empty()
        || placement.within.iter().any(|range| {
            range.disk == place.disk && range.start <= start && end <= range.start + range.count
        });
    on_disk && within
}

/// Places that an extent may be moved to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quality {
    /// Slow ones where there is no other.
    Any,
    /// Good ones.
    Good,
}

/// How an extent leaves a bad or slow place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Escape {
    pub(crate) urgency: Urgency,
    /// Chunks that a write replaces next. They are left behind if they cannot be read; other chunks that cannot be read
    /// keep the extent where it is.
    pub(crate) replaced: ChunkSet,
}

/// Moves an extent of a volume away from its place, if that is bad or slow, to a good one on the same disk: as near as
/// possible in speed, and not slower. A volume keeps to its disks, for they were chosen for it.
///
/// # Errors
/// When there is no such place, or the copy failed.
pub(crate) fn escape(
    pool: &Arc<PoolCore>,
    volume: &Arc<VolumeCore>,
    index: u32,
    how: Escape,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), PoolError> {
    let raw = RawIo::for_copies(&pool.io.memory, "repair", how.urgency).map_err(raw_failure)?;
    let mover = Mover {
        pool,
        volume,
        raw: &raw,
        index,
        target: Quality::Good,
        replaced: how.replaced,
        failing: Cell::new(Nanos::ZERO),
    };
    let Some(place) = volume.map().places().nth(index as usize) else {
        return Ok(());
    };
    let disk = &pool.io.disks[disk_index(place.disk)];
    if !disk.grades.lock().contains_key(&place.extent) {
        return Ok(());
    }
    let moved = mover.run(&no_slower(pool, place), go_on);
    match moved {
        Err(PoolError::NoSpace { .. } | PoolError::BadPlacement(_)) => {
            let anywhere = Placement {
                disks: vec![place.disk],
                ..Placement::default()
            };
            mover.run(&anywhere, go_on)
        }
        other => other,
    }
}

/// The zone that a place lies in, and the faster ones before it.
fn no_slower(pool: &PoolCore, place: Place) -> Placement {
    let predictor = &pool.io.disks[disk_index(place.disk)].predictor;
    let zone = predictor.zone_of(pool.io.geometry.sector_of(place));
    let zones = (0..=zone)
        .rev()
        .filter_map(|zone| predictor.zone_range(zone));
    let within = zones.map(|range| DiskRange {
        disk: place.disk,
        start: range.start,
        count: range.end.saturating_since(range.start),
    });
    Placement {
        disks: vec![place.disk],
        within: within.collect(),
        ..Placement::default()
    }
}

/// The move of one extent.
struct Mover<'a> {
    pool: &'a Arc<PoolCore>,
    volume: &'a Arc<VolumeCore>,
    raw: &'a RawIo,
    index: u32,
    target: Quality,
    /// Chunks that may be left behind.
    replaced: ChunkSet,
    /// Time spent with transfers that failed.
    failing: Cell<Nanos>,
}

/// The result of an attempt to begin.
enum BeginResult {
    Begun(Move),
    /// The volume has shrunk, and the extent does not exist any more.
    Gone,
    /// Reads are under way at the extent's place before its last move.
    StillRead,
}

/// The result of an attempt to switch.
enum SwitchResult {
    Done,
    /// Chunks are left to copy, or a write is under way.
    NotYet(Move),
}

impl Mover<'_> {
    fn run(&self, placement: &Placement, go_on: &mut dyn FnMut() -> bool) -> Result<(), PoolError> {
        let moved = loop {
            match self.begin(placement)? {
                BeginResult::Begun(moved) => break moved,
                BeginResult::Gone => return Ok(()),
                // The extent has just been moved, and a read from before that is still under way.
                BeginResult::StillRead if go_on() => std::thread::sleep(LOOK_AGAIN),
                BeginResult::StillRead => return Err(PoolError::Stopped),
            }
        };
        let result = self.copy_and_switch(moved, go_on);
        // Writes that were parked while the extent was frozen may begin.
        self.volume.retry(&self.pool.worker);
        result
    }

    /// Reserves the new place.
    fn begin(&self, placement: &Placement) -> Result<BeginResult, PoolError> {
        let mut meta = self.pool.meta.lock();
        meta.resume(self.pool)?;
        // If another server has opened the pool, places that are free here may be in use there.
        meta.verify(self.pool)?;
        let begun = match self.target {
            Quality::Any => meta.state.begin_move(self.volume.id, self.index, placement),
            Quality::Good => {
                let (volume, index) = (self.volume.id, self.index);
                meta.state.begin_move_to_good(volume, index, placement)
            }
        };
        let moved = match begun {
            Ok(moved) => moved,
            Err(VolumeError::NoSuchExtent { .. }) => return Ok(BeginResult::Gone),
            Err(VolumeError::StillRead { .. }) => return Ok(BeginResult::StillRead),
            Err(error) => return Err(PoolError::from_plan(error, self.pool.io.extent_bytes())),
        };
        let allowed = self.allowed(&self.pool.admission.lock(), &moved);
        if let Err(error) = allowed {
            meta.state.cancel_move(moved);
            return Err(error);
        }
        Ok(BeginResult::Begun(moved))
    }

    /// Checks that the reservations that include the extent allow the move.
    fn allowed(&self, admission: &Admission, moved: &Move) -> Result<(), PoolError> {
        let geometry = self.pool.io.geometry;
        let (source, target) = (moved.source(), moved.target());
        let bytes = geometry.extent_bytes().0;
        let start = u64::from(self.index) * bytes;
        for stream in admission.reservers(self.volume.id, Some(start..start + bytes)) {
            let refuse = |reason| Err(reserved(&self.volume.name, stream.name.clone(), reason));
            if source.disk != target.disk {
                return refuse("its extents may move only within their disk");
            }
            let predictor = &self.pool.io.disks[disk_index(target.disk)].predictor;
            let worst = |place: Place| {
                let start = geometry.sector_of(place);
                let range = start..start + geometry.extent_sectors();
                let block = SectorCount(stream.block().0.div_ceil(512));
                predictor.worst_case(range, stream.op, block.min(geometry.extent_sectors()))
            };
            if worst(target) > worst(source) {
                return refuse("its extents may not move to where the disk is slower");
            }
        }
        Ok(())
    }

    /// Holds back writes and waits until none is under way. Those of a stream that may write to the extent are not held
    /// back, and the first instant without one is waited for. A stream that is admitted later, under the same lock,
    /// thaws the extent.
    fn hold(&self, moved: &Move) {
        let bytes = self.pool.io.extent_bytes().0;
        let start = u64::from(self.index) * bytes;
        let admission = self.pool.admission.lock();
        let is_written_by_stream = admission
            .reservers(self.volume.id, Some(start..start + bytes))
            .any(|stream| stream.op == Direction::Write);
        if is_written_by_stream {
            drop(admission);
            let at_rest = || moved.writers() == 0;
            return self.volume.wait_until(&self.pool.worker, at_rest);
        }
        moved.freeze();
        drop(admission);
        let at_rest = || moved.writers() == 0 || !moved.is_frozen();
        self.volume.wait_until(&self.pool.worker, at_rest);
    }

    fn copy_and_switch(
        &self,
        mut moved: Move,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), PoolError> {
        for pass in 0.. {
            if pass >= PASSES_FREE {
                self.hold(&moved);
            }
            if let Err(error) = self.pass(&mut moved, go_on) {
                self.cancel(moved);
                return Err(error);
            }
            // The transaction syncs again, for later writes. A failure there could not be rolled back.
            let ends = [moved.source(), moved.target()];
            let disks = ends.map(|place| &self.pool.io.disks[disk_index(place.disk)]);
            let durable = sync_all(&disks).map_err(PoolError::from);
            if let Err(failure) = durable.and_then(|()| self.prove(&moved)) {
                self.cancel(moved);
                return Err(failure);
            }
            match self.switch(moved)? {
                SwitchResult::Done => return Ok(()),
                SwitchResult::NotYet(back) => moved = back,
            }
            self.volume.retry(&self.pool.worker);
        }
        Ok(())
    }

    /// Copies the chunks that are due.
    fn pass(&self, moved: &mut Move, go_on: &mut dyn FnMut() -> bool) -> Result<(), PoolError> {
        for copy in moved.pass() {
            let Err(failure) = self.copy(moved, &copy, go_on) else {
                continue;
            };
            if !self.may_leave_some(moved, &copy, &failure) {
                return Err(failure);
            }
            for one in moved.single(&copy) {
                match self.copy(moved, &one, go_on) {
                    Err(failure) if self.may_leave_some(moved, &one, &failure) => {
                        moved.leave(&one);
                    }
                    copied => copied?,
                }
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        moved: &Move,
        copy: &Copy,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), PoolError> {
        let disks = &self.pool.io.disks;
        let from = (disk_index(moved.source().disk), copy.from);
        let to = (disk_index(moved.target().disk), copy.to);
        let mut began = clock::now();
        let go_on = &mut || {
            began = clock::now();
            go_on()
        };
        match self.raw.copy(disks, from, to, copy.count, go_on) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PoolError::Stopped),
            Err(failure) => {
                let failing = clock::now().saturating_since(began);
                self.failing.set(self.failing.get().saturating_add(failing));
                self.note(moved, &failure);
                Err(failure.into())
            }
        }
    }

    /// True if a copy failed because the medium of the source could not be read, and chunks of it may be left behind.
    fn may_leave_some(&self, moved: &Move, copy: &Copy, failure: &PoolError) -> bool {
        let is_read = matches!(failure, PoolError::Io(IoFailure::Disk { op: "read", .. }));
        is_read
            && self.raw.failed_medium.load(Relaxed)
            && !moved.chunks_of(copy).and(&self.replaced).is_empty()
            && moved.lost() < LEFT_MAX
            && self.failing.get() < FAILING_MAX
    }

    /// Checks that the disk works if chunks are left behind: something can be written at the target and read again. The
    /// source is on the same disk. The disk may have been out when they could not be read.
    fn prove(&self, moved: &Move) -> Result<(), PoolError> {
        let Some(start) = moved.first_lost() else {
            return Ok(());
        };
        let mut data = vec![0; CHUNK_BYTES_MIN.0 as usize];
        let disk = disk_index(moved.target().disk);
        let disks = &self.pool.io.disks;
        let write = RawWrite {
            disk,
            start,
            data: &data,
        };
        let written = self.raw.write(disks, &[write]);
        let proved = written.and_then(|()| self.raw.read(disks, disk, start, &mut data));
        proved.map_err(|failure| {
            self.note_bad(moved.target());
            failure.into()
        })
    }

    /// Notes a place that failed the copy.
    fn note(&self, moved: &Move, failure: &IoFailure) {
        let place = match failure {
            IoFailure::Disk { op: "read", .. } => moved.source(),
            IoFailure::Disk { op: "write", .. } => moved.target(),
            _ => return,
        };
        self.note_bad(place);
    }

    /// Notes a place if the last failure was one of its medium.
    fn note_bad(&self, place: Place) {
        let disk = &self.pool.io.disks[disk_index(place.disk)];
        if self.raw.failed_medium.load(Relaxed) && disk.suspects.failed(place.extent) {
            self.pool.repairs.note(place, Grade::Bad);
        }
    }

    /// Switches and commits if the extent is idle at this moment.
    fn switch(&self, moved: Move) -> Result<SwitchResult, PoolError> {
        let mut meta = self.pool.meta.lock();
        if let Err(frozen) = meta.resume(self.pool) {
            meta.state.cancel_move(moved);
            return Err(frozen);
        }
        let admission: MutexGuard<'_, Admission> = self.pool.admission.lock();
        if let Err(error) = self.allowed(&admission, &moved) {
            drop(admission);
            meta.state.cancel_move(moved);
            return Err(error);
        }
        moved.freeze();
        if moved.writers() > 0 || moved.is_touched() {
            moved.thaw();
            return Ok(SwitchResult::NotYet(moved));
        }
        let finished = meta.state.finish_move(moved);
        drop(admission);
        match finished {
            Ok(transaction) => {
                self.volume.retry(&self.pool.worker);
                meta.carry_out(self.pool, transaction)?;
                Ok(SwitchResult::Done)
            }
            Err((moved, VolumeError::MoveUnfinished(_))) => {
                moved.thaw();
                Ok(SwitchResult::NotYet(moved))
            }
            Err((moved, error)) => {
                meta.state.cancel_move(moved);
                Err(PoolError::from_plan(error, self.pool.io.extent_bytes()))
            }
        }
    }

    fn cancel(&self, moved: Move) {
        self.pool.meta.lock().state.cancel_move(moved);
    }
}

fn disk_index(number: DiskNumber) -> usize {
    usize::from(number.0)
}

#[cfg(test)]
mod tests;
