//! Moving an extent while it is in use.
//!
//! [`crate::PoolState::begin_move`], then for each of [`Move::pass`]'s copies read the source and
//! write the target; repeat until a pass is small; [`Move::freeze`]; wait until [`Move::writers`] is
//! zero (writes to the extent are refused as busy meanwhile, those in flight complete); copy a last
//! pass; [`crate::PoolState::finish_move`]. Reads are never held up.
//!
//! A chunk that cannot be read keeps the extent from moving, unless the mover [leaves](Move::leave) it behind. It is
//! lost then: its reads fail until it is written again.

mod plan;

use std::sync::Arc;

use sched::units::{Sector, SectorCount};

use crate::chunks::ChunkSet;
use crate::error::VolumeError;
use crate::extent::Extent;
use crate::place::{Geometry, Place, VolumeId};

/// A stretch to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Start on the source's disk.
    pub from: Sector,
    /// Start on the target's disk.
    pub to: Sector,
    /// Number of sectors.
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
    /// Chunks that cannot be copied.
    pub(crate) lost: Box<ChunkSet>,
}

impl Move {
    /// The volume.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Number of the extent in its volume.
    #[must_use]
    pub fn extent(&self) -> u32 {
        self.extent.index()
    }

    /// Its place.
    #[must_use]
    pub fn source(&self) -> Place {
        self.source
    }

    /// Its next place.
    #[must_use]
    pub fn target(&self) -> Place {
        self.target
    }

    /// The copies of the next pass: at first all written chunks, then those written since the pass before
    /// began. Call it when the copies of the pass before are done.
    pub fn pass(&mut self) -> Vec<Copy> {
        let set = self.extent.take_pass(self.passes == 0);
        self.passes += 1;
        // Chunks that were written since may be readable.
        *self.lost = self.lost.without(&set);
        self.copies(&set)
    }

    /// The chunks of a copy that failed, one by one.
    #[must_use]
    pub fn single(&self, copy: &Copy) -> Vec<Copy> {
        let chunk = self.geometry.chunk_sectors();
        let (count, rest) = (copy.count.0 / chunk.0, copy.count.0 % chunk.0);
        debug_assert_eq!(rest, 0, "copies are of whole chunks");
        let one = |index: u64| Copy {
            from: copy.from + chunk * index,
            to: copy.to + chunk * index,
            count: chunk,
        };
        (0..count).map(one).collect()
    }

    /// Leaves the chunks of this copy behind: they count as lost once the move is finished, unless they are written
    /// before.
    pub fn leave(&mut self, copy: &Copy) {
        *self.lost = self.lost.or(&self.chunks_of(copy));
    }

    /// The chunks of this copy.
    #[must_use]
    pub fn chunks_of(&self, copy: &Copy) -> ChunkSet {
        let chunk = self.geometry.chunk_sectors();
        let offset = copy.from.0 - self.geometry.sector_of(self.source).0;
        let (from, to) = (offset / chunk.0, (offset + copy.count.0) / chunk.0);
        ChunkSet::of(from as u32..to as u32)
    }

    /// The place that the first chunk left behind would have had at the target. It holds nothing.
    #[must_use]
    pub fn first_lost(&self) -> Option<Sector> {
        let first = self.lost.runs(self.geometry.chunks()).next()?.start;
        Some(
            self.geometry.sector_of(self.target) + self.geometry.chunk_sectors() * u64::from(first),
        )
    }

    /// The number of chunks left behind.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.lost.len()
    }

    fn copies(&self, set: &ChunkSet) -> Vec<Copy> {
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

    /// True if it is frozen. Another thread may have thawed it since ([`crate::VolumeMap::thaw`]).
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.extent.is_frozen()
    }

    /// The writes to the extent that are in flight.
    #[must_use]
    pub fn writers(&self) -> u32 {
        self.extent.writers()
    }

    /// True if chunks have been written since the last pass began.
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
