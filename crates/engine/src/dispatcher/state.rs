//! The decisions of a dispatcher: events in, typed actions out.
//!
//! This state has no thread, no clock and no I/O. It runs behind a thread in the server, in virtual time
//! in a simulator, and step by step in tests. The driver reports events with the time at which they
//! happened, and then carries out [`DispatcherState::next_action`] until that is to sleep.
//!
//! `faults` handles failing, stalling and vanishing disks; `host` measures delays by the host; `control`
//! handles tasks and reports.

mod check;
mod control;
mod faults;
mod host;

pub use control::DispatcherReport;

use std::collections::VecDeque;
use std::sync::Arc;

use sched::disk::DiskScheduler;
use sched::request::{Class, Decision, Dispatch, Op, Order, Request, RequestId};
use sched::task::TaskId;
use sched::units::{Nanos, SECTOR_BYTES, SectorCount, Time};

use super::StallLimits;
use super::counters::{Counters, Outcome};
use super::host_debt::HostDebt;
use super::link::LinkEnd;
use super::request::Io;
use super::service_times::Piece;
use super::slots::{Places, Slots, index_of};
use crate::buffer::Segments;
use crate::completion::{IoError, Target, Timing};
use crate::disk::{DiskError, DiskIo, Done};

/// The next action for the driver.
#[derive(Debug)]
pub enum Action {
    /// Give this to the disk. If the disk refuses it, report that as its end.
    Issue(DiskIo),
    /// Answer a request.
    Answer(Answer),
    /// Sleep until an event or the given time.
    Sleep {
        /// `None`: only an event can change the state.
        until: Option<Time>,
    },
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// Its receiver.
    pub target: Target,
    /// The result of the request.
    pub result: Result<(), IoError>,
    /// Times of the request's steps.
    pub timing: Timing,
}

/// Health of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// It does not answer at the moment; queued requests wait.
    pub stalled: bool,
    /// It exceeded the give-up limit, so all its requests have failed; and it has not yet answered for all
    /// that were on it then.
    pub given_up: bool,
    /// It is gone for good, with this error.
    pub gone: Option<DiskError>,
    /// The last error of a transfer.
    pub last_error: Option<DiskError>,
    /// Number of stalls so far.
    pub stalls: u64,
    /// Number of times that it was given up.
    pub given_ups: u64,
    /// Number of times that it has answered again after a stall.
    pub comebacks: u64,
    /// Number of pieces that took longer than predicted, net of the host's lateness.
    pub overruns: u64,
    /// Number of deadlines missed, net of the host's lateness.
    pub misses: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Queued,
    OnDisk,
}

/// An accepted request.
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
    /// Delay by the host in issuing the piece that is on the disk.
    issued_late: Nanos,
    /// The piece that was last issued.
    piece: Piece,
    phase: Phase,
}

type LeaveReply = Box<dyn FnOnce(Option<Time>) + Send>;

/// The state of one disk's dispatcher.
pub struct DispatcherState {
    scheduler: DiskScheduler,
    slots: Arc<Slots>,
    /// By slot.
    entries: Vec<Option<Entry>>,
    live: usize,
    on_disk: usize,
    /// The most pieces on the disk at a time.
    disk_places: usize,
    answers: VecDeque<Answer>,
    /// The last failed writes, as many as there are slots; requests ordered after them may still arrive.
    failed_writes: VecDeque<RequestId>,
    /// A request that bypassed the queue and has not been issued.
    passing: Option<Dispatch>,
    leaving: Vec<(TaskId, LeaveReply)>,
    /// Tasks whose span has ended, with their last permitted deadline.
    ending: Vec<(TaskId, Time)>,
    /// The task of the best-effort floor.
    floor: Option<TaskId>,
    health: Health,
    counters: Counters,
    debt: HostDebt,
    patience: StallLimits,
    link: Option<LinkEnd>,
    /// Time of the disk's last completion, or of the first issue to an idle disk if that was later.
    progress: Time,
    /// The disk cannot be waited for any more.
    wait_failed: bool,
    stopping: bool,
    /// Stopping without draining: the disk is given up as soon as it counts as stalled.
    is_hurried: bool,
    /// When the scheduler asked to be called again.
    alarm: Option<Time>,
    /// Time of the first event since the last decision that may change the decision, while the disk has
    /// room.
    decision_due: Option<Time>,
    /// Time of the last event; events are never reported in reverse order.
    last: Time,
    events: u64,
    /// Pieces given to the disk.
    pieces: u64,
}

impl DispatcherState {
    /// The state of an idle disk that holds at most `disk_places` pieces.
    #[must_use]
    pub fn new(
        scheduler: DiskScheduler,
        places: Places,
        disk_places: usize,
        patience: StallLimits,
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
        patience: StallLimits,
    ) -> Self {
        let total = slots.places().total() as usize;
        let disk_places = disk_places.min(scheduler.profile().outstanding() as usize);
        Self {
            scheduler,
            entries: (0..total).map(|_| None).collect(),
            live: 0,
            on_disk: 0,
            disk_places,
            // Each request is answered once, and its slot is reused only after the answer has been queued. Twice
            // the slots covers all answers queued between two rounds of actions.
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
            link: None,
            progress: Time::ZERO,
            wait_failed: false,
            stopping: false,
            is_hurried: false,
            alarm: None,
            decision_due: None,
            last: Time::ZERO,
            events: 0,
            pieces: 0,
            slots,
        }
    }

    /// The same at the end of a link on which places are lent.
    pub(super) fn on_link(self, link: Option<LinkEnd>) -> Self {
        Self { link, ..self }
    }

