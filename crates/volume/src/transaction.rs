//! A change of the pool as a plan: steps for the engine, and what takes effect when they are done.
//!
//! # Contract
//!
//! * Steps are carried out in order, except that [`Step::Write`]s with no [`Step::Flush`] between
//!   them may be issued together and complete in any order, and so may flushes that follow each other.
//! * A `Flush { disk }` is done when every write to that disk that completed before it was started
//!   (those of earlier steps, and writes of data answered before the transaction was planned) will
//!   survive a loss of power. On a disk whose writes are durable when they complete, a flush does nothing.
//! * No write is started before the flushes in front of it are done.
//! * An [`Step::Expect`] reads. If the disk does not hold what is expected, no later step is carried out,
//!   the transaction has failed, and nothing more is written to any disk of the pool, because another server
//!   uses it. [`crate::owner::why_not`] tells which.
//! * One transaction at a time: until it is committed, cancelled or failed, planning another is
//!   [`crate::VolumeError::Busy`].
//! * All steps done: [`crate::PoolState::commit`]. No write started: [`crate::PoolState::cancel`].
//! * A write failed: the disk holds old, torn or new data there. Repeat that write and all later steps until
//!   all are done; no other metadata may be written before. The transaction stays under way meanwhile. The
//!   same holds after a flush that was not answered.
//! * A flush failed after writes: [`crate::PoolState::fail`], which poisons the pool. Writes before that
//!   flush may be lost although a later flush succeeds.

use sched::units::Sector;

use crate::place::DiskNumber;

/// Something to do to a disk.
#[derive(Clone, PartialEq, Eq)]
pub enum Step {
    /// Write `data` at `start`; a multiple of 512 bytes, of 4 KiB where it is metadata.
    Write {
        /// The disk.
        disk: DiskNumber,
        /// The first sector.
        start: Sector,
        /// Data to write.
        data: Vec<u8>,
    },
    /// Make durable what has been written to the disk so far.
    Flush {
        /// The disk.
        disk: DiskNumber,
    },
    /// Go on only if the disk holds `data` at `start`; a whole block.
    Expect {
        /// The disk.
        disk: DiskNumber,
        /// The first sector.
        start: Sector,
        /// Expected data.
        data: Vec<u8>,
    },
}

impl Step {
    /// The disk that it is about.
    #[must_use]
    pub fn disk(&self) -> DiskNumber {
        let (Self::Write { disk, .. } | Self::Flush { disk } | Self::Expect { disk, .. }) = self;
        *disk
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Write { disk, start, data } => write!(
                f,
                "write {} bytes at {start:?} of disk {}",
                data.len(),
                disk.0
            ),
            Self::Flush { disk } => write!(f, "flush disk {}", disk.0),
            Self::Expect { disk, start, data } => write!(
                f,
                "expect {} bytes at {start:?} of disk {}",
                data.len(),
                disk.0
            ),
        }
    }
}

/// A planned change. Dropping it without telling the pool leaves the pool busy for good.
#[must_use = "carry out its steps, then commit it"]
#[derive(Debug)]
pub struct Transaction {
    pub(crate) steps: Vec<Step>,
    pub(crate) serial: u64,
}

impl Transaction {
    /// The steps, in order; see the module's contract.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}
