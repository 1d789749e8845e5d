//! What goes wrong with a disk, and then.
//!
//! | what | then |
//! |---|---|
//! | a read fails | it answers the error; nothing else changes |
//! | a write or a sync fails | it answers the error; the disk is *poisoned*: queued and later writes fail, reads go on |
//! | the disk is gone | everything queued or submitted fails |
//! | no completion for `stalled_after` | the disk is *stalled*: its requests wait, and reports say so |
//! | no completion for `give_up_after` | it is *given up*: everything queued, on the disk, or submitted fails; when the disk completes something after all it is served again, poisoned if a write was given up |
//! | the dispatcher stops | everything queued fails or is served, as asked; what is on the disk is waited for |
//!
//! A request that is given up while it is on the disk keeps its place and its memory until the disk
//! lets go of them.

use sched::disk::SubmitError;
use sched::request::{Class, Op, RequestId};
use sched::units::{Nanos, Time};

use super::super::Patience;
use super::super::slots::index_of;
use super::{Answer, DispatcherState, Entry, Phase};
use crate::completion::IoError;
use crate::disk::DiskError;

impl DispatcherState {
    /// Why a request is not even queued.
    pub(super) fn refusal(&self, op: Op, class: Class) -> Option<IoError> {
        if self.stopping {
            return Some(IoError::Stopped);
        }
        if let Some(gone) = self.health.gone {
            return Some(IoError::Disk(gone));
        }
        if self.health.given_up {
            return Some(IoError::Stalled);
        }
        if self.health.poisoned && op == Op::Write {
            return Some(IoError::Poisoned);
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
        self.refusal(entry.op, entry.class)
    }

    /// A write or a sync of this disk has failed: no more writes.
    pub fn poison(&mut self, now: Time) {
        let now = self.event(now);
        self.health.poisoned = true;
        self.fail_queued(now, IoError::Poisoned, |entry| entry.op == Op::Write);
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
        let mut wrote = false;
        for entry in self
            .entries
            .iter_mut()
            .flatten()
            .filter(|entry| entry.phase == Phase::OnDisk)
        {
            wrote |= entry.op == Op::Write;
            entry.timing.completed = now;
            if let Some(target) = entry.target.take() {
                self.answers.push_back(Answer {
                    target,
                    result: Err(error),
                    timing: entry.timing,
                });
            }
        }
        if wrote {
            // Whether it was written nobody knows.
            self.health.poisoned = true;
        }
        // Who leaves does not wait for what may never come back.
        self.retry_leaves(now);
    }
}
