//! The receive side of a connection: from bytes of the socket to headers and payloads.
//!
//! A payload is received directly into the buffer from which the disk is written. The same call receives the header of
//! the next request, or several whole requests ([`super::prefetch`]).

use std::io;
use std::os::fd::BorrowedFd;

use sched::request::Op;

use super::ConnectionError;
use super::busy_poll::{BusyPoll, Worth};
use super::prefetch::Prefetch;
use super::receive::Progress;
use crate::exports::nbd::input::{Input, ReadSize, Received};
use crate::exports::nbd::proto::request::{REQUEST_BYTES, RequestHeader};
use crate::exports::requests::Requests;
use crate::exports::requests::spare_buffers::SpareBuffers;
use crate::exports::requests::transfer::{PartBuffer, Transfer};

/// The most bytes of a discarded payload that are read in one call.
const DISCARD_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Receiver {
    readiness: Readiness,
    input: Input,
    prefetch: Prefetch,
    busy_poll: BusyPoll,
    /// Memory for discarded payloads.
    discarded: Vec<u8>,
    /// Payloads of parts that have been received completely.
    payloads: u64,
}

/// The state of the socket.
#[derive(Debug)]
struct Readiness {
    /// The socket may have bytes. A receive of fewer bytes than requested clears it, as epoll reports later bytes.
    /// After a hang-up it stays set, as epoll reports that once.
    is_readable: bool,
    is_hung_up: bool,
}

impl Readiness {
    /// Records a receive that had room for `asked` bytes. Returns the number received.
    fn note(&mut self, received: Received, asked: usize) -> Result<usize, ConnectionError> {
        match received {
            Received::Bytes(count) => {
                // An interrupted call, which receives nothing, says nothing about the socket.
                self.is_readable = count == asked || count == 0 || self.is_hung_up;
                Ok(count)
            }
            Received::WouldBlock => {
                self.is_readable = false;
                Ok(0)
            }
            Received::End => Err(ConnectionError::Truncated),
        }
    }
}

impl Receiver {
    /// `received` came with the handshake.
    pub(super) fn new(received: &[u8]) -> Self {
        Self {
            readiness: Readiness {
                is_readable: true,
                is_hung_up: false,
            },
            input: Input::new(received),
            prefetch: Prefetch::new(),
            busy_poll: BusyPoll::default(),
            discarded: Vec::new(),
            payloads: 0,
        }
    }

    pub(super) fn socket_event(&mut self, is_readable: bool, is_hung_up: bool) {
        self.readiness.is_readable |= is_readable || is_hung_up;
        self.readiness.is_hung_up |= is_hung_up;
    }

    pub(super) fn begin_turn(&mut self) {
        self.busy_poll.begin_turn();
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readiness.is_readable
    }

    pub(super) fn progress(&self) -> Progress {
        if self.is_readable() {
            Progress::Continue
        } else {
            Progress::Wait
        }
    }

    /// Payloads of parts that have been received completely since the session began.
    pub(super) fn payloads(&self) -> u64 {
        self.payloads
    }

    /// Takes the next request if its header has been received, with the payload that was prefetched for it.
    pub(super) fn next_request(
        &mut self,
        spare: &mut SpareBuffers,
    ) -> Result<Option<(RequestHeader, Option<PartBuffer>)>, ConnectionError> {
        if self.input.filled().is_empty()
            && let Some((header, payload)) = self.prefetch.next(&mut self.input, spare)
        {
            return Ok(Some((self.decode(&header)?, payload)));
        }
        match self.input.header() {
            Some(header) => Ok(Some((self.decode(&header)?, None))),
            None => Ok(None),
        }
    }

    fn decode(&mut self, bytes: &[u8; REQUEST_BYTES]) -> Result<RequestHeader, ConnectionError> {
        let header = RequestHeader::decode(bytes)?;
        self.prefetch.note_request(header.payload_bytes());
        Ok(header)
    }

    /// Turns a payload that [`Self::next_request`] returned, and all that was prefetched after it, into input.
    pub(super) fn undo_prefetch(&mut self, payload: &PartBuffer) -> io::Result<()> {
        self.prefetch.undo(payload, &mut self.input)
    }

