//! Reads and writes, divided into parts for the pool.
//!
//! A part has at most [`PART_BYTES`], or [`AT_ONCE_PART_BYTES`]. While memory is short and nothing of the client is
//! under way, it has at most [`FIXED_BYTES`].

use std::ops::Range;

use engine::buffer::{Buffer, BufferError, MemoryError};
use engine::dispatcher::HELP_BYTES_MAX;
use engine::volume_io::{VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;

use super::pending::{Part, PendingId};
use super::{Durability, Errno, Requests};

/// The largest part. It spends nearly all of its time transferring on a rotating disk, and its memory is soon free
/// again.
pub(in crate::exports) const PART_BYTES: usize = 1 << 20;

/// The largest part of a write that need not be durable, to disks that complete at once. The thread that has received
/// the data writes it to such a disk while the data is in the cache of its processor.
pub(in crate::exports) const AT_ONCE_PART_BYTES: usize = HELP_BYTES_MAX as usize;

/// Memory that each client has for itself. It guarantees progress while memory is short.
pub(in crate::exports) const FIXED_BYTES: usize = 64 << 10;

/// The most requests of the pool in flight for one client.
pub(in crate::exports) const PARTS_MAX: usize = 512;

/// A part of this size ends the batch: it takes longer than the disk's wake-up, and the disk works while the payload of
/// the next part is received. Parts of a write to disks that complete at once end it from their own, smaller size on.
const LARGE_BYTES: usize = 256 << 10;

const _: () = assert!(FIXED_BYTES.is_multiple_of(4096) && PART_BYTES.is_multiple_of(FIXED_BYTES));
const _: () = assert!(AT_ONCE_PART_BYTES.is_multiple_of(FIXED_BYTES));

/// The operation of a request with data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exports) enum TransferOp {
    Read,
    Write(Durability),
}

/// A request with data on its way to the pool.
#[derive(Debug)]
pub(in crate::exports) struct Transfer {
    pub(in crate::exports) id: PendingId,
    pub(in crate::exports) op: VolumeOp,
    /// First byte of the next part.
    pub(in crate::exports) offset: u64,
    /// Bytes not yet submitted.
    pub(in crate::exports) left: usize,
    /// Memory of the next part.
    pub(in crate::exports) part: Option<PartBuffer>,
}

/// The memory of a part.
#[derive(Debug)]
pub(in crate::exports) struct PartBuffer {
    pub(in crate::exports) buffer: Buffer,
    /// Bytes of payload that it holds.
    pub(in crate::exports) filled: usize,
}

impl Transfer {
    pub(in crate::exports) fn is_read(&self) -> bool {
        self.op == VolumeOp::Read
    }
}

/// The reaction to a shortage of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::exports) enum OnShortage {
    /// Wait: a disk or the socket still holds memory of this client and will return it.
    Wait,
    /// Continue with [`FIXED_BYTES`]: nothing else will return memory to this client.
    UseFixed,
}

impl<R> Requests<R> {
    pub(in crate::exports) fn begin_transfer(
        &mut self,
        id: PendingId,
        op: TransferOp,
        range: Range<u64>,
    ) -> Transfer {
        let left = (range.end - range.start) as usize;
        let op = match op {
            TransferOp::Read => VolumeOp::Read,
            TransferOp::Write(durability) => {
                let is_forced = durability == Durability::BeforeReply;
                let has_one_part = left <= PART_BYTES;
                self.get(id).needs_flush = is_forced && !has_one_part;
                VolumeOp::Write {
                    durable: is_forced && has_one_part,
                }
            }
        };
        Transfer {
            id,
            op,
            offset: range.start,
            left,
            part: None,
        }
    }

    /// Allocates memory for the next part. Returns `None` if there is none at the moment.
    ///
    /// # Errors
    /// An explanation, if there will never be enough.
    pub(in crate::exports) fn allocate_part(
        &mut self,
        transfer: &Transfer,
        on_shortage: OnShortage,
    ) -> Result<Option<Buffer>, String> {
        if self.in_flight >= PARTS_MAX {
            return Ok(None);
        }
        let size = transfer.left.min(match transfer.op {
            VolumeOp::Write { durable: false } => self.write_part_bytes,
            _ => PART_BYTES,
        });
        if let Some(buffer) = self.spare.take(size) {
            return Ok(Some(buffer));
        }
        let account = self.client.account();
        match (account.allocate(size), on_shortage) {
            (Ok(buffer), _) => Ok(Some(buffer)),
            (Err(MemoryError::NotNow | MemoryError::TooMuch { .. }), OnShortage::UseFixed) => {
                match account.allocate(size.min(FIXED_BYTES)) {
                    Ok(buffer) => Ok(Some(buffer)),
                    // Earlier parts hold the fixed memory, and are sent only together with this one.
                    Err(error) if !self.pending.get(transfer.id).parts.is_empty() => {
                        Err(error.to_string())
                    }
                    Err(MemoryError::NotNow) => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            (Err(MemoryError::NotNow | MemoryError::TooMuch { .. }), OnShortage::Wait) => Ok(None),
            (Err(error), _) => Err(error.to_string()),
        }
    }

    /// Submits the part whose memory is in `transfer`. Submits none if the pool has revoked that memory while it was
    /// empty.
    ///
    /// Returns true after a large write, which also ends the batch. The caller then takes completions: a disk that
    /// completes at once has returned memory that is still in the processor's cache.
    pub(in crate::exports) fn submit_part(&mut self, transfer: &mut Transfer) -> bool {
        let Some(PartBuffer { buffer, .. }) = transfer.part.take() else {
            return false;
        };
        let size = buffer.size().min(transfer.left);
        let pending = self.pending.get(transfer.id);
        let number = pending.parts.len();
        let direction = if transfer.is_read() {
            Op::Read
        } else {
            Op::Write
        };
        let submitted = match buffer.segments(direction, 0..size) {
            // The memory was revoked while it held nothing. The caller allocates other memory.
            Err(BufferError::Revoked) if direction == Op::Read => return false,
            Err(error) => {
                pending.fail(Errno::NoMemory, error.to_string());
                None
            }
            Ok(data) => {
                let offset = Bytes(transfer.offset);
                let request = VolumeRequest::transfer(&self.volume, transfer.op, offset, data)
                    .user_data(transfer.id.user_data(number));
                let is_waited_for =
                    transfer.op != VolumeOp::Write { durable: false } || pending.needs_flush;
                let request = if is_waited_for {
                    request
                } else {
                    request.asynchronous()
                };
                Some(self.client.submit_batched(request))
            }
        };
        pending.parts.push(Part {
            offset: transfer.offset,
            bytes: size,
            buffer: Some(buffer),
        });
        if let Some(result) = submitted {
            self.note_submitted(transfer.id, transfer.op, result.map(|_| ()));
        }
        transfer.offset += size as u64;
        transfer.left -= size;
        let is_large = match direction {
            Op::Read => size >= LARGE_BYTES,
            Op::Write => size >= LARGE_BYTES.min(self.write_part_bytes),
        };
        if is_large {
            self.end_batch();
        }
        is_large && direction == Op::Write
    }
}
