//! What a dispatcher knows and decides: events in, typed actions out.
//!
//! No thread, no clock, no I/O: the same object runs behind a thread in the server, in virtual time in
//! a simulator, and step by step in tests. Whoever drives it reports events with the time at which
//! they happened and then carries out [`DispatcherState::next_action`] until that is to sleep.
//!
//! # Faults
//!
//! | what | then |
//! |---|---|
//! | a read fails | it answers the error; nothing else changes |
//! | a write or a sync fails | it answers the error; the disk is *poisoned*: queued and later writes fail, reads go on |
//! | the disk is gone | everything queued or submitted fails |
//! | no completion for `stall_after` | the disk is *stalled*: everything queued, on the disk, or submitted fails; when the disk completes something after all it is served again, poisoned if a write was given up |
//! | the dispatcher stops | everything queued fails or is served, as asked; what is on the disk is waited for |
//!
//! A request that is given up while it is on the disk keeps its place and its memory until the disk
//! lets go of them.

use std::collections::VecDeque;
use std::sync::Arc;

use sched::disk::{DiskReport, DiskScheduler, JoinError, SubmitError, TaskKind};
use sched::request::{Class, Decision, Dispatch, Op, Request, RequestId};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, SECTOR_BYTES, SectorCount, Time};

use super::counters::{Counters, Outcome, TaskCounters};
use super::request::Io;
use super::slots::{Places, Slots, index_of};
use crate::buffer::Segments;
use crate::completion::{IoError, Target, Timing};
use crate::disk::{DiskError, DiskIo, Done};

/// What is to be done next.
#[derive(Debug)]
pub enum Action {
    /// Give this to the disk. If it does not take it, report that as its end.
    Issue(DiskIo),
    /// Answer a request.
    Answer(Answer),
    /// Nothing, until something happens or this instant has come.
    Sleep {
        /// `None`: nothing will change by itself.
        until: Option<Time>,
    },
}

/// An answer to be given.
#[derive(Debug)]
pub struct Answer {
    /// To whom.
    pub target: Target,
    /// How the request ended.
    pub result: Result<(), IoError>,
    /// When what happened.
    pub timing: Timing,
}

/// What is wrong with a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// A write or sync has failed; there will be no more writes.
    pub poisoned: bool,
    /// It does not answer at the moment.
    pub stalled: bool,
    /// It is gone for good; the error it left with.
    pub gone: Option<DiskError>,
    /// The last error of a transfer.
    pub last_error: Option<DiskError>,
    /// How often it has stalled.
    pub stalls: u64,
}

/// How things stand with a disk.
#[derive(Clone, Debug)]
pub struct DispatcherReport {
    /// When this was the state.
    pub at: Time,
    /// The scheduler's view, in the disk's time.
    pub scheduler: DiskReport,
    /// What has come of requests, net of the host's lateness.
    pub counters: Counters,
    /// What is wrong.
    pub health: Health,
    /// Requests queued or on the disk.
    pub requests: usize,
    /// Pieces on the disk.
    pub on_disk: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Queued,
    OnDisk,
}

/// A request that has been taken.
#[derive(Debug)]
struct Entry {
    id: RequestId,
    op: Op,
    count: SectorCount,
    class: Class,
    durable: bool,
    /// `None` while all of it is on the disk.
    segments: Option<Segments>,
    /// `None` once it has been answered.
    target: Option<Target>,
    timing: Timing,
    /// The host's delays before this request came.
    host_late_before: Nanos,
    phase: Phase,
}

type LeaveReply = Box<dyn FnOnce(Option<Time>) + Send>;

/// The state of one disk's dispatcher.
pub struct DispatcherState {
    scheduler: DiskScheduler,
    slots: Arc<Slots>,
    /// By place.
    entries: Vec<Option<Entry>>,
    live: usize,
    on_disk: usize,
    disk_places: usize,
    answers: VecDeque<Answer>,
    leaving: Vec<(TaskId, LeaveReply)>,
    health: Health,
    counters: Counters,
    stall_after: Nanos,
    /// When the disk last completed something, or was given something while it had nothing.
    progress: Time,
    /// Whether the disk can be waited for.
    deaf: bool,
    stopping: bool,
    /// When the scheduler wanted to be asked again.
    alarm: Option<Time>,
    /// No event is reported as earlier than another before it.
    last: Time,
    events: u64,
}

