//! Handles of a dispatcher, for submitters and the control plane.

use std::ops::Range;
use std::sync::Arc;

use sched::disk::TaskKind;
use sched::request::RequestId;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};

use super::request::{Io, RejectReason, Rejected};
use super::{Control, ControlError, DispatcherReport, Health, Shared, Stopped};

/// A handle of a dispatcher. Clones refer to the same dispatcher.
#[derive(Clone)]
pub struct DispatcherHandle(pub(super) Arc<Shared>);

impl DispatcherHandle {
    /// The disk's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The disk's size.
    #[must_use]
    pub fn capacity(&self) -> SectorCount {
        self.0.limits.capacity
    }

    /// True if the disk completes a transfer while taking it, so that the submitting thread may carry it out
    /// (see [`HELP_BYTES_MAX`](super::HELP_BYTES_MAX)).
    #[must_use]
    pub fn completes_at_once(&self) -> bool {
        self.0.at_once
    }

    /// Hands over a request, or returns it at once.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn try_submit(&self, io: Io) -> Result<RequestId, Rejected> {
        if let Err(reason) = self.check(&io) {
            return Err(rejected(io, reason));
        }
        match self.0.slots.take(io.class) {
            Some(id) => Ok(self.put(id, io)),
            None => Err(Rejected::full(io)),
        }
    }

    /// Hands over a request, sleeping while every slot of its class is taken.
    ///
    /// # Errors
    /// The reason for the refusal; never [`RejectReason::Full`].
    pub fn submit(&self, io: Io) -> Result<RequestId, Rejected> {
        if let Err(reason) = self.check(&io) {
            return Err(rejected(io, reason));
        }
        let shared = &*self.0;
        match shared.slots.take_wait(io.class, || shared.is_closed()) {
            Some(id) => Ok(self.put(id, io)),
            None => Err(rejected(io, RejectReason::Stopped)),
        }
    }

    /// As [`try_submit`](Self::try_submit), but does not wake the dispatcher, which may not see the request
    /// before [`announce`](Self::announce). A batch then costs one wake-up.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn try_submit_quietly(&self, io: Io) -> Result<RequestId, Rejected> {
        if let Err(reason) = self.check(&io) {
            return Err(rejected(io, reason));
        }
        match self.0.slots.take(io.class) {
            Some(id) => Ok(self.push(id, io)),
            None => Err(Rejected::full(io)),
        }
    }

    /// Checks that this disk can serve the request and still accepts requests.
    fn check(&self, io: &Io) -> Result<(), RejectReason> {
        io.check(self.0.limits)?;
        if self.0.is_closed() {
            return Err(RejectReason::Stopped);
        }
        Ok(())
    }

    /// Makes sure that the dispatcher sees all requests submitted quietly.
    pub fn announce(&self) {
        self.0.announce();
    }

    fn put(&self, id: RequestId, io: Io) -> RequestId {
        let id = self.push(id, io);
        self.0.announce();
        id
    }

    fn push(&self, id: RequestId, io: Io) -> RequestId {
        self.0.inbox.push(id, io);
        id
    }

    /// Cancels a request that is not on the disk; it is answered with
    /// [`IoError::Cancelled`](crate::completion::IoError::Cancelled). Otherwise nothing happens.
    pub fn cancel(&self, id: RequestId) {
        self.control(Control::Cancel(id));
    }

    /// Adds an admitted task; its first release is not before `first_release`.
    ///
    /// # Errors
    /// Those of the scheduler, and when the dispatcher has stopped.
    pub fn join(
        &self,
        id: TaskId,
        params: TaskParams,
        kind: TaskKind,
        first_release: Time,
    ) -> Result<(), ControlError> {
        Ok(self.ask(|reply| Control::Join {
            id,
            params,
            kind,
            first_release,
            reply,
        })??)
    }

    /// Removes a task and cancels its queued stream requests. Returns, once none of them is on the disk, the
    /// time from which its share is free (`None`: no such task).
    ///
    /// # Errors
    /// When the dispatcher has stopped.
    pub fn leave(&self, id: TaskId) -> Result<Option<Time>, Stopped> {
        self.ask(|reply| Control::Leave { id, reply })
    }

    /// Ends the span of a task: requests that are due after `last_deadline` are cancelled, both queued and
    /// future ones. The task leaves when its stream is closed.
    pub fn end_span(&self, id: TaskId, last_deadline: Time) {
        self.control(Control::EndSpan { id, last_deadline });
    }

    /// Sets delta-L for the tasks that have joined: the corrected value, and the value as published, which
    /// only the `delta-l-published` scheduler uses.
    pub fn set_delta_l(&self, corrected: Nanos, published: Nanos) {
        self.control(Control::SetDeltaL {
            corrected,
            published,
        });
    }

    /// Has best effort in this stretch of the disk predicted to take longer than the profile says.
    pub fn set_slow(&self, range: Range<Sector>, extra: Nanos) {
        self.control(Control::SetSlow { range, extra });
    }

    /// A report of the current state.
    ///
    /// # Errors
    /// When the dispatcher has stopped.
    pub fn report(&self) -> Result<DispatcherReport, Stopped> {
        self.ask(Control::Report)
    }

    /// The disk's health, and the time for which it has held requests without completing one. Cheaper for the
    /// disk's thread than a report.
    ///
    /// # Errors
    /// When the dispatcher has stopped.
    pub fn health(&self) -> Result<(Health, Nanos), Stopped> {
        self.ask(Control::Health)
    }

    fn ask<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Control) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.control(make(reply));
        answer.recv().map_err(|_| Stopped)
    }

    pub(super) fn control(&self, control: Control) {
        self.0.control.push(control);
        self.0.announce();
    }
}

fn rejected(io: Io, reason: RejectReason) -> Rejected {
    Rejected {
        io: Box::new(io),
        reason,
    }
}

impl std::fmt::Debug for DispatcherHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DispatcherHandle")
            .field(&self.0.name)
            .finish()
    }
}
