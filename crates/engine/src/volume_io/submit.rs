//! Submission of requests: all checks are made here, before anything happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sched::request::{Op as Direction, Urgency};
use sched::units::{Bytes, Time};
use smallvec::SmallVec;

use super::client::Client;
use super::request::{AFTER_MAX, REQUEST_BYTES_MAX, SubmitError, VolumeRequest};
use super::{after, issue};
use crate::clock;
use crate::state::charge::Charge;
use crate::state::client::ClientCore;
use crate::state::disk::feeder::SubmitMode;
use crate::state::op::{ActiveRequest, Op};
use crate::state::request::{IoFailure, Tag, VolumeCompletion, VolumeOp};
use crate::state::stream::core::{StreamCore, op_name};

/// The failure of a request that arrives while the pool is being closed.
const CLOSED: IoFailure = IoFailure::Cancelled {
    reason: "the pool is being closed",
};

/// The failure of a block that waited for a change which excluded it from the stream's range.
const CUT: IoFailure = IoFailure::Cancelled {
    reason: "the range of its stream became shorter",
};

/// The failure of a block that waited for a change after which it spans several blocks.
const DIVIDED: IoFailure = IoFailure::Cancelled {
    reason: "the blocks of its stream became shorter",
};

/// The way a request is submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Its completion goes to the client's queue.
    Queue,
    /// As `Queue`, in a batch: the disks are woken at the end of the batch.
    Batch,
    /// The caller sleeps until it is complete.
    Wait,
    /// As `Wait`, by the pool itself while it is being closed.
    Closing,
}

impl Client {
    /// Starts a request. Its tag comes out of [`Client::poll`] or [`Client::wait`] when it is complete, in
    /// any order. Blocks only while a disk's inbox is full.
    ///
    /// # Errors
    /// When the request is invalid or must not be served; its memory is released.
    pub fn submit(&self, request: VolumeRequest<'_>) -> Result<Tag, SubmitError> {
        submit(self.core(), request, Entry::Queue).map(|(_, tag)| tag)
    }

    /// As [`submit`](Self::submit), for several requests in a row. The disks may see them only at the end of
    /// the batch, [`submit_end`](Self::submit_end), which the caller must call before it sleeps. This saves
    /// wake-ups of the disks' threads.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_batched(&self, request: VolumeRequest<'_>) -> Result<Tag, SubmitError> {
        submit(self.core(), request, Entry::Batch).map(|(_, tag)| tag)
    }

    /// Ends a batch of [`submit_batched`](Self::submit_batched).
    pub fn submit_end(&self) {
        for disk in &self.core().io.disks {
            disk.feeder.announce();
        }
    }

    /// Performs one request and waits for it. It does not appear in [`Client::poll`].
    ///
    /// # Errors
    /// When the request is refused; the request's own result is in the completion.
    pub fn execute(&self, request: VolumeRequest<'_>) -> Result<VolumeCompletion, SubmitError> {
        let (op, _) = submit(self.core(), request, Entry::Wait)?;
        Ok(self.await_op(&op))
    }

    /// As [`execute`](Self::execute), for the pool itself while it is being closed.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub(crate) fn execute_at_close(
        &self,
        request: VolumeRequest<'_>,
    ) -> Result<VolumeCompletion, SubmitError> {
        let (op, _) = submit(self.core(), request, Entry::Closing)?;
        Ok(self.await_op(&op))
    }

    fn await_op(&self, op: &Arc<Op>) -> VolumeCompletion {
        let mut state = op.state.lock();
        while state.active.as_ref().is_some_and(|active| !active.done) {
            op.finished.wait(&mut state);
        }
        let completion = op.take(&mut state);
        drop(state);
        self.core().end(op);
        completion
    }
}

/// Checks and starts a request.
fn submit(
    client: &Arc<ClientCore>,
    mut request: VolumeRequest<'_>,
    entry: Entry,
) -> Result<(Arc<Op>, Tag), SubmitError> {
    check(client, &request, entry)?;
    let limit = client.limit();
    let op = client.begin().ok_or(SubmitError::Busy { limit })?;
    let active = activate(client, &mut request, entry);
    let tag = {
        let mut state = op.state.lock();
        state.active = Some(active);
        op.tag(state.generation)
    };
    // One count for this function, so that the op does not start before all its predecessors are known; and
    // one for the gate, where it is counted from here on: a later barrier waits for it even while it waits
    // for others.
    op.waits.store(2, Ordering::Release);
    op.is_after_failed.store(false, Ordering::Release);
    let volume = request.volume.core();
    if !request.after.is_empty() {
        let predecessors = after::find_predecessors(client, &op, &request);
        op.state
            .lock()
            .active
            .as_mut()
            .expect("it was just put there")
            .predecessors = predecessors;
    }
    if request.op.is_change() {
        volume.count_change();
    }
    let mut may_start = volume.enter(&op, request.barrier, &client.worker);
    if client.io.is_closed() && entry != Entry::Closing {
        // The pool was closed after the check, and its closing thread may have looked at the gate before.
        may_start = may_start || volume.withdraw(&op);
        if may_start {
            let mut state = op.state.lock();
            let active = state.active.as_mut().expect("it has not begun");
            active.failure = Some(CLOSED);
        }
    }
    if may_start {
        op.wait_ended();
    }
    if op.wait_ended() {
        let mode = match entry {
            Entry::Batch => SubmitMode::Batch,
            _ => SubmitMode::Blocking,
        };
        issue::start(&op, mode);
    }
    Ok((op, tag))
}