impl DispatcherState {
    /// The state of an idle disk that holds `disk_places` pieces at a time.
    #[must_use]
    pub fn new(
        scheduler: DiskScheduler,
        places: Places,
        disk_places: usize,
        stall_after: Nanos,
    ) -> Self {
        Self::with_slots(
            scheduler,
            Arc::new(Slots::new(places)),
            disk_places,
            stall_after,
        )
    }

    pub(super) fn with_slots(
        scheduler: DiskScheduler,
        slots: Arc<Slots>,
        disk_places: usize,
        stall_after: Nanos,
    ) -> Self {
        let total = slots.places().total() as usize;
        Self {
            scheduler,
            entries: (0..total).map(|_| None).collect(),
            live: 0,
            on_disk: 0,
            disk_places,
            // Each request is answered once, and a place is used again only after that has been queued:
            // twice the places covers what may be queued between two rounds of actions.
            answers: VecDeque::with_capacity(2 * total),
            leaving: Vec::new(),
            health: Health::default(),
            counters: Counters::new(),
            stall_after,
            progress: Time::ZERO,
            deaf: false,
            stopping: false,
            alarm: None,
            last: Time::ZERO,
            events: 0,
            slots,
        }
    }

    /// Takes a place for a request of `class`, to be handed in with [`submit`](Self::submit).
    #[must_use]
    pub fn reserve(&self, class: Class) -> Option<RequestId> {
        self.slots.take(class)
    }

    /// Takes in a request, for which `id` was reserved.
    pub fn submit(&mut self, now: Time, id: RequestId, io: Io) {
        let now = self.event(now);
        let timing = Timing {
            submitted: now,
            ..Timing::default()
        };
        let entry = Entry {
            id,
            op: io.op,
            count: io.count,
            class: io.class,
            durable: io.durable,
            segments: Some(io.segments),
            target: Some(io.target),
            timing,
            host_late_before: self.counters.host_late_sum(),
            phase: Phase::Queued,
        };
        let refused = self.refusal(&entry).or_else(|| {
            let (op, start, count, class, order) = (io.op, io.start, io.count, io.class, io.order);
            self.scheduler
                .submit(
                    now,
                    Request {
                        id,
                        op,
                        start,
                        count,
                        class,
                        order,
                    },
                )
                .err()
                .map(IoError::Refused)
        });
        let place = &mut self.entries[index_of(id)];
        debug_assert!(place.is_none(), "a place was used twice");
        *place = Some(entry);
        self.live += 1;
        if let Some(error) = refused {
            self.finish(id, Err(error), now);
        }
    }

    /// Why a request is not even queued.
    fn refusal(&self, entry: &Entry) -> Option<IoError> {
        if self.stopping {
            return Some(IoError::Stopped);
        }
        if let Some(gone) = self.health.gone {
            return Some(IoError::Disk(gone));
        }
        if self.health.stalled {
            return Some(IoError::Stalled);
        }
        if self.health.poisoned && entry.op == Op::Write {
            return Some(IoError::Poisoned);
        }
        if let Class::Stream(task) = entry.class
            && self.leaving.iter().any(|(leaving, _)| *leaving == task)
        {
            return Some(IoError::Refused(SubmitError::NoSuchTask(task)));
        }
        None
    }

    /// A piece has ended on the disk.
    pub fn done(&mut self, now: Time, done: &Done) {
        let id = RequestId(done.tag);
        let at = self.event(done.at.min(now));
        let known = self.entries.get(index_of(id)).and_then(Option::as_ref);
        if !known.is_some_and(|entry| entry.id == id && entry.phase == Phase::OnDisk) {
            debug_assert!(false, "the disk completed what it was not given: {done:?}");
            return;
        }
        self.counters.busy += at.saturating_since(self.progress);
        self.on_disk -= 1;
        self.progress = at;
        self.health.stalled = false;
        self.counters.host_was_late(done.host_late);
        match done.result {
            Ok(()) => self.succeeded(id, at, done.host_late),
            Err(error) => self.failed(id, at, error),
        }
        self.retry_leaves(at);
    }

