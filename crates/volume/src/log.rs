//! Appending to the metadata log, and how much room that may take.
//!
//! The log is a chain of extents; the last block of each that could be used is kept for the link to the next.
//! The next is chosen one ahead: it is taken when the log comes to the extent before it, and the table and
//! every record name it. Metadata has a budget, so that it can be rewritten whatever volumes hold: with R the
//! extents that a rewrite of all nodes takes at worst, B = 4 R + 2 extents are never given to volumes. The
//! log may take up to 2 R + 2 of them; when a transaction would go beyond, everything is first rewritten (at
//! most R), then the transaction written (at most R, for it says less than the nodes), and when that is
//! durable the old extents are free. The extent chosen ahead counts as the log's: the rewrite begins in the
//! one that was chosen before and chooses one anew, so it takes no more for that. So the log holds at most 2
//! R + 1 then, and B - (2 R + 1) remain for the next time.

use crate::limits::{BLOCK_BYTES, RECORD_BLOCKS_MAX};
use crate::ondisk::change::Change;
use crate::ondisk::record::{Header, PAYLOAD_BYTES_MAX, Record, blocks_for};
use crate::ondisk::table::Located;
use crate::ondisk::written::words;
use crate::ondisk::{Owner, Position};
use crate::place::{Geometry, Place, Uuid};
use crate::transaction::Step;
use sched::units::{SECTOR_BYTES, SectorCount};

/// The longest write in a plan, in bytes, so that it is not long on the disk.
const STEP_BYTES_MAX: usize = 256 << 10;

/// Place of the log.
#[derive(Clone, Debug)]
pub(crate) struct LogState {
    pub(crate) pool: Uuid,
    pub(crate) geometry: Geometry,
    /// The next record goes here.
    pub(crate) at: Position,
    pub(crate) sequence: u64,
    pub(crate) previous: u64,
    /// The generation of the table that it continues.
    pub(crate) epoch: u64,
    /// The owner of that table.
    pub(crate) owner: Owner,
    /// The extent in which the log goes on after this one; a pool of version 1 has not chosen it yet.
    pub(crate) next: Option<Place>,
    /// Its extents since that table.
    pub(crate) extents: Vec<Place>,
    /// Blocks since that table.
    pub(crate) blocks: u64,
}

/// The blocks of an extent.
pub(crate) fn blocks_per_extent(geometry: Geometry) -> u32 {
    (geometry.extent_bytes().0 / BLOCK_BYTES) as u32
}

/// The blocks that the node of a volume of so many extents fills at worst, and that any change of it
/// fills.
pub(crate) fn node_blocks(extents: u64, geometry: Geometry) -> u64 {
    // A run of bits takes more than an extent of a node: count with that.
    let each = 16 + 8 * words(geometry);
    let per_record = ((PAYLOAD_BYTES_MAX - 16) / each) as u64;
    let (full, rest) = (extents / per_record, (extents % per_record) as usize);
    let last = if rest > 0 {
        u64::from(blocks_for(16 + rest * each))
    } else {
        0
    };
    1 + RECORD_BLOCKS_MAX * full + last
}

/// The extents that so many blocks of records fill at worst: R.
pub(crate) fn extents_for_blocks(blocks: u64, geometry: Geometry) -> u64 {
    // At the end of each up to a record less a block cannot be used, and the link.
    blocks
        .div_ceil(u64::from(blocks_per_extent(geometry)) - RECORD_BLOCKS_MAX)
        .max(1)
}

/// Space that volumes never get, with `rewrite` = R: B.
pub(crate) fn budget(rewrite: u64) -> u64 {
    4 * rewrite + 2
}

/// Longest log before it is rewritten.
pub(crate) fn log_extents_max(rewrite: u64) -> u64 {
    2 * rewrite + 2
}

/// The blocks of each change.
pub(crate) fn measure(changes: &[Change], geometry: Geometry) -> Vec<u32> {
    let mut scratch = Vec::new();
    let mut blocks = |change: &Change| {
        scratch.clear();
        change.encode(geometry, &mut scratch);
        blocks_for(scratch.len())
    };
    changes.iter().map(&mut blocks).collect()
}

impl LogState {
    fn has_room(&self, at: u32, blocks: u32) -> bool {
        // One block stays for the link.
        at + blocks < blocks_per_extent(self.geometry)
    }

