//! Taking a request: everything that can be wrong with it is found here, before anything happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sched::request::{Op as Direction, Urgency};
use sched::units::{Bytes, Time};
use smallvec::SmallVec;

use super::after::Follow;
use super::client::ClientCore;
use super::issue;
use super::request::{AFTER_MAX, REQUEST_BYTES_MAX, SubmitError, VolumeRequest};
use crate::clock;
use crate::state::charge::Charge;
use crate::state::disk::feeder::Feed;
use crate::state::op::{Active, Op};
use crate::state::request::{IoFailure, Tag, VolumeOp};

/// What a request is told that came while the pool was being closed.
const CLOSED: IoFailure = IoFailure::Cancelled {
    reason: "the pool is being closed",
};

/// What a block is told that waited for a change which took its place out of the stream's range.
const CUT: IoFailure = IoFailure::Cancelled {
    reason: "the range of its stream became shorter",
};

/// What one is told that is in several blocks by now.
const DIVIDED: IoFailure = IoFailure::Cancelled {
    reason: "the blocks of its stream became shorter",
};

/// How a request comes in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Its completion goes to the client's queue.
    Queue,
    /// The same, and more come after it: the disks are told at the end of the batch.
    Batch,
    /// Its client sleeps until it is complete.
    Wait,
    /// The same for the pool itself, which has been closed for everybody else.
    Closing,
}

/// Starts a request, or says what is wrong with it.
pub(crate) fn submit(
    client: &Arc<ClientCore>,
    mut request: VolumeRequest<'_>,
    entry: Entry,
) -> Result<(Arc<Op>, Tag), SubmitError> {
    check(client, &request, entry)?;
    let op = client.begin()?;
    let active = activate(client, &mut request, entry);
    let tag = {
        let mut state = op.state.lock();
        state.active = Some(active);
        op.tag(state.generation)
    };
    // One for this function, so that it does not start before all its predecessors are known, and
    // one for the gate, which it takes its place at now: a barrier that comes later waits for it
    // even while it waits for others.
    op.waits.store(2, Ordering::Release);
    op.is_after_failed.store(false, Ordering::Release);
    let volume = request.volume.core();
    if !request.after.is_empty() {
        let follow = Follow::after(client, &op, &request);
        op.state
            .lock()
            .active
            .as_mut()
            .expect("it was just put there")
            .follow = follow;
    }
    let mut may_start = volume.enter(&op, request.barrier, &client.pool.worker);
    if client.pool.is_closed() && entry != Entry::Closing {
        // The pool was closed since the check, and whoever closes it may have looked at the gate before.
        may_start = may_start || volume.withdraw(&op);
        if may_start {
            let mut state = op.state.lock();
            let active = state.active.as_mut().expect("it has not begun");
            active.failure = Some(CLOSED);
        }
    }
    if may_start {
        op.waited();
    }
    if op.waited() {
        let feed = match entry {
            Entry::Batch => Feed::Batch,
            _ => Feed::Caller,
        };
        issue::start(&op, feed);
    }
    Ok((op, tag))
}

/// What an op does for a request, whose memory it takes.
fn activate(client: &ClientCore, request: &mut VolumeRequest<'_>, entry: Entry) -> Active {
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
    Active {
        volume: Arc::clone(request.volume.core()),
        kind: request.op,
        offset: request.offset.0,
        len: request.len.0,
        data: request.data.take(),
        urgency: if durable {
            Urgency::Sync
        } else {
            request.urgency
        },
        charge,
        outstanding: 0,
        parts: SmallVec::new(),
        dependents: Vec::new(),
        follow: None,
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
    if client.pool.is_closed() && entry != Entry::Closing {
        return Err(SubmitError::Closed);
    }
    if !Arc::ptr_eq(&client.pool, request.volume.pool()) {
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
        Some(stream) => stream.core().check(request),
        None => Ok(()),
    }
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