    fn succeeded(&mut self, id: RequestId, at: Time, host_late: Nanos) {
        let piece = self.scheduler.completed(at, id);
        let Some(piece) = piece else {
            debug_assert!(false, "the scheduler does not know what was on the disk");
            self.finish(id, Ok(()), at);
            return;
        };
        let overrun = self.counters.piece(&piece, host_late);
        let entry = self.entry_mut(id);
        entry.timing.overrun += overrun;
        entry.timing.served = Some(piece.served);
        entry.timing.deadline = piece.deadline;
        entry.phase = Phase::Queued;
        if piece.finished {
            self.finish(id, Ok(()), at);
        } else if let Some(error) = self.doomed(id) {
            self.scheduler.cancel(at, id);
            self.finish(id, Err(error), at);
        }
    }

    /// Why the rest of a split request is not to be served any more.
    fn doomed(&self, id: RequestId) -> Option<IoError> {
        let entry = self.entries[index_of(id)].as_ref()?;
        if entry.target.is_none() {
            return Some(IoError::Cancelled);
        }
        self.refusal(entry)
    }

    fn failed(&mut self, id: RequestId, at: Time, error: DiskError) {
        self.scheduler.failed(at, id);
        self.health.last_error = Some(error);
        let wrote = self.entry_mut(id).op == Op::Write;
        self.finish(id, Err(IoError::Disk(error)), at);
        if error.is_gone() {
            self.gone(at, error);
        } else if wrote {
            self.poison(at);
        }
    }

    /// Takes a request back if it is not on the disk.
    pub fn cancel(&mut self, now: Time, id: RequestId) {
        let now = self.event(now);
        let queued = self.entries.get(index_of(id)).and_then(Option::as_ref);
        if queued.is_some_and(|entry| entry.id == id && entry.phase == Phase::Queued)
            && self.scheduler.cancel(now, id)
        {
            self.finish(id, Err(IoError::Cancelled), now);
        }
    }

    /// Lets an admitted task join.
    ///
    /// # Errors
    /// Those of [`DiskScheduler::join`].
    pub fn join(
        &mut self,
        now: Time,
        id: TaskId,
        params: TaskParams,
        kind: TaskKind,
        first_release: Time,
    ) -> Result<(), JoinError> {
        let now = self.event(now);
        self.scheduler.join(now, id, params, kind, first_release)?;
        self.counters.tasks.insert(id, TaskCounters::default());
        Ok(())
    }

    /// Lets a task leave: its queued stream requests are cancelled, and once none is on the disk `reply`
    /// is called with the instant from which its share is free (`None`: no such task).
    pub fn leave(&mut self, now: Time, id: TaskId, reply: LeaveReply) {
        let now = self.event(now);
        self.fail_queued(now, IoError::Cancelled, |entry| {
            entry.class == Class::Stream(id)
        });
        self.leaving.push((id, reply));
        self.retry_leaves(now);
    }

    fn retry_leaves(&mut self, now: Time) {
        let mut at = 0;
        while at < self.leaving.len() {
            let task = self.leaving[at].0;
            let busy = self
                .entries
                .iter()
                .flatten()
                .any(|entry| entry.class == Class::Stream(task));
            if busy {
                at += 1;
                continue;
            }
            let (_, reply) = self.leaving.swap_remove(at);
            let free_from = self.scheduler.leave(now, task);
            self.counters.tasks.remove(&task);
            reply(free_from);
        }
    }

    /// Tells the scheduler the corrected delta-L of the tasks that have joined.
    pub fn set_delta_l(&mut self, now: Time, delta_l: Nanos) {
        let now = self.event(now);
        self.scheduler.set_delta_l(now, delta_l);
    }

    /// A write or a sync of this disk has failed: no more writes.
    pub fn poison(&mut self, now: Time) {
        let now = self.event(now);
        self.health.poisoned = true;
        self.fail_queued(now, IoError::Poisoned, |entry| entry.op == Op::Write);
    }

