//! Faults of a disk, including stalls.
//!
//! * A transfer fails: it is answered with the error. Queued writes that are ordered after a failed write
//!   fail too.
//! * The disk is gone: all queued and new requests fail.
//! * No completion for `stalled_after`: the disk is *stalled*. Its requests wait, and reports say so.
//! * No completion for `give_up_after`: the disk is *given up*. All requests queued, on the disk, or new
//!   fail. The disk is served again when it has completed everything that was on it.
//! * The dispatcher stops: queued requests fail or are served, as asked; requests on the disk are awaited.
//!
//! A stall is detected by [`DispatcherState::check_stall`], which every call of `next_action` makes.
//! `stall_at` is the alarm for it. [`DispatcherState::answers_again`] ends it.
//!
//! A request that is given up while it is on the disk keeps its slot and its memory until the disk releases
//! them. Until then nothing else is given to the disk: the abandoned write could otherwise overwrite newer
//! data.

use sched::disk::SubmitError;
use sched::request::{Class, Op, Order, RequestId};
use sched::units::{Nanos, Time};

use super::super::StallLimits;
use super::super::slots::index_of;
use super::{Answer, DispatcherState, Entry, Phase};
use crate::completion::IoError;
use crate::disk::DiskError;

impl DispatcherState {
    /// The reason why a new request is not queued.
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

    /// The reason why the rest of a split request is not served.
    pub(super) fn rest_failure(&self, id: RequestId) -> Option<IoError> {
        let entry = self.entries[index_of(id)].as_ref()?;
        if entry.target.is_none() {
            return Some(IoError::Cancelled);
        }
        self.refusal(entry.class)
    }

    /// The write `id` has failed: fails the queued writes ordered after it, directly or through others.
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
                self.finish(follower, Err(IoError::PredecessorFailed), now);
                failed.push(follower);
            }
        }
        self.retry_leaves(now);
    }

    /// True if a request is a write that is ordered after a failed one.
    pub(super) fn is_after_failed(&self, op: Op, order: &Order) -> bool {
        let mut named = order.after.iter().flatten();
        op == Op::Write && named.any(|id| self.failed_writes.contains(id))
    }

    /// Ends a stall after a completion. A disk that was given up is served again only when it has completed
    /// everything that was on it at that time.
    pub(super) fn answers_again(&mut self) {
        let is_abandoned = |entry: &Entry| entry.phase == Phase::OnDisk && entry.target.is_none();
        let owes = self.health.given_up && self.entries.iter().flatten().any(is_abandoned);
        if self.health.stalled && !owes {
            self.health.stalled = false;
            self.health.given_up = false;
            self.health.comebacks += 1;
        }
    }

    /// Handles the loss of the disk: all queued requests fail.
    pub fn gone(&mut self, now: Time, error: DiskError) {
        let now = self.event(now);
        self.health.gone = Some(error);
        self.fail_queued(now, IoError::Disk(error), |_| true);
    }

    /// Handles a disk that cannot even be waited for: its pending completions will never arrive.
    pub fn wait_failed(&mut self, now: Time, error: DiskError) {
        self.wait_failed = true;
        self.gone(now, error);
        self.give_up_on_disk(now, IoError::Disk(error));
    }

    /// True if the disk cannot be waited for any more.
    #[must_use]
    pub fn has_wait_failed(&self) -> bool {
        self.wait_failed
    }

    /// Stops accepting requests; with `drain` serves the queued ones, otherwise fails them.
    pub fn stop(&mut self, now: Time, drain: bool) {
        let now = self.event(now);
        self.stopping = true;
        if !drain {
            self.is_hurried = true;
            self.fail_queued(now, IoError::Stopped, |_| true);
        }
    }

    /// True if it has stopped and all requests have been answered.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let abandoned = self.wait_failed || self.health.given_up;
        self.stopping
            && self.answers.is_empty()
            && (self.live == 0 || (abandoned && self.live == self.on_disk))
    }

    /// When the current stall limit passes, if nothing completes before.
    pub(super) fn stall_at(&self) -> Option<Time> {
        let waits = self.on_disk > 0 && !self.health.given_up && !self.wait_failed;
        let limit = if self.health.stalled {
            self.give_up_after()
        } else {
            self.patience.stalled_after
        };
        waits.then(|| self.progress.saturating_add(limit))
    }

    /// The give-up limit. When stopping without draining, which comes after the pool has waited for streams and
    /// flushes, a stalled disk is given up at once.
    pub(super) fn give_up_after(&self) -> Nanos {
        let StallLimits {
            stalled_after,
            give_up_after,
        } = self.patience;
        if self.is_hurried {
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

    /// Fails the queued requests that match.
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

    /// Answers the requests on the disk; the disk keeps their memory.
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
        // Tasks that leave do not wait for abandoned requests.
        self.retry_leaves(now);
    }
}
