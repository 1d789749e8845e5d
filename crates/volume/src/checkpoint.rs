//! Starting and stopping a pool, and checkpointing its log.

use std::collections::{BTreeMap, BTreeSet};

use sched::units::Sector;

use crate::draft::{Checkpoint, Draft, Effect};
use crate::error::VolumeError;
use crate::image::NodeAt;
use crate::log::{log_extents_max, measure};
use crate::ondisk::Owner;
use crate::ondisk::change::Change;
use crate::ondisk::mark::{self, MARK_AT};
use crate::ondisk::payload::GRADES_PER_RECORD;
use crate::ondisk::superblock::second_copy_at;
use crate::ondisk::table::Table;
use crate::owner::expect;
use crate::place::VolumeId;
use crate::plan::node_at;
use crate::pool::{Phase, PoolState};
use crate::settle::loss_of;
use crate::transaction::{Step, Transaction};

impl PoolState {
    /// The first transaction after opening: a new generation of superblocks and table, whose owner is
    /// `owner`, random. The log leaves the extent in which it was found: a server that still takes the
    /// pool for its own may append there. A pool of an earlier format version is one of the present version then.
    ///
    /// # Errors
    /// Already started, busy or poisoned.
    pub fn start(&mut self, owner: Owner) -> Result<Transaction, VolumeError> {
        match self.phase {
            Phase::Poisoned => return Err(VolumeError::Poisoned),
            _ if self.planned.is_some() => return Err(VolumeError::Busy),
            Phase::Started => return Err(VolumeError::AlreadyStarted),
            Phase::Opened => {}
        }
        let mut draft = self.draft();
        draft.owner = owner;
        self.claim(&mut draft);
        self.checkpoint_into(&mut draft, false, true)?;
        draft.effect = Effect::Started;
        Ok(self.hand_out(draft))
    }

    /// The last transaction before a clean end: a checkpoint, and a new generation of superblocks and
    /// table, so that a copy of a disk that was made before is told from the disk. Afterwards the pool
    /// is as it was when it was opened.
    ///
    /// # Errors
    /// Not started, busy or poisoned.
    pub fn stop(&mut self) -> Result<Transaction, VolumeError> {
        self.ready()?;
        let mut draft = self.draft();
        self.claim(&mut draft);
        self.checkpoint_into(&mut draft, false, false)?;
        draft.effect = Effect::Stopped;
        Ok(self.hand_out(draft))
    }

    /// Writes superblocks of the next generation and of the draft's owner, and reads them again: of two
    /// servers that do this at the same time one goes on at most, and one disk under two names is found.
    fn claim(&self, draft: &mut Draft) {
        draft.generation += 1;
        let mut superblocks = self.superblocks.clone();
        for superblock in &mut superblocks {
            superblock.generation = draft.generation;
            superblock.owner = draft.owner;
        }
        let write = |disk: usize, copy: usize| {
            let superblock = &superblocks[disk];
            let start = [Sector::ZERO, second_copy_at(superblock.sectors)][copy];
            Step::Write {
                disk: superblock.number,
                start,
                data: superblock.encode(),
            }
        };
        let lead = usize::from(superblocks[0].table_disk.0);
        let others: Vec<usize> = (0..superblocks.len())
            .filter(|disk| *disk != lead)
            .collect();
        let mut steps = vec![write(lead, 0), self.flush(lead), write(lead, 1)];
        steps.extend(others.iter().map(|disk| write(*disk, 0)));
        steps.extend(self.flush_all());
        steps.extend(others.iter().map(|disk| write(*disk, 1)));
        steps.extend(others.iter().map(|disk| self.flush(*disk)));
        steps.extend(superblocks.iter().map(expect));
        draft.steps = steps;
    }

    fn flush(&self, disk: usize) -> Step {
        Step::Flush {
            disk: self.superblocks[disk].number,
        }
    }

