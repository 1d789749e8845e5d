//! Moving an extent while it is in use.
//!
//! [`crate::PoolState::begin_move`], then for each of [`Move::pass`]'s copies read the source and
//! write the target; repeat until a pass is small; [`Move::freeze`]; wait until [`Move::writers`] is
//! zero (writes to the extent are refused as busy meanwhile, those in flight complete); copy a last
//! pass; [`crate::PoolState::finish_move`]. Reads are never held up.

use std::collections::BTreeSet;
use std::sync::Arc;

use sched::units::{Sector, SectorCount};

use crate::error::VolumeError;
use crate::extent::Extent;
use crate::ondisk::payload::Change;
use crate::place::{Geometry, Place, VolumeId};
use crate::placement::Placement;
use crate::plan::Effect;
use crate::pool::{Phase, PoolState};
use crate::settle::bits_of;
use crate::transaction::{Step, Transaction};

/// A stretch to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Where it is, on the source's disk.
    pub from: Sector,
    /// Where it goes, on the target's disk.
    pub to: Sector,
    /// How much.
    pub count: SectorCount,
}

/// An extent on its way. Give it back by `finish_move` or `cancel_move`.
#[derive(Debug)]
pub struct Move {
    pub(crate) volume: VolumeId,
    pub(crate) extent: Arc<Extent>,
    pub(crate) source: Place,
    pub(crate) target: Place,
    pub(crate) geometry: Geometry,
    pub(crate) passes: u32,
}

impl Move {
    /// The volume.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Which extent of it.
    #[must_use]
    pub fn extent(&self) -> u32 {
        self.extent.index()
    }

    /// Where it is.
    #[must_use]
    pub fn source(&self) -> Place {
        self.source
    }

    /// Where it goes.
    #[must_use]
    pub fn target(&self) -> Place {
        self.target
    }

    /// What to copy now: at first all that is written, then what has been written since the pass
    /// before began. Call it when the copies of the pass before are done.
    pub fn pass(&mut self) -> Vec<Copy> {
        let set = self.extent.take_pass(self.passes == 0);
        self.passes += 1;
        let chunk = self.geometry.chunk_sectors();
        let (from, to) = (
            self.geometry.sector_of(self.source),
            self.geometry.sector_of(self.target),
        );
        let copies = set.runs(self.geometry.chunks()).map(|run| {
            let offset = chunk * u64::from(run.start);
            Copy {
                from: from + offset,
                to: to + offset,
                count: chunk * u64::from(run.end - run.start),
            }
        });
        copies.collect()
    }

    /// No write to the extent begins any more; they are refused as busy.
    pub fn freeze(&self) {
        self.extent.freeze();
    }

    /// Writes begin again; another round of passes follows.
    pub fn thaw(&self) {
        self.extent.thaw();
    }

    /// Whether it is frozen: somebody else may have thawed it since ([`crate::VolumeMap::thaw`]).
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.extent.is_frozen()
    }

    /// The writes to the extent that are in flight.
    #[must_use]
    pub fn writers(&self) -> u32 {
        self.extent.writers()
    }

    /// Whether chunks have been written since the last pass began.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        !self.extent.touched().is_empty()
    }

    fn check_finished(&self) -> Result<(), VolumeError> {
        let unfinished = if !self.extent.is_frozen() {
            "writes have not been stopped"
        } else if self.writers() > 0 {
            "writes are in flight"
        } else if self.passes == 0 || self.is_touched() {
            "there is something left to copy"
        } else {
            return Ok(());
        };
        Err(VolumeError::MoveUnfinished(unfinished))
    }
}

impl PoolState {
    /// Reserves a place for extent `extent` of a volume and begins to move it there; [`Move`] says
    /// what to copy. The reservation is in memory only. Possible while a transaction is under way.
    ///
    /// # Errors
    /// No room there; the extent is being moved; requests to its previous place are still in flight,
    /// so that it has to be tried again.
    pub fn begin_move(
        &mut self,
        volume: VolumeId,
        extent: u32,
        target: &Placement,
    ) -> Result<Move, VolumeError> {
        match self.phase {
            Phase::Poisoned => return Err(VolumeError::Poisoned),
            Phase::Opened => return Err(VolumeError::NotStarted),
            Phase::Started => {}
        }
        let map = self.volume(volume)?.1;
        let have = map.extents().len() as u32;
        let found = map.extents().get(extent as usize).cloned();
        let found = found.ok_or(VolumeError::NoSuchExtent {
            asked: extent,
            have,
        })?;
        if self.moving.contains_key(&(volume, extent)) {
            return Err(VolumeError::BeingMoved { extent });
        }
        if found.lingers() {
            return Err(VolumeError::StillRead { extent });
        }
        let taken = self.take(target, 1, None, 0, 0)?;
        let (source, target) = (found.place(), taken[0]);
        self.moving.insert((volume, extent), target);
        found.track();
        Ok(Move {
            volume,
            extent: found,
            source,
            target,
            geometry: self.geometry,
            passes: 0,
        })
    }

    /// Switches the extent to its new place and commits that. The move is frozen, has no writers and
    /// nothing left to copy. After this call requests go to the new place; flushes of the volume
    /// wait for the transaction, as they do for any.
    ///
    /// # Errors
    /// Not at that point, or the extent has been cut off: the move comes back with the error.
    pub fn finish_move(&mut self, moved: Move) -> Result<Transaction, (Move, VolumeError)> {
        let point = self.ready().and_then(|()| moved.check_finished());
        if let Err(error) = point {
            return Err((moved, error));
        }
        let map = match self.volume(moved.volume) {
            Ok((_, map)) => map,
            Err(error) => return Err((moved, error)),
        };
        // A change that was under way when the move began may have cut it off, and growing since
        // may have put another in its stead.
        let present = map.extents().get(moved.extent() as usize);
        if !present.is_some_and(|extent| Arc::ptr_eq(extent, &moved.extent)) {
            let (asked, have) = (moved.extent(), map.extents().len() as u32);
            return Err((moved, VolumeError::NoSuchExtent { asked, have }));
        }
        // The extent's bits go in front of its new place. A chunk whose bit was cleared and not yet
        // committed has not been copied: with the bit that is on the disk it would, after a crash,
        // show what the new place held before.
        let mut disks = BTreeSet::from([moved.target.disk]);
        let mut changes = bits_of(map, &[moved.extent()], &mut disks);
        changes.push(Change::Move {
            volume: moved.volume,
            index: moved.extent(),
            to: moved.target,
        });
        let mut draft = self.draft();
        // The copies, and what the bits say is written where the extent is now.
        let flushes = disks.into_iter().map(|disk| Step::Flush { disk });
        draft.steps.extend(flushes);
        if let Err(error) = self.change(&mut draft, &changes, 0) {
            return Err((moved, self.give_up(draft, error)));
        }
        moved.extent.switch(moved.target);
        draft.effect = Effect::Moved(moved);
        Ok(self.hand_out(draft))
    }

    /// Gives up a move: the extent stays where it is.
    pub fn cancel_move(&mut self, moved: Move) {
        self.moving.remove(&(moved.volume, moved.extent()));
        moved.extent.untrack();
        self.free.give(moved.target);
    }
}
