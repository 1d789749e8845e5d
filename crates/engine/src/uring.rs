//! Block devices and files through `io_uring`.
//!
//! There is one ring per disk, made and used by the dispatcher's thread (single issuer, deferred task work).
//! The file and all buffer memory are registered where the host permits. A transfer of one piece is a fixed
//! read or write. A transfer of several pieces is a vectored fixed one if the kernel supports that (6.15),
//! otherwise a plain vectored one. Waiting is one `io_uring_enter`, which submits queued transfers and sleeps
//! until a completion, the wake-up event (which the kernel reads), or the timeout.
//!
//! Short transfers are resumed; a transfer past the end of a file that has shrunk is an error. Writes that
//! must be durable carry RWF_DSYNC if the disk's durability is [`Durability::Fua`].
//!
//! # Files in memory
//!
//! tmpfs and ramfs do not support non-blocking attempts, so `io_uring` would hand each transfer to a worker
//! thread: two context switches for a copy of some kilobytes. Such files are read and written in
//! [`Disk::submit`] itself (`preadv`, `pwritev`). The ring is still used to sleep. `docs/design/engine.md`
//! has the measurement.
//!
//! Deliberately absent: discard and flush, see [`crate::disk`]; polled I/O, which would occupy a processor.

mod open;
mod ring;

use std::io;
use std::path::Path;
use std::sync::Arc;

use sched::request::Op;
use sched::units::{Nanos, SECTOR_BYTES, SectorCount, Time};
use smallvec::SmallVec;

use crate::buffer::{INLINE_IOVECS, Memory, Region};
use crate::clock;
use crate::disk::{Disk, DiskError, DiskIo, Done, Durability, HostSync};
use crate::event::EventFd;
use crate::rt::DeniedResources;

pub use open::Access;
use open::{OpenDisk, TransferMode};
use ring::{Ring, Transfer};

/// The most I/O vectors of one system call (UIO_MAXIOV).
const IOVECS_MAX: usize = 1024;

/// Number of retries that the kernel may ask for before a transfer fails.
const RETRIES_MAX: u32 = 1000;

/// Time that closing waits for transfers under way. After that their memory is leaked.
const CLOSE_WITHIN: Nanos = Nanos::from_secs(5);

/// A block device or a file.
pub struct UringDisk {
    opened: Arc<OpenDisk>,
    region: Region,
    ring: Option<Ring>,
    /// By the index that the ring knows a transfer by. Never grows, so entries do not move.
    places: Vec<TransferState>,
    free: Vec<usize>,
    /// Completed transfers that have not been returned.
    ready: Vec<Done>,
}

/// The state of one transfer.
#[derive(Default)]
struct TransferState {
    io: Option<DiskIo>,
    /// Bytes transferred so far.
    moved: usize,
    retries: u32,
    iovecs: SmallVec<[libc::iovec; INLINE_IOVECS]>,
}

// SAFETY: the entries of `iovecs` point into the mapping, which the segments in `io` pin; they are only
// passed to the kernel.
#[allow(unsafe_code)]
unsafe impl Send for TransferState {}

impl UringDisk {
    /// Opens a block device or file exclusively, with room for `places` (at least one) transfers at a time,
    /// whose segments come from `memory`.
    ///
    /// # Errors
    /// When it cannot be opened, is in use, or is smaller than a sector.
    pub fn open(path: &Path, memory: &Memory, places: usize) -> io::Result<Self> {
        Self::open_as(path, memory, places, None)
    }

    /// As [`Self::open`], with the `wanted` durability; `None` chooses the cheapest one that the disk supports.
    ///
    /// # Errors
    /// As [`Self::open`], and [`io::ErrorKind::Unsupported`] when the disk does not support it.
    pub fn open_as(
        path: &Path,
        memory: &Memory,
        places: usize,
        wanted: Option<Durability>,
    ) -> io::Result<Self> {
        Self::open_for(path, memory, places, wanted, Access::Exclusive)
    }