    fn flush_all(&self) -> impl Iterator<Item = Step> + '_ {
        (0..self.superblocks.len()).map(|disk| self.flush(disk))
    }

    /// Writes the full nodes of changed volumes, or of `all`, and a table that refers to them. The log goes
    /// on in its next extent if `leave` or `all` is set.
    ///
    /// 1. Flush the disks, because nodes state which chunks are written.
    /// 2. Append the nodes to the log, in the present epoch; flush. After a crash here, replay finds these
    ///    nodes and learns nothing new.
    /// 3. Check that the pool still belongs to this server. Write the table to the older copy; flush. The
    ///    log's epoch is the new one from here on.
    /// 4. Write the mark of that table; flush. Blocks that only the previous table needs may be overwritten
    ///    from here on.
    pub(crate) fn checkpoint_into(
        &mut self,
        draft: &mut Draft,
        all: bool,
        leave: bool,
    ) -> Result<(), VolumeError> {
        let stale: Vec<VolumeId> = self
            .volumes
            .iter()
            .filter(|(_, volume)| all || volume.changed)
            .map(|(id, _)| *id)
            .collect();
        let list = self.list(all);
        let mut changes: Vec<Change> = Vec::new();
        let mut begins: Vec<usize> = Vec::new();
        for id in &stale {
            begins.push(changes.len());
            changes.extend(self.volumes[id].node());
        }
        let list_begins = changes.len();
        let entries = list.as_ref().map(|(entries, _)| *entries);
        changes.extend(list.into_iter().flat_map(|(_, records)| records));
        let needed = draft
            .log
            .extents_needed(&measure(&changes, self.geometry), leave);
        if !all && self.metadata.len() as u64 + needed > log_extents_max(self.rewrite_extents(0)) {
            return self.checkpoint_into(draft, true, leave);
        }
        let mut checkpoint = Checkpoint {
            list_at: self.list_at.clone().filter(|_| entries.is_none()),
            ..Checkpoint::default()
        };
        if !changes.is_empty() {
            draft.steps.extend(self.flush_all());
            let located = self.log_into(draft, &changes, all || leave)?;
            let ends = begins.iter().skip(1).copied().chain([list_begins]);
            for ((id, begin), end) in stale.iter().zip(&begins).zip(ends) {
                checkpoint.nodes.push((*id, node_at(&located[*begin..end])));
            }
            if let Some(entries) = entries.filter(|entries| *entries > 0) {
                checkpoint.list_at = Some((entries, node_at(&located[list_begins..])));
            }
        } else if leave {
            self.with_log(draft, |log, fresh, _| log.leave(fresh))?;
        }
        let mut owned = self.superblocks[usize::from(self.superblocks[0].table_disk.0)].clone();
        (owned.generation, owned.owner) = (draft.generation, draft.owner);
        draft.steps.push(expect(&owned));
        let table = self.table(draft, &mut checkpoint);
        let generation = table.generation;
        let lead = self.superblocks[0].table_disk;
        let start = self.superblocks[0].tables[(generation % 2) as usize];
        draft.steps.push(Step::Write {
            disk: lead,
            start,
            data: table.encode(),
        });
        draft.steps.push(Step::Flush { disk: lead });
        draft.steps.push(Step::Write {
            disk: lead,
            start: Sector(MARK_AT),
            data: mark::encode(&table.pool, generation),
        });
        draft.steps.push(Step::Flush { disk: lead });
        draft.log.restart(generation, draft.owner);
        checkpoint.refers_to.insert(draft.log.at.place);
        draft.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// The list of grades and losses, and the number of its entries, if it has to be written: with everything
    /// (`all`), if a grade has changed, and always while chunks are lost, because they come back unnoticed.
    fn list(&mut self, all: bool) -> Option<(u32, Vec<Change>)> {
        let volumes = &self.volumes;
        let losses = (self.lost.iter())
            .filter_map(|(volume, index)| loss_of(&volumes.get(volume)?.map, *index));
        let is_loss = |change: &Change| match change {
            Change::Lost { chunks, .. } => !chunks.is_empty(),
            _ => false,
        };
        let losses: Vec<Change> = losses.filter(is_loss).collect();
        let is_due = all || self.list_changed || !self.lost.is_empty();
        let of_loss = |change: &Change| match change {
            Change::Lost { volume, index, .. } => Some((*volume, *index)),
            _ => None,
        };
        let still = losses.iter().filter_map(of_loss).collect();
        let before = std::mem::replace(&mut self.lost, still);
        self.list_changed |= before.len() > self.lost.len();
        let grades: Vec<_> = self
            .free
            .grades()
            .iter()
            .map(|(at, of)| (*at, *of))
            .collect();
        let entries = grades.len() + losses.len();
        let records = grades.chunks(GRADES_PER_RECORD).map(|part| Change::Grades {
            places: part.to_vec(),
        });
        is_due.then(|| (entries as u32, records.chain(losses).collect()))
    }

    fn table(&self, draft: &Draft, checkpoint: &mut Checkpoint) -> Table {
        let mut refers_to = BTreeSet::new();
        let mut nodes = Vec::with_capacity(self.volumes.len());
        let renewed: BTreeMap<VolumeId, &NodeAt> = checkpoint
            .nodes
            .iter()
            .map(|(id, node)| (*id, node))
            .collect();
        for (id, volume) in &self.volumes {
            let node = renewed.get(id).copied().unwrap_or(&volume.node);
            refers_to.extend(&node.spans);
            nodes.push((*id, node.located));
        }
        if let Some((_, list)) = &checkpoint.list_at {
            refers_to.extend(&list.spans);
        }
        let list = checkpoint
            .list_at
            .as_ref()
            .map(|(entries, at)| (*entries, at.located));
        checkpoint.refers_to = refers_to;
        Table {
            pool: draft.log.pool,
            generation: draft.log.epoch + 1,
            pool_generation: draft.generation,
            owner: draft.owner,
            next_volume: self.next_volume,
            next_sequence: draft.log.sequence,
            log: draft.log.at,
            next: draft.log.next,
            list,
            nodes,
        }
    }

    /// Writes a new table, so that opening has less to roll forward, and collects garbage where
    /// there is enough of it. Changes that lack room in the log do this by themselves.
    ///
    /// # Errors
    /// Busy, poisoned, not started.
    pub fn checkpoint(&mut self) -> Result<Transaction, VolumeError> {
        self.ready()?;
        let rewrite = self.rewrite_extents(0);
        // The extents of the nodes, that of the log, and the next one.
        let all = self.metadata.len() as u64 > rewrite + 2;
        let mut draft = self.draft();
        self.checkpoint_into(&mut draft, all, false)?;
        Ok(self.hand_out(draft))
    }

    /// True if the log has grown so long that a [`PoolState::checkpoint`] is due.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        let long = self.log.blocks > crate::limits::LOG_BLOCKS_DUE;
        let wide = self.metadata.len() as u64 > log_extents_max(self.rewrite_extents(0));
        self.phase == Phase::Started && (long || wide)
    }
}
