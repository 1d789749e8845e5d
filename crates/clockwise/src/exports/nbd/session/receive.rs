//! The loop that reads requests from the socket.

use std::os::fd::BorrowedFd;

use super::{ConnectionError, ReceiveState, Session};
use crate::exports::nbd::proto::Errno;
use crate::exports::nbd::proto::request::RequestHeader;
use crate::exports::requests::pending::PendingId;
use crate::exports::requests::transfer::{OnShortage, PartBuffer, Transfer};

/// Requests after which the batch ends and finished requests are answered, although the socket has more. The client
/// then works on replies at the same time as the server works on requests.
const BATCH_REQUESTS: usize = 8;

/// Reading of requests stops while this many bytes of replies wait for the client.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// The most receives of a turn, which bounds the wait of other connections.
const RECEIVES_PER_TURN: usize = 64;

/// The result of a step of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The next step can run at once.
    Continue,
    /// The next step needs bytes, memory or a free slot.
    Wait,
}

impl Session {
    /// Receives and starts requests until one has to wait or the turn is over.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Progress, ConnectionError> {
        for _ in 0..RECEIVES_PER_TURN {
            if self.requests.batch() >= BATCH_REQUESTS {
                self.requests.end_batch();
                self.take_completions();
                self.send(socket)?;
            } else if self.replies.pending_bytes() > 0 {
                // Replies to writes that completed at once. The client continues meanwhile.
                self.send(socket)?;
            }
            let progress = match std::mem::replace(&mut self.state, ReceiveState::Closed) {
                ReceiveState::Closed => Progress::Wait,
                ReceiveState::Header => self.receive_request(socket)?,
                ReceiveState::Discard(id, left) => self.discard(socket, id, left)?,
                ReceiveState::Transfer(transfer) => self.advance(socket, transfer)?,
            };
            if progress == Progress::Wait {
                return Ok(Progress::Wait);
            }
        }
        Ok(Progress::Continue)
    }

    /// Starts the next request, or receives bytes for it.
    fn receive_request(&mut self, socket: BorrowedFd<'_>) -> Result<Progress, ConnectionError> {
        self.state = ReceiveState::Header;
        if self.is_congested() {
            self.awaits_own |= self.requests.is_full();
            return Ok(Progress::Wait);
        }
        if let Some((header, payload)) = self.receiver.next_request(&mut self.requests.spare)? {
            self.begin(&header)?;
            if let Some(payload) = payload {
                self.use_prefetched(&header, payload)?;
            }
            return Ok(Progress::Continue);
        }
        if !self.receiver.is_readable() {
            return Ok(Progress::Wait);
        }
        if !self.receiver.receive_headers(socket)? {
            self.state = ReceiveState::Closed;
        }
        Ok(Progress::Continue)
    }

    fn is_congested(&self) -> bool {
        self.requests.is_full()
            || self.replies.pending_bytes() > BACKLOG_BYTES_MAX
            || self.requests.is_asked_back()
    }

    /// Gives a prefetched payload to the write that has just begun. If the request is another, the bytes become input.
    fn use_prefetched(
        &mut self,
        header: &RequestHeader,
        payload: PartBuffer,
    ) -> Result<(), ConnectionError> {
        match &mut self.state {
            ReceiveState::Transfer(transfer)
                if !transfer.is_read() && header.length as usize == payload.buffer.size() =>
            {
                transfer.part = Some(payload);
                Ok(())
            }
            _ => Ok(self.receiver.undo_prefetch(&payload)?),
        }
    }

    /// Receives and submits parts of a transfer until one has to wait.
    fn advance(
        &mut self,
        socket: BorrowedFd<'_>,
        mut transfer: Transfer,
    ) -> Result<Progress, ConnectionError> {
        while transfer.left > 0 {
            if transfer.part.is_none() {
                let on_shortage = if self.will_memory_return() {
                    OnShortage::Wait
                } else {
                    OnShortage::UseFixed
                };
                match self.requests.allocate_part(&transfer, on_shortage) {
                    Ok(Some(buffer)) => transfer.part = Some(PartBuffer { buffer, filled: 0 }),
                    Ok(None) => {
                        self.awaits_own = self.will_memory_return();
                        self.state = ReceiveState::Transfer(transfer);
                        return Ok(Progress::Wait);
                    }
                    Err(text) => {
                        self.abandon(&transfer, text);
                        return Ok(Progress::Continue);
                    }
                }
            }
            if !transfer.is_read()
                && !self
                    .receiver
                    .fill(socket, &mut self.requests, &mut transfer)?
            {
                self.state = ReceiveState::Transfer(transfer);
                return Ok(self.receiver.progress());
            }
            if self.requests.submit_part(&mut transfer) {
                self.take_completions();
            }
        }
        self.end_request(transfer.id);
        Ok(Progress::Continue)
    }

    /// Gives up a transfer for which there will never be enough memory.
    fn abandon(&mut self, transfer: &Transfer, text: String) {
        self.requests.get(transfer.id).fail(Errno::NoMemory, text);
        if transfer.is_read() {
            self.end_request(transfer.id);
        } else {
            self.state = ReceiveState::Discard(transfer.id, transfer.left);
        }
    }

    /// Discards payload. The reply follows after the last byte, as many clients read no reply while they send.
    fn discard(
        &mut self,
        socket: BorrowedFd<'_>,
        id: PendingId,
        left: usize,
    ) -> Result<Progress, ConnectionError> {
        let left = self.receiver.discard(socket, left)?;
        if left > 0 {
            self.state = ReceiveState::Discard(id, left);
            return Ok(self.receiver.progress());
        }
        self.end_request(id);
        Ok(Progress::Continue)
    }

    /// All of a request has been read and submitted. A header follows.
    fn end_request(&mut self, id: PendingId) {
        self.state = ReceiveState::Header;
        self.requests.get(id).is_submitted = true;
        self.finish_if_done(id);
    }
}
