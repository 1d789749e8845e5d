//! The metadata's part of a flush.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::draft::Effect;
use crate::error::VolumeError;
use crate::map::VolumeMap;
use crate::ondisk::change::{BitRun, Change, Written};
use crate::ondisk::payload::runs_per_record;
use crate::place::{DiskNumber, VolumeId};
use crate::pool::PoolState;
use crate::transaction::{Step, Transaction};

impl PoolState {
    /// Commits what has changed in these volumes since their last commit: bits and places. This is
    /// the metadata's part of a flush. `None`: nothing to do, and nothing under way.
    ///
    /// Volumes that are no more are passed over.
    ///
    /// # Errors
    /// Busy: a transaction is under way; a flush has to wait for it even if it has nothing to add.
    pub fn settle(&mut self, volumes: &[VolumeId]) -> Result<Option<Transaction>, VolumeError> {
        self.ready()?;
        let mut draft = self.draft();
        let mut changes = Vec::new();
        let mut disks = BTreeSet::new();
        let mut ids = Vec::new();
        for id in volumes {
            let Some(volume) = self.volumes.get(id) else {
                continue;
            };
            let shared = Arc::clone(volume.map.shared());
            let mark = shared.now();
            let dirty = shared.take();
            let before = changes.len();
            changes.extend(bits_of(&volume.map, &dirty, &mut disks));
            let lossy = dirty
                .iter()
                .filter(|index| self.lost.contains(&(*id, **index)));
            changes.extend(lossy.filter_map(|index| loss_of(&volume.map, *index)));
            if changes.len() > before {
                ids.push(*id);
            }
            draft.settled.push((shared, mark, dirty));
        }
        if changes.is_empty() {
            draft
                .settled
                .into_iter()
                .for_each(|(shared, mark, _)| shared.set_durable(mark));
            return Ok(None);
        }
        // Chunks whose bits are set were written before the bits were read.
        draft
            .steps
            .extend(disks.into_iter().map(|disk| Step::Flush { disk }));
        if let Err(error) = self.change(&mut draft, &changes, 0) {
            return Err(self.give_up(draft, error));
        }
        draft.effect = Effect::Bits(ids);
        Ok(Some(self.hand_out(draft)))
    }
}

/// The chunks of an extent that are lost, as a change.
pub(crate) fn loss_of(map: &VolumeMap, index: u32) -> Option<Change> {
    let extent = map.extents().get(index as usize)?;
    Some(Change::Lost {
        volume: map.volume(),
        index,
        chunks: Box::new(extent.lost()),
    })
}

/// The bits of the dirty extents as changes, and the disks that hold what they speak of.
pub(crate) fn bits_of(
    map: &VolumeMap,
    dirty: &[u32],
    disks: &mut BTreeSet<DiskNumber>,
) -> Vec<Change> {
    let geometry = map.geometry();
    let mut runs: Vec<BitRun> = Vec::new();
    for index in dirty {
        let Some(extent) = map.extents().get(*index as usize) else {
            continue;
        };
        disks.insert(extent.place().disk);
        let written = Written::of(&extent.written(), geometry);
        let partly = matches!(written, Written::Part(_));
        match runs.last_mut() {
            Some(run) if !partly && run.written == written && run.first + run.count == *index => {
                run.count += 1
            }
            _ => runs.push(BitRun {
                first: *index,
                count: 1,
                written,
            }),
        }
    }
    let change = |part: &[BitRun]| Change::Bits {
        volume: map.volume(),
        runs: part.to_vec(),
    };
    runs.chunks(runs_per_record(geometry)).map(change).collect()
}
