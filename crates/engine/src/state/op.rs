//! A volume request in flight, from its submission until its client has taken the completion.
//!
//! An [`Op`] is the completion target of the disk requests that it was divided into. Each of them carries
//! the op and the number of its part. Ops belong to a client's table and are reused, so a request
//! allocates nothing in steady state.
//!
//! Completions arrive on a disk's real-time thread, which must not sleep on a lock that an ordinary
//! thread may hold. The disk's thread therefore tries the op's lock for about a microsecond. If that
//! fails, the pool's worker ([`super::worker`]) handles the completion. The worker also does everything
//! after a completion that takes more than a few steps.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};
use sched::request::{Op as Direction, RequestId, Urgency};
use sched::units::{Sector, SectorCount, Time};
use smallvec::SmallVec;
use volume::extent::{InUse, WriteInUse};
use volume::{DiskNumber, Grade, Place};

use super::charge::Charge;
use super::client::ClientCore;
use super::predecessors::DiskPredecessors;
use super::request::{IoFailure, Tag, Timeliness, VolumeCompletion, VolumeOp};
use super::volume::{Attempt, VolumeCore};
use super::worker::{Job, Worker};
use crate::buffer::Segments;
use crate::clock;
use crate::completion::{Completion, IoError, Sink, Timing};
use crate::disk::Durability;

/// Attempts of a disk's thread to take the op's lock before it passes the completion to the worker.
/// They take about a microsecond, longer than a running thread ever holds the lock.
const LOCK_TRIES: u32 = 100;

/// The number of times that a request's writes may be tried again at another place. Each time costs a copy of an extent.
const REWRITES_MAX: u32 = 8;

/// One disk request of an op.
pub(crate) struct Part {
    pub(crate) disk: usize,
    pub(crate) start: Sector,
    pub(crate) count: SectorCount,
    pub(crate) hold: Hold,
    /// The disk's id of it, if ids are kept (`volume_io::after`).
    pub(crate) id: Option<RequestId>,
    pub(crate) attempt: Attempt,
}

/// A write to a bad place, whose op waits until it has been made elsewhere or cannot be.
pub(crate) struct FailedWrite {
    pub(crate) op: Arc<Op>,
    pub(crate) volume: Arc<VolumeCore>,
    /// The index of the extent in the volume.
    pub(crate) extent: u32,
    /// The place at which it failed.
    pub(crate) place: Place,
    pub(crate) failure: IoFailure,
}

/// Keeps an extent in place until the disk has answered.
pub(crate) enum Hold {
    Read {
        _in_use: InUse,
    },
    Write(WriteInUse),
    /// The disk has answered.
    Released,
}

/// A request that is ordered after another.
pub(crate) enum Dependent {
    /// It has not begun.
    Waits(Arc<Op>),
    /// It is queued at its disk.
    Follows(Arc<Op>),
}

impl Dependent {
    /// Its predecessor is complete. `is_failed`: the predecessor was a change and failed.
    pub(crate) fn release(self, is_failed: bool, worker: &Worker) {
        if is_failed {
            let (Self::Waits(op) | Self::Follows(op)) = &self;
            op.is_after_failed.store(true, Ordering::Release);
        }
        match self {
            Self::Waits(op) => {
                if op.wait_ended() {
                    worker.post(Job::Ready(op));
                }
            }
            Self::Follows(op) => {
                if op.follows.fetch_sub(1, Ordering::AcqRel) == 1 {
                    worker.post(Job::Followed(op));
                }
            }
        }
    }
}

