//! What goes wrong with a disk, and then.
//!
//! | what | then |
//! |---|---|
//! | a transfer fails | it answers the error; of those queued, writes that were to come after a failed write fail too |
//! | the disk is gone | everything queued or submitted fails |
//! | no completion for `stalled_after` | the disk is *stalled*: its requests wait, and reports say so |
//! | no completion for `give_up_after` | it is *given up*: everything queued, on the disk, or submitted fails; when the disk has completed all that was on it after all, it is served again |
//! | the dispatcher stops | everything queued fails or is served, as asked; what is on the disk is waited for |
//!
//! A request that is given up while it is on the disk keeps its place and its memory until the disk
//! lets go of them. Nothing else is given to the disk before: a write that was given up would otherwise go over
//! what was written there since.

use sched::disk::SubmitError;
use sched::request::{Class, Op, Order, RequestId};
use sched::units::{Nanos, Time};

use super::super::Patience;
use super::super::slots::index_of;
use super::{Answer, DispatcherState, Entry, Phase};
use crate::completion::IoError;
use crate::disk::DiskError;

impl DispatcherState {
    /// Why a request is not even queued.
    pub(super) fn refusal(&self, class: Class) -> Option<IoError> {
        if self.stopping {
            return Some(IoError::Stopped);
        }
        if let Some(gone) = self.health.gone {
            return Some(IoError::Disk(gone));
        }
        if self.health.given_up {
            return Some(IoError::Stalled);
        }
        if let Some(task) = class.of_stream()
            && self.leaving.iter().any(|(leaving, _)| *leaving == task)
        {
            return Some(IoError::Refused(SubmitError::NoSuchTask(task)));
        }
        None
    }

    /// Why the rest of a split request is not to be served any more.
    pub(super) fn doomed(&self, id: RequestId) -> Option<IoError> {
        let entry = self.entries[index_of(id)].as_ref()?;
        if entry.target.is_none() {
            return Some(IoError::Cancelled);
        }
        self.refusal(entry.class)
    }

    /// The write `id` has failed: so do the queued writes that were to come after it, and those after them.
    pub(super) fn fail_followers(&mut self, now: Time, id: RequestId) {
        let mut failed = vec![id];
        while let Some(id) = failed.pop() {
            if self.failed_writes.len() == self.entries.len() {
                self.failed_writes.pop_front();
            }
            self.failed_writes.push_back(id);
            let follows = |entry: &&Entry| {
                entry.phase == Phase::Queued
                    && entry.op == Op::Write
                    && entry.order.after.contains(&Some(id))
            };
            let followers: Vec<RequestId> = (self.entries.iter().flatten())
                .filter(follows)
                .map(|entry| entry.id)
                .collect();
            for follower in followers {
                self.scheduler.cancel(now, follower);
                self.finish(follower, Err(IoError::Forerunner), now);
                failed.push(follower);
            }
        }
        self.retry_leaves(now);
    }

    /// Whether a request is a write that was to come after one that has failed.
    pub(super) fn is_after_failed(&self, op: Op, order: &Order) -> bool {
        let mut named = order.after.iter().flatten();
        op == Op::Write && named.any(|id| self.failed_writes.contains(id))
    }

    /// The disk has completed something. One that was given up is served again only when it has completed all
    /// that was on it then.
    pub(super) fn answers_again(&mut self) {
        let is_abandoned = |entry: &Entry| entry.phase == Phase::OnDisk && entry.target.is_none();
        let owes = self.health.given_up && self.entries.iter().flatten().any(is_abandoned);
        if self.health.stalled && !owes {
            self.health.stalled = false;
            self.health.given_up = false;
            self.health.comebacks += 1;
        }
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
            self.hurried = true;
            self.fail_queued(now, IoError::Stopped, |_| true);
        }
    }

    /// Whether it has stopped and everything has been answered.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let abandoned = self.deaf || self.health.given_up;
        self.stopping
            && self.answers.is_empty()
            && (self.live == 0 || (abandoned && self.live == self.on_disk))
    }

    /// When the disk will next have been silent for too long.
    pub(super) fn stall_at(&self) -> Option<Time> {
        let waits = self.on_disk > 0 && !self.health.given_up && !self.deaf;
        let limit = if self.health.stalled {
            self.give_up_after()
        } else {
            self.patience.stalled_after
        };
        waits.then(|| self.progress.saturating_add(limit))
    }

    /// Who stops in a hurry has been patient enough when the disk counts as stalled.
    pub(super) fn give_up_after(&self) -> Nanos {
        let Patience {
            stalled_after,
            give_up_after,
        } = self.patience;
        if self.hurried {
            stalled_after
        } else {
            give_up_after.max(stalled_after)
        }
    }

    pub(super) fn check_stall(&mut self, now: Time) {
        if self.stall_at().is_none_or(|at| now < at) {
            return;
        }
        if !self.health.stalled {
            self.health.stalled = true;
            self.health.stalls += 1;
        }
        if self.stall_at().is_none_or(|at| now < at) {
            return;
        }
        self.health.given_up = true;
        self.health.given_ups += 1;
        self.fail_queued(now, IoError::Stalled, |_| true);
        self.give_up_on_disk(now, IoError::Stalled);
    }

    /// Fails what is queued and matches.
    pub(super) fn fail_queued(
        &mut self,
        now: Time,
        error: IoError,
        matches: impl Fn(&Entry) -> bool,
    ) {
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
    pub(super) fn give_up_on_disk(&mut self, now: Time, error: IoError) {
        for entry in self
            .entries
            .iter_mut()
            .flatten()
            .filter(|entry| entry.phase == Phase::OnDisk)
        {
            entry.timing.completed = now;
            if let Some(target) = entry.target.take() {
                self.answers.push_back(Answer {
                    target,
                    result: Err(error),
                    timing: entry.timing,
                });
            }
        }
        // Who leaves does not wait for what may never come back.
        self.retry_leaves(now);
    }
}
