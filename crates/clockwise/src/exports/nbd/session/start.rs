//! Acting on a request's header: what is refused, done at once, or goes to the pool.

use engine::volume_io::VolumeOp;

use super::{Answer, Broken, Kind, Next, Session};
use crate::exports::nbd::proto::reply::{self, StatusExtent};
use crate::exports::nbd::proto::request::{self, Command, RequestHeader};
use crate::exports::nbd::proto::{
    Errno, Fatal, PAYLOAD_SKIP_BYTES_MAX, Refusal, STATUS_EXTENTS_MAX,
};
use crate::exports::requests::parts::Transfer;
use crate::exports::requests::pending::PendingId;

impl Session {
    /// Acts on a request's header.
    pub(super) fn begin(&mut self, header: RequestHeader) -> Result<(), Broken> {
        let payload = header.payload_bytes();
        self.streak = match self.streak {
            (size, count) if size == payload => (size, count.saturating_add(1)),
            _ => (payload, 1),
        };
        match request::check(&header, &self.agreed) {
            Ok(command) => self.start(&header, command),
            Err(_) if payload > PAYLOAD_SKIP_BYTES_MAX => {
                return Err(Fatal::PayloadLength(payload).into());
            }
            Err(refusal) if payload > 0 => {
                let id = self.insert(&header, Kind::Done);
                let pending = self.requests.get(id);
                pending.fail(refusal.errno, refusal.text.to_owned());
                self.next = Next::Skip(id, payload);
            }
            Err(refusal) => self.refuse(header.cookie, refusal),
        }
        Ok(())
    }

    pub(super) fn start(&mut self, header: &RequestHeader, command: Command) {
        let cookie = header.cookie;
        match command {
            Command::Disconnect => self.next = Next::Nothing,
            Command::Nothing | Command::Cache => {
                let id = self.insert(header, Kind::Done);
                self.requests.get(id).complete = true;
                self.finish_if_done(id);
            }
            Command::Read { unfragmented } => {
                let chunks = self.agreed.structured && !unfragmented;
                let kind = if chunks { Kind::Chunks } else { Kind::Whole };
                self.begin_parts(header, Transfer::Read, kind);
            }
            Command::Write { forced } => {
                self.begin_parts(header, Transfer::Write { forced }, Kind::Done);
            }
            Command::Flush => self.command(header, VolumeOp::Flush),
            Command::Trim { forced } => {
                let id = self.command_then(header, VolumeOp::Discard);
                self.requests.get(id).flush = forced;
                self.finish_if_done(id);
            }
            Command::WriteZeroes {
                no_hole: true,
                fast: true,
                ..
            } => self.refuse(
                cookie,
                Refusal {
                    errno: Errno::NotSupported,
                    text: "zeros without a hole are written",
                },
            ),
            Command::WriteZeroes {
                forced, no_hole, ..
            } => {
                self.command(
                    header,
                    VolumeOp::WriteZeroes {
                        no_hole,
                        durable: forced,
                    },
                );
            }
            Command::BlockStatus { one } => self.block_status(header, one),
        }
    }

    fn insert(&mut self, header: &RequestHeader, kind: Kind) -> PendingId {
        let cookie = header.cookie;
        self.requests.insert(Answer { cookie, kind })
    }

    fn begin_parts(&mut self, header: &RequestHeader, transfer: Transfer, kind: Kind) {
        let id = self.insert(header, kind);
        let range = header.offset..header.offset + u64::from(header.length);
        self.next = Next::Parts(self.requests.transfer(id, transfer, range));
    }

    /// A request without data.
    pub(super) fn command(&mut self, header: &RequestHeader, op: VolumeOp) {
        let id = self.command_then(header, op);
        self.finish_if_done(id);
    }

    fn command_then(&mut self, header: &RequestHeader, op: VolumeOp) -> PendingId {
        let id = self.insert(header, Kind::Done);
        let (offset, length) = match op {
            VolumeOp::Flush => (0, 0),
            _ => (header.offset, u64::from(header.length)),
        };
        self.requests.command(id, op, offset, length);
        id
    }

    pub(super) fn block_status(&mut self, header: &RequestHeader, one: bool) {
        let range = header.offset..header.offset + u64::from(header.length);
        let limit = if one { 1 } else { STATUS_EXTENTS_MAX };
        let runs: Vec<StatusExtent> = self
            .requests
            .volume()
            .block_status(range, limit)
            .into_iter()
            .map(|run| StatusExtent {
                length: (run.bytes.end - run.bytes.start) as u32,
                state: if run.hole {
                    reply::STATE_HOLE | reply::STATE_ZERO
                } else {
                    0
                },
            })
            .collect();
        if runs.is_empty() {
            let text = "the volume has become shorter";
            self.send_error(header.cookie, Errno::Invalid, text);
            return;
        }
        self.requests.turn.requests += 1;
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        reply::block_status(&mut bytes, header.cookie, &runs);
        self.send_bytes(&bytes);
        self.scratch = bytes;
    }

    pub(super) fn refuse(&mut self, cookie: u64, refusal: Refusal) {
        self.send_error(cookie, refusal.errno, refusal.text);
    }
}
