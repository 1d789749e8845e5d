//! The scheduler of one disk: event in, typed action out.
//!
//! # What it is for
//!
//! A dispatcher tells it what has happened ([`submit`](DiskScheduler::submit),
//! [`completed`](DiskScheduler::completed), tasks joining and leaving) and asks it what to do
//! ([`decide`](DiskScheduler::decide)). The server and the simulator run this same object.
//!
//! # Parts
//!
//! [`Core`] decides between real-time requests and best effort, and is all that the guarantee
//! rests on. Around it:
//!
//! | part | decides |
//! |---|---|
//! | [`Predictor`] | how long a request takes from where the head is |
//! | [`best_effort`](crate::best_effort) | which best-effort request is next |
//! | `ordering` | which ones have to wait for others |
//! | [`server`](crate::server) | when best effort with a reservation has a turn of its own |
//!
//! A stream's request arrives at the core with the longest that it can take, which must not be
//! more than its task was admitted with. A best-effort request is served in pieces that are predicted
//! to take no longer than a limit from wherever the head is; between two pieces others may come,
//! and the rest of the request takes its place by position again.
//!
//! Nothing is allocated once the queue has been as full as it may be; everything is
//! O(log n) in the requests queued, plus one look at each periodic server.
//!
//! Deliberately absent: latencies of best effort (whoever queues requests knows when they came),
//! retries, and what a failure means.

mod config;
mod report;
mod table;

pub use config::{JoinError, SchedulerConfig, SubmitError, TaskKind};
pub use report::{Completed, DiskReport, SIZE_CLASSES, ServedCounts, ServiceRecord, TaskReport};

use crate::best_effort::{BestEffortQueue, Pick, Scope};
use crate::core::{Choice, Core, CoreOptions, JobKey, Service};
use crate::ordering::Ordering;
use crate::predict::Predictor;
use crate::profile::DriveProfile;
use crate::request::{Class, Decision, Dispatch, Request, RequestId, Served, Urgency};
use crate::server::{Open, PLAIN, Servers};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Sector, SectorCount, Time};
use alloc::sync::Arc;
use alloc::vec::Vec;
use report::size_class;
use table::{Table, TaskState};

/// A piece of a request that the disk is busy with.
#[derive(Clone, Copy, Debug)]
struct Flight {
    slot: u32,
    service: Service,
    dispatch: Dispatch,
    /// On whose account: a stream's or a server's task.
    task: Option<TaskId>,
    issued: Time,
}

/// A container that waits for its client's next request, at its own cost.
#[derive(Clone, Copy, Debug)]
struct Linger {
    service: Service,
    account: u32,
    until: Time,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    served: ServedCounts,
    missed: u64,
    lateness_max: Nanos,
    overruns: u64,
    predicted: Nanos,
    actual: Nanos,
    records: [ServiceRecord; SIZE_CLASSES],
}

/// The scheduler of one disk.
#[derive(Debug)]
pub struct DiskScheduler {
    profile: Arc<DriveProfile>,
    predictor: Predictor,
    config: SchedulerConfig,
    piece_sectors: Vec<SectorCount>,
    piece_max: Nanos,
    physical_sectors: u64,
    core: Core,
    table: Table,
    queue: BestEffortQueue,
    ordering: Ordering,
    servers: Servers,
    tasks: Vec<TaskState>,
    floor: Option<TaskId>,
    delta_l: Nanos,
    flights: Vec<Flight>,
    linger: Option<Linger>,
    /// The last sector that was transferred, if that is known.
    head: Option<Sector>,
    sequence: u64,
    /// Slots still to be promoted; kept to not allocate.
    to_promote: Vec<u32>,
    counters: Counters,
}

impl DiskScheduler {
    /// The scheduler of an idle disk.
    #[must_use]
    pub fn new(profile: Arc<DriveProfile>, config: SchedulerConfig) -> Self {
        let predictor = Predictor::new(&profile);
        let limit = config
            .piece_limit
            .unwrap_or_else(|| predictor.piece_limit());
        let zones = 0..predictor.zone_count();
        let core = Core::new(CoreOptions {
            policy: config.policy,
            burst_threshold: config
                .burst_threshold
                .unwrap_or_else(|| predictor.burst_threshold()),
            best_effort_share_percent: 100 - config.early_share_percent.min(100),
            outstanding: profile.outstanding(),
        });
        let slots = config.queue_max;
        Self {
            piece_sectors: zones
                .map(|zone| predictor.piece_sectors(zone, limit))
                .collect(),
            piece_max: predictor.piece_max(limit),
            physical_sectors: profile
                .physical_sector()
                .sectors()
                .map_or(1, SectorCount::get),
            table: Table::new(slots),
            queue: BestEffortQueue::new(
                slots,
                config.order,
                config.sync_age_limit,
                config.async_age_limit,
            ),
            ordering: Ordering::new(slots),
            servers: Servers::new(),
            tasks: Vec::new(),
            floor: None,
            delta_l: Nanos::ZERO,
            flights: Vec::with_capacity(profile.outstanding() as usize),
            linger: None,
            head: None,
            sequence: 0,
            to_promote: Vec::with_capacity(slots),
            counters: Counters::default(),
            core,
            predictor,
            profile,
            config,
        }
    }

