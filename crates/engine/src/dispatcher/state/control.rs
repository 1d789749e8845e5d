//! Calls of the control plane: joining and leaving tasks, delta-L, and reports.

use std::ops::Range;

use sched::disk::{DiskReport, JoinError, TaskKind};
use sched::request::{Class, RequestId};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, Time};

use super::super::counters::{Counters, TaskCounters};
use super::super::slots::index_of;
use super::{DispatcherState, Entry, Health, LeaveReply, Phase};
use crate::completion::IoError;

/// A report on a disk.
#[derive(Clone, Debug)]
pub struct DispatcherReport {
    /// Time of the report.
    pub at: Time,
    /// The scheduler's view, in the disk's time.
    pub scheduler: DiskReport,
    /// Counters of requests, net of the host's lateness.
    pub counters: Counters,
    /// The disk's health.
    pub health: Health,
    /// Requests queued or on the disk.
    pub requests: usize,
    /// Pieces on the disk.
    pub on_disk: usize,
    /// Time for which it has held pieces without completing one.
    pub silent: Nanos,
}

impl DispatcherState {
    /// Cancels a request if it is not on the disk.
    pub fn cancel(&mut self, now: Time, id: RequestId) {
        let now = self.event(now);
        let queued = self.entries.get(index_of(id)).and_then(Option::as_ref);
        if queued.is_some_and(|entry| entry.id == id && entry.phase == Phase::Queued)
            && self.scheduler.cancel(now, id)
        {
            self.finish(id, Err(IoError::Cancelled), now);
        }
    }

    /// Adds an admitted task.
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

    /// True if a stream or a client has a reservation on the disk. The floor alone is no reservation that
    /// matters, because nothing competes with it.
    #[must_use]
    pub fn has_promises(&self) -> bool {
        self.counters.tasks.len() > usize::from(self.floor.is_some())
    }

    /// Removes a task and cancels its queued stream requests. Once none is on the disk, calls `reply` with the
    /// time from which the task's share is free (`None`: no such task).
    pub fn leave(&mut self, now: Time, id: TaskId, reply: LeaveReply) {
        let now = self.event(now);
        self.fail_queued(now, IoError::Cancelled, |entry| {
            entry.class.of_stream() == Some(id)
        });
        self.leaving.push((id, reply));
        self.retry_leaves(now);
    }

    /// Ends the span of a task: queued and future requests that are due after `last_deadline` are cancelled.
    /// Without this, a stream that exceeded its rate would stay as long as its requests are early.
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

    /// True if a queued request is due after the end of its task's span.
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

    /// Sets delta-L for the tasks that have joined, corrected and as published.
    pub fn set_delta_l(&mut self, now: Time, corrected: Nanos, published: Nanos) {
        let now = self.event(now);
        self.scheduler.set_delta_l(now, corrected, published);
    }

    /// Best effort in this stretch of the disk takes longer than its profile says.
    pub fn set_slow(&mut self, range: Range<Sector>, extra: Nanos) {
        self.scheduler.set_slow(range, extra);
    }

    /// The disk's health, and the time for which it has held pieces without completing one.
    #[must_use]
    pub fn health(&self, now: Time) -> (Health, Nanos) {
        let silent = if self.on_disk > 0 {
            now.saturating_since(self.progress)
        } else {
            Nanos::ZERO
        };
        let health = Health {
            overruns: self.counters.overruns.count,
            misses: self.counters.missed.count,
            ..self.health
        };
        (health, silent)
    }

    /// A report of the current state.
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
