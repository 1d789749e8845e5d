//! What the control plane asks: tasks that join and leave, delta-L, how things stand.

use sched::disk::{JoinError, TaskKind};
use sched::request::{Class, RequestId};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Time};

use super::super::counters::TaskCounters;
use super::{DispatcherReport, DispatcherState, Entry, Health, LeaveReply, Phase};
use crate::completion::IoError;

impl DispatcherState {
    /// Lets an admitted task join.
    ///
    /// # Errors
    /// Those of [`DiskScheduler::join`](sched::disk::DiskScheduler::join).
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
        if kind == TaskKind::Floor {
            self.floor = Some(id);
        }
        Ok(())
    }

    /// Whether a stream or a client has been promised a share of the disk. The floor promises nobody
    /// anything as long as there is nobody else.
    #[must_use]
    pub fn has_promises(&self) -> bool {
        self.counters.tasks.len() > usize::from(self.floor.is_some())
    }

    /// Lets a task leave: its queued stream requests are cancelled, and once none is on the disk `reply`
    /// is called with the instant from which its share is free (`None`: no such task).
    pub fn leave(&mut self, now: Time, id: TaskId, reply: LeaveReply) {
        let now = self.event(now);
        self.fail_queued(now, IoError::Cancelled, |entry| {
            entry.class.of_stream() == Some(id)
        });
        self.leaving.push((id, reply));
        self.retry_leaves(now);
    }

    /// The time of a task is over: what it has queued, or will yet have, that is due after
    /// `last_deadline` is cancelled. A stream that asked for more than it had reserved would otherwise
    /// stay for as long as its requests are early.
    pub fn end_span(&mut self, now: Time, id: TaskId, last_deadline: Time) {
        let now = self.event(now);
        if !self.counters.tasks.contains_key(&id) {
            return;
        }
        self.ending.push((id, last_deadline));
        for index in 0..self.entries.len() {
            let outlives = |entry: &Entry| {
                entry.phase == Phase::Queued && self.outlives(entry.id, entry.class)
            };
            let entry = self.entries[index].as_ref();
            if let Some(id) = entry.filter(|entry| outlives(entry)).map(|entry| entry.id) {
                self.scheduler.cancel(now, id);
                self.finish(id, Err(IoError::Cancelled), now);
            }
        }
        self.retry_leaves(now);
    }

    /// Whether a queued request is due after the time of its task.
    pub(super) fn outlives(&self, id: RequestId, class: Class) -> bool {
        let Some(task) = class.of_stream() else {
            return false;
        };
        let ending = self.ending.iter().find(|(ending, _)| *ending == task);
        ending.is_some_and(|(_, last_deadline)| {
            let due = self.scheduler.deadline(id);
            due.is_some_and(|due| due > *last_deadline)
        })
    }

    pub(super) fn retry_leaves(&mut self, now: Time) {
        let mut at = 0;
        while at < self.leaving.len() {
            let task = self.leaving[at].0;
            let busy = self
                .entries
                .iter()
                .flatten()
                .any(|entry| entry.class.of_stream() == Some(task) && entry.target.is_some());
            if busy {
                at += 1;
                continue;
            }
            let (_, reply) = self.leaving.swap_remove(at);
            let free_from = self.scheduler.leave(now, task);
            self.counters.tasks.remove(&task);
            self.ending.retain(|(ending, _)| *ending != task);
            self.floor = self.floor.filter(|floor| *floor != task);
            reply(free_from);
        }
    }

    /// Tells the scheduler delta-L of the tasks that have joined, corrected and as published.
    pub fn set_delta_l(&mut self, now: Time, corrected: Nanos, published: Nanos) {
        let now = self.event(now);
        self.scheduler.set_delta_l(now, corrected, published);
    }

    /// What is wrong, and for how long pieces have been on the disk without one being completed.
    #[must_use]
    pub fn health(&self, now: Time) -> (Health, Nanos) {
        let silent = if self.on_disk > 0 {
            now.saturating_since(self.progress)
        } else {
            Nanos::ZERO
        };
        (self.health, silent)
    }

    /// How things stand.
    pub fn report(&mut self, now: Time) -> DispatcherReport {
        let now = self.event(now);
        let mut counters = self.counters.clone();
        let (health, silent) = self.health(now);
        counters.busy += silent;
        DispatcherReport {
            at: now,
            scheduler: self.scheduler.report(now),
            counters,
            health,
            requests: self.live,
            on_disk: self.on_disk,
            silent,
        }
    }
}