/// The active state of an op for a request, whose memory it takes.
fn activate(client: &ClientCore, request: &mut VolumeRequest<'_>, entry: Entry) -> ActiveRequest {
    let mut failure = None;
    let charge = match request.stream {
        Some(stream) => {
            stream.core().began();
            let (from, end) = (request.offset.0, request.offset.0 + request.len.0);
            if !stream.core().reaches(end) {
                failure = Some(CUT);
            } else if !stream.core().is_one_block(from, end) {
                failure = Some(DIVIDED);
            }
            Charge::Stream(Arc::clone(stream.core()))
        }
        None => client.charge.clone(),
    };
    let durable = matches!(
        request.op,
        VolumeOp::Flush
            | VolumeOp::Write { durable: true }
            | VolumeOp::WriteZeroes { durable: true, .. }
    );
    ActiveRequest {
        volume: Arc::clone(request.volume.core()),
        kind: request.op,
        offset: request.offset.0,
        len: request.len.0,
        data: request.data.take(),
        ahead: request.ahead.take(),
        ahead_bytes: 0,
        urgency: if durable {
            Urgency::Sync
        } else {
            request.urgency
        },
        charge,
        outstanding: 0,
        parts: SmallVec::new(),
        dependents: Vec::new(),
        predecessors: None,
        rewrites: 0,
        handed_over: false,
        failure,
        user_data: request.user_data,
        submitted: clock::now(),
        completed: Time::ZERO,
        timeliness: None,
        synchronous: !matches!(entry, Entry::Queue | Entry::Batch),
        done: false,
    }
}

fn check(
    client: &ClientCore,
    request: &VolumeRequest<'_>,
    entry: Entry,
) -> Result<(), SubmitError> {
    let volume = request.volume.core();
    if client.io.is_closed() && entry != Entry::Closing {
        return Err(SubmitError::Closed);
    }
    if !Arc::ptr_eq(&client.io, request.volume.io()) {
        return Err(SubmitError::ForeignVolume {
            volume: volume.name.clone(),
        });
    }
    if request.after.len() > AFTER_MAX {
        return Err(SubmitError::TooManyAfter {
            given: request.after.len(),
        });
    }
    check_range(request)?;
    check_memory(client, request)?;
    if (request.op.is_change() || request.op == VolumeOp::Flush)
        && let Some(reason) = volume.poisoned()
    {
        return Err(SubmitError::Poisoned {
            volume: volume.name.clone(),
            reason: reason.to_string(),
        });
    }
    match request.stream {
        Some(stream) => check_stream(stream.core(), request),
        None => Ok(()),
    }
}

/// Checks that `stream` has reserved the request: a block of it, or part of one.
///
/// # Errors
/// A description of the difference.
fn check_stream(stream: &StreamCore, request: &VolumeRequest<'_>) -> Result<(), SubmitError> {
    let direction = match request.op {
        VolumeOp::Read => Some(Direction::Read),
        VolumeOp::Write { .. } => Some(Direction::Write),
        _ => None,
    };
    let same_volume = stream.volume == request.volume.core().id;
    let end = request.offset.0 + request.len.0;
    let range = stream.range();
    let inside = range.start <= request.offset.0 && end <= range.end;
    let size = stream.block();
    let one_block = inside && stream.is_one_block(request.offset.0, end);
    if same_volume && one_block && direction == Some(stream.op) && !stream.is_closing() {
        return Ok(());
    }
    Err(SubmitError::NotOfStream {
        stream: stream.name.clone(),
        reserved: format!(
            "{} blocks of {} from {} to {} of volume {:?}{}",
            op_name(stream.op),
            size,
            Bytes(range.start),
            Bytes(range.end),
            stream.volume_name,
            if stream.is_closing() {
                ", and is closed"
            } else {
                ""
            },
        ),
        asked: format!(
            "{:?} of {} at {} B of volume {:?}",
            request.op,
            request.len,
            request.offset.0,
            request.volume.name()
        ),
    })
}

fn check_range(request: &VolumeRequest<'_>) -> Result<(), SubmitError> {
    let alignment = request.volume.alignment().0;
    for (what, bytes) in [("the offset", request.offset), ("the length", request.len)] {
        if !bytes.0.is_multiple_of(alignment) {
            return Err(SubmitError::Misaligned {
                what,
                bytes: bytes.0,
                alignment,
            });
        }
    }
    if request.op != VolumeOp::Flush && request.len == Bytes::ZERO {
        return Err(SubmitError::Empty);
    }
    if request.op.has_data() && request.len > REQUEST_BYTES_MAX {
        return Err(SubmitError::TooLarge {
            bytes: request.len.0,
        });
    }
    let size = request.volume.size();
    let end = request.offset.0.checked_add(request.len.0);
    if end.is_none_or(|end| end > size.0) {
        return Err(SubmitError::PastEnd {
            volume: request.volume.name().to_owned(),
            size: size.0,
            offset: request.offset.0,
            len: request.len.0,
        });
    }
    Ok(())
}

fn check_memory(client: &ClientCore, request: &VolumeRequest<'_>) -> Result<(), SubmitError> {
    let expected = if request.op.has_data() {
        request.len.0
    } else {
        0
    };
    let given = request.data.as_ref().map_or(0, |data| data.size() as u64);
    if given != expected {
        return Err(SubmitError::LengthMismatch {
            memory: given,
            len: expected,
        });
    }
    let Some(data) = &request.data else {
        return Ok(());
    };
    let direction = match request.op {
        VolumeOp::Read => Direction::Read,
        _ => Direction::Write,
    };
    if data.op() != direction {
        return Err(SubmitError::WrongDirection);
    }
    if data.account().is_some_and(|owner| !client.may_use(owner)) {
        return Err(SubmitError::ForeignBuffer);
    }
    Ok(())
}