    /// The profile it was made with.
    #[must_use]
    pub fn profile(&self) -> &Arc<DriveProfile> {
        &self.profile
    }

    /// The predictor it uses.
    #[must_use]
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// The longest that a piece of a best-effort request can be predicted to take; no slice of a
    /// periodic server may be shorter.
    #[must_use]
    pub fn piece_max(&self) -> Nanos {
        self.piece_max
    }

    /// How many requests are queued or on the disk.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is queued or on the disk.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Queues a request.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing is queued then.
    pub fn submit(&mut self, now: Time, request: Request) -> Result<(), SubmitError> {
        self.check(&request)?;
        match request.class {
            Class::Stream(task) => self.submit_stream(now, request, task),
            Class::Reserved(task, urgency) => {
                let state = self.task(task).ok_or(SubmitError::NoSuchTask(task))?;
                if state.leaving {
                    return Err(SubmitError::NoSuchTask(task));
                }
                if state.kind != TaskKind::Server {
                    return Err(SubmitError::WrongKind {
                        task,
                        kind: state.kind,
                    });
                }
                let account = self.servers.account(task).unwrap_or(PLAIN);
                self.submit_best_effort(now, request, account, urgency);
                Ok(())
            }
            Class::BestEffort(urgency) => {
                self.submit_best_effort(now, request, PLAIN, urgency);
                Ok(())
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let capacity = self.predictor.capacity();
        let end = request
            .start
            .checked_add(request.count)
            .map_or(u64::MAX, Sector::get);
        if request.count.is_zero() || end > capacity.get() {
            let (start, count) = (request.start.get(), request.count);
            return Err(SubmitError::OutOfRange {
                start,
                count,
                capacity,
            });
        }
        if self.table.find(request.id).is_some() {
            return Err(SubmitError::DuplicateId(request.id));
        }
        if self.table.is_full() {
            return Err(SubmitError::Full {
                max: self.config.queue_max,
            });
        }
        Ok(())
    }

    fn submit_stream(
        &mut self,
        now: Time,
        request: Request,
        task: TaskId,
    ) -> Result<(), SubmitError> {
        let range = request.start..request.start + request.count;
        let worst = self.predictor.worst_case(range, request.op, request.count);
        let state = self.task(task).ok_or(SubmitError::NoSuchTask(task))?;
        if state.leaving {
            return Err(SubmitError::NoSuchTask(task));
        }
        if state.kind != TaskKind::Stream {
            return Err(SubmitError::WrongKind {
                task,
                kind: state.kind,
            });
        }
        let service = state.params.service();
        if worst > service {
            return Err(SubmitError::LongerThanReserved { worst, service });
        }
        let window = self
            .core
            .arrive(now, task, JobKey(request.id.0), worst)
            .map_err(|_| SubmitError::NoSuchTask(task))?;
        let slot = self.table.insert(request, now);
        self.ordering.add_plain(slot);
        if let Some(state) = self.task_mut(task) {
            state.queued += 1;
            state.early += u64::from(window.release > now.saturating_add(Nanos(1)));
        }
        Ok(())
    }

    fn submit_best_effort(&mut self, now: Time, request: Request, account: u32, urgency: Urgency) {
        self.stop_lingering(now, Some(account));
        let slot = self.table.insert(request, now);
        self.sequence += 1;
        self.queue.push(slot, account, urgency, self.sequence, now);
        let (order, table) = (&request.order, &self.table);
        let after = order
            .after
            .iter()
            .flatten()
            .filter_map(|id| table.find(*id));
        let after = after.filter(|target| *target != slot);
        let ready = self.ordering.add(slot, order.space, order.barrier, after);
        if let Some(task) = self.account_task(account, &request) {
            task.queued += 1;
        }
        if ready {
            self.make_ready(now, slot);
        } else if urgency == Urgency::Sync {
            self.promote_blockers(slot);
        }
    }

    /// What a synchronous request waits for is served as synchronous too.
    fn promote_blockers(&mut self, slot: u32) {
        let mut next = Some(slot);
        while let Some(slot) = next {
            let (queue, table, to_promote) = (&mut self.queue, &self.table, &mut self.to_promote);
            self.ordering.blockers(slot, |blocker| {
                let stream = matches!(table.request(blocker).class, Class::Stream(_));
                if !stream && queue.promote(blocker) {
                    to_promote.push(blocker);
                }
            });
            next = self.to_promote.pop();
        }
    }

    /// What to do now. To be asked again after each event and after each `Issue`.
    pub fn decide(&mut self, now: Time) -> Decision {
        if self.flights.len() >= self.profile.outstanding() as usize {
            return Decision::Wait { until: None };
        }
        self.stop_lingering(now, None);
        if let Some(linger) = self.linger {
            return Decision::Wait {
                until: Some(linger.until),
            };
        }
        loop {
            let next_container = self.servers.advance(now, &mut self.core);
            let pick = self.pick(Scope::All, now);
            let choice = self
                .core
                .choose(now, pick.map(|(_, piece)| piece.predicted));
            if let Some(server) = self.servers.is_server(choice) {
                match self.serve_container(now, server) {
                    Some(decision) => return decision,
                    None => continue,
                }
            }
            match (choice, pick) {
                (Choice::RealTime(task, job), _) => {
                    return self.issue_stream(now, task, job, Served::RealTime);
                }
                (Choice::Early(task, job), _) => {
                    return self.issue_stream(now, task, job, Served::Early);
                }
                (Choice::BestEffort, Some((pick, piece))) => {
                    let service = Service::BestEffort(piece.predicted);
                    return self.issue_best_effort(now, pick, piece, service, None);
                }
                (Choice::BestEffort, None) => {
                    return Decision::Wait {
                        until: next_container,
                    };
                }
                (Choice::Wait { until }, _) => {
                    let until = [until, next_container].into_iter().flatten().min();
                    return Decision::Wait { until };
                }
            }
        }
    }

    /// The best-effort request that would go next, and the piece of it.
    fn pick(&self, scope: Scope, now: Time) -> Option<(Pick, Dispatch)> {
        let predict = |slot| self.piece(slot).predicted;
        let pick = self.queue.pick(scope, now, self.head, predict)?;
        Some((pick, self.piece(pick.slot)))
    }

    /// The next piece of a best-effort request, up to a zone boundary and ending on a whole physical
    /// sector if there is more to come.
    fn piece(&self, slot: u32) -> Dispatch {
        let (request, done) = (self.table.request(slot), self.table.done(slot));
        let start = request.start + done;
        let left = request.count - done;
        let zone = self.predictor.zone_of(start);
        let mut count = left.min(self.piece_sectors[zone]);
        if let Some(range) = self.predictor.zone_range(zone) {
            count = count.min(range.end.saturating_since(start));
        }
        if count < left {
            let end = (start + count).get();
            let whole = SectorCount(end - end % self.physical_sectors);
            let aligned = whole.saturating_sub(SectorCount(start.get()));
            count = if aligned.is_zero() { count } else { aligned };
        }
        let predicted = self.predictor.predict(self.head, request.op, start, count);
        Dispatch {
            id: request.id,
            op: request.op,
            start,
            count,
            offset: done,
            predicted,
            served: Served::Slack,
            deadline: None,
        }
    }

    /// A container's turn: its client's next request, or a short wait for one, or its end (`None`).
    fn serve_container(&mut self, now: Time, task: TaskId) -> Option<Decision> {
        let Open {
            account,
            key,
            deadline,
            left,
        } = self.servers.open(task, &self.core)?;
        match self.pick(Scope::Account(account), now) {
            Some((pick, mut piece)) if piece.predicted <= left => {
                let synchronous = self.queue.is_synchronous(pick.slot);
                self.servers.touch(task, synchronous);
                piece.deadline = Some(deadline);
                piece.served = Served::Container;
                let service = Service::Piece(task, key, piece.predicted);
                Some(self.issue_best_effort(now, pick, piece, service, Some(task)))
            }
            None if self.profile.outstanding() == 1 => {
                let wait = self.servers.linger(task).map(|wait| wait.min(left));
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    let service = Service::Piece(task, key, wait);
                    self.core.start(now, service);
                    self.linger = Some(Linger {
                        service,
                        account,
                        until: now + wait,
                    });
                    return Some(Decision::Wait {
                        until: Some(now + wait),
                    });
                }
                self.servers.end(now, task, &mut self.core);
                None
            }
            _ => {
                self.servers.end(now, task, &mut self.core);
                None
            }
        }
    }

    /// Ends a wait that is over, or that a request of this account has come to end.
    fn stop_lingering(&mut self, now: Time, account: Option<u32>) {
        if let Some(linger) = self.linger
            && (now >= linger.until || account == Some(linger.account))
        {
            self.linger = None;
            self.core.finish(now, linger.service);
            if let Service::Piece(task, ..) = linger.service {
                self.servers.settle(task, &self.core);
            }
        }
    }

    fn issue_stream(&mut self, now: Time, task: TaskId, job: JobKey, served: Served) -> Decision {
        let slot = self
            .table
            .find(RequestId(job.0))
            .expect("a stream's job is a queued request");
        let request = *self.table.request(slot);
        let window = self.core.window(task, job);
        let dispatch = Dispatch {
            id: request.id,
            op: request.op,
            start: request.start,
            count: request.count,
            offset: SectorCount::ZERO,
            predicted: self
                .predictor
                .predict(self.head, request.op, request.start, request.count),
            served,
            deadline: window.map(|window| window.deadline),
        };
        self.issue(now, slot, dispatch, Service::Job(task, job), Some(task))
    }

    fn issue_best_effort(
        &mut self,
        now: Time,
        pick: Pick,
        piece: Dispatch,
        service: Service,
        task: Option<TaskId>,
    ) -> Decision {
        let account = self.queue.account(pick.slot);
        self.queue.take(pick);
        self.servers.made_unready(now, account, &mut self.core);
        self.issue(now, pick.slot, piece, service, task)
    }

    fn issue(
        &mut self,
        now: Time,
        slot: u32,
        dispatch: Dispatch,
        service: Service,
        task: Option<TaskId>,
    ) -> Decision {
        self.core.start(now, service);
        self.flights.push(Flight {
            slot,
            service,
            dispatch,
            task,
            issued: now,
        });
        Decision::Issue(dispatch)
    }

    /// The disk has completed the piece of this request that was on it. `None`: none was.
    pub fn completed(&mut self, now: Time, id: RequestId) -> Option<Completed> {
        let flight = self.land(now, id)?;
        let Flight { slot, dispatch, .. } = flight;
        self.head = Some(Sector((dispatch.start + dispatch.count).get() - 1));
        let request = *self.table.request(slot);
        let finished = self.table.advance(slot, dispatch.count) == request.count;
        let completed = self.count(now, &flight, &request, finished);
        if finished {
            self.forget(now, slot, &request, true);
        } else {
            self.make_ready(now, slot);
        }
        Some(completed)
    }

    /// The disk has failed the piece of this request that was on it; the request is gone, and those
    /// that waited for it may start unless they are cancelled. `None`: none was on it.
    pub fn failed(&mut self, now: Time, id: RequestId) -> Option<Completed> {
        let flight = self.land(now, id)?;
        self.head = None;
        let request = *self.table.request(flight.slot);
        let completed = self.count(now, &flight, &request, true);
        self.forget(now, flight.slot, &request, false);
        Some(completed)
    }

    fn land(&mut self, now: Time, id: RequestId) -> Option<Flight> {
        let place = self
            .flights
            .iter()
            .position(|flight| flight.dispatch.id == id)?;
        let flight = self.flights.swap_remove(place);
        self.core.finish(now, flight.service);
        if let Service::Piece(task, ..) = flight.service {
            self.servers.settle(task, &self.core);
        }
        Some(flight)
    }

    fn count(
        &mut self,
        now: Time,
        flight: &Flight,
        request: &Request,
        finished: bool,
    ) -> Completed {
        let Dispatch {
            predicted,
            served,
            deadline,
            count,
            ..
        } = flight.dispatch;
        let actual = now.saturating_since(flight.issued);
        let lateness = deadline.map_or(Nanos::ZERO, |deadline| now.saturating_since(deadline));
        let overrun = actual.saturating_sub(predicted);
        let (missed, overran) = (!lateness.is_zero(), !overrun.is_zero());
        let counters = &mut self.counters;
        counters.served.add(served);
        counters.missed += u64::from(missed);
        counters.lateness_max = counters.lateness_max.max(lateness);
        counters.overruns += u64::from(overran);
        counters.predicted += predicted;
        counters.actual += actual;
        counters.records[size_class(count.get())].add(predicted, actual);
        if let Some(task) = flight.task.and_then(|task| self.task_mut(task)) {
            task.missed += u64::from(missed);
            task.lateness_max = task.lateness_max.max(lateness);
            task.overruns += u64::from(overran);
        }
        let submitted = self.table.submitted(flight.slot);
        let class = request.class;
        Completed {
            finished,
            class,
            served,
            deadline,
            lateness,
            submitted,
            predicted,
            actual,
            overrun,
        }
    }

    /// A request that is neither ready nor on the disk is gone: complete, failed or cancelled.
    fn forget(&mut self, now: Time, slot: u32, request: &Request, completed: bool) {
        match request.class {
            Class::Stream(task) => {
                if let Some(place) = self.task_place(task) {
                    let state = &mut self.tasks[place];
                    state.queued -= 1;
                    state.completed += u64::from(completed);
                    if state.leaving && state.queued == 0 {
                        self.tasks.remove(place);
                    }
                }
            }
            Class::Reserved(..) | Class::BestEffort(_) => {
                let account = self.queue.account(slot);
                self.queue.remove(slot);
                if let Some(task) = self.account_task(account, request) {
                    task.queued -= 1;
                    task.completed += u64::from(completed);
                }
            }
        }
        self.ordering.remove(slot);
        self.table.remove(slot);
        while let Some(ready) = self.ordering.next_ready() {
            self.make_ready(now, ready);
        }
    }

    fn make_ready(&mut self, now: Time, slot: u32) {
        let at = self.table.request(slot).start + self.table.done(slot);
        self.queue.make_ready(slot, at);
        self.servers
            .made_ready(now, self.queue.account(slot), &mut self.core);
    }

    /// Takes a request off the queue. `false`: it is on the disk, or unknown.
    pub fn cancel(&mut self, now: Time, id: RequestId) -> bool {
        let Some(slot) = self.table.find(id) else {
            return false;
        };
        if self.flights.iter().any(|flight| flight.slot == slot) {
            return false;
        }
        let request = *self.table.request(slot);
        if let Class::Stream(task) = request.class {
            self.core.withdraw(now, task, JobKey(id.0));
        } else if self.queue.is_ready(slot) {
            self.queue.make_unready(slot);
            self.servers
                .made_unready(now, self.queue.account(slot), &mut self.core);
        }
        self.forget(now, slot, &request, false);
        true
    }

    /// Lets an admitted task join. Returns its first release: not before `first_release`, and where
    /// best effort has already been given the time it would need, the first safe instant after.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(
        &mut self,
        now: Time,
        id: TaskId,
        params: TaskParams,
        kind: TaskKind,
        first_release: Time,
    ) -> Result<Time, JoinError> {
        let place = match self.tasks.binary_search_by_key(&id, |task| task.id) {
            Ok(_) => return Err(JoinError::DuplicateTask(id)),
            Err(place) => place,
        };
        if self.tasks.len() >= self.config.tasks_max {
            return Err(JoinError::Full {
                max: self.config.tasks_max,
            });
        }
        if let (TaskKind::Floor, Some(floor)) = (kind, self.floor) {
            return Err(JoinError::SecondFloor(floor));
        }
        let (slice, piece_max) = (params.service(), self.piece_max);
        if kind != TaskKind::Stream && slice < piece_max {
            return Err(JoinError::SliceTooShort { slice, piece_max });
        }
        self.stop_lingering(now, None);
        let release = self.core.join(now, id, params, first_release);
        let mut state = TaskState::new(id, kind, params);
        if kind == TaskKind::Floor {
            state.queued = self.queued_plain();
        }
        self.tasks.insert(place, state);
        if kind != TaskKind::Stream {
            let account = self.servers.join(id, kind, slice, release);
            self.queue.admit_account(account);
        }
        if kind == TaskKind::Floor {
            self.floor = Some(id);
        }
        Ok(release)
    }

