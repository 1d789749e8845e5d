//! The order of a request relative to earlier requests that it names.
//!
//! # Follow or wait
//!
//! A request *follows* a named request if all remaining parts of that one are queued at one disk. It is
//! handed to that disk at once with their ids (`sched::request::Order::after`), and the disk's scheduler starts it when
//! they are complete. So the disk does not idle between the two. In all other cases the request *waits* here
//! and begins when the named request is complete.
//!
//! # When it may follow
//!
//! The begin of the request must not depend on work that the named request has yet to do.
//!
//! * Writes may follow: they take their place in the extent in either order.
//! * A read of a chunk without data would be answered with zeros, so it waits.
//! * A discard takes effect at once, so it waits.
//! * A stream's request waits, because the disk's scheduler orders it by deadlines.
//! * If the named request has to be made durable, it completes only after its transfers; if parts of it are
//!   parked, they are not queued. Both are waited for.
//!
//! # Guarantees
//!
//! A request that follows completes after those it follows, and its client sees their completions first: it
//! counts them among its outstanding units. If one of its parts goes to another disk, because an extent was
//! moved meanwhile, that part is kept back until then. Waits cannot form a cycle: the named request needs
//! only its disk.
//!
//! A failed request counts as complete. But a change that is ordered after a failed change fails too, because
//! it relies on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sched::request::RequestId;
use smallvec::SmallVec;

use super::request::VolumeRequest;
use crate::state::client::ClientCore;
use crate::state::disk::feeder::SubmitMode;
use crate::state::op::{ActiveRequest, Dependent, Hold, Op};
use crate::state::predecessors::{DiskPredecessors, QueuedParts};
use crate::state::request::{IoFailure, Tag, VolumeOp};

pub(super) const PREDECESSOR_FAILED: IoFailure = IoFailure::Cancelled {
    reason: "an earlier change that it depends on failed",
};

/// True if an op must not change anything, because a change that it was ordered after has failed.
pub(super) fn must_fail(op: &Op, kind: VolumeOp) -> bool {
    kind.is_change() && op.is_after_failed.load(Ordering::Acquire)
}

/// Orders `op` after the requests that `request` names. `None` if it follows none of them.
pub(crate) fn find_predecessors(
    client: &ClientCore,
    op: &Arc<Op>,
    request: &VolumeRequest<'_>,
) -> Option<Box<DiskPredecessors>> {
    client.keep_ids();
    op.follows.store(1, Ordering::Release);
    let mut predecessors: Option<Box<DiskPredecessors>> = None;
    for tag in request.after {
        come_after(client, op, *tag, request, &mut predecessors);
    }
    predecessors
}

/// True if the begin of the request does not depend on an earlier one that is queued. This has to be
/// evaluated for each named request, while that request cannot complete: earlier discards may have completed
/// in between.
fn may_follow(request: &VolumeRequest<'_>) -> bool {
    if request.stream.is_some() {
        return false;
    }
    match request.op {
        VolumeOp::Write { .. } | VolumeOp::WriteZeroes { no_hole: true, .. } => true,
        VolumeOp::Read => {
            let map = request.volume.core().map();
            map.block_status(request.offset.0, request.len.0)
                .is_ok_and(|mut runs| runs.all(|run| run.data))
        }
        VolumeOp::Flush | VolumeOp::Discard | VolumeOp::WriteZeroes { .. } => false,
    }
}

/// Makes `op` wait for or follow the request of `tag`, unless that is complete.
fn come_after(
    client: &ClientCore,
    op: &Arc<Op>,
    tag: Tag,
    request: &VolumeRequest<'_>,
    predecessors: &mut Option<Box<DiskPredecessors>>,
) {
    let Some((earlier, generation)) = client.find(tag) else {
        return;
    };
    if Arc::ptr_eq(&earlier, op) {
        return;
    }
    let mut state = earlier.state.lock();
    if state.generation != generation {
        return;
    }
    let Some(active) = state.active.as_mut().filter(|active| !active.done) else {
        return;
    };
    let queued = queued(active).filter(|_| may_follow(request));
    if queued.is_some_and(|queued| DiskPredecessors::add(predecessors, &queued)) {
        op.follows.fetch_add(1, Ordering::AcqRel);
        active.dependents.push(Dependent::Follows(Arc::clone(op)));
    } else {
        op.waits.fetch_add(1, Ordering::AcqRel);
        active.dependents.push(Dependent::Waits(Arc::clone(op)));
    }
}

/// The queued parts of a request, if all its remaining work is transfers queued at one disk.
fn queued(active: &ActiveRequest) -> Option<QueuedParts> {
    let ends_with_its_transfers = matches!(
        active.kind,
        VolumeOp::Read
            | VolumeOp::Write { durable: false }
            | VolumeOp::WriteZeroes {
                no_hole: true,
                durable: false
            }
    );
    if !active.handed_over || !ends_with_its_transfers {
        return None;
    }
    let disk = active.parts.first()?.disk;
    let mut ids = SmallVec::new();
    for part in &active.parts {
        if part.disk != disk {
            return None;
        }
        if !matches!(part.hold, Hold::Released) {
            ids.push(part.id?);
        }
    }
    let follows = usize::from(active.predecessors.is_some());
    (active.outstanding as usize == ids.len() + follows).then_some(QueuedParts { disk, ids })
}

/// Keeps the disk ids of a request's parts, unless some are kept back or parked. The request may have ended
/// meanwhile.
pub(crate) fn keep_ids(op: &Op, generation: u32, ids: &[Option<RequestId>]) {
    let mut state = op.state.lock();
    if state.generation != generation {
        return;
    }
    if let Some(active) = state.active.as_mut()
        && !active.done
        && active.parts.len() == ids.len()
    {
        for (part, id) in active.parts.iter_mut().zip(ids) {
            part.id = *id;
        }
        active.handed_over = true;
    }
}

/// The request has been handed over as far as possible.
pub(crate) fn handed_over(op: &Arc<Op>, mode: SubmitMode) {
    if op.follows.fetch_sub(1, Ordering::AcqRel) == 1 {
        predecessors_done(op, mode);
    }
}

/// All requests that this one follows are complete.
pub(crate) fn predecessors_done(op: &Arc<Op>, mode: SubmitMode) {
    let withheld = {
        let mut state = op.state.lock();
        let active = state.active.as_mut().expect("it waits for this to end");
        let mut predecessors = active.predecessors.take();
        if must_fail(op, active.kind) {
            active.failure.get_or_insert(PREDECESSOR_FAILED);
            // Dropping the withheld parts answers them.
            predecessors = None;
        }
        op.unit_done(&mut state);
        predecessors.map(|found| found.withheld).unwrap_or_default()
    };
    for (disk, io) in withheld {
        op.client.io.disks[disk].feeder.submit(io, mode);
    }
}
