//! The end of what was on the disk: what it frees, and what is counted of it.

use super::report::Completed;
use super::{DiskScheduler, Flight};
use crate::core::Service;
use crate::request::{Class, Dispatch, Request, RequestId, Served};
use crate::task::TaskId;
use crate::units::{Nanos, Time};

/// Result of a piece on the disk.
pub(super) struct Outcome {
    served: Served,
    deadline: Option<Time>,
    lateness: Nanos,
    predicted: Nanos,
    actual: Nanos,
    overrun: Nanos,
}

impl Outcome {
    /// The piece as one of a request.
    pub(super) fn of(self, class: Class, submitted: Time, finished: bool) -> Completed {
        let Self {
            served,
            deadline,
            lateness,
            predicted,
            actual,
            overrun,
        } = self;
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
}

impl DiskScheduler {
    /// The disk has completed the piece of this request that was on it. `None`: none was.
    pub fn completed(&mut self, now: Time, id: RequestId) -> Option<Completed> {
        if let Some(passed) = self.passed(now, id, true) {
            return Some(passed);
        }
        let flight = self.land(now, id)?;
        let Flight {
            slot,
            dispatch,
            service,
            ..
        } = flight;
        if let Service::Swept(..) = service {
            // The next of the sweep was planned from here.
            self.head = Some(dispatch.last());
        } else {
            self.note_head(Some(dispatch.last()));
        }
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
        let passed = self.passed(now, id, false);
        self.note_head(None);
        if passed.is_some() {
            return passed;
        }
        let flight = self.land(now, id)?;
        let request = *self.table.request(flight.slot);
        let completed = self.count(now, &flight, &request, true);
        self.forget(now, flight.slot, &request, false);
        Some(completed)
    }

    pub(super) fn land(&mut self, now: Time, id: RequestId) -> Option<Flight> {
        let place = self
            .flights
            .iter()
            .position(|flight| flight.dispatch.id == id)?;
        let flight = self.flights.swap_remove(place);
        self.advance(now);
        self.core.finish_one(now, flight.service, flight.issued);
        match flight.service {
            Service::Piece(task, ..) => self.servers.settle(task, &self.core),
            Service::Swept(task, ..) => self.sweeps.ended(now, task, &mut self.core),
            Service::Job(..) | Service::BestEffort(_) => {}
        }
        Some(flight)
    }

    pub(super) fn count(
        &mut self,
        now: Time,
        flight: &Flight,
        request: &Request,
        finished: bool,
    ) -> Completed {
        let submitted = self.table.submitted(flight.slot);
        let outcome = self.tally(now, flight.issued, &flight.dispatch, flight.task);
        outcome.of(request.class, submitted, finished)
    }

    /// Counts what has been on the disk since `issued`, for all and for its task.
    pub(super) fn tally(
        &mut self,
        now: Time,
        issued: Time,
        dispatch: &Dispatch,
        task: Option<TaskId>,
    ) -> Outcome {
        let Dispatch {
            predicted,
            served,
            deadline,
            ..
        } = *dispatch;
        let actual = now.saturating_since(issued);
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
        if let Some(task) = task.and_then(|task| self.task_mut(task)) {
            task.missed += u64::from(missed);
            task.lateness_max = task.lateness_max.max(lateness);
            task.overruns += u64::from(overran);
        }
        Outcome {
            served,
            deadline,
            lateness,
            predicted,
            actual,
            overrun,
        }
    }

    /// A request that is neither ready nor on the disk is gone: complete, failed or cancelled.
    pub(super) fn forget(&mut self, now: Time, slot: u32, request: &Request, completed: bool) {
        match request.class {
            Class::Stream(task) | Class::Swept(task, _) => {
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

    pub(super) fn make_ready(&mut self, now: Time, slot: u32) {
        let at = self.table.request(slot).start + self.table.done(slot);
        self.queue.make_ready(slot, at);
        self.servers
            .made_ready(now, self.queue.account(slot), &mut self.core);
    }
}
