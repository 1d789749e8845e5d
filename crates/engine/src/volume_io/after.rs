//! The order that a request keeps with earlier ones that it names.
//!
//! # Two ways
//!
//! A request that names others *follows* those that are all in the queue of one disk: it is handed to
//! that disk at once with their ids ([`Order::after`]), and the disk's scheduler starts it when they are
//! complete, so that the disk never stands idle between the two. For every other one it *waits* here,
//! and begins only when that is complete.
//!
//! # When it may follow
//!
//! What a request does when it begins must not depend on what the earlier one has yet to do. A write
//! takes its place in the extent whichever comes first. A read of a chunk without data would be answered with
//! zeros, and a discard takes effect at once: these wait. So does a stream's request, for which the disk's
//! scheduler has deadlines instead. An earlier one that has to be made durable is complete only
//! after its transfers, and parts of it may be parked: it is waited for as well.
//!
//! # What stays true
//!
//! A request that follows is complete only when those it follows are, and its client hears of them first:
//! it counts them among what it waits for at its end. If it turns out that a part of it goes to another disk
//! (an extent was moved meanwhile), that part is withheld until then. Nothing can wait in a circle: the
//! earlier one needs nothing more but its disk.
//!
//! A request that fails counts as complete, but a change that was to come after a failed change fails too:
//! whoever names an earlier write relies on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sched::request::RequestId;
use smallvec::SmallVec;

use super::request::VolumeRequest;
use crate::state::client::ClientCore;
use crate::state::disk::feeder::Feed;
use crate::state::follow::{Follow, Queued};
use crate::state::op::{Active, Dependent, Hold, Op};
use crate::state::request::{IoFailure, Tag, VolumeOp};

pub(super) const FORERUNNER: IoFailure = IoFailure::Cancelled {
    reason: "a change that it was to come after failed",
};

/// Whether an op is to change nothing any more, for a change that it was to come after has failed.
pub(super) fn is_doomed(op: &Op, kind: VolumeOp) -> bool {
    kind.is_change() && op.is_after_failed.load(Ordering::Acquire)
}

/// Makes `op` come after what `request` names. `None`: it follows none of them.
pub(crate) fn follow(
    client: &ClientCore,
    op: &Arc<Op>,
    request: &VolumeRequest<'_>,
) -> Option<Box<Follow>> {
    client.keep_ids();
    op.follows.store(1, Ordering::Release);
    let mut follow: Option<Box<Follow>> = None;
    for tag in request.after {
        come_after(client, op, *tag, request, &mut follow);
    }
    follow
}

/// Whether what the request does when it begins does not depend on an earlier one that is queued. To be asked of
/// each again, while that cannot end: those before it that change what has data are complete then or waited
/// for, and may have been neither when the one before was asked of.
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

/// Makes `op` wait for the request of `tag` or follow it, unless that is complete.
fn come_after(
    client: &ClientCore,
    op: &Arc<Op>,
    tag: Tag,
    request: &VolumeRequest<'_>,
    follow: &mut Option<Box<Follow>>,
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
    if queued.is_some_and(|queued| Follow::take_up(follow, &queued)) {
        op.follows.fetch_add(1, Ordering::AcqRel);
        active.dependents.push(Dependent::Follows(Arc::clone(op)));
    } else {
        op.waits.fetch_add(1, Ordering::AcqRel);
        active.dependents.push(Dependent::Waits(Arc::clone(op)));
    }
}

/// Where all that is left of a request is queued, if that is on one disk and there is nothing else
/// to be done for it.
fn queued(active: &Active) -> Option<Queued> {
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
    let follows = usize::from(active.follow.is_some());
    (active.outstanding as usize == ids.len() + follows).then_some(Queued { disk, ids })
}

/// Notes the ids under which the parts of a request are queued, unless some are withheld or parked.
/// The request may have ended meanwhile.
pub(crate) fn note_ids(op: &Op, generation: u32, ids: &[Option<RequestId>]) {
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

/// The request has been handed over as far as it can be.
pub(crate) fn begun(op: &Arc<Op>, feed: Feed) {
    if op.follows.fetch_sub(1, Ordering::AcqRel) == 1 {
        followed(op, feed);
    }
}

/// All that the request followed is complete.
pub(crate) fn followed(op: &Arc<Op>, feed: Feed) {
    let withheld = {
        let mut state = op.state.lock();
        let active = state.active.as_mut().expect("it waits for this to end");
        let mut follow = active.follow.take();
        if is_doomed(op, active.kind) {
            active.failure.get_or_insert(FORERUNNER);
            // What is dropped is answered.
            follow = None;
        }
        op.unit_done(&mut state);
        follow.map(|follow| follow.withheld).unwrap_or_default()
    };
    for (disk, io) in withheld {
        op.client.io.disks[disk].feeder.feed(io, feed);
    }
}