    /// Receives headers: in bulk if the client's last request was not a write, otherwise one. Returns false at the end
    /// of the stream.
    pub(super) fn receive_headers(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> Result<bool, ConnectionError> {
        let size = if self.prefetch.was_write() {
            ReadSize::OneHeader
        } else {
            ReadSize::Bulk
        };
        let (received, asked) = self.input.receive(socket, size)?;
        if received == Received::End && self.input.filled().is_empty() {
            return Ok(false);
        }
        self.readiness.note(received, asked)?;
        Ok(true)
    }

    /// Receives payload into the memory of a transfer's next part. Returns true once the part is complete.
    pub(super) fn fill<R>(
        &mut self,
        socket: BorrowedFd<'_>,
        requests: &mut Requests<R>,
        transfer: &mut Transfer,
    ) -> Result<bool, ConnectionError> {
        let Some(part) = &mut transfer.part else {
            return Ok(false);
        };
        let size = part.buffer.size().min(transfer.left);
        let ends_request = size == transfer.left;
        self.fill_from_input(part, size)?;
        if part.filled < size {
            // The last call ended within this payload, so the buffers prefetched after it are empty.
            self.prefetch.release(&mut requests.spare);
            if self.is_readable() && ends_request && self.prefetch.is_likely(size) {
                self.fill_and_prefetch(socket, requests, part, size)?;
            }
        }
        if part.filled < size && self.is_readable() {
            if ends_request {
                self.fill_with_header(socket, part, size)?;
            } else {
                self.fill_alone(socket, part, size)?;
            }
        }
        let is_complete = part.filled == size;
        self.payloads += u64::from(is_complete);
        Ok(is_complete)
    }

    /// Copies payload that was received with headers.
    fn fill_from_input(
        &mut self,
        part: &mut PartBuffer,
        size: usize,
    ) -> Result<(), ConnectionError> {
        let input = self.input.filled();
        let count = input.len().min(size - part.filled);
        if count > 0 {
            let range = part.filled..part.filled + count;
            let copied = part
                .buffer
                .with_mut(|bytes| bytes[range].copy_from_slice(&input[..count]));
            copied.map_err(io::Error::other)?;
            self.input.consume(count);
            part.filled += count;
        }
        Ok(())
    }

    /// Receives payload, and after it as many writes of the same size as are likely.
    fn fill_and_prefetch<R>(
        &mut self,
        socket: BorrowedFd<'_>,
        requests: &mut Requests<R>,
        part: &mut PartBuffer,
        size: usize,
    ) -> Result<(), ConnectionError> {
        let read = self.prefetch.receive(socket, requests, part, size)?;
        self.readiness.note(read.received, read.asked)?;
        Ok(())
    }

    /// Receives payload, and with its last byte the next header.
    fn fill_with_header(
        &mut self,
        socket: BorrowedFd<'_>,
        part: &mut PartBuffer,
        size: usize,
    ) -> Result<(), ConnectionError> {
        let Self {
            readiness,
            input,
            busy_poll,
            ..
        } = self;
        let header = input.header_space();
        let extra = fill_rest(readiness, busy_poll, socket, part, size, header)?;
        input.note_header_space(extra);
        Ok(())
    }

    /// Receives payload only.
    fn fill_alone(
        &mut self,
        socket: BorrowedFd<'_>,
        part: &mut PartBuffer,
        size: usize,
    ) -> Result<(), ConnectionError> {
        let Self {
            readiness,
            busy_poll,
            ..
        } = self;
        fill_rest(readiness, busy_poll, socket, part, size, &mut [])?;
        Ok(())
    }

    /// Discards up to `left` bytes of payload. Returns the number of bytes that are still to come.
    pub(super) fn discard(
        &mut self,
        socket: BorrowedFd<'_>,
        mut left: usize,
    ) -> Result<usize, ConnectionError> {
        let count = self.input.filled().len().min(left);
        self.input.consume(count);
        left -= count;
        if left > 0 && self.is_readable() {
            let asked = left.min(DISCARD_BYTES);
            self.discarded.resize(asked, 0);
            let result = rustix::io::read(socket, &mut self.discarded[..]);
            let received = Received::from_result(result.map_err(io::Error::from))?;
            left -= self.readiness.note(received, asked)?;
        }
        Ok(left)
    }
}

/// Receives payload until `part` holds `size` bytes, and bytes after it into `tail`. Returns the number of bytes in
/// `tail`.
fn fill_rest(
    readiness: &mut Readiness,
    busy_poll: &mut BusyPoll,
    socket: BorrowedFd<'_>,
    part: &mut PartBuffer,
    size: usize,
    tail: &mut [u8],
) -> Result<usize, ConnectionError> {
    let memory = part
        .buffer
        .segments(Op::Read, 0..size)
        .map_err(io::Error::other)?;
    let mut tail_bytes = 0;
    while part.filled < size && readiness.is_readable {
        let missing = size - part.filled;
        let asked = missing + tail.len();
        let received = Received::from_result(memory.receive(socket, part.filled, tail))?;
        let count = readiness.note(received, asked)?;
        if count > 0 {
            part.filled += count.min(missing);
            tail_bytes = count.saturating_sub(missing);
            busy_poll.note_received(Worth::of(count, part.filled == size));
        }
        if part.filled < size && !readiness.is_readable {
            readiness.is_readable = busy_poll.poll(socket);
        }
    }
    Ok(tail_bytes)
}