    /// As [`Self::open_as`], for reads alone if `access` says so. Writes are then refused as invalid.
    ///
    /// # Errors
    /// As [`Self::open_as`].
    pub fn open_for(
        path: &Path,
        memory: &Memory,
        places: usize,
        wanted: Option<Durability>,
        access: Access,
    ) -> io::Result<Self> {
        let places = places.max(1);
        Ok(Self {
            opened: Arc::new(open::open(path, wanted, access)?),
            region: memory.region(),
            ring: None,
            places: (0..places).map(|_| TransferState::default()).collect(),
            free: (0..places).rev().collect(),
            ready: Vec::with_capacity(places),
        })
    }

    /// True for a block device, false for a file.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.opened.is_device
    }

    /// True for a file on a file system in memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.opened.mode == TransferMode::Inline
    }

    fn fits(&self, io: &DiskIo) -> bool {
        let block = u64::from(self.opened.block_bytes) / SECTOR_BYTES;
        let end = io.start.checked_add(io.count);
        (io.op == Op::Read || self.opened.access.writes())
            && !io.count.is_zero()
            && end.is_some_and(|end| end.0 <= self.opened.capacity.0)
            && io.start.0.is_multiple_of(block)
            && io.count.0.is_multiple_of(block)
            && io.segments.op() == io.op
            && io.segments.size() as u64 == io.count.bytes().0
    }

    fn inline(&mut self, io: DiskIo) {
        let position = io.start.0 * SECTOR_BYTES;
        let result = match io.op {
            Op::Read => io.segments.read_from_file(&self.opened.file, position),
            Op::Write => io.segments.write_to_file(&self.opened.file, position),
        };
        let result =
            result.map_err(|error| failure(&io, error.raw_os_error().unwrap_or(libc::EIO)));
        let tag = io.tag;
        // The memory is released before the completion can be seen.
        drop(io);
        self.ready.push(Done {
            tag,
            result,
            at: clock::now(),
            host_late: Nanos::ZERO,
        });
    }

    /// Passes the rest of the transfer at `index` to the ring.
    #[allow(unsafe_code)]
    fn push(&mut self, index: usize) {
        let place = &mut self.places[index];
        let (Some(io), Some(ring)) = (&place.io, &mut self.ring) else {
            return;
        };
        place.iovecs.clear();
        io.segments
            .gather(place.moved, IOVECS_MAX, &mut place.iovecs);
        let durable = io.op == Op::Write && io.durable && self.opened.durability == Durability::Fua;
        let transfer = Transfer {
            write: io.op == Op::Write,
            position: io.start.0 * SECTOR_BYTES + place.moved as u64,
            iovecs: &place.iovecs,
            rw_flags: if durable { libc::RWF_DSYNC } else { 0 },
        };
        // SAFETY: the entries point into memory that the segments in `place.io` pin, for filling or as a
        // source as the direction requires. `place` does not move, and neither is touched before the
        // completion has been reaped (`settle`) or the disk is dropped, which leaks them.
        unsafe { ring.push(index as u64, &transfer) };
    }

    /// Takes completions from the ring. True if the event was signalled.
    fn reap(&mut self) -> bool {
        let Some(ring) = &mut self.ring else {
            return false;
        };
        let at = clock::now();
        let (places, free, ready) = (&mut self.places, &mut self.free, &mut self.ready);
        let mut again: SmallVec<[usize; 8]> = SmallVec::new();
        let woken = ring.reap(|index, result| {
            let index = index as usize;
            match places[index].settle(result) {
                CallOutcome::Continue => again.push(index),
                CallOutcome::Ended { tag, result } => {
                    free.push(index);
                    ready.push(Done {
                        tag,
                        result,
                        at,
                        host_late: Nanos::ZERO,
                    });
                }
            }
        });
        for index in again {
            self.push(index);
        }
        woken
    }

    fn in_flight(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

enum CallOutcome {
    Continue,
    Ended {
        tag: u64,
        result: Result<(), DiskError>,
    },
}

impl TransferState {
    /// Takes in the result of a system call for this transfer.
    fn settle(&mut self, result: i32) -> CallOutcome {
        let io = self
            .io
            .as_ref()
            .expect("a completion is of a transfer under way");
        let failed = match result {
            _ if result == -libc::EINTR || result == -libc::EAGAIN => {
                self.retries += 1;
                if self.retries <= RETRIES_MAX {
                    return CallOutcome::Continue;
                }
                Some(-result)
            }
            // The end of a file that has shrunk since it was opened.
            0 => Some(libc::EIO),
            1.. => {
                self.moved += result as usize;
                if self.moved < io.segments.size() {
                    return CallOutcome::Continue;
                }
                None
            }
            _ => Some(-result),
        };
        let ended = CallOutcome::Ended {
            tag: io.tag,
            result: failed.map_or(Ok(()), |errno| Err(failure(io, errno))),
        };
        // The memory is released before the completion can be seen.
        self.io = None;
        self.moved = 0;
        self.retries = 0;
        ended
    }
}

fn failure(io: &DiskIo, errno: i32) -> DiskError {
    match errno {
        libc::EINVAL => DiskError::Invalid {
            start: io.start,
            count: io.count,
        },
        _ => DiskError::from_errno(errno, io.start),
    }
}

impl Disk for UringDisk {
    fn capacity(&self) -> SectorCount {
        self.opened.capacity
    }

    fn places(&self) -> usize {
        self.places.len()
    }

    fn durability(&self) -> Durability {
        self.opened.durability
    }

    fn host_sync(&self) -> Option<Arc<dyn HostSync>> {
        (self.opened.durability == Durability::Host)
            .then(|| Arc::clone(&self.opened) as Arc<dyn HostSync>)
    }

    fn caveats(&self) -> Vec<String> {
        self.opened.caveats.clone()
    }

    fn block_bytes(&self) -> u32 {
        self.opened.block_bytes
    }

    fn attach(&mut self) -> io::Result<DeniedResources> {
        let (ring, denied) = Ring::new(&self.opened.file, self.region.clone(), self.places.len())?;
        self.ring = Some(ring);
        // A file in memory does not use registered buffers.
        Ok(if self.is_in_memory() {
            DeniedResources::default()
        } else {
            denied
        })
    }

    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        if !self.fits(&io) {
            return Err(DiskError::Invalid {
                start: io.start,
                count: io.count,
            });
        }
        if self.in_flight() + self.ready.len() >= self.places.len() {
            return Err(DiskError::Busy);
        }
        if self.ring.is_none() {
            return Err(DiskError::Gone { errno: libc::EBADF });
        }
        if self.opened.mode == TransferMode::Inline {
            self.inline(io);
            return Ok(());
        }
        let index = self.free.pop().ok_or(DiskError::Busy)?;
        self.places[index].io = Some(io);
        self.push(index);
        Ok(())
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn completes_at_once(&self) -> bool {
        self.opened.mode == TransferMode::Inline
    }

    fn ready_at(&self) -> Option<Time> {
        let last = self.ready.last().map(|done| done.at);
        last.filter(|_| self.completes_at_once())
    }

    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        let ring = self.ring.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        if self.ready.is_empty() {
            ring.enter(until, wake)?;
            self.reap();
        } else if self.opened.mode == TransferMode::Ring {
            ring.poll()?;
            self.reap();
        }
        out.append(&mut self.ready);
        Ok(())
    }
}

impl HostSync for OpenDisk {
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }
}

impl Drop for UringDisk {
    fn drop(&mut self) {
        let deadline = clock::now().saturating_add(CLOSE_WITHIN);
        let Ok(never) = EventFd::new() else {
            std::mem::forget(std::mem::take(&mut self.places));
            return;
        };
        while self.in_flight() > 0 && clock::now() < deadline {
            let entered = self
                .ring
                .as_mut()
                .is_some_and(|ring| ring.enter(Some(deadline), &never).is_ok());
            self.reap();
            if !entered {
                break;
            }
        }
        if self.in_flight() > 0 {
            // A device that never answers may still write to this memory, so it must not be reused.
            std::mem::forget(std::mem::take(&mut self.places));
        }
    }
}

impl std::fmt::Debug for UringDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringDisk")
            .field("opened", &self.opened)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
