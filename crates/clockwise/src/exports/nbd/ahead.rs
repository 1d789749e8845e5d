//! Writes received ahead.
//!
//! A client that has sent several writes of one size is likely to go on: what is received behind the
//! payload at hand is laid out for as many more of the same size, so that one call brings several
//! requests, each payload in a buffer of its own. Where the client does something else, what came is
//! taken out of the buffers again and read as the bytes it is; the only copy there is.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use engine::buffer::{self, Buffer, Place};

use super::input::{Input, Received};
use super::proto::request::REQUEST_BYTES;

/// The most writes received ahead: with the one at hand, what a call takes without an allocation.
pub(super) const AHEAD_MAX: usize = 7;

/// The largest payload that is received ahead; for larger ones a call of their own is nothing.
pub(super) const AHEAD_BYTES_MAX: usize = 16 << 10;

/// How many writes of one size make another one likely.
pub(super) const STREAK_MIN: u32 = 4;

/// What came behind a payload: a header and the beginning of its payload, or less.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) header: [u8; REQUEST_BYTES],
    pub(super) header_bytes: usize,
    pub(super) buffer: Option<Buffer>,
    pub(super) payload_bytes: usize,
}

/// The messages, oldest first.
pub(super) type Ahead = VecDeque<Message>;

/// What a call brought.
#[derive(Debug)]
pub(super) struct Brought {
    pub(super) received: Received,
    /// Of the payload at hand.
    pub(super) payload_bytes: usize,
    /// The socket had all that was asked for.
    pub(super) full: bool,
}

/// Receives `missing`, a range of `buffer`, and behind it headers and payloads into `spares`, which are
/// all of one size and come back, with what they hold, in `ahead`.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &Buffer,
    missing: Range<usize>,
    spares: Vec<Buffer>,
    ahead: &mut Ahead,
) -> io::Result<Brought> {
    let mut headers = [[0u8; REQUEST_BYTES]; AHEAD_MAX + 1];
    let missing_bytes = missing.len();
    let mut asked = missing_bytes;
    let mut places = Vec::with_capacity(2 * headers.len());
    places.push(Place::Buffer(buffer, missing));
    for (index, header) in headers.iter_mut().enumerate().take(spares.len() + 1) {
        asked += header.len();
        places.push(Place::Bytes(header));
        if let Some(spare) = spares.get(index) {
            asked += spare.size();
            places.push(Place::Buffer(spare, 0..spare.size()));
        }
    }
    let received = Received::from_result(buffer::receive_into(socket, &mut places))?;
    drop(places);
    let count = if let Received::Bytes(count) = received {
        count
    } else {
        0
    };
    let payload_bytes = count.min(missing_bytes);
    let mut left = count - payload_bytes;
    let mut spares = spares.into_iter();
    for header in headers {
        let buffer = spares.next();
        let header_bytes = left.min(REQUEST_BYTES);
        left -= header_bytes;
        let payload_bytes = left.min(buffer.as_ref().map_or(0, Buffer::size));
        left -= payload_bytes;
        if header_bytes > 0 || buffer.is_some() {
            ahead.push_back(Message {
                header,
                header_bytes,
                buffer,
                payload_bytes,
            });
        }
    }
    Ok(Brought {
        received,
        payload_bytes,
        full: count == asked,
    })
}

/// Takes what is left of `ahead` for the bytes that it is.
pub(super) fn spill(ahead: &mut Ahead, input: &mut Input) -> io::Result<()> {
    for message in ahead.drain(..) {
        input.append(&message.header[..message.header_bytes]);
        spill_payload(message.buffer.as_ref(), message.payload_bytes, input)?;
    }
    Ok(())
}

/// Takes a payload out of its buffer again.
pub(super) fn spill_payload(
    buffer: Option<&Buffer>,
    payload_bytes: usize,
    input: &mut Input,
) -> io::Result<()> {
    match buffer {
        Some(buffer) if payload_bytes > 0 => buffer
            .with(|bytes| input.append(&bytes[..payload_bytes]))
            .map_err(io::Error::other),
        _ => Ok(()),
    }
}
