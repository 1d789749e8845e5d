//! Acting on the header of a request: refusing it, answering it at once, or starting it.

use engine::volume_io::VolumeOp;

use super::{ConnectionError, PendingReply, ReceiveState, ReplyContent, Session};
use crate::exports::nbd::proto::reply::{self, ReplyFormat, StatusExtent};
use crate::exports::nbd::proto::request::{self, Command, Fragmentation, RequestHeader};
use crate::exports::nbd::proto::{
    Durability, Errno, PAYLOAD_SKIP_BYTES_MAX, ProtocolError, RequestError,
};
use crate::exports::requests::pending::PendingId;
use crate::exports::requests::transfer::TransferOp;

impl Session {
    pub(super) fn begin(&mut self, header: &RequestHeader) -> Result<(), ConnectionError> {
        let payload = header.payload_bytes();
        match request::check(header, &self.parameters) {
            Ok(command) => self.start(header, command),
            Err(_) if payload > PAYLOAD_SKIP_BYTES_MAX => {
                return Err(ProtocolError::PayloadLength(payload).into());
            }
            Err(error) if payload > 0 => {
                let id = self.insert(header, ReplyContent::Empty);
                let pending = self.requests.get(id);
                pending.fail(error.errno, error.text.to_owned());
                self.state = ReceiveState::Discard(id, payload as usize);
            }
            Err(error) => self.refuse(header.cookie, error),
        }
        Ok(())
    }

    fn start(&mut self, header: &RequestHeader, command: Command) {
        match command {
            Command::Disconnect => self.state = ReceiveState::Closed,
            Command::Empty | Command::Cache => {
                let id = self.insert(header, ReplyContent::Empty);
                self.requests.get(id).is_submitted = true;
                self.finish_if_done(id);
            }
            Command::Read(fragmentation) => {
                let content = match (self.parameters.reply_format, fragmentation) {
                    (ReplyFormat::Structured, Fragmentation::Allowed) => ReplyContent::Chunks,
                    _ => ReplyContent::WholeData,
                };
                self.begin_transfer(header, TransferOp::Read, content);
            }
            Command::Write(durability) => {
                self.begin_transfer(header, TransferOp::Write(durability), ReplyContent::Empty);
            }
            Command::Flush => {
                let id = self.submit(header, VolumeOp::Flush);
                self.finish_if_done(id);
            }
            Command::Trim(durability) => {
                let id = self.submit(header, VolumeOp::Discard);
                self.requests.get(id).needs_flush = durability == Durability::BeforeReply;
                self.finish_if_done(id);
            }
            Command::WriteZeroes {
                no_hole: true,
                fast: true,
                ..
            } => self.refuse(
                header.cookie,
                RequestError {
                    errno: Errno::NotSupported,
                    text: "fast zeroing is not supported without holes",
                },
            ),
            Command::WriteZeroes {
                durability,
                no_hole,
                ..
            } => {
                let op = VolumeOp::WriteZeroes {
                    no_hole,
                    durable: durability == Durability::BeforeReply,
                };
                let id = self.submit(header, op);
                self.finish_if_done(id);
            }
            Command::BlockStatus { extents_max } => self.send_block_status(header, extents_max),
        }
    }

    fn insert(&mut self, header: &RequestHeader, content: ReplyContent) -> PendingId {
        let cookie = header.cookie;
        self.requests.insert(PendingReply { cookie, content })
    }

    fn begin_transfer(&mut self, header: &RequestHeader, op: TransferOp, content: ReplyContent) {
        let id = self.insert(header, content);
        let range = header.offset..header.offset + u64::from(header.length);
        self.state = ReceiveState::Transfer(self.requests.begin_transfer(id, op, range));
    }

    /// Submits a request without data.
    fn submit(&mut self, header: &RequestHeader, op: VolumeOp) -> PendingId {
        let id = self.insert(header, ReplyContent::Empty);
        let (offset, length) = match op {
            VolumeOp::Flush => (0, 0),
            _ => (header.offset, u64::from(header.length)),
        };
        self.requests.submit_command(id, op, offset, length);
        id
    }

    fn send_block_status(&mut self, header: &RequestHeader, extents_max: usize) {
        let range = header.offset..header.offset + u64::from(header.length);
        let extents: Vec<StatusExtent> = self
            .requests
            .volume()
            .block_status(range, extents_max)
            .into_iter()
            .map(|extent| StatusExtent {
                length: (extent.bytes.end - extent.bytes.start) as u32,
                state: if extent.hole {
                    reply::STATE_HOLE | reply::STATE_ZERO
                } else {
                    0
                },
            })
            .collect();
        if extents.is_empty() {
            let text = "the volume was shrunk";
            self.send_error(header.cookie, Errno::Invalid, text);
            return;
        }
        self.requests.counts.requests += 1;
        self.replies.push_block_status(header.cookie, &extents);
    }
}
