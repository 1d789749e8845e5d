//! One thread per disk that owns its queues, its budgets and the disk.
//!
//! ```text
//!   submitters --(place, inbox, doorbell)--> dispatcher: submit, decide, issue --> disk
//!   clients   <--(completion queue, doorbell)-- answers  <-- completed --------------+
//! ```
//!
//! The thread is a loop around [`DispatcherState`], which decides: take in what has come, carry out
//! actions until there is none, sleep in one system call for the inbox, a completion, or an instant.
//! Nobody else touches the state, unless the thread has lent it out ([`loan`]); everything goes
//! through the inbox, which is bounded by the places of [`Places`], and a mailbox for the control plane,
//! whose calls wait for their answer. In steady state the thread allocates nothing, takes no lock that
//! another thread may hold, and never waits for another thread's next step ([`crate::handoff`]).
//!
//! # Costs
//!
//! A submitter makes a system call only if the dispatcher sleeps. Answers are handed out in batches,
//! and each client is woken at most once a batch, and only if it sleeps.
//!
//! Deliberately absent: admission, which takes longer than a decision may and belongs to the control
//! plane; and any order of requests, which belongs to `sched`.

mod counters;
mod handle;
mod host_debt;
mod inbox;
mod loan;
mod request;
mod run;
mod slots;
mod state;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crossbeam_utils::atomic::AtomicCell;
use sched::disk::{DiskScheduler, JoinError, TaskKind};
use sched::request::RequestId;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, SECTOR_BYTES, Time};

use crate::disk::Disk;
use crate::event::Doorbell;
use crate::handoff::Mailbox;
use crate::rt::{self, Denied, ThreadParams};

pub use counters::{Counters, HOST_LATE_LIMIT, Tally, TaskCounters};
pub use handle::DispatcherHandle;
pub use request::{Io, Reason, Rejected};
pub use run::HELP_BYTES_MAX;
pub use slots::Places;
pub use state::{Action, Answer, DispatcherReport, DispatcherState, Health};

use inbox::Inbox;
use request::Shape;
use run::Runner;
use slots::Slots;

/// How long a disk may go without completing anything while it holds something.
///
/// A stall is not an error yet: drives retry sectors, paths fail over. While it lasts, requests to that
/// disk wait, those to others do not, and whoever asks is told. Only the second limit is final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// From here on it is said to be stalled.
    pub stalled_after: Nanos,
    /// From here on it is given up: everything that it holds and that is queued for it fails.
    pub give_up_after: Nanos,
}

impl Default for Patience {
    /// Two seconds, which no drive takes for a request when all is well; and a minute: the kernel
    /// gives a SCSI command 30 s, resets the drive, and says what came of it.
    fn default() -> Self {
        Self {
            stalled_after: Nanos::from_secs(2),
            give_up_after: Nanos::from_secs(60),
        }
    }
}

/// What a dispatcher is made of.
pub struct DispatcherConfig {
    /// For reports.
    pub name: String,
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// Its scheduler, which must queue as many requests as there are places.
    pub scheduler: DiskScheduler,
    /// How the thread asks to be run.
    pub thread: ThreadParams,
    /// How many requests may be queued at a time.
    pub places: Places,
    /// How long the disk may not answer.
    pub patience: Patience,
}

/// A running dispatcher. Dropped, it stops: what is queued fails, what is on the disk is waited for.
#[derive(Debug)]
pub struct Dispatcher {
    handle: DispatcherHandle,
    thread: Option<JoinHandle<()>>,
}

/// The dispatcher has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disk's dispatcher has stopped")]
pub struct Stopped;

/// Why a task did not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// The dispatcher has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The scheduler refused.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// What the control plane wants.
enum Control {
    Join {
        id: TaskId,
        params: TaskParams,
        kind: TaskKind,
        first_release: Time,
        reply: oneshot::Sender<Result<(), JoinError>>,
    },
    Leave {
        id: TaskId,
        reply: oneshot::Sender<Option<Time>>,
    },
    EndSpan {
        id: TaskId,
        last_deadline: Time,
    },
    SetDeltaL {
        corrected: Nanos,
        published: Nanos,
    },
    Cancel(RequestId),
    Report(oneshot::Sender<DispatcherReport>),
    /// What is wrong, and for how long nothing has been completed.
    Health(oneshot::Sender<(Health, Nanos)>),
    Stop {
        drain: bool,
    },
}