    /// Lets a task leave. A stream's queued requests are still served, and its share is kept for
    /// them: cancel before leaving what need not be. A server's requests go on without a
    /// reservation. Returns the instant from which its share is free. `None`: no such task.
    pub fn leave(&mut self, now: Time, id: TaskId) -> Option<Time> {
        let place = self.task_place(id)?;
        let TaskState {
            kind,
            leaving,
            queued,
            ..
        } = self.tasks[place];
        if !leaving && kind != TaskKind::Stream {
            self.dissolve(now, id);
        }
        let free_from = self.core.leave(now, id);
        self.tasks[place].leaving = true;
        if kind == TaskKind::Floor {
            self.floor = None;
        }
        if kind != TaskKind::Stream || queued == 0 {
            self.tasks.remove(place);
        }
        Some(free_from.unwrap_or(now))
    }

    /// A server is no more: what is queued for it becomes plain best effort.
    fn dissolve(&mut self, now: Time, task: TaskId) {
        if self
            .linger
            .is_some_and(|linger| matches!(linger.service, Service::Piece(of, ..) if of == task))
        {
            let account = self.linger.map(|linger| linger.account);
            self.stop_lingering(now, account);
        }
        let account = self.servers.account(task).unwrap_or(PLAIN);
        while account != PLAIN
            && let Some(slot) = self.queue.oldest_of(account)
        {
            let ready = self.queue.is_ready(slot);
            if ready {
                self.servers.made_unready(now, account, &mut self.core);
            }
            self.queue.move_to(slot, PLAIN);
            if let Some(floor) = self.floor.and_then(|floor| self.task_mut(floor)) {
                floor.queued += 1;
            }
            if ready {
                self.servers.made_ready(now, PLAIN, &mut self.core);
            }
        }
        self.servers.leave(now, task, &mut self.core);
    }

