//! Requests with data, part by part on their way to the pool.
//!
//! A part gets its memory from what the connection has kept, or from its account. Where there is none
//! the connection receives nothing more until there is.

use std::os::fd::BorrowedFd;

use engine::buffer::{Buffer, BufferError, MemoryError};
use engine::front::{VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;

use super::{Broken, FIXED_BYTES, LARGE_BYTES, Next, PART_BYTES, PARTS_MAX, Parts, Session};
use crate::exports::nbd::proto::Errno;
use crate::exports::requests::pending::Part;

impl Session {
    /// Gets a request on its way as far as possible. False if it has to wait.
    pub(super) fn advance(
        &mut self,
        socket: BorrowedFd<'_>,
        mut parts: Parts,
    ) -> Result<bool, Broken> {
        while parts.left > 0 {
            if parts.filling.is_none() {
                match self.memory_for(&parts) {
                    Ok(Some(buffer)) => parts.filling = Some((buffer, 0)),
                    Ok(None) => {
                        self.awaits_own = self.is_anything_under_way();
                        self.next = Next::Parts(parts);
                        return Ok(false);
                    }
                    Err(text) => {
                        self.abandon(&parts, text);
                        return Ok(true);
                    }
                }
            }
            if parts.op != VolumeOp::Read && !self.fill(socket, &mut parts)? {
                let again = self.readable;
                self.next = Next::Parts(parts);
                return Ok(again);
            }
            self.submit_part(&mut parts);
        }
        let id = parts.id;
        self.pending.get(id).complete = true;
        self.next = Next::Header;
        self.finish_if_done(id);
        Ok(true)
    }

    /// Gives up a request for which there will never be memory.
    pub(super) fn abandon(&mut self, parts: &Parts, text: String) {
        let pending = self.pending.get(parts.id);
        pending.fail(Errno::NoMemory, text);
        if parts.op != VolumeOp::Read {
            self.next = Next::Skip(parts.id, parts.left as u32);
            return;
        }
        pending.complete = true;
        self.next = Next::Header;
        self.finish_if_done(parts.id);
    }

    /// Memory for the next part; `None` if there is none now, an explanation if there never will be.
    pub(super) fn memory_for(&mut self, parts: &Parts) -> Result<Option<Buffer>, String> {
        if self.parts_in_flight >= PARTS_MAX {
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
            Err(MemoryError::NotNow | MemoryError::TooMuch { .. })
                if !self.is_anything_under_way() =>
            {
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

    /// Hands the part at hand to the pool.
    pub(super) fn submit_part(&mut self, parts: &mut Parts) {
        let Some((buffer, _)) = parts.filling.take() else {
            return;
        };
        let size = buffer.size().min(parts.left);
        self.payloads += u64::from(parts.op != VolumeOp::Read);
        let pending = self.pending.get(parts.id);
        let number = pending.parts.len();
        let direction = if parts.op == VolumeOp::Read {
            Op::Read
        } else {
            Op::Write
        };
        let submitted = match buffer.segments(direction, 0..size) {
            // Taken since the connection got it. Nothing is in it yet: another does as well.
            Err(BufferError::Revoked) if direction == Op::Read => return,
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
            if parts.op != VolumeOp::Read {
                // A disk that completes at once has given the memory back, which the processor has at hand.
                self.take_completions();
            }
        }
    }
}
