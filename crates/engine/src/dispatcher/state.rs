//! What a dispatcher knows and decides: events in, typed actions out.
//!
//! No thread, no clock, no I/O: the same object runs behind a thread in the server, in virtual time in
//! a simulator, and step by step in tests. Whoever drives it reports events with the time at which
//! they happened and then carries out [`DispatcherState::next_action`] until that is to sleep. What goes
//! wrong with a disk, and then, is in `faults`; what the host delays, in `host`; tasks and reports are in
//! `control`.

mod check;
mod control;
mod faults;
mod host;

use std::collections::VecDeque;
use std::sync::Arc;

use sched::disk::{DiskReport, DiskScheduler};
use sched::request::{Class, Decision, Dispatch, Op, Order, Request, RequestId};
use sched::task::TaskId;
use sched::units::{Nanos, SECTOR_BYTES, SectorCount, Time};

use super::Patience;
use super::counters::{Counters, Outcome};
use super::host_debt::HostDebt;
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
    /// It does not answer at the moment; what is queued waits.
    pub stalled: bool,
    /// It has not answered for so long that everything it was asked has failed, and it has not yet answered for
    /// all that was on it then.
    pub given_up: bool,
    /// It is gone for good; the error it left with.
    pub gone: Option<DiskError>,
    /// The last error of a transfer.
    pub last_error: Option<DiskError>,
    /// How often it has stalled.
    pub stalls: u64,
    /// How often it was given up.
    pub given_ups: u64,
    /// How often it has answered again after it had stalled.
    pub comebacks: u64,
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
    /// For how long it has held pieces without completing one.
    pub silent: Nanos,
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
    order: Order,
    durable: bool,
    /// `None` while all of it is on the disk.
    segments: Option<Segments>,
    /// `None` once it has been answered.
    target: Option<Target>,
    timing: Timing,
    /// How late the host was to give the disk the piece that is on it.
    issued_late: Nanos,
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
    /// How many pieces the disk is given at a time.
    disk_places: usize,
    answers: VecDeque<Answer>,
    /// The writes that failed last, as many as there are places: what is to come after one may be on its way.
    failed_writes: VecDeque<RequestId>,
    /// What the scheduler has let pass and the disk has not been given.
    passing: Option<Dispatch>,
    leaving: Vec<(TaskId, LeaveReply)>,
    /// Tasks whose time is over, and the last deadline they may still have.
    ending: Vec<(TaskId, Time)>,
    /// The task that keeps best effort from starving.
    floor: Option<TaskId>,
    health: Health,
    counters: Counters,
    debt: HostDebt,
    patience: Patience,
    /// When the disk last completed something, or was given something while it had nothing.
    progress: Time,
    /// Whether the disk can be waited for.
    deaf: bool,
    stopping: bool,
    /// It stops without waiting for more than a disk that is well takes.
    hurried: bool,
    /// When the scheduler wanted to be asked again.
    alarm: Option<Time>,
    /// Since when something has happened that may change what it would decide, while there is room on the
    /// disk.
    decision_due: Option<Time>,
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
        patience: Patience,
    ) -> Self {
        Self::with_slots(
            scheduler,
            Arc::new(Slots::new(places)),
            disk_places,
            patience,
        )
    }

    pub(super) fn with_slots(
        scheduler: DiskScheduler,
        slots: Arc<Slots>,
        disk_places: usize,
        patience: Patience,
    ) -> Self {
        let total = slots.places().total() as usize;
        let disk_places = disk_places.min(scheduler.profile().outstanding() as usize);
        Self {
            scheduler,
            entries: (0..total).map(|_| None).collect(),
            live: 0,
            on_disk: 0,
            disk_places,
            // Each request is answered once, and a place is used again only after that has been queued:
            // twice the places covers what may be queued between two rounds of actions.
            answers: VecDeque::with_capacity(2 * total),
            failed_writes: VecDeque::with_capacity(total),
            passing: None,
            leaving: Vec::new(),
            ending: Vec::new(),
            floor: None,
            health: Health::default(),
            counters: Counters::new(),
            debt: HostDebt::default(),
            patience,
            progress: Time::ZERO,
            deaf: false,
            stopping: false,
            hurried: false,
            alarm: None,
            decision_due: None,
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
        if let Some(request) = self.enter(now, id, io) {
            self.queue(now, request);
        }
    }

    /// As [`submit`](Self::submit), of a disk that completes at once: where nothing else could be decided, the
    /// next action is to issue the request, which is then never queued. Whether that is so.
    pub fn pass(&mut self, now: Time, id: RequestId, io: Io) -> bool {
        let Some(request) = self.enter(now, id, io) else {
            return false;
        };
        self.passing = self.scheduler.pass(self.last, &request);
        if self.passing.is_none() {
            self.queue(now, request);
        }
        self.passing.is_some()
    }

    /// Gives a request its place, or an answer if it is refused.
    fn enter(&mut self, now: Time, id: RequestId, io: Io) -> Option<Request> {
        let now = self.event(now);
        let timing = Timing {
            submitted: now,
            ..Timing::default()
        };
        let request = Request {
            id,
            op: io.op,
            start: io.start,
            count: io.count,
            class: io.class,
            order: io.order,
        };
        let place = &mut self.entries[index_of(id)];
        debug_assert!(place.is_none(), "a place was used twice");
        *place = Some(Entry {
            id,
            op: io.op,
            count: io.count,
            class: io.class,
            order: io.order,
            durable: io.durable,
            segments: Some(io.segments),
            target: Some(io.target),
            timing,
            issued_late: Nanos::ZERO,
            phase: Phase::Queued,
        });
        self.live += 1;
        let forerunner = self.is_after_failed(request.op, &request.order);
        let refusal = self.refusal(request.class);
        if let Some(error) = refusal.or(forerunner.then_some(IoError::Forerunner)) {
            self.finish(id, Err(error), now);
            if request.op == Op::Write {
                self.fail_followers(now, id);
            }
            return None;
        }
        Some(request)
    }

    fn queue(&mut self, now: Time, request: Request) {
        let now = self.last.max(now);
        let (id, class) = (request.id, request.class);
        if let Err(error) = self.scheduler.submit(now, request) {
            self.finish(id, Err(IoError::Refused(error)), now);
        } else if self.outlives(id, class) {
            self.scheduler.cancel(now, id);
            self.finish(id, Err(IoError::Cancelled), now);
        }
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
        let due = Time(at.0.saturating_sub(done.host_late.0));
        self.host_took(due, at);
        self.entry_mut(id).timing.host_late = self.debt.owed();
        match done.result {
            Ok(()) => self.succeeded(id, at, done.host_late),
            Err(error) => self.failed(id, at, error),
        }
        self.answers_again();
        self.limit_debt(at);
        self.retry_leaves(at);
    }

    fn succeeded(&mut self, id: RequestId, at: Time, host_late: Nanos) {
        let piece = self.scheduler.completed(at, id);
        let Some(piece) = piece else {
            debug_assert!(false, "the scheduler does not know what was on the disk");
            self.finish(id, Ok(()), at);
            return;
        };
        let issued_late = std::mem::take(&mut self.entry_mut(id).issued_late);
        let overrun = self.counters.piece(&piece, host_late + issued_late);
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

    fn failed(&mut self, id: RequestId, at: Time, error: DiskError) {
        self.scheduler.failed(at, id);
        self.health.last_error = Some(error);
        let wrote = self.entry_mut(id).op == Op::Write;
        self.finish(id, Err(IoError::Disk(error)), at);
        if error.is_gone() {
            self.gone(at, error);
        } else if wrote {
            self.fail_followers(at, id);
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

    /// What to do at `now`.
    pub fn next_action(&mut self, now: Time) -> Action {
        let now = self.last.max(now);
        self.check_stall(now);
        if let Some(answer) = self.answers.pop_front() {
            return Action::Answer(answer);
        }
        if let Some(dispatch) = self.passing.take() {
            self.decision_made(now);
            return self.issue(now, &dispatch);
        }
        let serves = self.health.gone.is_none() && !self.health.given_up;
        if !serves || self.on_disk >= self.disk_places {
            (self.alarm, self.decision_due) = (None, None);
            return Action::Sleep {
                until: self.stall_at(),
            };
        }
        self.decision_made(now);
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

    /// Ends a request that is not on the disk: answers it, counts it, gives its place back.
    fn finish(&mut self, id: RequestId, result: Result<(), IoError>, at: Time) {
        // Where it lies: it is too long to be moved for nothing.
        let place = &mut self.entries[index_of(id)];
        let entry = place.as_mut().expect("a request ends once");
        self.live -= 1;
        entry.timing.completed = at;
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
        let target = entry.target.take();
        *place = None;
        if let Some(target) = target {
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
        self.decision_due.get_or_insert(self.last);
        self.events += 1;
        if cfg!(debug_assertions) {
            self.check();
        }
        self.last
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
