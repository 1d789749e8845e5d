//! Planning the growing and shrinking of a volume, in use or not.

use std::sync::Arc;

use sched::units::{Bytes, SECTOR_BYTES, SectorCount};

use crate::draft::Effect;
use crate::error::VolumeError;
use crate::grade::Quality;
use crate::log::node_blocks;
use crate::map::VolumeMap;
use crate::node::extents_of;
use crate::ondisk::change::{BitRun, Change, Written};
use crate::place::VolumeId;
use crate::placement::Placement;
use crate::plan::{fresh_extents, whole_sectors};
use crate::pool::PoolState;
use crate::transaction::{Step, Transaction};

impl PoolState {
    /// Makes a volume larger; what is added reads as zeros.
    ///
    /// # Errors
    /// Not larger; placement at fault; no room; the last extent is being moved and part of it was
    /// cut off before.
    pub fn grow(
        &mut self,
        volume: VolumeId,
        size: Bytes,
        placement: &Placement,
    ) -> Result<Transaction, VolumeError> {
        self.ready()?;
        let map = Arc::clone(self.volume(volume)?.1);
        let size = whole_sectors(size)?;
        if size <= map.size() {
            return Err(VolumeError::WrongDirection {
                now: map.size(),
                asked: size,
                direction: "larger",
            });
        }
        let (have, want) = (map.extents().len() as u32, self.extents_for(size)?);
        let more = node_blocks(u64::from(want), self.geometry);
        let mut draft = self.draft();
        let mut changes = vec![Change::Resize {
            volume,
            size,
            extents: want,
        }];
        let mut extents = map.extents().to_vec();
        let (tail_steps, tail_bits) = self.clean_tail(&map)?;
        if want > have {
            let after = extents.last().map(|extent| extent.place().disk);
            draft.taken = self.take(
                placement,
                want - have,
                (after, volume.0),
                more,
                Quality::GoodFirst,
            )?;
            extents.extend(fresh_extents(&draft.taken, have, map.shared()));
        }
        let grown = VolumeMap::new(size, extents, Arc::clone(map.shared()));
        changes.extend(extents_of(&grown, have as usize));
        changes.extend(tail_bits);
        draft.steps.extend(tail_steps);
        if let Err(error) = self.change(&mut draft, &changes, more) {
            return Err(self.give_up(draft, error));
        }
        draft.effect = Effect::Map(volume, Arc::new(grown), Vec::new());
        Ok(self.hand_out(draft))
    }

    /// Plans to clear the range between the end of a volume and the end of its last extent. It must read as zeros
    /// when the volume grows over it: chunks lose their bits, the rest of the last chunk is overwritten. The
    /// commit clears the bits in memory ([`VolumeMap::clear_behind_end`]).
    fn clean_tail(&self, map: &VolumeMap) -> Result<(Vec<Step>, Option<Change>), VolumeError> {
        let within = map.size().0 % self.geometry.extent_bytes().0;
        let Some(last) = map.extents().last().filter(|_| within > 0) else {
            return Ok((Vec::new(), None));
        };
        let chunk_bytes = self.geometry.chunk_bytes().0;
        let behind = map.behind_end();
        let written = last.written();
        let rest = within.next_multiple_of(chunk_bytes) - within;
        let overwrite = rest > 0 && written.has((within / chunk_bytes) as u32);
        let clear = !written.and(&behind).is_empty();
        if !overwrite && !clear {
            return Ok((Vec::new(), None));
        }
        if self.moving.contains_key(&(map.volume(), last.index())) {
            return Err(VolumeError::BeingMoved {
                extent: last.index(),
            });
        }
        let place = last.place();
        let flush = Step::Flush { disk: place.disk };
        let mut steps = Vec::new();
        if overwrite {
            let start = self.geometry.sector_of(place) + SectorCount(within / SECTOR_BYTES);
            steps.push(Step::Write {
                disk: place.disk,
                start,
                data: vec![0; rest as usize],
            });
        }
        steps.push(flush);
        let written = Written::of(&written.without(&behind), self.geometry);
        let runs = vec![BitRun {
            first: last.index(),
            count: 1,
            written,
        }];
        Ok((
            steps,
            Some(Change::Bits {
                volume: map.volume(),
                runs,
            }),
        ))
    }

    /// Makes a volume smaller; what is cut off is lost.
    ///
    /// # Errors
    /// Not smaller, or zero; an extent to be cut off is being moved.
    pub fn shrink(&mut self, volume: VolumeId, size: Bytes) -> Result<Transaction, VolumeError> {
        self.ready()?;
        let map = Arc::clone(self.volume(volume)?.1);
        let size = whole_sectors(size)?;
        if size >= map.size() {
            return Err(VolumeError::WrongDirection {
                now: map.size(),
                asked: size,
                direction: "smaller",
            });
        }
        let keep = self.geometry.extents_for(size) as usize;
        self.none_moving(volume, keep as u32)?;
        let mut extents = map.extents().to_vec();
        let cut = extents.split_off(keep);
        let smaller = VolumeMap::new(size, extents, Arc::clone(map.shared()));
        let changes = [Change::Resize {
            volume,
            size,
            extents: keep as u32,
        }];
        let mut draft = self.draft();
        if let Err(error) = self.change(&mut draft, &changes, 0) {
            return Err(self.give_up(draft, error));
        }
        draft.effect = Effect::Map(volume, Arc::new(smaller), cut);
        Ok(self.hand_out(draft))
    }
}
