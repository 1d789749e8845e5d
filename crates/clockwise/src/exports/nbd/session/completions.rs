//! From completions of the pool to replies.

use engine::buffer::Segments;
use sched::request::Op;

use super::{ReplyContent, Session};
use crate::exports::nbd::proto::reply::ChunkPosition;
use crate::exports::nbd::proto::{Errno, RequestError};
use crate::exports::requests::pending::{Part, PendingId};

impl Session {
    /// Handles the completion of part `number` of a request, or of a command.
    pub(super) fn complete_part(&mut self, id: PendingId, number: usize) {
        let pending = self.requests.get(id);
        match pending.reply.content {
            ReplyContent::Chunks if pending.error.is_none() => {
                let position = if pending.are_parts_done() {
                    ChunkPosition::Last
                } else {
                    ChunkPosition::Inner
                };
                self.send_chunk(id, number, position);
                if position == ChunkPosition::Last {
                    self.requests.remove(id);
                }
                return;
            }
            ReplyContent::WholeData => {}
            ReplyContent::Chunks | ReplyContent::Empty => {
                let part = pending.parts.get_mut(number);
                if let Some(buffer) = part.and_then(|part| part.buffer.take()) {
                    self.requests.spare.keep(buffer);
                }
            }
        }
        self.finish_if_done(id);
    }

    /// Sends one part of a read that is answered in chunks.
    fn send_chunk(&mut self, id: PendingId, number: usize, position: ChunkPosition) {
        let pending = self.requests.get(id);
        let cookie = pending.reply.cookie;
        let part = &mut pending.parts[number];
        let Some(buffer) = part.buffer.take() else {
            return;
        };
        match buffer.segments(Op::Write, 0..part.bytes) {
            Ok(data) => {
                let (offset, bytes) = (part.offset, part.bytes as u64);
                self.requests.counts.read_bytes += bytes;
                self.requests.counts.requests += u64::from(position == ChunkPosition::Last);
                self.replies.push_chunk(cookie, offset, data, position);
                self.requests.spare.keep_when_sent(buffer);
            }
            Err(error) => {
                // The pool revoked the memory between the disk's completion and this call.
                let text = error.to_string();
                if position == ChunkPosition::Last {
                    self.send_error(cookie, Errno::NoMemory, &text);
                }
                self.requests.get(id).fail(Errno::NoMemory, text);
            }
        }
    }

    /// Sends the reply to a request if all of it is done.
    pub(super) fn finish_if_done(&mut self, id: PendingId) {
        if self.requests.try_complete(id) {
            self.send_reply(id);
            self.requests.remove(id);
        }
    }

    fn send_reply(&mut self, id: PendingId) {
        let pending = self.requests.get(id);
        let cookie = pending.reply.cookie;
        if let Some((errno, text)) = pending.error.take() {
            self.send_error(cookie, errno, &text);
            return;
        }
        let begin = pending.parts.first().map_or(0, |part| part.offset);
        let bytes = pending
            .parts
            .iter()
            .map(|part| part.bytes as u64)
            .sum::<u64>();
        match pending.reply.content {
            ReplyContent::WholeData => match gather(&pending.parts) {
                Ok(data) => {
                    self.requests.counts.read_bytes += bytes;
                    self.replies.push_data(cookie, begin, data);
                }
                Err(text) => {
                    self.send_error(cookie, Errno::NoMemory, &text);
                    return;
                }
            },
            ReplyContent::Empty => {
                self.requests.counts.written_bytes += bytes;
                self.replies.push_done(cookie);
            }
            // The bytes of the chunks were counted as they were sent. This ends the reply.
            ReplyContent::Chunks => self.replies.push_done(cookie),
        }
        self.requests.counts.requests += 1;
    }

    pub(super) fn send_error(&mut self, cookie: u64, errno: Errno, text: &str) {
        self.requests.counts.requests += 1;
        self.requests.counts.errors += 1;
        self.replies.push_error(cookie, errno, text);
    }

    pub(super) fn refuse(&mut self, cookie: u64, error: RequestError) {
        self.send_error(cookie, error.errno, error.text);
    }
}

/// Joins all parts, in order, without copying.
fn gather(parts: &[Part]) -> Result<Segments, String> {
    let mut data = Segments::empty(Op::Write);
    for part in parts {
        let Some(buffer) = &part.buffer else { continue };
        data.push(buffer, 0..part.bytes)
            .map_err(|error| error.to_string())?;
    }
    Ok(data)
}