    /// Takes a slot for a request of `class`, to be used with [`submit`](Self::submit).
    #[must_use]
    pub fn reserve(&self, class: Class) -> Option<RequestId> {
        self.slots.take(class)
    }

    /// Takes in a request in the slot `id`.
    pub fn submit(&mut self, now: Time, id: RequestId, io: Io) {
        if let Some(request) = self.enter(now, id, io) {
            self.queue(now, request);
        }
    }

    /// As [`submit`](Self::submit), for a disk that completes at once: if the request is the only possible
    /// decision, it bypasses the queue and is issued by the next action. Returns true if it does.
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

    /// Stores a request in its slot, or answers it if it is refused.
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
            piece: Piece {
                op: io.op,
                start: io.start,
                count: io.count,
            },
            phase: Phase::Queued,
        });
        self.live += 1;
        let predecessor_failed = self.is_after_failed(request.op, &request.order);
        let refusal = self.refusal(request.class);
        if let Some(error) = refusal.or(predecessor_failed.then_some(IoError::PredecessorFailed)) {
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

    /// Handles the end of a piece.
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
        if let Some(link) = &self.link {
            link.ended();
        }
        self.progress = at;
        let due = Time(at.0.saturating_sub(done.host_late.0));
        self.host_took(due, at);
        let owed = self.debt.owed();
        let timing = &mut self.entry_mut(id).timing;
        (timing.host_late, timing.disk_completed) = (owed, due);
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
        let (of_entry, host_late) = (self.entry_mut(id).piece, host_late + issued_late);
        let overrun = self.counters.piece(at, of_entry, &piece, host_late);
        let entry = self.entry_mut(id);
        entry.timing.overrun += overrun;
        entry.timing.served = Some(piece.served);
        entry.timing.deadline = piece.deadline;
        entry.phase = Phase::Queued;
        if piece.finished {
            self.finish(id, Ok(()), at);
        } else if let Some(error) = self.rest_failure(id) {
            self.scheduler.cancel(at, id);
            self.finish(id, Err(error), at);
        }
    }

    fn failed(&mut self, id: RequestId, at: Time, error: DiskError) {
        self.scheduler.failed(at, id);
        self.health.last_error = Some(error);
        let piece = self.entry_mut(id).piece;
        self.counters.service_times.failed(at, piece);
        let wrote = piece.op == Op::Write;
        self.finish(id, Err(IoError::Disk(error)), at);
        if error.is_gone() {
            self.gone(at, error);
        } else if wrote {
            self.fail_followers(at, id);
        }
    }

    /// The next action at `now`.
    pub fn next_action(&mut self, now: Time) -> Action {
        let now = self.last.max(now);
        if let Some(link) = &self.link {
            // Before the look at the link, so that a later change is seen before the thread sleeps.
            link.take_news();
        }
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
            let link = self.link.as_mut();
            let link = link.filter(|_| !serves || self.health.stalled);
            let lent = link.and_then(|link| link.lend_unused(now));
            let until = [lent, self.stall_at()].into_iter().flatten().min();
            return Action::Sleep { until };
        }
        self.decision_made(now);
        match self.decide(now) {
            Decision::Issue(dispatch) => self.issue(now, &dispatch),
            Decision::Wait { until } => {
                self.alarm = until;
                let until = [until, self.stall_at()].into_iter().flatten().min();
                Action::Sleep { until }
            }
        }
    }

    fn decide(&mut self, now: Time) -> Decision {
        match &mut self.link {
            None => self.scheduler.decide(now),
            Some(link) => link.decide(now, &mut self.scheduler),
        }
    }

    /// True if something has changed on its link since the last decision.
    pub(super) fn has_link_news(&self) -> bool {
        self.link.as_ref().is_some_and(LinkEnd::has_news)
    }

    /// True if it shares places with other disks.
    pub(super) fn shares_places(&self) -> bool {
        self.link.is_some()
    }

    fn issue(&mut self, now: Time, dispatch: &Dispatch) -> Action {
        let id = dispatch.id;
        let entry = self.entries[index_of(id)]
            .as_mut()
            .expect("a request that is issued has a place");
        let whole = dispatch.offset.is_zero() && dispatch.count == entry.count;
        let segments = match entry.segments.take() {
            Some(all) if whole || all.size() == 0 => all,
            Some(all) => {
                let from = (dispatch.offset.0 * SECTOR_BYTES) as usize;
                let piece = all.slice(from..from + dispatch.count.bytes().0 as usize);
                entry.segments = Some(all);
                // Slicing fails only for a buffer with a million transfers.
                piece.unwrap_or_else(|_| Segments::empty(dispatch.op))
            }
            None => Segments::empty(dispatch.op),
        };
        self.pieces += 1;
        if entry.timing.issued == Time::ZERO {
            entry.timing.issued = now;
            entry.timing.pieces.0 = self.pieces;
        }
        entry.timing.pieces.1 = self.pieces;
        entry.phase = Phase::OnDisk;
        let durable = entry.durable;
        if self.on_disk == 0 {
            self.progress = now;
        }
        self.on_disk += 1;
        self.last = now;
        let (op, start, count) = (dispatch.op, dispatch.start, dispatch.count);
        self.entry_mut(id).piece = Piece { op, start, count };
        Action::Issue(DiskIo {
            tag: id.0,
            op,
            start,
            count,
            segments,
            durable,
        })
    }

    /// Ends a request that is not on the disk: answers it, counts it, and frees its slot.
    fn finish(&mut self, id: RequestId, result: Result<(), IoError>, at: Time) {
        // Edited in place: an entry is large, and moving it would copy it.
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
        // In this order: release the memory, queue the answer, free the slot.
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

    /// Records an event; returns its time, which is never before that of the previous event.
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
