//! The end of a transaction: it takes effect, or it has never been, or nobody knows.

use std::sync::Arc;

use crate::draft::{Draft, Effect};
use crate::error::VolumeError;
use crate::extent::Extent;
use crate::place::{Place, VolumeId};
use crate::pool::{Committed, Phase, PoolState};
use crate::transaction::Transaction;

impl PoolState {
    fn planned(&mut self, transaction: &Transaction) -> Draft {
        assert_eq!(
            transaction.serial, self.serial,
            "the transaction is not this pool's last"
        );
        self.planned
            .take()
            .expect("a transaction that was handed out is planned until it ends")
    }

    /// All steps are done: the change takes effect, and freed extents are free as soon as no request
    /// is on its way to them.
    ///
    /// # Panics
    /// When the transaction is not the one that is under way.
    pub fn commit(&mut self, transaction: Transaction) -> Committed {
        let draft = self.planned(&transaction);
        self.log = draft.log;
        self.generation = draft.generation;
        self.owner = draft.owner;
        for superblock in &mut self.superblocks {
            superblock.generation = draft.generation;
            superblock.owner = draft.owner;
        }
        if let Some(checkpoint) = draft.checkpoint {
            for (id, node) in checkpoint.nodes {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.node = node;
                    volume.changed = false;
                }
            }
            self.list_at = checkpoint.list_at;
            self.list_changed = false;
            let mut needed = checkpoint.refers_to;
            needed.extend(self.log.extents.iter().chain(&self.log.next));
            let held = self.metadata.iter().copied().chain(draft.taken_for_log);
            let free: Vec<Place> = held.filter(|place| !needed.contains(place)).collect();
            free.into_iter().for_each(|place| self.free.give(place));
            self.metadata = needed;
        } else {
            self.metadata.extend(draft.taken_for_log);
        }
        for (shared, mark, _) in draft.settled {
            shared.set_durable(mark);
        }
        let maps = self.take_effect(draft.effect);
        self.reap();
        debug_assert!(
            self.free.free() >= self.kept(self.rewrite_extents(0)),
            "metadata has less than its budget: {} free, {} extents of log",
            self.free.free(),
            self.metadata.len()
        );
        Committed { maps }
    }

    fn take_effect(&mut self, effect: Effect) -> Vec<(VolumeId, Option<Arc<crate::VolumeMap>>)> {
        match effect {
            Effect::None => {}
            Effect::Started => self.phase = Phase::Started,
            Effect::Stopped => self.phase = Phase::Opened,
            Effect::Create(id, volume) => {
                let map = Arc::clone(&volume.map);
                self.next_volume = self.next_volume.max(id.0 + 1);
                self.volumes.insert(id, volume);
                return vec![(id, Some(map))];
            }
            Effect::Map(id, map, cut) => {
                self.forget_lost(id, map.extents().len() as u32);
                self.leave(cut);
                if let Some(volume) = self.volumes.get_mut(&id) {
                    // Growing has overwritten what lay behind the end, not by way of the extent: a
                    // move that began meanwhile has to copy it again.
                    volume.map.touch_end();
                    if map.size() > volume.map.size() {
                        volume.map.clear_behind_end();
                    }
                    volume.map = Arc::clone(&map);
                    volume.changed = true;
                }
                return vec![(id, Some(map))];
            }
            Effect::Rename(id, name) => {
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.name = name;
                    volume.changed = true;
                }
            }
            Effect::Delete(id) => {
                self.forget_lost(id, 0);
                if let Some(volume) = self.volumes.remove(&id) {
                    self.leave(volume.map.extents().to_vec());
                }
                return vec![(id, None)];
            }
            Effect::Moved(moved) => {
                let key = (moved.volume, moved.extent());
                self.moving.remove(&key);
                if !moved.lost.is_empty() {
                    self.lost.insert(key);
                    self.list_changed = true;
                }
                self.leaving.push((moved.source, Arc::clone(&moved.extent)));
                self.changed(moved.volume);
            }
            Effect::Bits(ids) => ids.into_iter().for_each(|id| self.changed(id)),
            Effect::Grades(grades) => {
                for (place, grade) in grades {
                    self.free.set_grade(place, grade);
                }
                self.list_changed = true;
            }
        }
        Vec::new()
    }

    /// Forgets the losses of a volume's extents from this one on.
    fn forget_lost(&mut self, volume: VolumeId, from: u32) {
        let before = self.lost.len();
        self.lost
            .retain(|(other, index)| *other != volume || *index < from);
        self.list_changed |= self.lost.len() < before;
    }

    fn changed(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.changed = true;
        }
    }

    fn leave(&mut self, extents: Vec<Arc<Extent>>) {
        for extent in extents {
            extent.retire();
            self.leaving.push((extent.place(), extent));
        }
    }

    /// True if the transaction under way could be [cancelled](Self::cancel). A move's transaction could not.
    #[must_use]
    pub fn can_cancel(&self) -> bool {
        let effect = self.planned.as_ref().map(|draft| &draft.effect);
        !matches!(effect, Some(Effect::Moved(_)))
    }

    /// No step has written anything: as if it had not been planned. A transaction of
    /// [`PoolState::finish_move`] cannot be taken back, for its extent has switched already; it
    /// counts as failed.
    ///
    /// # Panics
    /// When the transaction is not the one that is under way.
    pub fn cancel(&mut self, transaction: Transaction) {
        let draft = self.planned(&transaction);
        if matches!(draft.effect, Effect::Moved(_)) {
            self.phase = Phase::Poisoned;
            return;
        }
        self.take_back(draft);
    }

    fn take_back(&mut self, draft: Draft) {
        for place in draft.taken.into_iter().chain(draft.taken_for_log) {
            self.free.give(place);
        }
        for (shared, _, dirty) in draft.settled {
            dirty.into_iter().for_each(|index| shared.remark(index));
        }
    }

    /// A plan that could not be finished.
    pub(crate) fn give_up(&mut self, draft: Draft, error: VolumeError) -> VolumeError {
        self.take_back(draft);
        error
    }

    /// A step has failed, and doing it again would not help: no change is possible until the pool is opened
    /// again.
    ///
    /// # Panics
    /// When the transaction is not the one that is under way.
    pub fn fail(&mut self, transaction: Transaction) {
        drop(self.planned(&transaction));
        self.phase = Phase::Poisoned;
    }

    /// Frees extents that were waiting for requests on their way to them; called by every change that
    /// allocates and at every commit. Returns how many still wait.
    pub fn reap(&mut self) -> usize {
        let free = &mut self.free;
        self.leaving.retain(|(place, extent)| {
            let lingers = extent.lingers();
            if !lingers {
                free.give(*place);
            }
            lingers
        });
        self.leaving.len()
    }
}
