//! Prefetching of writes: several requests received in one call.
//!
//! A client that has sent several writes of one size is likely to send more. A receive of a payload then has room for
//! further requests of the same kind, each payload in a buffer of its own. If the client sends another request, the
//! received bytes are copied from these buffers to the input. That is the only copy.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use engine::buffer::{self, Buffer, Place};

use crate::exports::nbd::input::{Input, Received};
use crate::exports::nbd::proto::request::REQUEST_BYTES;
use crate::exports::requests::Requests;
use crate::exports::requests::spare_buffers::SpareBuffers;
use crate::exports::requests::transfer::PartBuffer;

/// The most writes that are prefetched. Together with the current one, a call takes them without an allocation.
const DEPTH_MAX: usize = 7;

/// The largest payload that is prefetched. The cost of a call is negligible for a larger one.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// Number of writes of one size that make another one likely.
const STREAK_MIN: u32 = 4;

/// A header and the beginning of its payload, or less.
#[derive(Debug)]
struct PrefetchedWrite {
    header: [u8; REQUEST_BYTES],
    header_bytes: usize,
    payload: Option<PartBuffer>,
}

#[derive(Debug)]
pub(super) struct Prefetch {
    /// Oldest first. Only the last that is not empty can be incomplete.
    writes: VecDeque<PrefetchedWrite>,
    /// Number of writes to prefetch: one more than the last call received.
    depth: usize,
    /// Payload size of the last request, in bytes; zero if it was not a write.
    payload_bytes: u32,
    /// Number of consecutive requests with a payload of that size.
    streak: u32,
}

/// The result of a receive.
#[derive(Debug)]
pub(super) struct PrefetchRead {
    pub(super) received: Received,
    /// Number of bytes that there was room for.
    pub(super) asked: usize,
}

impl Prefetch {
    pub(super) fn new() -> Self {
        Self {
            writes: VecDeque::new(),
            depth: 1,
            payload_bytes: 0,
            streak: 0,
        }
    }

    /// Records the payload size of a request.
    pub(super) fn note_request(&mut self, payload_bytes: u32) {
        if self.payload_bytes == payload_bytes {
            self.streak = self.streak.saturating_add(1);
        } else {
            (self.payload_bytes, self.streak) = (payload_bytes, 1);
        }
    }

    /// True if the last request was a write.
    pub(super) fn was_write(&self) -> bool {
        self.payload_bytes > 0
    }

    /// True if more writes of `size` bytes are likely.
    pub(super) fn is_likely(&self, size: usize) -> bool {
        self.streak >= STREAK_MIN && size <= PAYLOAD_BYTES_MAX
    }

    /// Receives the rest of the payload of `size` bytes in `part`, and further writes of the same size.
    pub(super) fn receive<R>(
        &mut self,
        socket: BorrowedFd<'_>,
        requests: &mut Requests<R>,
        part: &mut PartBuffer,
        size: usize,
    ) -> io::Result<PrefetchRead> {
        let buffers = allocate(requests, size, self.depth);
        let mut headers = [[0u8; REQUEST_BYTES]; DEPTH_MAX + 1];
        let missing = size - part.filled;
        let mut asked = missing;
        let mut places = Vec::with_capacity(2 * headers.len());
        places.push(Place::Buffer(&part.buffer, part.filled..size));
        for (index, header) in headers.iter_mut().enumerate().take(buffers.len() + 1) {
            asked += header.len();
            places.push(Place::Bytes(header));
            if let Some(buffer) = buffers.get(index) {
                asked += buffer.size();
                places.push(Place::Buffer(buffer, 0..buffer.size()));
            }
        }
        let received = Received::from_result(buffer::receive_into(socket, &mut places))?;
        drop(places);
        let count = match received {
            Received::Bytes(count) => count,
            Received::WouldBlock | Received::End => 0,
        };
        part.filled += count.min(missing);
        self.keep(headers, buffers, count.saturating_sub(missing));
        Ok(PrefetchRead { received, asked })
    }

    /// Keeps `count` bytes that lie in `headers` and `buffers` in turn, and the empty buffers after them.
    fn keep(
        &mut self,
        headers: [[u8; REQUEST_BYTES]; DEPTH_MAX + 1],
        buffers: Vec<Buffer>,
        count: usize,
    ) {
        let mut left = count;
        let mut buffers = buffers.into_iter();
        let mut received = 0;
        for header in headers {
            let header_bytes = left.min(REQUEST_BYTES);
            left -= header_bytes;
            let payload = buffers.next().map(|buffer| {
                let filled = left.min(buffer.size());
                left -= filled;
                PartBuffer { buffer, filled }
            });
            received += usize::from(header_bytes > 0);
            if header_bytes > 0 || payload.is_some() {
                self.writes.push_back(PrefetchedWrite {
                    header,
                    header_bytes,
                    payload,
                });
            }
        }
        self.depth = (received + 1).min(DEPTH_MAX);
    }

    /// Takes the next request if its header is complete. An incomplete header becomes input.
    pub(super) fn next(
        &mut self,
        input: &mut Input,
        spare: &mut SpareBuffers,
    ) -> Option<([u8; REQUEST_BYTES], Option<PartBuffer>)> {
        let write = self.writes.pop_front()?;
        if write.header_bytes == REQUEST_BYTES {
            return Some((write.header, write.payload));
        }
        input.append(&write.header[..write.header_bytes]);
        self.release(spare);
        if let Some(payload) = write.payload {
            spare.keep(payload.buffer);
        }
        None
    }

    /// Keeps the buffers of all prefetched writes, which are empty.
    pub(super) fn release(&mut self, spare: &mut SpareBuffers) {
        let payloads = self.writes.drain(..).filter_map(|write| write.payload);
        payloads.for_each(|payload| spare.keep(payload.buffer));
    }

    /// Moves `payload` and all prefetched writes to the input.
    pub(super) fn undo(&mut self, payload: &PartBuffer, input: &mut Input) -> io::Result<()> {
        append_payload(payload, input)?;
        for write in self.writes.drain(..) {
            input.append(&write.header[..write.header_bytes]);
            if let Some(payload) = &write.payload {
                append_payload(payload, input)?;
            }
        }
        Ok(())
    }
}

fn append_payload(payload: &PartBuffer, input: &mut Input) -> io::Result<()> {
    if payload.filled == 0 {
        return Ok(());
    }
    payload
        .buffer
        .with(|bytes| input.append(&bytes[..payload.filled]))
        .map_err(io::Error::other)
}

/// Allocates buffers for up to `count` payloads of `size` bytes.
fn allocate<R>(requests: &mut Requests<R>, size: usize, count: usize) -> Vec<Buffer> {
    let one = || {
        let kept = requests.spare.take(size);
        kept.or_else(|| requests.client().account().allocate(size).ok())
    };
    std::iter::from_fn(one).take(count).collect()
}