/// The request that an op carries out.
pub(crate) struct ActiveRequest {
    pub(crate) volume: Arc<VolumeCore>,
    pub(crate) kind: VolumeOp,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) data: Option<Segments>,
    /// Memory for the rest of the track after the range, until it is known if that is read.
    pub(crate) ahead: Option<Segments>,
    /// Bytes that are read into it.
    pub(crate) ahead_bytes: u64,
    pub(crate) urgency: Urgency,
    pub(crate) charge: Charge,
    /// Disk requests not yet answered, plus spans not yet begun.
    pub(crate) outstanding: u32,
    pub(crate) parts: SmallVec<[Part; 2]>,
    /// Requests ordered after this one.
    pub(crate) dependents: Vec<Dependent>,
    /// Its predecessors on its disk, until they are complete.
    pub(crate) predecessors: Option<Box<DiskPredecessors>>,
    /// Writes of it that have been tried again at another place.
    pub(crate) rewrites: u32,
    /// Every part has been queued at its disk, under the id that was kept.
    pub(crate) handed_over: bool,
    pub(crate) failure: Option<IoFailure>,
    pub(crate) user_data: u64,
    pub(crate) submitted: Time,
    pub(crate) completed: Time,
    pub(crate) timeliness: Option<Timeliness>,
    /// A thread sleeps on it; it does not go through the completion queue.
    pub(crate) synchronous: bool,
    pub(crate) done: bool,
}

fn place(disk: usize, extent: u32) -> Place {
    Place {
        disk: DiskNumber(disk as u16),
        extent,
    }
}

impl ActiveRequest {
    /// The write that failed, if it may be tried again at another place. Writes ordered after it have failed with it at
    /// the disk, so one that others name is not.
    fn take_for_rewrite(
        &mut self,
        hold: &Hold,
        op: &Arc<Op>,
        failure: IoFailure,
    ) -> Option<FailedWrite> {
        let Hold::Write(in_use) = hold else {
            return None;
        };
        let may = self.rewrites < REWRITES_MAX
            && self.failure.is_none()
            && self.dependents.is_empty()
            && self.predecessors.is_none();
        if !may {
            return None;
        }
        self.rewrites += 1;
        Some(FailedWrite {
            op: Arc::clone(op),
            volume: Arc::clone(&self.volume),
            extent: in_use.extent().index(),
            place: in_use.extent().place(),
            failure,
        })
    }

    /// The block is complete with its last part, also if that was made without a deadline of its own.
    fn make_timeliness_whole(&mut self) {
        let completed = self.completed;
        if let Some(of) = self
            .timeliness
            .as_mut()
            .filter(|of| of.completed < completed)
        {
            let longer = completed.saturating_since(of.completed.max(of.deadline));
            of.completed = completed;
            of.late = completed.saturating_since(of.deadline);
            of.late_net = of.late_net.saturating_add(longer);
        }
    }
}

/// The mutable state of an op.
pub(crate) struct OpState {
    pub(crate) generation: u32,
    /// A disk is answering, and wakes the client at the end of its batch of answers.
    wakes_later: bool,
    pub(crate) active: Option<ActiveRequest>,
}

/// A volume request in flight. See the [module](self).
pub(crate) struct Op {
    me: Weak<Op>,
    pub(crate) client: Arc<ClientCore>,
    pub(crate) slot: u32,
    /// Number of events that it waits for before it may start: predecessors, the gate of its volume, and
    /// one while it is being submitted.
    pub(crate) waits: AtomicU32,
    /// Incomplete predecessors on its disk, plus one while it is being handed over.
    pub(crate) follows: AtomicU32,
    /// A change that it was ordered after has failed; it then changes nothing.
    pub(crate) is_after_failed: AtomicBool,
    pub(crate) state: Mutex<OpState>,
    pub(crate) finished: Condvar,
}

