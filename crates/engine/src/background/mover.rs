//! Moving a volume's extents while they are in use.
//!
//! For each extent that is not where it should be: reserve a place, copy what is written, copy again
//! what was written meanwhile, and when nothing is left to copy and no write is under way, switch and
//! commit ([`volume::Move`] has the steps). Copies are best effort that nobody waits for.
//!
//! A busy extent may never be found at rest. After [`PASSES_FREE`] passes writes of best effort are
//! held back for the last pass; they wait for a few chunks to be copied. A stream's writes are never
//! held back: an extent that a stream may write is switched only at an instant at which it is at
//! rest, and a stream that goes on to the next extent leaves it so. Who admits a stream that writes
//! ends what holds its writes back, and the pass goes on as one of the others.
//!
//! A reservation keeps its extents on their disk, in places where its blocks take no longer than it
//! was admitted for. That is checked when the copy begins, to refuse early, and under the admission
//! lock when the switch is made, so that a stream that comes in between has the last word.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use sched::request::Op as Direction;
use sched::units::SectorCount;
use volume::{DiskNumber, Move, Place, Placement, VolumeError};

use super::raw::{raw_failure, sync_all};
use crate::state::error::{PoolError, reserved};
use crate::state::options::Progress;
use crate::state::pool::admission::Admission;
use crate::state::pool::core::PoolCore;
use crate::state::raw::RawIo;
use crate::state::volume::VolumeCore;

/// Passes over an extent in which no write is held back.
const PASSES_FREE: u32 = 8;

/// How long to wait between two looks whether reads of an extent's previous place have ended. They
/// tell nobody: it would cost every read a look whether a move waits for it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Moves the extents of a volume that are not where `placement` wants them.
pub(crate) fn run(
    pool: &Arc<PoolCore>,
    volume: &Arc<VolumeCore>,
    placement: &Placement,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(), PoolError> {
    let raw = RawIo::for_copies(&pool.io.memory, "move").map_err(raw_failure)?;
    let total = volume.map().extents().len() as u64;
    for index in 0..total {
        let at = Progress { done: index, total };
        if !progress(at) {
            return Err(PoolError::Stopped);
        }
        // Growing and shrinking go on meanwhile.
        let Some(place) = volume.map().places().nth(index as usize) else {
            break;
        };
        if !suits(pool, placement, place) {
            let mover = Mover {
                pool,
                volume,
                raw: &raw,
                index: index as u32,
            };
            mover.run(placement, &mut || progress(at))?;
        }
    }
    progress(Progress { done: total, total });
    Ok(())
}

/// Whether an extent at `place` is where the placement wants it.
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

/// The move of one extent.
struct Mover<'a> {
    pool: &'a Arc<PoolCore>,
    volume: &'a Arc<VolumeCore>,
    raw: &'a RawIo,
    index: u32,
}

/// What came of an attempt to begin.
enum Begin {
    Begun(Move),
    /// The volume has been cut, and the extent is no more.
    Gone,
    /// Reads are on their way to where the extent was before its last move.
    StillRead,
}

/// What came of an attempt to switch.
enum Switch {
    Done,
    /// Something is left to copy, or a write is under way.
    NotYet(Move),
}

impl Mover<'_> {
    fn run(&self, placement: &Placement, go_on: &mut dyn FnMut() -> bool) -> Result<(), PoolError> {
        let moved = loop {
            match self.begin(placement)? {
                Begin::Begun(moved) => break moved,
                Begin::Gone => return Ok(()),
                // Moved a moment ago: a read that began before that is still on its way.
                Begin::StillRead if go_on() => std::thread::sleep(LOOK_AGAIN),
                Begin::StillRead => return Err(PoolError::Stopped),
            }
        };
        let result = self.copy_and_switch(moved, go_on);
        // Writes that were refused while the extent was frozen may go on.
        self.volume.retry(&self.pool.worker);
        result
    }

    /// Reserves the new place.
    fn begin(&self, placement: &Placement) -> Result<Begin, PoolError> {
        let mut meta = self.pool.meta.lock();
        meta.go_on(self.pool)?;
        // What is free here may be in use there if another server has opened the pool.
        meta.verify(self.pool)?;
        let begun = meta.state.begin_move(self.volume.id, self.index, placement);
        let moved = match begun {
            Ok(moved) => moved,
            Err(VolumeError::NoSuchExtent { .. }) => return Ok(Begin::Gone),
            Err(VolumeError::StillRead { .. }) => return Ok(Begin::StillRead),
            Err(error) => return Err(PoolError::from_plan(error, self.pool.io.extent_bytes())),
        };
        let allowed = self.allowed(&self.pool.admission.lock(), &moved);
        if let Err(error) = allowed {
            meta.state.cancel_move(moved);
            return Err(error);
        }
        Ok(Begin::Begun(moved))
    }

    /// Whether the reservations that the extent is part of allow the move.
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

    /// Holds writes back, unless a stream may write to the extent, and waits until none is under way. A
    /// stream that may is admitted under the same lock, and thaws it.
    fn hold(&self, moved: &Move) {
        let bytes = self.pool.io.extent_bytes().0;
        let start = u64::from(self.index) * bytes;
        let admission = self.pool.admission.lock();
        let is_written_by_stream = admission
            .reservers(self.volume.id, Some(start..start + bytes))
            .any(|stream| stream.op == Direction::Write);
        if is_written_by_stream {
            return;
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
            // The transaction asks again, for what has been written since. It could not be taken back.
            let ends = [moved.source(), moved.target()];
            let disks = ends.map(|place| &self.pool.io.disks[disk_index(place.disk)]);
            if let Err(failure) = sync_all(&disks) {
                self.cancel(moved);
                return Err(failure.into());
            }
            match self.switch(moved)? {
                Switch::Done => return Ok(()),
                Switch::NotYet(back) => moved = back,
            }
            self.volume.retry(&self.pool.worker);
        }
        Ok(())
    }

    /// Copies what has to be copied now.
    fn pass(&self, moved: &mut Move, go_on: &mut dyn FnMut() -> bool) -> Result<(), PoolError> {
        let (from, to) = (
            disk_index(moved.source().disk),
            disk_index(moved.target().disk),
        );
        for copy in moved.pass() {
            let disks = &self.pool.io.disks;
            let (from, to) = ((from, copy.from), (to, copy.to));
            if !self.raw.copy(disks, from, to, copy.count, go_on)? {
                return Err(PoolError::Stopped);
            }
        }
        Ok(())
    }

    /// Switches if the extent is at rest at this instant, and makes it durable.
    fn switch(&self, moved: Move) -> Result<Switch, PoolError> {
        let mut meta = self.pool.meta.lock();
        if let Err(frozen) = meta.go_on(self.pool) {
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
            return Ok(Switch::NotYet(moved));
        }
        let finished = meta.state.finish_move(moved);
        drop(admission);
        match finished {
            Ok(transaction) => {
                self.volume.retry(&self.pool.worker);
                meta.carry_out(self.pool, transaction)?;
                Ok(Switch::Done)
            }
            Err((moved, VolumeError::MoveUnfinished(_))) => {
                moved.thaw();
                Ok(Switch::NotYet(moved))
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
