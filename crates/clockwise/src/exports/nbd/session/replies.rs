//! From completions of the pool to replies.

use engine::buffer::Segments;
use sched::request::Op;

use super::{Kind, Session};
use crate::exports::nbd::proto::Errno;
use crate::exports::nbd::proto::reply;
use crate::exports::requests::pending::{Part, PendingId};

/// The longest header that a send queue takes at once.
const SEND_HEADER_BYTES: usize = 64;

impl Session {
    /// Part `number` of a request, or all of it, has been completed.
    pub(super) fn completed(&mut self, id: PendingId, number: usize) {
        let pending = self.requests.get(id);
        match pending.answer.kind {
            Kind::Chunks if pending.error.is_none() => {
                let last = pending.is_finished();
                self.send_chunk(id, number, last);
                if last {
                    self.requests.remove(id);
                }
                return;
            }
            Kind::Whole => {}
            Kind::Chunks | Kind::Done => {
                let part = pending.parts.get_mut(number);
                if let Some(buffer) = part.and_then(|part| part.buffer.take()) {
                    self.requests.spare.keep(buffer);
                }
            }
        }
        self.finish_if_done(id);
    }

    /// Sends one part of a read that is answered in chunks.
    pub(super) fn send_chunk(&mut self, id: PendingId, number: usize, last: bool) {
        let pending = self.requests.get(id);
        let part = &mut pending.parts[number];
        let Some(buffer) = part.buffer.take() else {
            return;
        };
        match buffer.segments(Op::Write, 0..part.bytes) {
            Ok(data) => {
                let head =
                    reply::offset_data(pending.answer.cookie, part.offset, part.bytes as u32, last);
                self.requests.turn.read_bytes += part.bytes as u64;
                self.requests.turn.requests += u64::from(last);
                self.replies.push(head.as_bytes(), Some(data));
                self.requests.spare.keep_when_sent(buffer);
            }
            Err(error) => {
                // Taken back in the moment between disk and socket.
                let cookie = pending.answer.cookie;
                pending.fail(Errno::NoMemory, error.to_string());
                if last {
                    self.send_error(cookie, Errno::NoMemory, &error.to_string());
                }
            }
        }
    }

    /// Answers a request if all of it is done.
    pub(super) fn finish_if_done(&mut self, id: PendingId) {
        if self.requests.is_done(id) {
            self.answer(id);
            self.requests.remove(id);
        }
    }

    pub(super) fn answer(&mut self, id: PendingId) {
        let pending = self.requests.get(id);
        let cookie = pending.answer.cookie;
        if let Some((errno, text)) = pending.error.take() {
            self.send_error(cookie, errno, &text);
            return;
        }
        let whole = pending.answer.kind == Kind::Whole;
        let mut data = None;
        if whole {
            match gather(&pending.parts) {
                Ok(gathered) => data = Some(gathered),
                Err(text) => {
                    self.send_error(cookie, Errno::NoMemory, &text);
                    return;
                }
            }
        }
        let kind = pending.answer.kind;
        let begin = pending.parts.first().map_or(0, |part| part.offset);
        let bytes = pending
            .parts
            .iter()
            .map(|part| part.bytes as u64)
            .sum::<u64>();
        let turn = &mut self.requests.turn;
        turn.requests += 1;
        match kind {
            Kind::Whole => turn.read_bytes += bytes,
            Kind::Done => turn.written_bytes += bytes,
            // Counted as they were sent; what is sent here is only that there are no more.
            Kind::Chunks => {}
        }
        let head = match (self.agreed.structured, whole) {
            (true, true) => reply::offset_data(cookie, begin, bytes as u32, true),
            (true, false) => reply::done(cookie),
            (false, _) => reply::simple(cookie, None),
        };
        self.replies.push(head.as_bytes(), data);
    }

    pub(super) fn send_error(&mut self, cookie: u64, errno: Errno, text: &str) {
        self.requests.turn.requests += 1;
        self.requests.turn.errors += 1;
        if self.agreed.structured {
            let mut bytes = std::mem::take(&mut self.scratch);
            bytes.clear();
            reply::error(&mut bytes, cookie, errno, text);
            self.send_bytes(&bytes);
            self.scratch = bytes;
        } else {
            self.replies
                .push(reply::simple(cookie, Some(errno)).as_bytes(), None);
        }
    }

    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(SEND_HEADER_BYTES) {
            self.replies.push(piece, None);
        }
    }
}

/// All parts in order as one piece of data to send.
fn gather(parts: &[Part]) -> Result<Segments, String> {
    let mut data = Segments::empty(Op::Write);
    for part in parts {
        let Some(buffer) = &part.buffer else { continue };
        data.push(buffer, 0..part.bytes)
            .map_err(|error| error.to_string())?;
    }
    Ok(data)
}