    /// The disk is gone.
    pub fn gone(&mut self, now: Time, error: DiskError) {
        let now = self.event(now);
        self.health.gone = Some(error);
        self.fail_queued(now, IoError::Disk(error), |_| true);
    }

    /// The disk cannot even be waited for any more: what is on it will not come back.
    pub fn deaf(&mut self, now: Time, error: DiskError) {
        self.deaf = true;
        self.gone(now, error);
        self.give_up_on_disk(now, IoError::Disk(error));
    }

    /// Whether the disk can be waited for.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// Ends: takes no more requests; with `drain` serves those it has, otherwise fails those queued.
    pub fn stop(&mut self, now: Time, drain: bool) {
        let now = self.event(now);
        self.stopping = true;
        if !drain {
            self.fail_queued(now, IoError::Stopped, |_| true);
        }
    }

    /// Whether it has stopped and everything has been answered.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let abandoned = self.deaf || self.health.stalled;
        self.stopping
            && self.answers.is_empty()
            && (self.live == 0 || (abandoned && self.live == self.on_disk))
    }

    /// What to do at `now`.
    pub fn next_action(&mut self, now: Time) -> Action {
        let now = self.last.max(now);
        if let Some(alarm) = self.alarm.take()
            && self.on_disk == 0
        {
            // The scheduler would have acted then; only the host kept it from it.
            self.counters.host_was_late(now.saturating_since(alarm));
        }
        self.check_stall(now);
        if let Some(answer) = self.answers.pop_front() {
            return Action::Answer(answer);
        }
        let serves = self.health.gone.is_none() && !self.health.stalled;
        if !serves || self.on_disk >= self.disk_places {
            return Action::Sleep {
                until: self.stall_at(),
            };
        }
        match self.scheduler.decide(now) {
            Decision::Issue(dispatch) => self.issue(now, &dispatch),
            Decision::Wait { until } => {
                self.alarm = until;
                let until = [until, self.stall_at()].into_iter().flatten().min();
                Action::Sleep { until }
            }
        }
    }

    fn issue(&mut self, now: Time, dispatch: &Dispatch) -> Action {
        let id = dispatch.id;
        let entry = self.entry_mut(id);
        let whole = dispatch.offset.is_zero() && dispatch.count == entry.count;
        let segments = match entry.segments.take() {
            Some(all) if whole || all.size() == 0 => all,
            Some(all) => {
                let from = (dispatch.offset.0 * SECTOR_BYTES) as usize;
                let piece = all.slice(from..from + dispatch.count.bytes().0 as usize);
                entry.segments = Some(all);
                // Only a buffer in a million transfers at a time cannot be sliced.
                piece.unwrap_or_else(|_| Segments::empty(dispatch.op))
            }
            None => Segments::empty(dispatch.op),
        };
        if entry.timing.issued == Time::ZERO {
            entry.timing.issued = now;
        }
        entry.phase = Phase::OnDisk;
        let durable = entry.durable;
        if self.on_disk == 0 {
            self.progress = now;
        }
        self.on_disk += 1;
        self.last = now;
        let (op, start, count) = (dispatch.op, dispatch.start, dispatch.count);
        Action::Issue(DiskIo {
            tag: id.0,
            op,
            start,
            count,
            segments,
            durable,
        })
    }

    /// How things stand.
    pub fn report(&mut self, now: Time) -> DispatcherReport {
        let now = self.event(now);
        let mut counters = self.counters.clone();
        if self.on_disk > 0 {
            counters.busy += now.saturating_since(self.progress);
        }
        DispatcherReport {
            at: now,
            scheduler: self.scheduler.report(now),
            counters,
            health: self.health,
            requests: self.live,
            on_disk: self.on_disk,
        }
    }

    fn stall_at(&self) -> Option<Time> {
        let waits = self.on_disk > 0 && !self.health.stalled && !self.deaf;
        waits.then(|| self.progress.saturating_add(self.stall_after))
    }

    fn check_stall(&mut self, now: Time) {
        if self.stall_at().is_none_or(|at| now < at) {
            return;
        }
        self.health.stalled = true;
        self.health.stalls += 1;
        self.fail_queued(now, IoError::Stalled, |_| true);
        self.give_up_on_disk(now, IoError::Stalled);
    }

    /// Fails what is queued and matches.
    fn fail_queued(&mut self, now: Time, error: IoError, matches: impl Fn(&Entry) -> bool) {
        for index in 0..self.entries.len() {
            let Some(entry) = &self.entries[index] else {
                continue;
            };
            let id = entry.id;
            if entry.phase == Phase::Queued && matches(entry) {
                self.scheduler.cancel(now, id);
                self.finish(id, Err(error), now);
            }
        }
        self.retry_leaves(now);
    }

    /// Answers what is on the disk, without getting back what the disk holds.
    fn give_up_on_disk(&mut self, now: Time, error: IoError) {
        let mut wrote = false;
        for entry in self
            .entries
            .iter_mut()
            .flatten()
            .filter(|entry| entry.phase == Phase::OnDisk)
        {
            wrote |= entry.op == Op::Write;
            entry.timing.completed = now;
            if let Some(target) = entry.target.take() {
                self.answers.push_back(Answer {
                    target,
                    result: Err(error),
                    timing: entry.timing,
                });
            }
        }
        if wrote {
            // Whether it was written nobody knows.
            self.health.poisoned = true;
        }
    }

    /// Ends a request that is not on the disk: answers it, counts it, gives its place back.
    fn finish(&mut self, id: RequestId, result: Result<(), IoError>, at: Time) {
        let mut entry = self.entries[index_of(id)]
            .take()
            .expect("a request ends once");
        self.live -= 1;
        entry.timing.completed = at;
        let in_system = at.saturating_since(entry.timing.submitted);
        let host_late = self
            .counters
            .host_late_sum()
            .saturating_sub(entry.host_late_before);
        entry.timing.host_late = host_late.min(in_system);
        let timing = entry.timing;
        self.counters.request(&Outcome {
            class: entry.class,
            submitted: timing.submitted,
            completed: at,
            lateness_gross: timing.lateness_gross(),
            lateness: timing.lateness(),
            overrun: timing.overrun,
            failed: result.is_err() || entry.target.is_none(),
        });
        // The memory first, then the answer, then the place.
        drop(entry.segments.take());
        if let Some(target) = entry.target.take() {
            self.answers.push_back(Answer {
                target,
                result,
                timing,
            });
        }
        self.slots.give(id);
    }

    fn entry_mut(&mut self, id: RequestId) -> &mut Entry {
        self.entries[index_of(id)]
            .as_mut()
            .expect("a request that is queued or on the disk has a place")
    }

    /// Notes that something happened, not before what happened last.
    fn event(&mut self, at: Time) -> Time {
        self.last = self.last.max(at);
        self.events += 1;
        if cfg!(debug_assertions) {
            self.check();
        }
        self.last
    }

    /// Invariants. The thorough ones cost a pass over all places, so they are sampled.
    fn check(&self) {
        assert!(
            self.on_disk <= self.disk_places,
            "more pieces on the disk than it has places"
        );
        assert!(self.on_disk <= self.live, "a piece of no request");
        if self.events.is_multiple_of(64) {
            let entries = || self.entries.iter().flatten();
            assert_eq!(self.live, entries().count());
            assert_eq!(
                self.on_disk,
                entries()
                    .filter(|entry| entry.phase == Phase::OnDisk)
                    .count()
            );
            let queued_gone = entries()
                .any(|entry| entry.phase == Phase::Queued && self.refusal(entry).is_some());
            assert!(
                !queued_gone || self.stopping,
                "a request waits for what will not come"
            );
            for (index, entry) in self.entries.iter().enumerate() {
                assert!(
                    entry
                        .as_ref()
                        .is_none_or(|entry| index_of(entry.id) == index)
                );
            }
        }
    }
}

impl std::fmt::Debug for DispatcherState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DispatcherState")
            .field("live", &self.live)
            .field("on_disk", &self.on_disk)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}
