//! What a dispatcher needs of a disk: a place to put one contiguous transfer, and one way to sleep.
//!
//! A disk never blocks in [`Disk::submit`]. All waiting happens in [`Disk::wait`], which sleeps in
//! a single system call for whatever comes first of a completion, the owner's wake-up event and an
//! instant. The disk owns the memory of a transfer while it runs ([`DiskIo::segments`]), so no
//! caller can take memory away from under it.
//!
//! Deliberately absent: queueing and order. A disk is handed what is to run now; what comes next is
//! decided in `sched`. Discard is absent too: it takes unbounded time on many drives, and a volume
//! forgets its content by clearing bits.

use std::io;
use std::sync::Arc;

use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::buffer::Segments;
use crate::event::EventFd;
use crate::rt::Denied;

/// What it takes for an answered write to survive a power failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Durability {
    /// Durable when it completes: no volatile cache, or the cache is off.
    WriteThrough,
    /// Durable when it completes if it was issued with [`DiskIo::durable`].
    Fua,
    /// In the host's care when it completes; durable after [`HostSync::sync`], which takes
    /// unbounded time and is never called from the disk's own thread.
    Host,
}

/// Makes what a [`Durability::Host`] disk has completed durable. Called from any thread.
pub trait HostSync: Send + Sync {
    /// Returns when every write that completed before the call is durable.
    ///
    /// # Errors
    /// When the host says that it is not; nothing may be assumed of any write since the last success.
    fn sync(&self) -> io::Result<()>;
}

/// One contiguous transfer, to run now.
#[derive(Debug)]
pub struct DiskIo {
    /// The owner's name for it; comes back in [`Done::tag`].
    pub tag: u64,
    /// The direction.
    pub op: Op,
    /// The first sector on the disk.
    pub start: Sector,
    /// How many sectors; at least one.
    pub count: SectorCount,
    /// The memory, of exactly `count` sectors, pinned until the disk drops it. Empty only for
    /// disks of a simulation that moves no data.
    pub segments: Segments,
    /// For [`Durability::Fua`]: whether this write must be durable when it completes.
    pub durable: bool,
}

/// The end of a transfer.
#[derive(Debug)]
pub struct Done {
    /// The owner's name for it.
    pub tag: u64,
    /// How it ended. A short transfer is never a success.
    pub result: Result<(), DiskError>,
    /// When the disk was done with it.
    pub at: Time,
    /// By how much the host, not the disk, delayed `at`, as far as the disk can tell: emulated
    /// drives know when the model had finished. Zero for real ones.
    pub host_late: Nanos,
}

/// How a transfer failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum DiskError {
    /// The medium or the transport failed on this transfer.
    #[error("{} at sector {}", io::Error::from_raw_os_error(*errno), .start.0)]
    Io {
        /// The kernel's error number.
        errno: i32,
        /// Where the transfer began.
        start: Sector,
    },
    /// The disk is gone, or its kernel device is; nothing on it will work again.
    #[error("the disk is gone: {}", io::Error::from_raw_os_error(*errno))]
    Gone {
        /// The kernel's error number.
        errno: i32,
    },
    /// The transfer is not one that the disk can do: misaligned or outside the disk.
    #[error("the disk cannot do a transfer of {count:?} at {start:?}")]
    Invalid {
        /// Where the transfer would begin.
        start: Sector,
        /// How long it would be.
        count: SectorCount,
    },
    /// The disk has no free place; see [`Disk::places`].
    #[error("the disk has no free place")]
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

    /// Whether no later transfer can succeed either.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// A disk as its dispatcher sees it. It is used by one thread, the one it was moved to; one that
/// [completes at once](Self::completes_at_once) by one thread at a time.
pub trait Disk: Send {
    /// The size. Does not change while the disk is open.
    fn capacity(&self) -> SectorCount;

    /// How many transfers it can hold at a time; at least one. What it is *given* at a time is for
    /// the drive's profile to say and never more than this.
    fn places(&self) -> usize;

    /// What it takes for a write to be durable.
    fn durability(&self) -> Durability;

    /// The means to make writes durable, for [`Durability::Host`]; `None` for others.
    fn host_sync(&self) -> Option<Arc<dyn HostSync>> {
        None
    }

    /// Where its transfers may begin and end: multiples of this many bytes, itself a multiple of 512.
    fn block_bytes(&self) -> u32 {
        512
    }

    /// What about the disk is not as the schedule would have it, in words for people, each with what
    /// can be done about it.
    fn caveats(&self) -> Vec<String> {
        Vec::new()
    }

    /// Prepares for use on the calling thread, which is the one that will make all later calls.
    /// Returns what the host refused that would have made it faster.
    ///
    /// # Errors
    /// When the disk cannot be used.
    fn attach(&mut self) -> io::Result<Denied> {
        Ok(Denied::default())
    }

    /// Starts a transfer. Never blocks: at most it copies to or from memory.
    ///
    /// # Errors
    /// When it could not be started, in which case there will be no [`Done`] for it.
    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError>;

    /// Whether a completion is there already, so that [`wait`](Self::wait) would not sleep. Only a
    /// hint: it saves others the trouble of waking the owner.
    fn has_ready(&self) -> bool {
        false
    }

    /// Whether every transfer is complete when [`submit`](Self::submit) returns, and
    /// [`has_ready`](Self::has_ready) says so. Such a disk is never waited for with nothing ready, and
    /// both calls may come from any thread.
    fn completes_at_once(&self) -> bool {
        false
    }

    /// When the latest completion that is there already was. It saves asking for the time again after
    /// a submission to a disk that completes at once.
    fn ready_at(&self) -> Option<Time> {
        None
    }

    /// Appends what has completed to `out`, sleeping until there is something, `wake` is signalled
    /// (the signal is taken away), or `until` has come. `until` in the past polls; `None` is for as
    /// long as it takes. May return early with nothing. `wake` is the same event in every call.
    ///
    /// # Errors
    /// When the disk cannot wait any more; the owner treats it as gone.
    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()>;
}