impl Op {
    pub(crate) fn new(client: Arc<ClientCore>, slot: u32) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            client,
            slot,
            waits: AtomicU32::new(0),
            follows: AtomicU32::new(0),
            is_after_failed: AtomicBool::new(false),
            state: Mutex::new(OpState {
                generation: 0,
                wakes_later: false,
                active: None,
            }),
            finished: Condvar::new(),
        })
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.me
            .upgrade()
            .expect("the caller of a method holds the op")
    }

    pub(crate) fn tag(&self, generation: u32) -> Tag {
        Tag(u64::from(generation) << 32 | u64::from(self.slot))
    }

    /// One of the events that it waits for has happened. Returns true if that was the last.
    pub(crate) fn wait_ended(&self) -> bool {
        self.waits.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, OpState>> {
        for _ in 0..LOCK_TRIES {
            if let Some(state) = self.state.try_lock() {
                return Some(state);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Records a disk's answer for one part.
    pub(crate) fn answered(&self, state: &mut OpState, completion: &Completion) {
        let active = state
            .active
            .as_mut()
            .expect("a disk answers only ops in flight");
        let part = &mut active.parts[completion.token as usize];
        let disk = &self.client.io.disks[part.disk];
        let (start, count, at) = (part.start, part.count, part.disk);
        let hold = std::mem::replace(&mut part.hold, Hold::Released);
        let direction = match hold {
            Hold::Write(_) => Direction::Write,
            Hold::Read { .. } | Hold::Released => Direction::Read,
        };
        let timing = &completion.timing;
        active.completed = active.completed.max(timing.completed);
        active.charge.answered(disk, completion);
        note_timeliness(&mut active.timeliness, timing);
        let mut failed = None;
        match completion.result {
            Ok(()) => {
                disk.transferred(direction, count);
                self.note_success(at, start, timing);
                if let Hold::Write(in_use) = hold {
                    if disk.durability == Durability::Host {
                        active.volume.set_unsynced(at);
                    }
                    in_use.written();
                }
            }
            Err(IoError::Cancelled) => {
                // Nothing of it has been written.
                drop(hold);
                active.failure.get_or_insert(IoFailure::Cancelled {
                    reason: "the time span of its stream ended before its deadline",
                });
            }
            Err(error) => {
                let failure = disk.failure(direction, start, count, error, timing);
                let is_place = self.note_error(at, start, error);
                failed = is_place
                    .then_some(&hold)
                    .and_then(|hold| active.take_for_rewrite(hold, &self.arc(), failure.clone()));
                drop(hold);
                if failed.is_none() {
                    active.failure.get_or_insert(failure);
                }
            }
        }
        if direction == Direction::Write {
            active.volume.write_ended(&self.client.worker);
        }
        match failed {
            Some(write) => self.client.worker.post(Job::Rewrite(write)),
            None => self.unit_done(state),
        }
    }

    /// Notes a transfer that succeeded, and how much longer than predicted it took.
    fn note_success(&self, disk: usize, start: Sector, timing: &Timing) {
        let io = &self.client.io;
        let Some(extent) = io.geometry.extent_at(start) else {
            return;
        };
        let suspects = &io.disks[disk].suspects;
        let longest = suspects.succeeded(extent, timing.overrun, timing.completed);
        if let Some(longest) = longest {
            let extra_us = u32::try_from(longest.0.div_ceil(1_000)).unwrap_or(u32::MAX);
            let place = place(disk, extent);
            let grade = Grade::Slow { extra_us };
            self.client.worker.post(Job::Trouble(place, grade));
        }
    }

    /// Notes an error. Returns true if its place is to blame, which the pool then records.
    fn note_error(&self, disk: usize, start: Sector, error: IoError) -> bool {
        let io = &self.client.io;
        let is_of_medium = matches!(error, IoError::Disk(error) if error.is_of_medium());
        let Some(extent) = io.geometry.extent_at(start).filter(|_| is_of_medium) else {
            return false;
        };
        let is_place = io.disks[disk].suspects.failed(extent);
        if is_place {
            let place = place(disk, extent);
            self.client.worker.post(Job::Trouble(place, Grade::Bad));
        }
        is_place
    }

    /// Counts one outstanding unit as done; the last one ends the transfers.
    pub(crate) fn unit_done(&self, state: &mut OpState) {
        let active = state
            .active
            .as_mut()
            .expect("only ops in flight have units");
        active.outstanding -= 1;
        if active.outstanding == 0 {
            self.transfers_done(state);
        }
    }

    /// All transfers are done. A request that must be durable may still need a flush round.
    pub(crate) fn transfers_done(&self, state: &mut OpState) {
        let active = state.active.as_mut().expect("only ops in flight end");
        if active.failure.is_none() && self.needs_round(active) {
            self.client.worker.post(Job::Join(self.arc()));
        } else {
            self.finish(state);
        }
    }

    fn needs_round(&self, active: &ActiveRequest) -> bool {
        let durable = matches!(
            active.kind,
            VolumeOp::Write { durable: true } | VolumeOp::WriteZeroes { durable: true, .. }
        );
        let disks = &self.client.io.disks;
        durable
            && (active.volume.is_unsettled()
                || active
                    .parts
                    .iter()
                    .any(|part| disks[part.disk].durability == Durability::Host))
    }

    /// Completes the request and hands the result to the client.
    pub(crate) fn finish(&self, state: &mut OpState) {
        let worker = &self.client.worker;
        let wakes_later = state.wakes_later;
        let active = state.active.as_mut().expect("only ops in flight finish");
        active.data = None;
        active.ahead = None;
        active.parts.clear();
        if active.completed == Time::ZERO {
            active.completed = clock::now();
        }
        active.done = true;
        if active.kind.is_change() {
            active.volume.note_change(active.completed);
        }
        if active.rewrites > 0 {
            active.make_timeliness_whole();
        }
        let idle = active.charge.finished(
            &self.client.io,
            active.completed.saturating_since(active.submitted),
            active.timeliness.as_ref(),
            active.failure.as_ref(),
        );
        if let Some(stream) = idle {
            worker.post(Job::Idle(Arc::clone(stream)));
        }
        if active.synchronous {
            self.finished.notify_all();
        } else {
            self.client.finished(self);
        }
        // The completion is queued before any dependent is released, so clients see completions in order.
        let is_failed = active.kind.is_change() && active.failure.is_some();
        for dependent in active.dependents.drain(..) {
            dependent.release(is_failed, worker);
        }
        if active.volume.leave() {
            worker.post(Job::Gate(Arc::clone(&active.volume)));
        }
        if !wakes_later {
            self.client.notify();
        }
    }

    /// Takes the result of a finished op and frees the op for the next request.
    pub(crate) fn take(&self, state: &mut OpState) -> VolumeCompletion {
        let generation = state.generation;
        let active = state.active.as_mut().expect("only finished ops are taken");
        let completion = VolumeCompletion {
            tag: self.tag(generation),
            user_data: active.user_data,
            ahead_bytes: active.ahead_bytes,
            result: active.failure.take().map_or(Ok(()), Err),
            submitted: active.submitted,
            completed: active.completed,
            timeliness: active.timeliness,
        };
        // Dropped in place: moving it out first would copy it.
        state.active = None;
        state.generation = generation.wrapping_add(1);
        completion
    }
}

/// Keeps the worst timeliness of the parts: the latest part, or if none is late the last deadline.
fn note_timeliness(worst: &mut Option<Timeliness>, timing: &Timing) {
    let Some(deadline) = timing.deadline else {
        return;
    };
    let this = Timeliness {
        deadline,
        completed: timing.completed,
        late: timing.lateness_gross(),
        late_net: timing.lateness(),
    };
    let key = |of: &Timeliness| (of.late_net, of.late, of.deadline);
    if worst.as_ref().is_none_or(|worst| key(worst) < key(&this)) {
        *worst = Some(this);
    }
}

impl Sink for Op {
    fn complete(&self, completion: Completion) {
        match self.try_lock() {
            Some(mut state) => {
                state.wakes_later = true;
                self.answered(&mut state, &completion);
                state.wakes_later = false;
            }
            None => self
                .client
                .worker
                .post(Job::Answered(self.arc(), completion)),
        }
    }

    fn wake(&self) {
        self.client.notify();
    }

    fn wake_id(&self) -> usize {
        Arc::as_ptr(&self.client).addr()
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Op")
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}
