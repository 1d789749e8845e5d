//! The way to a dispatcher: submitters hand over requests, the control plane asks for changes and reports.

use std::sync::Arc;

use sched::disk::TaskKind;
use sched::request::RequestId;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, SectorCount, Time};

use super::request::{Io, Reason, Rejected};
use super::{Control, ControlError, DispatcherReport, Health, Shared, Stopped};

/// The way to a dispatcher. Clones are the same way.
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
        self.0.shape.capacity
    }

    /// Whether the disk has completed a transfer when it has taken it, so that a submitter may have done
    /// it itself (see [`HELP_BYTES_MAX`](super::HELP_BYTES_MAX)).
    #[must_use]
    pub fn completes_at_once(&self) -> bool {
        self.0.at_once
    }

    /// Hands over a request, or gives it back at once.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn try_submit(&self, io: Io) -> Result<RequestId, Rejected> {
        if let Err(reason) = self.check(&io) {
            return Err(rejected(io, reason));
        }
        match self.0.slots.take(io.class) {
            Some(id) => Ok(self.put(id, io)),
            None => Err(Rejected::full(io)),
        }
    }

    /// Hands over a request, sleeping while every place of its class is taken.
    ///
    /// # Errors
    /// Why it was not taken; never [`Reason::Full`].
    pub fn submit(&self, io: Io) -> Result<RequestId, Rejected> {
        if let Err(reason) = self.check(&io) {
            return Err(rejected(io, reason));
        }
        let shared = &*self.0;
        match shared.slots.take_wait(io.class, || shared.is_closed()) {
            Some(id) => Ok(self.put(id, io)),
            None => Err(rejected(io, Reason::Stopped)),
        }
    }

    /// As [`try_submit`](Self::try_submit), but without telling the dispatcher, which may not see the
    /// request before [`announce`](Self::announce). Whoever has several saves as many wake-ups.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn try_submit_quietly(&self, io: Io) -> Result<RequestId, Rejected> {
        if let Err(reason) = self.check(&io) {
            return Err(rejected(io, reason));
        }
        match self.0.slots.take(io.class) {
            Some(id) => Ok(self.push(id, io)),
            None => Err(Rejected::full(io)),
        }
    }

    /// Whether this disk can serve the request and still takes any.
    fn check(&self, io: &Io) -> Result<(), Reason> {
        io.check(self.0.shape)?;
        if self.0.is_closed() {
            return Err(Reason::Stopped);
        }
        Ok(())
    }

    /// Makes sure that the dispatcher sees what was submitted quietly.
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

    /// Takes a request back if it is not on the disk; it answers
    /// [`IoError::Cancelled`](crate::completion::IoError::Cancelled). Otherwise nothing happens.
    pub fn cancel(&self, id: RequestId) {
        self.control(Control::Cancel(id));
    }

    /// Lets an admitted task join; its first release is not before `first_release`.
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

    /// Lets a task leave: its queued stream requests are cancelled. Returns, once none of them is on the
    /// disk, the instant from which its share is free (`None`: no such task).
    ///
    /// # Errors
    /// When the dispatcher has stopped.
    pub fn leave(&self, id: TaskId) -> Result<Option<Time>, Stopped> {
        self.ask(|reply| Control::Leave { id, reply })
    }

    /// The time of a task is over: its queued requests that are due after `last_deadline` are cancelled, and
    /// so are those that still come. It leaves when its stream is closed.
    pub fn end_span(&self, id: TaskId, last_deadline: Time) {
        self.control(Control::EndSpan { id, last_deadline });
    }

    /// Tells the scheduler delta-L of the tasks that have joined: corrected, and as published, which
    /// only the scheduler of that name goes by.
    pub fn set_delta_l(&self, corrected: Nanos, published: Nanos) {
        self.control(Control::SetDeltaL {
            corrected,
            published,
        });
    }

    /// How things stand.
    ///
    /// # Errors
    /// When the dispatcher has stopped.
    pub fn report(&self) -> Result<DispatcherReport, Stopped> {
        self.ask(Control::Report)
    }

    /// What is wrong with the disk, and for how long it has held requests without completing one. It costs the
    /// disk's thread less than a report.
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

fn rejected(io: Io, reason: Reason) -> Rejected {
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
