//! Lending of free extents: places that someone else writes to for a while, such as a measurement of the disk.
//!
//! Lent places count as used until they come back, in memory only. Their content means nothing: an extent that is
//! allocated later reads as zeros until it is written.

use crate::error::VolumeError;
use crate::place::{DiskNumber, Place};
use crate::pool::{Phase, PoolState};

/// At most this part of the free extents is lent.
const LENT_PART: u64 = 8;

impl PoolState {
    /// Lends free extents of a disk, spread evenly over it: at most `most`, and at most an eighth of those that volumes
    /// could have. None if that is less than one. Slow and bad places are not lent. [`PoolState::give_back`] takes
    /// them back.
    ///
    /// # Errors
    /// When the pool has not been started or accepts no more changes, or has no such disk.
    pub fn lend(&mut self, disk: DiskNumber, most: u32) -> Result<Vec<Place>, VolumeError> {
        match self.phase {
            Phase::Poisoned => return Err(VolumeError::Poisoned),
            Phase::Opened => return Err(VolumeError::NotStarted),
            Phase::Started => {}
        }
        if usize::from(disk.0) >= self.superblocks.len() {
            return Err(VolumeError::NoSuchDisk(disk));
        }
        self.reap();
        let kept = self.kept(self.rewrite_extents(0));
        let for_volumes = self.free.free().saturating_sub(kept);
        let free = for_volumes.min(u64::from(self.free.free_on(disk)));
        let count = u64::from(most).min(free / LENT_PART);
        // At most `most`, so it fits.
        Ok(self.free.take_spread(disk, count as u32))
    }

    /// Takes lent extents back.
    pub fn give_back(&mut self, lent: Vec<Place>) {
        for place in lent {
            self.free.give(place);
        }
    }
}
