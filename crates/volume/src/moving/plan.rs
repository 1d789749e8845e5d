//! The pool's part of a move: how it begins, switches and is given up.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Move;
use crate::draft::Effect;
use crate::error::VolumeError;
use crate::grade::Quality;
use crate::ondisk::change::Change;
use crate::place::VolumeId;
use crate::placement::Placement;
use crate::pool::{Phase, PoolState};
use crate::settle::{bits_of, loss_of};
use crate::transaction::{Step, Transaction};

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
        self.begin(volume, extent, target, Quality::GoodFirst)
    }

    /// As [`PoolState::begin_move`], to a place that is not slow either.
    ///
    /// # Errors
    /// As there.
    pub fn begin_move_to_good(
        &mut self,
        volume: VolumeId,
        extent: u32,
        target: &Placement,
    ) -> Result<Move, VolumeError> {
        self.begin(volume, extent, target, Quality::GoodOnly)
    }

    fn begin(
        &mut self,
        volume: VolumeId,
        extent: u32,
        target: &Placement,
        quality: Quality,
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
        let taken = self.take(target, 1, (None, 0), 0, quality)?;
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
            lost: Box::default(),
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
        let lost = moved.lost.and(&moved.extent.written());
        let more = u64::from(!lost.is_empty());
        if more > 0 && self.free.free() < self.kept(self.rewrite_extents(more)) {
            let error = self.no_space(0);
            return Err((moved, error));
        }
        moved.extent.lose(&lost);
        let mut disks = BTreeSet::from([moved.target.disk]);
        let mut changes = bits_of(map, &[moved.extent()], &mut disks);
        changes.push(Change::Move {
            volume: moved.volume,
            index: moved.extent(),
            to: moved.target,
        });
        if more > 0 || self.lost.contains(&(moved.volume, moved.extent())) {
            changes.extend(loss_of(map, moved.extent()));
        }
        let mut draft = self.draft();
        // The copies, and what the bits say is written where the extent is now.
        let flushes = disks.into_iter().map(|disk| Step::Flush { disk });
        draft.steps.extend(flushes);
        if let Err(error) = self.change(&mut draft, &changes, more) {
            moved.extent.unlose(&lost);
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
