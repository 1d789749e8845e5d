//! What comes from the client: headers, payloads, and what is thrown away.
//!
//! A payload is received straight into the buffer that the disk is written from, with the next
//! request's header, or several whole requests ([`ahead`]), in the same call.

use std::io;
use std::os::fd::BorrowedFd;

use engine::buffer::Buffer;
use engine::volume_io::VolumeOp;
use sched::request::Op;

use super::{BATCH_REQUESTS, Broken, Next, Session};
use crate::exports::nbd::ahead::{self, AHEAD_BYTES_MAX, AHEAD_MAX, STREAK_MIN};
use crate::exports::nbd::input::Received;
use crate::exports::nbd::proto::request::RequestHeader;
use crate::exports::requests::Requests;
use crate::exports::requests::parts::{PART_BYTES, Parts};
use crate::exports::requests::pending::PendingId;

/// Bytes of replies that the client has not taken, from which on no new request is taken up.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// How many receives one turn may have before other connections have theirs.
const RECEIVES_PER_TURN: usize = 64;

impl Session {
    /// Receives and starts requests. Whether there is more to be had at once.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Broken> {
        for _ in 0..RECEIVES_PER_TURN {
            if self.requests.batch() >= BATCH_REQUESTS {
                self.requests.end_batch();
                self.take_completions();
                self.send(socket)?;
            } else if self.replies.pending() > 0 {
                // Of writes that were done as they came: the client goes on meanwhile.
                self.send(socket)?;
            }
            match std::mem::replace(&mut self.next, Next::Nothing) {
                Next::Nothing => return Ok(false),
                Next::Header => {
                    self.next = Next::Header;
                    if self.is_congested() {
                        self.awaits_own |= self.requests.is_full();
                        return Ok(false);
                    }
                    if self.input.filled().is_empty() && self.begin_ahead()? {
                        continue;
                    }
                    if let Some(bytes) = self.input.header() {
                        self.begin(RequestHeader::decode(&bytes)?)?;
                        continue;
                    }
                    if !self.readable {
                        return Ok(false);
                    }
                    self.receive_headers(socket)?;
                }
                Next::Skip(id, left) => {
                    if !self.skip(socket, id, left)? {
                        return Ok(false);
                    }
                }
                Next::Parts(parts) => {
                    if !self.advance(socket, parts)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    pub(super) fn is_congested(&self) -> bool {
        self.requests.is_full()
            || self.replies.pending() > BACKLOG_BYTES_MAX
            || self.requests.is_asked_back()
    }

    pub(super) fn receive_headers(&mut self, socket: BorrowedFd<'_>) -> Result<(), Broken> {
        let (received, short) = self.input.receive(socket, self.streak.0 == 0)?;
        match received {
            Received::Bytes(_) => self.readable = !short || self.hung_up,
            Received::Nothing => self.readable = false,
            Received::End if self.input.filled().is_empty() => self.next = Next::Nothing,
            Received::End => return Err(Broken::Gone),
        }
        Ok(())
    }

    /// Begins the next of the requests that came ahead. False if there is none, or what came is
    /// not what was foreseen and has become input.
    pub(super) fn begin_ahead(&mut self) -> Result<bool, Broken> {
        let Some(message) = self.ahead.pop_front() else {
            return Ok(false);
        };
        let size = message.buffer.as_ref().map_or(0, Buffer::size);
        if message.header_bytes < message.header.len() {
            // The last that came; the buffers behind it are empty.
            self.input.append(&message.header[..message.header_bytes]);
            let buffers = self.ahead.drain(..).filter_map(|message| message.buffer);
            buffers
                .chain(message.buffer)
                .for_each(|buffer| self.requests.spare.keep(buffer));
            return Ok(false);
        }
        let header = RequestHeader::decode(&message.header)?;
        self.begin(header)?;
        match &mut self.next {
            Next::Parts(parts) if parts.op != VolumeOp::Read && header.length as usize == size => {
                parts.filling = message.buffer.map(|buffer| (buffer, message.payload_bytes));
            }
            _ => {
                ahead::spill_payload(
                    message.buffer.as_ref(),
                    message.payload_bytes,
                    &mut self.input,
                )?;
                ahead::spill(&mut self.ahead, &mut self.input)?;
            }
        }
        Ok(true)
    }

    /// Receives payload into the part at hand. False if it is not there whole yet.
    pub(super) fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        parts: &mut Parts,
    ) -> Result<bool, Broken> {
        let Some((buffer, filled)) = &mut parts.filling else {
            return Ok(false);
        };
        let size = buffer.size().min(parts.left);
        let is_last = size == parts.left;
        self.fill_from_input(buffer, filled, size)?;
        if *filled < size {
            // Nothing can have come behind what is not there itself.
            self.give_back_ahead();
        }
        let likely = self.streak.1 >= STREAK_MIN && size <= AHEAD_BYTES_MAX;
        if *filled < size && self.readable && likely && is_last {
            self.fill_ahead(socket, buffer, filled, size)?;
        }
        if *filled < size && self.readable {
            self.fill_rest(socket, buffer, filled, size, is_last)?;
        }
        Ok(*filled == size)
    }

    /// Takes payload from what has been received already.
    fn fill_from_input(
        &mut self,
        buffer: &mut Buffer,
        filled: &mut usize,
        size: usize,
    ) -> Result<(), Broken> {
        let there = self.input.filled();
        let count = there.len().min(size - *filled);
        if count > 0 {
            let range = *filled..*filled + count;
            let copied = buffer.with_mut(|bytes| bytes[range].copy_from_slice(&there[..count]));
            copied.map_err(io::Error::other)?;
            self.input.consume(count);
            *filled += count;
        }
        Ok(())
    }

    /// Receives the payload and, behind it, as many writes of the same size as are to be expected.
    fn fill_ahead(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &Buffer,
        filled: &mut usize,
        size: usize,
    ) -> Result<(), Broken> {
        let spares = spare_buffers(&mut self.requests, size, self.foresight);
        let brought = ahead::receive(socket, buffer, *filled..size, spares, &mut self.ahead)?;
        *filled += brought.payload_bytes;
        match brought.received {
            Received::Bytes(_) => self.readable = brought.full || self.hung_up,
            Received::Nothing => self.readable = false,
            Received::End => return Err(Broken::Gone),
        }
        let came = self
            .ahead
            .iter()
            .filter(|message| message.header_bytes > 0)
            .count();
        self.foresight = (came + 1).min(AHEAD_MAX);
        Ok(())
    }

    /// Receives the payload, and with the last of it the next header.
    fn fill_rest(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &Buffer,
        filled: &mut usize,
        size: usize,
        is_last: bool,
    ) -> Result<(), Broken> {
        let memory = buffer
            .segments(Op::Read, 0..size)
            .map_err(io::Error::other)?;
        while *filled < size && self.readable {
            let tail: &mut [u8] = if is_last {
                self.input.header_space()
            } else {
                &mut []
            };
            let missing = size - *filled;
            let asked = missing + tail.len();
            match Received::from_result(memory.receive(socket, *filled, tail))? {
                Received::Bytes(count) => {
                    *filled += count.min(missing);
                    self.input.came(count.saturating_sub(missing));
                    self.readable = count == asked || self.hung_up;
                    self.linger.brought(count, *filled == size);
                }
                Received::Nothing => self.readable = false,
                Received::End => return Err(Broken::Gone),
            }
            if *filled < size && !self.readable {
                self.readable = self.linger.look(socket);
            }
        }
        Ok(())
    }

    /// Keeps the buffers for what was to come ahead and did not.
    pub(super) fn give_back_ahead(&mut self) {
        let buffers = self.ahead.drain(..).filter_map(|message| message.buffer);
        buffers.for_each(|buffer| self.requests.spare.keep(buffer));
    }

    /// Throws away payload, and answers its request after the last of it: many a client takes no answer while it sends.
    /// False if there is none to throw away now.
    pub(super) fn skip(
        &mut self,
        socket: BorrowedFd<'_>,
        id: PendingId,
        left: u32,
    ) -> Result<bool, Broken> {
        let mut left = left as usize;
        let there = self.input.filled().len().min(left);
        self.input.consume(there);
        left -= there;
        if left > 0 && self.readable {
            self.scratch.resize(left.min(PART_BYTES / 16), 0);
            let result = rustix::io::read(socket, &mut self.scratch[..]);
            match Received::from_result(result.map_err(io::Error::from))? {
                Received::Bytes(count) => left -= count,
                Received::Nothing => self.readable = false,
                Received::End => return Err(Broken::Gone),
            }
        }
        if left > 0 {
            self.next = Next::Skip(id, left as u32);
            return Ok(self.readable);
        }
        self.next = Next::Header;
        self.requests.get(id).complete = true;
        self.finish_if_done(id);
        Ok(true)
    }
}

/// Buffers for up to `count` writes of `size` bytes.
fn spare_buffers<A>(requests: &mut Requests<A>, size: usize, count: usize) -> Vec<Buffer> {
    let one = || {
        let kept = requests.spare.take(size);
        kept.or_else(|| requests.client().account().allocate(size).ok())
    };
    std::iter::from_fn(one).take(count).collect()
}