/// What submitters and the dispatcher share.
struct Shared {
    name: String,
    shape: Shape,
    /// See [`Disk::completes_at_once`].
    at_once: bool,
    slots: Arc<Slots>,
    inbox: Inbox,
    control: Mailbox<Control>,
    bell: Doorbell,
    /// The disk and its state, while the thread sleeps and others may run them: see [`loan`].
    idle: AtomicCell<Option<Box<Runner>>>,
    /// Nothing that is put into the inbox or the control queue from now on will be seen.
    closed: AtomicBool,
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Makes sure that what has just been put into a queue is seen: by the dispatcher, or, if that has
    /// ended, by dropping it, which answers it.
    fn announce(&self) {
        // What this thread has put there is there still, or somebody has taken it and sees to it.
        if self.has_work() && !loan::help(self) {
            self.bell.ring();
        }
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.clear();
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.clear();
        self.slots.wake_all();
    }

    fn clear(&self) {
        self.inbox.clear();
        drop(self.control.take_all());
    }

    fn has_work(&self) -> bool {
        !self.inbox.is_empty() || !self.control.is_empty()
    }
}

impl Dispatcher {
    /// Starts the thread. Also returns what the host refused it.
    ///
    /// # Errors
    /// When the disk cannot be attached or no thread started.
    pub fn start(config: DispatcherConfig) -> io::Result<(Self, Denied)> {
        let DispatcherConfig {
            name,
            mut disk,
            scheduler,
            thread,
            places,
            patience,
        } = config;
        let slots = Arc::new(Slots::new(places));
        let shape = Shape {
            capacity: disk.capacity(),
            block: (u64::from(disk.block_bytes()) / SECTOR_BYTES).max(1),
        };
        let shared = Arc::new(Shared {
            name,
            shape,
            at_once: disk.completes_at_once(),
            inbox: Inbox::new(places.total()),
            // No request takes this way.
            control: Mailbox::new(0),
            bell: Doorbell::new()?,
            idle: AtomicCell::new(None),
            closed: AtomicBool::new(false),
            slots: Arc::clone(&slots),
        });
        let state = DispatcherState::with_slots(scheduler, slots, disk.places(), patience);
        let (attached, outcome) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let (thread, mut denied) = rt::spawn(&thread, move || {
            let result = disk.attach();
            let failed = result.is_err();
            // The starter waits for it.
            let _ = attached.send(result);
            if !failed {
                run::run(&theirs, state, disk);
            }
        })?;
        let handle = DispatcherHandle(shared);
        match outcome.recv() {
            Ok(Ok(refused)) => denied.0.extend(refused.0),
            Ok(Err(error)) => {
                let _ = thread.join();
                return Err(error);
            }
            Err(_) => {
                return Err(io::Error::other(
                    "the disk's thread ended while it was being set up",
                ));
            }
        }
        Ok((
            Self {
                handle,
                thread: Some(thread),
            },
            denied,
        ))
    }

    /// The way to it.
    #[must_use]
    pub fn handle(&self) -> DispatcherHandle {
        self.handle.clone()
    }

    /// Ends it: with `drain`, after everything queued has completed; otherwise what is queued fails with
    /// [`IoError::Stopped`](crate::completion::IoError::Stopped). Returns when the thread has ended.
    pub fn stop(mut self, drain: bool) {
        self.end(drain);
    }

    fn end(&mut self, drain: bool) {
        if let Some(thread) = self.thread.take() {
            self.handle.control(Control::Stop { drain });
            // If it panicked everything has been answered all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.end(false);
    }
}

#[cfg(test)]
mod tests;