    /// The further extents that records of these many blocks need, with `leave` in a fresh one in any case.
    pub(crate) fn extents_needed(&self, blocks: &[u32], leave: bool) -> u64 {
        let (mut at, mut extents) = if leave { (0, 1) } else { (self.at.block, 0) };
        for blocks in blocks {
            if !self.has_room(at, *blocks) {
                extents += 1;
                at = 0;
            }
            at += blocks;
        }
        extents + u64::from(extents > 0 && self.next.is_none())
    }

    /// Appends `changes` as one transaction. `fresh` gives further extents; with `leave`, the first
    /// record goes into the next extent in any case. Returns where each change is.
    pub(crate) fn append(
        &mut self,
        changes: &[Change],
        leave: bool,
        fresh: &mut dyn FnMut() -> Option<Place>,
        steps: &mut Vec<Step>,
    ) -> Option<Vec<Located>> {
        let transaction = self.sequence;
        let mut writer = Writer {
            start: self.at,
            bytes: Vec::new(),
        };
        let mut located = Vec::with_capacity(changes.len());
        for (index, (change, blocks)) in changes
            .iter()
            .zip(measure(changes, self.geometry))
            .enumerate()
        {
            if !self.has_room(self.at.block, blocks) || (leave && index == 0) {
                let to = self.choose_next(fresh)?;
                self.put(&Change::Link { to }, transaction, false, &mut writer.bytes);
                writer.finish(self.geometry, steps);
                self.leave(fresh)?;
                writer.start = self.at;
            }
            located.push(Located {
                position: self.at,
                sequence: self.sequence,
            });
            self.put(
                change,
                transaction,
                index + 1 == changes.len(),
                &mut writer.bytes,
            );
            if writer.bytes.len() + RECORD_BLOCKS_MAX as usize * BLOCK_BYTES as usize
                > STEP_BYTES_MAX
            {
                writer.finish(self.geometry, steps);
                writer.start = self.at;
            }
        }
        writer.finish(self.geometry, steps);
        Some(located)
    }

    /// The extent in which the log goes on after this one.
    fn choose_next(&mut self, fresh: &mut dyn FnMut() -> Option<Place>) -> Option<Place> {
        if self.next.is_none() {
            self.next = Some(fresh()?);
        }
        self.next
    }

    /// Goes on in the next extent, and chooses the one after that.
    pub(crate) fn leave(&mut self, fresh: &mut dyn FnMut() -> Option<Place>) -> Option<()> {
        let place = self.choose_next(fresh)?;
        self.at = Position { place, block: 0 };
        self.extents.push(place);
        self.next = None;
        self.choose_next(fresh).map(|_| ())
    }

    fn put(&mut self, change: &Change, transaction: u64, commit: bool, bytes: &mut Vec<u8>) {
        let header = Header {
            epoch: self.epoch,
            owner: self.owner,
            sequence: self.sequence,
            transaction,
            previous: self.previous,
            commit,
            next: self.next,
        };
        let before = bytes.len();
        self.previous = Record::encode(&header, &self.pool, change, self.geometry, bytes);
        self.sequence += 1;
        let blocks = ((bytes.len() - before) as u64 / BLOCK_BYTES) as u32;
        self.at.block += blocks;
        self.blocks += u64::from(blocks);
    }

    /// After a table of generation `epoch` and of that owner which says that the log goes on here.
    pub(crate) fn restart(&mut self, epoch: u64, owner: Owner) {
        self.epoch = epoch;
        self.owner = owner;
        self.previous = 0;
        self.blocks = 0;
        self.extents = vec![self.at.place];
    }
}

struct Writer {
    start: Position,
    bytes: Vec<u8>,
}

impl Writer {
    fn finish(&mut self, geometry: Geometry, steps: &mut Vec<Step>) {
        if self.bytes.is_empty() {
            return;
        }
        let offset = SectorCount(u64::from(self.start.block) * (BLOCK_BYTES / SECTOR_BYTES));
        steps.push(Step::Write {
            disk: self.start.place.disk,
            start: geometry.sector_of(self.start.place) + offset,
            data: std::mem::take(&mut self.bytes),
        });
    }
}
