//! Acting on a request's header: what is refused, done at once, or goes to the pool.

use engine::front::{SubmitError, VolumeOp, VolumeRequest};
use sched::units::Bytes;

use super::{Broken, Next, PART_BYTES, Parts, Session};
use crate::exports::nbd::proto::reply::{self, StatusExtent};
use crate::exports::nbd::proto::request::{self, Command, RequestHeader};
use crate::exports::nbd::proto::{
    Errno, Fatal, PAYLOAD_SKIP_BYTES_MAX, Refusal, STATUS_EXTENTS_MAX,
};
use crate::exports::requests::pending::{Answer, PendingId};

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
                let id = self.pending.insert(header.cookie, Answer::Done);
                let pending = self.pending.get(id);
                pending.fail(refusal.errno, refusal.text.to_owned());
                self.next = Next::Skip(id, payload);
            }
            Err(refusal) => self.refuse(header.cookie, refusal),
        }
        Ok(())
    }

    pub(super) fn start(&mut self, header: &RequestHeader, command: Command) {
        let cookie = header.cookie;
        let one_part = header.length as usize <= PART_BYTES;
        match command {
            Command::Disconnect => self.next = Next::Nothing,
            Command::Nothing | Command::Cache => {
                let id = self.pending.insert(cookie, Answer::Done);
                self.pending.get(id).complete = true;
                self.finish(id);
            }
            Command::Read { unfragmented } => {
                let chunks = self.agreed.structured && !unfragmented;
                let answer = if chunks {
                    Answer::Chunks
                } else {
                    Answer::Whole
                };
                self.begin_parts(header, VolumeOp::Read, answer);
            }
            Command::Write { forced } => {
                let op = VolumeOp::Write {
                    durable: forced && one_part,
                };
                let id = self.begin_parts(header, op, Answer::Done);
                self.pending.get(id).flush = forced && !one_part;
            }
            Command::Flush => self.command(header, VolumeOp::Flush),
            Command::Trim { forced } => {
                let id = self.command_then(header, VolumeOp::Discard);
                self.pending.get(id).flush = forced;
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

    pub(super) fn begin_parts(
        &mut self,
        header: &RequestHeader,
        op: VolumeOp,
        answer: Answer,
    ) -> PendingId {
        let id = self.pending.insert(header.cookie, answer);
        self.next = Next::Parts(Parts {
            id,
            op,
            offset: header.offset,
            left: header.length as usize,
            filling: None,
        });
        id
    }

    /// A request without data.
    pub(super) fn command(&mut self, header: &RequestHeader, op: VolumeOp) {
        let id = self.command_then(header, op);
        self.finish_if_done(id);
    }

    pub(super) fn command_then(&mut self, header: &RequestHeader, op: VolumeOp) -> PendingId {
        let id = self.pending.insert(header.cookie, Answer::Done);
        let (offset, length) = match op {
            VolumeOp::Flush => (0, 0),
            _ => (header.offset, u64::from(header.length)),
        };
        let request = VolumeRequest::command(&self.volume, op, Bytes(offset), Bytes(length));
        let result = self
            .client
            .submit_batched(request.user_data(id.user_data(0)));
        self.note_submitted(id, op, result.map(|_| ()));
        self.pending.get(id).complete = true;
        id
    }

    pub(super) fn note_submitted(
        &mut self,
        id: PendingId,
        op: VolumeOp,
        result: Result<(), SubmitError>,
    ) {
        let pending = self.pending.get(id);
        match result {
            Ok(()) => {
                pending.in_flight += 1;
                self.parts_in_flight += 1;
                self.batch += 1;
            }
            Err(error) => pending.fail(errno_of_submit(&error, op), error.to_string()),
        }
    }

    pub(super) fn block_status(&mut self, header: &RequestHeader, one: bool) {
        let range = header.offset..header.offset + u64::from(header.length);
        let limit = if one { 1 } else { STATUS_EXTENTS_MAX };
        let runs: Vec<StatusExtent> = self
            .volume
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
        self.turn.requests += 1;
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

fn errno_of_submit(error: &SubmitError, op: VolumeOp) -> Errno {
    match error {
        SubmitError::Poisoned { .. } => Errno::Io,
        SubmitError::Closed => Errno::Shutdown,
        // Of a volume that has become shorter since the request was checked.
        SubmitError::PastEnd { .. } => match op {
            VolumeOp::Write { .. } | VolumeOp::WriteZeroes { .. } => Errno::NoSpace,
            VolumeOp::Read | VolumeOp::Discard | VolumeOp::Flush => Errno::Invalid,
        },
        SubmitError::Busy { .. } => Errno::NoMemory,
        _ => Errno::Invalid,
    }
}
