//! From completions of the pool to replies.

use engine::buffer::Segments;
use engine::front::{IoFailure, VolumeCompletion, VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;

use super::Session;
use crate::exports::nbd::logged;
use crate::exports::nbd::proto::Errno;
use crate::exports::nbd::proto::reply;
use crate::exports::requests::pending::{Answer, Part, PendingId};

/// The longest header that a send queue takes at once.
const SEND_HEADER_BYTES: usize = 64;

impl Session {
    pub(super) fn completed(&mut self, completion: &VolumeCompletion) {
        let (id, number) = PendingId::from_user_data(completion.user_data);
        self.parts_in_flight -= 1;
        let pending = self.pending.get(id);
        pending.in_flight -= 1;
        if let Err(failure) = &completion.result {
            // Once for a connection: what comes after it fails likewise.
            if !std::mem::replace(&mut self.has_failed, true) {
                logged::failed(self.volume.name(), failure);
            }
            pending.fail(errno_of(failure), failure.to_string());
        }
        match pending.answer {
            Answer::Chunks if pending.error.is_none() => {
                let last = pending.is_finished();
                self.send_chunk(id, number, last);
                if last {
                    self.pending.remove(id);
                }
                return;
            }
            Answer::Whole => {}
            Answer::Chunks | Answer::Done => {
                let part = pending.parts.get_mut(number);
                if let Some(buffer) = part.and_then(|part| part.buffer.take()) {
                    self.spare.keep(buffer);
                }
            }
        }
        self.finish_if_done(id);
    }

    /// Sends one part of a read that is answered in chunks.
    pub(super) fn send_chunk(&mut self, id: PendingId, number: usize, last: bool) {
        let pending = self.pending.get(id);
        let part = &mut pending.parts[number];
        let Some(buffer) = part.buffer.take() else {
            return;
        };
        match buffer.segments(Op::Write, 0..part.bytes) {
            Ok(data) => {
                let head = reply::offset_data(pending.cookie, part.offset, part.bytes as u32, last);
                self.turn.read_bytes += part.bytes as u64;
                self.turn.requests += u64::from(last);
                self.replies.push(head.as_bytes(), Some(data));
                self.spare.keep_when_sent(buffer);
            }
            Err(error) => {
                // Taken back in the moment between disk and socket.
                let cookie = pending.cookie;
                pending.fail(Errno::NoMemory, error.to_string());
                if last {
                    self.send_error(cookie, Errno::NoMemory, &error.to_string());
                }
            }
        }
    }

    pub(super) fn finish_if_done(&mut self, id: PendingId) {
        if self.pending.get(id).is_finished() {
            self.finish(id);
        }
    }

    /// All parts of a request are done: flush if it has to be, then answer.
    pub(super) fn finish(&mut self, id: PendingId) {
        let pending = self.pending.get(id);
        if std::mem::take(&mut pending.flush) && pending.error.is_none() {
            let request =
                VolumeRequest::command(&self.volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
            let number = pending.parts.len();
            let result = self
                .client
                .submit_batched(request.user_data(id.user_data(number)));
            self.note_submitted(id, VolumeOp::Flush, result.map(|_| ()));
            if self.pending.get(id).in_flight > 0 {
                return;
            }
        }
        self.answer(id);
        self.pending.remove(id);
    }

    pub(super) fn answer(&mut self, id: PendingId) {
        let pending = self.pending.get(id);
        let cookie = pending.cookie;
        if let Some((errno, text)) = pending.error.take() {
            self.send_error(cookie, errno, &text);
            return;
        }
        let whole = pending.answer == Answer::Whole;
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
        self.turn.requests += 1;
        let bytes = pending
            .parts
            .iter()
            .map(|part| part.bytes as u64)
            .sum::<u64>();
        match pending.answer {
            Answer::Whole => self.turn.read_bytes += bytes,
            Answer::Done => self.turn.written_bytes += bytes,
            // Counted as they were sent; what is sent here is only that there are no more.
            Answer::Chunks => {}
        }
        let head = match (self.agreed.structured, whole) {
            (true, true) => reply::offset_data(cookie, pending.parts[0].offset, bytes as u32, true),
            (true, false) => reply::done(cookie),
            (false, _) => reply::simple(cookie, None),
        };
        self.replies.push(head.as_bytes(), data);
    }

    pub(super) fn send_error(&mut self, cookie: u64, errno: Errno, text: &str) {
        self.turn.requests += 1;
        self.turn.errors += 1;
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

fn errno_of(failure: &IoFailure) -> Errno {
    match failure {
        IoFailure::Disk { .. } | IoFailure::Poisoned { .. } | IoFailure::NotNow { .. } => Errno::Io,
        IoFailure::Cancelled { .. } => Errno::Shutdown,
    }
}
