//! The interface between a dispatcher and a disk: contiguous transfers, and one way to sleep.
//!
//! A disk never blocks in [`Disk::submit`]. All waiting happens in [`Disk::wait`], which sleeps in a single
//! system call for the first of a completion, the owner's wake-up event, and a time. The disk owns the memory
//! of a transfer while the transfer runs ([`DiskIo::segments`]), so no caller can release the memory early.
//!
//! Deliberately absent: queueing and order. A disk gets the transfer to run now; `sched` decides on the next.
//! Discard is absent too: it takes unbounded time on many drives, and a volume discards content by clearing
//! bits.

use std::io;
use std::sync::Arc;

use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::buffer::Segments;
use crate::event::EventFd;
use crate::rt::DeniedResources;

/// The condition under which an answered write survives a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Durability {
    /// Durable when it completes: no volatile cache, or the cache is off.
    WriteThrough,
    /// Durable when it completes if it was issued with [`DiskIo::durable`].
    Fua,
    /// In the host's cache when it completes; durable after [`HostSync::sync`], which takes unbounded time
    /// and is never called from the disk's own thread.
    Host,
}

/// Makes completed writes of a [`Durability::Host`] disk durable. Called from any thread.
pub trait HostSync: Send + Sync {
    /// Returns when every write that completed before the call is durable.
    ///
    /// # Errors
    /// When the host reports a failure; then nothing may be assumed of any write since the last success.
    fn sync(&self) -> io::Result<()>;
}

/// One contiguous transfer, to run now.
#[derive(Debug)]
pub struct DiskIo {
    /// The owner's id of it; returned in [`Done::tag`].
    pub tag: u64,
    /// The direction.
    pub op: Op,
    /// The first sector on the disk.
    pub start: Sector,
    /// Number of sectors; at least one.
    pub count: SectorCount,
    /// The memory, of exactly `count` sectors, pinned until the disk drops it. Empty only for disks of a
    /// simulation that moves no data.
    pub segments: Segments,
    /// For [`Durability::Fua`]: the write must be durable when it completes.
    pub durable: bool,
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Done {
    /// The owner's id of it.
    pub tag: u64,
    /// The result. A short transfer is never a success.
    pub result: Result<(), DiskError>,
    /// When the disk completed it.
    pub at: Time,
    /// Part of the delay until `at` that the host caused, as far as the disk can tell: emulated drives know
    /// when the model had finished. Zero for real ones.
    pub host_late: Nanos,
}

/// The reason why a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum DiskError {
    /// The medium or the transport failed on this transfer.
    #[error("{} at sector {}", io::Error::from_raw_os_error(*errno), .start.0)]
    Io {
        /// The kernel's error number.
        errno: i32,
        /// Start of the transfer.
        start: Sector,
    },
    /// The disk, or its kernel device, is gone; no later transfer will work.
    #[error("the disk is gone: {}", io::Error::from_raw_os_error(*errno))]
    Gone {
        /// The kernel's error number.
        errno: i32,
    },
    /// The disk cannot do the transfer: it is misaligned or outside the disk.
    #[error("the disk cannot do a transfer of {count:?} at {start:?}")]
    Invalid {
        /// Start of the transfer.
        start: Sector,
        /// Length of the transfer.
        count: SectorCount,
    },
    /// The disk has no free place; see [`Disk::places`].
    #[error("the disk's queue is full")]
    Busy,
}

impl DiskError {
    /// The error for `errno` on a transfer at `start`.
    #[must_use]
    pub fn from_errno(errno: i32, start: Sector) -> Self {
        match errno {
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN | libc::EBADF => Self::Gone { errno },
            _ => Self::Io { errno, start },
        }
    }

    /// True if the medium may be to blame, at the place of the transfer alone. A file system without room, a
    /// transfer in error, and a disk that is gone are something else.
    #[must_use]
    pub fn is_of_medium(&self) -> bool {
        let Self::Io { errno, .. } = self else {
            return false;
        };
        // The kernel's words for errors of a medium, of protection data, and of a target.
        [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EREMOTEIO].contains(errno)
    }

    /// The kernel's error number, if the transfer alone failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// True if no later transfer can succeed either.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// A disk as its dispatcher sees it. It is used by the one thread that it was moved to, or if it
/// [completes at once](Self::completes_at_once), by one thread at a time.
pub trait Disk: Send {
    /// The size. Does not change while the disk is open.
    fn capacity(&self) -> SectorCount;

    /// The most transfers that it can hold; at least one. The drive's profile decides how many it is *given*,
    /// which is never more than this.
    fn places(&self) -> usize;

    /// The durability of its writes.
    fn durability(&self) -> Durability;

    /// The means to make writes durable, for [`Durability::Host`]; `None` for others.
    fn host_sync(&self) -> Option<Arc<dyn HostSync>> {
        None
    }

    /// Alignment of its transfers in bytes, a multiple of 512.
    fn block_bytes(&self) -> u32 {
        512
    }

    /// Deviations of the disk from what the schedule assumes, in words for the operator, each with a remedy.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }

    /// Prepares for use on the calling thread, which is the one that makes all later calls. Returns the
    /// resources that the host denied and that would have made it faster.
    ///
    /// # Errors
    /// When the disk cannot be used.
    fn attach(&mut self) -> io::Result<DeniedResources> {
        Ok(DeniedResources::default())
    }

    /// Starts a transfer. Never blocks; at most it copies memory.
    ///
    /// # Errors
    /// When it could not be started; then there will be no [`Done`] for it.
    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError>;

    /// True if a completion is available, so that [`wait`](Self::wait) would not sleep. Only a hint that
    /// saves others from waking the owner.
    fn has_ready(&self) -> bool {
        false
    }

    /// True if every transfer is complete when [`submit`](Self::submit) returns, and
    /// [`has_ready`](Self::has_ready) then returns true. Such a disk is never waited for with nothing ready,
    /// and both calls may come from any thread.
    fn completes_at_once(&self) -> bool {
        false
    }

    /// Time of the latest available completion. Saves a clock query after a submission to a disk that
    /// completes at once.
    fn ready_at(&self) -> Option<Time> {
        None
    }

    /// Appends completions to `out`; sleeps until there is one, `wake` is signalled (the signal is consumed),
    /// or `until`. An `until` in the past polls; `None` waits without limit. May return early with nothing.
    /// `wake` is the same event in every call.
    ///
    /// # Errors
    /// When the disk cannot be waited for any more; the owner treats it as gone.
    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()>;
}
