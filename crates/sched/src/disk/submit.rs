//! Taking a request, and taking it back.

use super::DiskScheduler;
use super::config::{OverPrediction, SubmitError, TaskKind};
use super::pass::Passing;
use crate::core::JobKey;
use crate::request::{Class, Request, RequestId, Urgency};
use crate::server::PLAIN;
use crate::task::TaskId;
use crate::units::{Nanos, Sector, SectorCount, Time};

impl DiskScheduler {
    /// Queues a request.
    ///
    /// # Errors
    /// See [`SubmitError`]; nothing is queued then.
    pub fn submit(&mut self, now: Time, request: Request) -> Result<(), SubmitError> {
        self.check(&request)?;
        self.advance(now);
        match request.class {
            Class::Stream(task) => self.submit_stream(now, request, task),
            Class::Swept(task, member) => self.submit_swept(now, request, task, member),
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

    pub(super) fn check(&self, request: &Request) -> Result<(), SubmitError> {
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
        let passes = |passing: &Passing| passing.id() == request.id;
        if self.table.find(request.id).is_some() || self.passing.as_ref().is_some_and(passes) {
            return Err(SubmitError::DuplicateId(request.id));
        }
        if self.table.is_full() {
            return Err(SubmitError::Full {
                max: self.config.queue_max,
            });
        }
        Ok(())
    }

    pub(super) fn submit_stream(
        &mut self,
        now: Time,
        request: Request,
        task: TaskId,
    ) -> Result<(), SubmitError> {
        let worst = self.worst(&request)?;
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
        let Request {
            op, start, count, ..
        } = request;
        // A request that ends with a track may be longer than those of admission, and yet take no longer.
        let worst = if worst > service {
            worst.min(self.predictor.worst_known(op, start, count))
        } else {
            worst
        };
        if worst > service {
            return Err(SubmitError::LongerThanReserved { worst, service });
        }
        let cost = match self.config.over_prediction {
            OverPrediction::Unused => service,
            OverPrediction::Known | OverPrediction::Given => worst,
        };
        let window = self
            .core
            .arrive(now, task, JobKey(request.id.0), cost)
            .map_err(|_| SubmitError::NoSuchTask(task))?;
        let slot = self.table.insert(request, now);
        self.ordering.add_plain(slot);
        if let Some(state) = self.task_mut(task) {
            state.queued += 1;
            state.early += u64::from(window.release > now.saturating_add(Nanos(1)));
        }
        Ok(())
    }

    fn submit_swept(
        &mut self,
        now: Time,
        request: Request,
        task: TaskId,
        member: u32,
    ) -> Result<(), SubmitError> {
        let Request {
            op, start, count, ..
        } = request;
        self.check_within(start, count)?;
        let state = self.task(task).ok_or(SubmitError::NoSuchTask(task))?;
        if state.leaving {
            return Err(SubmitError::NoSuchTask(task));
        }
        let kind = state.kind;
        let service = self.sweeps.longest_of(task);
        let service = service.ok_or(SubmitError::WrongKind { task, kind })?;
        let worst = self.predictor.swept(op, start, count);
        if worst > service {
            return Err(SubmitError::LongerThanReserved { worst, service });
        }
        let slot = self.table.insert(request, now);
        self.ordering.add_plain(slot);
        self.sweeps.wait(now, task, member, &request, worst);
        if let Some(state) = self.task_mut(task) {
            state.queued += 1;
        }
        Ok(())
    }

    /// The longest that a stream's request takes from wherever admission takes the arm to be.
    fn worst(&self, request: &Request) -> Result<Nanos, SubmitError> {
        let Request {
            op, start, count, ..
        } = *request;
        let Some(within) = &self.streams_within else {
            return Ok(self.predictor.worst_case(start..start + count, op, count));
        };
        self.check_within(start, count)?;
        Ok(self.predictor.worst_within(within, op, start, count))
    }

    /// Checks that a stream's request lies within the sectors of streams.
    fn check_within(&self, start: Sector, count: SectorCount) -> Result<(), SubmitError> {
        match &self.streams_within {
            Some(within) if start < within.start || start + count > within.end => {
                Err(SubmitError::OutsideOfStreams {
                    start: start.get(),
                    count,
                    first: within.start.get(),
                    end: within.end.get(),
                })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn submit_best_effort(
        &mut self,
        now: Time,
        request: Request,
        account: u32,
        urgency: Urgency,
    ) {
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

    /// Requests that a synchronous request waits for are served as synchronous too.
    pub(super) fn promote_blockers(&mut self, slot: u32) {
        let mut next = Some(slot);
        while let Some(slot) = next {
            let (queue, table, to_promote) = (&mut self.queue, &self.table, &mut self.to_promote);
            self.ordering.blockers(slot, |blocker| {
                let is_stream = table.request(blocker).class.of_stream().is_some();
                if !is_stream && queue.promote(blocker) {
                    to_promote.push(blocker);
                }
            });
            next = self.to_promote.pop();
        }
    }

    /// When a stream's queued request is due; `None` for others, for what is on the disk, and for what waits
    /// for a sweep.
    #[must_use]
    pub fn deadline(&self, id: RequestId) -> Option<Time> {
        let request = self.table.request(self.table.find(id)?);
        match request.class {
            Class::Stream(task) => {
                let window = self.core.window(task, JobKey(id.0));
                window.map(|window| window.deadline)
            }
            Class::Swept(task, _) => self.sweeps.deadline(task, id),
            Class::Reserved(..) | Class::BestEffort(_) => None,
        }
    }

    /// Takes a request off the queue. `false`: it is on the disk, in a sweep that was planned with it, or unknown.
    pub fn cancel(&mut self, now: Time, id: RequestId) -> bool {
        let Some(slot) = self.table.find(id) else {
            return false;
        };
        if self.flights.iter().any(|flight| flight.slot == slot) {
            return false;
        }
        self.advance(now);
        let request = *self.table.request(slot);
        if let Class::Swept(task, _) = request.class {
            if !self.sweeps.cancel(task, id) {
                return false;
            }
        } else if let Class::Stream(task) = request.class {
            self.core.withdraw(now, task, JobKey(id.0));
        } else if self.queue.is_ready(slot) {
            self.queue.make_unready(slot);
            self.servers
                .made_unready(now, self.queue.account(slot), &mut self.core);
        }
        self.forget(now, slot, &request, false);
        true
    }
}
