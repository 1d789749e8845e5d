//! Tasks that join and leave, and whose task a request belongs to.

use super::DiskScheduler;
use super::config::{JoinError, TaskKind};
use super::table::TaskState;
use crate::core::Service;
use crate::request::{Class, Request};
use crate::server::PLAIN;
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};

impl DiskScheduler {
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
        let sweeps = self.serves_sweeps();
        if kind
            == if sweeps {
                TaskKind::Stream
            } else {
                TaskKind::Sweep
            }
        {
            return Err(JoinError::NotSoServed {
                task: id,
                kind,
                sweeps,
            });
        }
        let is_server = matches!(kind, TaskKind::Server | TaskKind::Floor);
        let (slice, piece_max) = (params.service(), self.piece_max);
        if is_server && slice < piece_max {
            return Err(JoinError::SliceTooShort { slice, piece_max });
        }
        let longest = params.longest();
        if is_server && longest < piece_max {
            return Err(JoinError::PieceTooLong { longest, piece_max });
        }
        self.advance(now);
        self.stop_lingering(now, None);
        if self.core.has_task(now, id) {
            return Err(JoinError::DuplicateTask(id));
        }
        let release = self.core.join(now, id, params, first_release);
        let mut state = TaskState::new(id, kind, params);
        if kind == TaskKind::Floor {
            state.queued = self.queued_plain();
        }
        self.tasks.insert(place, state);
        if kind == TaskKind::Sweep {
            self.sweeps.join(id, params, release, self.config.queue_max);
        }
        if is_server {
            let account = self.servers.join(id, kind, params, release);
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
        self.advance(now);
        let place = self.task_place(id)?;
        let TaskState {
            kind,
            leaving,
            queued,
            ..
        } = self.tasks[place];
        let is_server = matches!(kind, TaskKind::Server | TaskKind::Floor);
        if !leaving && is_server {
            self.dissolve(now, id);
        }
        let free_from = match &self.streams_within {
            Some(within) if kind == TaskKind::Sweep => {
                let where_they_lie = (&self.predictor, within);
                self.sweeps.leave(now, id, where_they_lie, &mut self.core)
            }
            _ => self.core.leave(now, id),
        };
        self.tasks[place].leaving = true;
        if kind == TaskKind::Floor {
            self.floor = None;
        }
        if is_server || queued == 0 {
            self.tasks.remove(place);
        }
        Some(free_from.unwrap_or(now))
    }

    /// A server is no more: what is queued for it becomes plain best effort.
    pub(super) fn dissolve(&mut self, now: Time, task: TaskId) {
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

    /// Delta-L of the tasks on the disk from now on, corrected, and as published, which only the policy of
    /// that name goes by; to be called with every join and leave.
    pub fn set_delta_l(&mut self, now: Time, corrected: Nanos, published: Nanos) {
        self.delta_l = corrected;
        self.core.set_delta_l(now, corrected, published);
    }

    /// Best-effort requests without a reservation.
    pub(super) fn queued_plain(&self) -> u64 {
        let reserved = self
            .tasks
            .iter()
            .filter(|task| task.kind == TaskKind::Server);
        self.queue.queued().iter().sum::<u64>() - reserved.map(|task| task.queued).sum::<u64>()
    }

    pub(super) fn task_place(&self, id: TaskId) -> Option<usize> {
        self.tasks.binary_search_by_key(&id, |task| task.id).ok()
    }

    pub(super) fn task(&self, id: TaskId) -> Option<&TaskState> {
        self.task_place(id).map(|place| &self.tasks[place])
    }

    pub(super) fn task_mut(&mut self, id: TaskId) -> Option<&mut TaskState> {
        self.task_place(id).map(|place| &mut self.tasks[place])
    }

    /// The task whose requests an account holds: its server's, or the floor.
    pub(super) fn account_task(
        &mut self,
        account: u32,
        request: &Request,
    ) -> Option<&mut TaskState> {
        let task = match request.class {
            Class::Reserved(task, _) if account != PLAIN => Some(task),
            _ => self.floor,
        };
        task.and_then(|task| self.task_mut(task))
    }
}
