//! Checks that the disks still belong to this server.
//!
//! Locks keep two servers of one host from one file or device. They cannot if a disk has two names (a file
//! and a loop device on it) or two hosts. So every start writes an owner of its own, random,
//! into all superblocks, and before a transaction writes anything, the superblock of the table's disk is
//! read again, and once more before a table is written. A server that finds another owner there writes
//! nothing more. Other disks are not asked: one that does not answer must not hold up the metadata of
//! volumes that are not on it.
//!
//! A start expects the superblock that was read when the pool was opened. So it does not go on from a state
//! that another server has changed since.
//!
//! Only a flush's transaction that stays within the extent of the log omits the check. A start leaves the
//! extent in which it finds the log, and needs no record that is written there later. A server that stood
//! still until the new one uses that extent again finds out only by its periodic look, every few seconds.

use sched::units::Sector;

use crate::draft::{Draft, Effect};
use crate::ondisk::superblock::Superblock;
use crate::place::DiskNumber;
use crate::pool::{Phase, PoolState};
use crate::transaction::Step;

/// The fault of a disk whose superblock should be `expected` and is `found`.
#[must_use]
pub fn why_not(expected: &[u8], found: &[u8]) -> String {
    let Ok(was) = Superblock::parse(expected) else {
        return "its first block differs from the one that this server wrote".to_owned();
    };
    match Superblock::parse(found) {
        Ok(now) if now.pool != was.pool => {
            "another pool was created on it while this server used it".to_owned()
        }
        Ok(now) if now.number != was.number => {
            format!("it is disk {} of the pool under another name", now.number.0)
        }
        Ok(now) => format!(
            "another server has opened the pool since: the disk is at generation {}, this server at {}",
            now.generation, was.generation
        ),
        Err(error) => {
            format!("another program has overwritten its superblock ({error})")
        }
    }
}

pub(crate) fn expect(superblock: &Superblock) -> Step {
    at_first(superblock.number, superblock.encode())
}

fn at_first(disk: DiskNumber, data: Vec<u8>) -> Step {
    let start = Sector::ZERO;
    Step::Expect { disk, start, data }
}

impl PoolState {
    /// Contents of the table's disk as long as no other server has opened the pool.
    #[must_use]
    pub fn expectation(&self) -> Step {
        let lead = usize::from(self.superblocks[0].table_disk.0);
        expect(&self.superblocks[lead])
    }

    /// Puts the expectations in front of what is planned, where it can harm a server that opened the
    /// pool later.
    pub(crate) fn expect_first(&self, draft: &mut Draft) {
        let is_start = self.phase == Phase::Opened;
        let only_appends = matches!(draft.effect, Effect::Bits(_))
            && draft.taken_for_log.is_empty()
            && draft.checkpoint.is_none();
        if is_start {
            let (disk, found) = (self.superblocks[0].table_disk, self.found.clone());
            draft
                .steps
                .splice(0..0, found.map(|data| at_first(disk, data)));
        } else if !only_appends {
            draft.steps.insert(0, self.expectation());
        }
    }
}
