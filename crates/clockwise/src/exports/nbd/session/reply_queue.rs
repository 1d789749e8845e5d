//! Replies to be sent: their encoding and the socket's send side.

use std::io;
use std::os::fd::BorrowedFd;

use engine::buffer::{Segments, SendQueue};

use crate::exports::nbd::proto::Errno;
use crate::exports::nbd::proto::reply::{self, ChunkPosition, ReplyFormat, StatusExtent};

/// The longest header that a send queue accepts at once.
const SEND_HEADER_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct ReplyQueue {
    format: ReplyFormat,
    queue: SendQueue,
    /// Encodes replies that are longer than one header.
    scratch: Vec<u8>,
    is_writable: bool,
    /// Bytes that the socket has accepted.
    sent_bytes: u64,
}

impl ReplyQueue {
    pub(super) fn new(format: ReplyFormat) -> Self {
        Self {
            format,
            queue: SendQueue::default(),
            scratch: Vec::new(),
            is_writable: true,
            sent_bytes: 0,
        }
    }

    pub(super) fn socket_event(&mut self, is_writable: bool) {
        self.is_writable |= is_writable;
    }

    /// Bytes that the socket has accepted since the session began.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.queue.pending()
    }

    /// Pending bytes, if the client keeps the socket from accepting them.
    pub(super) fn blocked_bytes(&self) -> usize {
        if self.is_writable {
            0
        } else {
            self.pending_bytes()
        }
    }

    /// Sends as much as the socket accepts. Returns true if this has sent the last pending byte.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let pending = self.queue.pending();
        if !self.is_writable || pending == 0 {
            return Ok(false);
        }
        self.is_writable = self.queue.send(socket)?;
        self.sent_bytes += (pending - self.queue.pending()) as u64;
        Ok(self.is_writable)
    }

    /// Queues a chunk of a structured read reply. `data` begins at `offset`.
    pub(super) fn push_chunk(
        &mut self,
        cookie: u64,
        offset: u64,
        data: Segments,
        position: ChunkPosition,
    ) {
        let header = reply::offset_data(cookie, offset, data.size() as u32, position);
        self.queue.push(header.as_bytes(), Some(data));
    }

    /// Queues the whole reply to a read. `data` begins at `offset`.
    pub(super) fn push_data(&mut self, cookie: u64, offset: u64, data: Segments) {
        match self.format {
            ReplyFormat::Structured => {
                self.push_chunk(cookie, offset, data, ChunkPosition::Last);
            }
            ReplyFormat::Simple => {
                let header = reply::simple(cookie, None);
                self.queue.push(header.as_bytes(), Some(data));
            }
        }
    }

    /// Queues a successful reply without data, or the end of a reply in chunks.
    pub(super) fn push_done(&mut self, cookie: u64) {
        let header = match self.format {
            ReplyFormat::Structured => reply::done(cookie),
            ReplyFormat::Simple => reply::simple(cookie, None),
        };
        self.queue.push(header.as_bytes(), None);
    }

    pub(super) fn push_error(&mut self, cookie: u64, errno: Errno, text: &str) {
        match self.format {
            ReplyFormat::Structured => {
                self.push_encoded(|bytes| reply::error(bytes, cookie, errno, text));
            }
            ReplyFormat::Simple => {
                let header = reply::simple(cookie, Some(errno));
                self.queue.push(header.as_bytes(), None);
            }
        }
    }

    pub(super) fn push_block_status(&mut self, cookie: u64, extents: &[StatusExtent]) {
        self.push_encoded(|bytes| reply::block_status(bytes, cookie, extents));
    }

    fn push_encoded(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        encode(&mut self.scratch);
        for piece in self.scratch.chunks(SEND_HEADER_BYTES) {
            self.queue.push(piece, None);
        }
    }
}
