//! The jobs of one task: releases and deadlines (thesis 6.3.2).
//!
//! A job takes the first free *slot* of its task: it is released when it arrives or when the job
//! before it is due, whichever is later, and is due a period after that. A client that asks for more than it
//! reserved therefore gets releases further and further in the future, and delays no other client.
//!
//! A slot is spent once anything of its job was served. A job that is withdrawn untouched gives its
//! slot back, and later jobs of the task move up; their new deadlines are never earlier than the one
//! that was given back, so no demand grows. There is one exception: the first job of the queue was
//! counted with its own cost, and if that is less than the task's C then slack may have been given
//! away on the strength of it. Such a slot is spent.

use crate::core::{JobKey, Window};
use crate::slack::Line;
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};
use alloc::collections::VecDeque;

/// A queued request of a task, or a container of a periodic server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) key: JobKey,
    pub(crate) arrival: Time,
    pub(crate) window: Window,
    /// Remaining cost, less the pieces in service.
    pub(crate) remaining: Nanos,
    /// True if any of it was started.
    pub(crate) touched: bool,
    /// Number of its pieces in service.
    pub(crate) pieces: u32,
    /// True for a sweep that has begun.
    pub(crate) is_sweep: bool,
    /// True if best effort was served in the time by which the job is shorter than the task's C.
    pub(crate) charged: bool,
    /// Time of the way back after a sweep that has interrupted this one; part of the remaining cost.
    pub(crate) comes_back: Nanos,
}

impl Job {
    /// A piece of it is started.
    pub(crate) fn take(&mut self, cost: Nanos) {
        let left = self.remaining.checked_sub(cost);
        self.remaining = left.expect("a piece fits in what is left of its job");
        self.touched = true;
        self.pieces += 1;
    }

    /// Best effort that goes before it takes so much of the time that was promised to it.
    pub(crate) fn charge(&mut self, cost: Nanos) {
        self.remaining += cost;
        self.charged = true;
    }
}

/// A task and its queue, in order of deadline.
#[derive(Clone, Debug)]
pub(crate) struct TaskJobs {
    pub(crate) id: TaskId,
    pub(crate) params: TaskParams,
    /// The deadline of the last slot that is spent, or the first release of a new task.
    pub(crate) spent_until: Time,
    first_release: Time,
    pub(crate) queue: VecDeque<Job>,
    /// The task takes no more jobs.
    pub(crate) leaving: bool,
    /// Whole jobs of it in service.
    pub(crate) in_service: u32,
}

impl TaskJobs {
    pub(crate) fn new(id: TaskId, params: TaskParams, first_release: Time) -> Self {
        let queue = VecDeque::with_capacity(4);
        Self {
            id,
            params,
            spent_until: first_release,
            first_release,
            queue,
            leaving: false,
            in_service: 0,
        }
    }

    /// Begins the task here, with no slot spent.
    pub(crate) fn begin_at(&mut self, first_release: Time) {
        self.spent_until = first_release;
        self.first_release = first_release;
    }

    /// Takes no more jobs. A share that was never used is free at once, also if it was to begin later.
    pub(crate) fn leave(&mut self, now: Time) {
        self.leaving = true;
        if self.is_idle() && self.spent_until == self.first_release {
            self.spent_until = self.spent_until.min(now);
        }
    }

    /// The last deadline that is given away.
    pub(crate) fn last_deadline(&self) -> Time {
        self.queue
            .back()
            .map_or(self.spent_until, |job| job.window.deadline)
    }

    /// Nothing of it is queued or in service.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_service == 0
    }

    /// A job takes the next slot. `earliest` is the first instant at which it may be released.
    pub(crate) fn push(&mut self, key: JobKey, earliest: Time, cost: Nanos) -> Window {
        let release = earliest.max(self.last_deadline());
        let window = Window {
            release,
            deadline: release + self.params.period(),
        };
        self.queue.push_back(Job {
            key,
            arrival: earliest,
            window,
            remaining: cost,
            touched: false,
            pieces: 0,
            is_sweep: false,
            charged: false,
            comes_back: Nanos::ZERO,
        });
        window
    }

    pub(crate) fn position(&self, key: JobKey) -> Option<usize> {
        self.queue.iter().position(|job| job.key == key)
    }

    /// The first job is over: served, or ended.
    pub(crate) fn spend_first(&mut self) {
        if let Some(job) = self.queue.pop_front() {
            self.spent_until = job.window.deadline;
        }
    }

    /// Takes back the job at `index`, of which nothing was served.
    pub(crate) fn withdraw(&mut self, index: usize) {
        let Some(job) = self.queue.remove(index) else {
            return;
        };
        if index == 0 && (job.charged || job.remaining < self.params.service()) {
            self.spent_until = job.window.deadline;
            return;
        }
        let mut last = if index == 0 {
            self.spent_until
        } else {
            self.queue[index - 1].window.deadline
        };
        for later in self.queue.range_mut(index..) {
            let release = later.arrival.max(last);
            later.window = Window {
                release,
                deadline: release + self.params.period(),
            };
            last = later.window.deadline;
        }
    }

    /// The demand that the task can still make. Jobs behind the first count with the whole C.
    pub(crate) fn line(&self, share: u64) -> Line {
        let (service, period) = (self.params.service().0, self.params.period().0);
        let behind = self.queue.len().saturating_sub(1) as u64;
        let (more, share) = if self.leaving {
            (behind, 0)
        } else {
            (u64::MAX, share)
        };
        let line = Line {
            at: self.spent_until.0,
            first: service,
            service,
            period,
            more,
            pending: false,
            share,
        };
        match self.queue.front() {
            None if self.leaving => Line { first: 0, ..line },
            None => line,
            Some(job) if !job.remaining.is_zero() => Line {
                at: job.window.deadline.0,
                first: job.remaining.0,
                pending: true,
                ..line
            },
            // All that was left of it is in service: the next one is the first that counts.
            Some(_) if more == 0 => Line { first: 0, ..line },
            Some(job) => {
                let more = if self.leaving { more - 1 } else { more };
                Line {
                    at: job.window.deadline.0 + period,
                    more,
                    pending: true,
                    ..line
                }
            }
        }
    }
}
