//! Requests with data, part by part on their way to the pool.
//!
//! A part is of at most [`PART_BYTES`], or [`AT_ONCE_PART_BYTES`], and of [`FIXED_BYTES`], which are the
//! client's own, when memory is so short that nothing else of it is under way.

use std::ops::Range;

use engine::buffer::{Buffer, BufferError, MemoryError};
use engine::dispatcher::HELP_BYTES_MAX;
use engine::volume_io::{VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;

use super::pending::{Part, PendingId};
use super::{Errno, Requests};

/// The largest transfer that is handed to the pool: large enough to be nearly all transfer on a
/// rotating disk, small enough that its memory is soon free again.
pub(in crate::exports) const PART_BYTES: usize = 1 << 20;

/// The largest transfer of a write that need not be durable, to disks that complete at once. Such a disk
/// is written by the thread that has just received the data and has it in its processor's cache, as
/// long as it is no more than this.
pub(in crate::exports) const AT_ONCE_PART_BYTES: usize = HELP_BYTES_MAX as usize;

/// The memory of a client that nobody can take away: progress, however short memory is.
pub(in crate::exports) const FIXED_BYTES: usize = 64 << 10;

/// The most pool requests in flight for one client.
pub(in crate::exports) const PARTS_MAX: usize = 512;

/// A transfer of which the disks are told at once: it takes longer than being told, and while the
/// payload of the next is received the disk can be at work. So are they of the parts of a write to disks
/// that complete at once, which are smaller.
const LARGE_BYTES: usize = 256 << 10;

const _: () = assert!(FIXED_BYTES.is_multiple_of(4096) && PART_BYTES.is_multiple_of(FIXED_BYTES));
const _: () = assert!(AT_ONCE_PART_BYTES.is_multiple_of(FIXED_BYTES));

/// What a request with data is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exports) enum Transfer {
    Read,
    Write {
        /// It is answered only when it is durable.
        forced: bool,
    },
}

/// A request on its way to the pool, part by part.
#[derive(Debug)]
pub(in crate::exports) struct Parts {
    pub(in crate::exports) id: PendingId,
    pub(in crate::exports) op: VolumeOp,
    pub(in crate::exports) offset: u64,
    pub(in crate::exports) left: usize,
    /// The memory of the part at hand, and how much of its payload is there.
    pub(in crate::exports) filling: Option<(Buffer, usize)>,
}

impl<A> Requests<A> {
    /// Begins a request with data.
    pub(in crate::exports) fn transfer(
        &mut self,
        id: PendingId,
        transfer: Transfer,
        range: Range<u64>,
    ) -> Parts {
        let left = (range.end - range.start) as usize;
        let one_part = left <= PART_BYTES;
        let op = match transfer {
            Transfer::Read => VolumeOp::Read,
            Transfer::Write { forced } => {
                self.get(id).flush = forced && !one_part;
                VolumeOp::Write {
                    durable: forced && one_part,
                }
            }
        };
        Parts {
            id,
            op,
            offset: range.start,
            left,
            filling: None,
        }
    }

    /// Memory for the next part; `None` if there is none now, an explanation if there never will be.
    /// Whether memory will come back to the client is the caller's to know: a disk that has some of it
    /// gives it back, and so does who takes an answer.
    pub(in crate::exports) fn memory_for(
        &mut self,
        parts: &Parts,
        will_come_back: bool,
    ) -> Result<Option<Buffer>, String> {
        if self.in_flight >= PARTS_MAX {
            return Ok(None);
        }
        let size = parts.left.min(match parts.op {
            VolumeOp::Write { durable: false } => self.write_part_bytes,
            _ => PART_BYTES,
        });
        if let Some(buffer) = self.spare.take(size) {
            return Ok(Some(buffer));
        }
        let account = self.client.account();
        match account.allocate(size) {
            Ok(buffer) => Ok(Some(buffer)),
            // With nothing under way, nothing will come back either: go on with what is our own.
            Err(MemoryError::NotNow | MemoryError::TooMuch { .. }) if !will_come_back => {
                match account.allocate(size.min(FIXED_BYTES)) {
                    Ok(buffer) => Ok(Some(buffer)),
                    // Its earlier parts hold what there was, and can only be sent all together.
                    Err(error) if !self.pending.get(parts.id).parts.is_empty() => {
                        Err(error.to_string())
                    }
                    Err(MemoryError::NotNow) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Err(MemoryError::NotNow | MemoryError::TooMuch { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Hands the part at hand to the pool; none if its memory was taken before anything was in it. Whether
    /// it was a large write, of which the disks have been told: one that completes at once has given the
    /// memory back, which the processor has at hand.
    pub(in crate::exports) fn submit_part(&mut self, parts: &mut Parts) -> bool {
        let Some((buffer, _)) = parts.filling.take() else {
            return false;
        };
        let size = buffer.size().min(parts.left);
        let pending = self.pending.get(parts.id);
        let number = pending.parts.len();
        let direction = if parts.op == VolumeOp::Read {
            Op::Read
        } else {
            Op::Write
        };
        let submitted = match buffer.segments(direction, 0..size) {
            // Taken since the client got it. Nothing is in it yet: another does as well.
            Err(BufferError::Revoked) if direction == Op::Read => return false,
            Err(error) => {
                pending.fail(Errno::NoMemory, error.to_string());
                None
            }
            Ok(data) => {
                let request =
                    VolumeRequest::transfer(&self.volume, parts.op, Bytes(parts.offset), data)
                        .user_data(parts.id.user_data(number));
                let waits = parts.op != VolumeOp::Write { durable: false } || pending.flush;
                let request = if waits {
                    request
                } else {
                    request.asynchronous()
                };
                Some(self.client.submit_batched(request))
            }
        };
        pending.parts.push(Part {
            offset: parts.offset,
            bytes: size,
            buffer: Some(buffer),
        });
        if let Some(result) = submitted {
            self.note_submitted(parts.id, parts.op, result.map(|_| ()));
        }
        parts.offset += size as u64;
        parts.left -= size;
        let is_large = match parts.op {
            VolumeOp::Read => size >= LARGE_BYTES,
            _ => size >= LARGE_BYTES.min(self.write_part_bytes),
        };
        if is_large {
            self.end_batch();
        }
        is_large && direction == Op::Write
    }
}