    /// Corrected delta-L of the tasks on the disk from now on; to be called with every join and leave.
    /// Enough for every policy but `delta-l-published`.
    pub fn set_delta_l(&mut self, now: Time, corrected: Nanos) {
        self.set_delta_l_both(now, corrected, corrected);
    }

    /// The same with delta-L as published, which the policy of that name goes by.
    pub fn set_delta_l_both(&mut self, now: Time, corrected: Nanos, published: Nanos) {
        self.delta_l = corrected;
        self.core.set_delta_l(now, corrected, published);
    }

    /// Actual against predicted times by size class: class n has pieces of 2^n sectors and more.
    #[must_use]
    pub fn service_records(&self) -> &[ServiceRecord; SIZE_CLASSES] {
        &self.counters.records
    }

    /// What happened so far and how things stand.
    pub fn report(&mut self, now: Time) -> DiskReport {
        let utilization: u128 = self.tasks.iter().map(|task| task.utilization_ppb()).sum();
        let slack = self.core.slack(now);
        let [queued_sync, queued_async] = self.queue.queued();
        let streams = self
            .tasks
            .iter()
            .filter(|task| task.kind == TaskKind::Stream);
        let Counters {
            served,
            missed,
            lateness_max,
            overruns,
            predicted,
            actual,
            ..
        } = self.counters;
        DiskReport {
            utilization_ppm: u64::try_from(utilization.div_ceil(1_000)).unwrap_or(u64::MAX),
            delta_l: self.delta_l,
            slack: (slack != Nanos::MAX).then_some(slack),
            floor: self.floor,
            queued_stream: streams.map(|task| task.queued).sum(),
            queued_sync,
            queued_async,
            served,
            missed,
            lateness_max,
            overruns,
            predicted,
            actual,
            tasks: self.tasks.iter().map(TaskState::report).collect(),
        }
    }

    /// Best-effort requests without a reservation.
    fn queued_plain(&self) -> u64 {
        let reserved = self
            .tasks
            .iter()
            .filter(|task| task.kind == TaskKind::Server);
        self.queue.queued().iter().sum::<u64>() - reserved.map(|task| task.queued).sum::<u64>()
    }

    fn task_place(&self, id: TaskId) -> Option<usize> {
        self.tasks.binary_search_by_key(&id, |task| task.id).ok()
    }

    fn task(&self, id: TaskId) -> Option<&TaskState> {
        self.task_place(id).map(|place| &self.tasks[place])
    }

    fn task_mut(&mut self, id: TaskId) -> Option<&mut TaskState> {
        self.task_place(id).map(|place| &mut self.tasks[place])
    }

    /// The task whose requests an account holds: its server's, or the floor.
    fn account_task(&mut self, account: u32, request: &Request) -> Option<&mut TaskState> {
        let task = match request.class {
            Class::Reserved(task, _) if account != PLAIN => Some(task),
            _ => self.floor,
        };
        task.and_then(|task| self.task_mut(task))
    }
}

#[cfg(test)]
mod tests;
