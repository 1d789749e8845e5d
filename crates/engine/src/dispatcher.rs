//! The dispatcher: one thread per disk that owns the disk, its queues and its budgets.
//!
//! ```text
//!   submitters --(slot, inbox, doorbell)--> dispatcher: submit, decide, issue --> disk
//!   clients   <--(completion queue, doorbell)-- answers  <-- completed -------------+
//! ```
//!
//! The thread ([`run`]) is a loop around [`DispatcherState`], which makes all decisions. It takes in new
//! requests, carries out actions until there is none, and sleeps in one system call for the inbox, a
//! completion, or a time. Only this thread touches the state, unless it has lent the state out
//! ([`loan`]). Requests arrive through the inbox, which is bounded by [`Places`]; control calls arrive
//! through a mailbox and wait for their reply. In steady state the thread allocates nothing, takes no lock
//! that another thread may hold, and never waits for a step of another thread ([`crate::handoff`]).
//!
//! # A disk that stalls
//!
//! [`StallLimits`] has the limits. `state/faults.rs` detects the stall, gives the disk up, and takes it back;
//! its header lists the effects on requests. [`Health`] carries the result to the status of
//! `pool::Pool` (`status/health.rs`), from which the server logs it. Host syncs that stall are handled in `state/disk/syncer.rs`.
//!
//! # Costs
//!
//! A submitter makes a system call only if the dispatcher sleeps. Answers are handed out in batches.
//! Each client is woken at most once per batch, and only if it sleeps.
//!
//! Deliberately absent: admission, which takes longer than a decision may and belongs to the control
//! plane; and the order of requests, which belongs to `sched`.

mod counters;
mod handle;
mod host_debt;
mod inbox;
mod link;
mod loan;
mod request;
mod run;
mod service_times;
mod slots;
mod state;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use crossbeam_utils::atomic::AtomicCell;
use sched::disk::{DiskScheduler, JoinError, TaskKind};
use sched::request::RequestId;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, SECTOR_BYTES, Sector, Time};

use crate::disk::Disk;
use crate::event::Doorbell;
use crate::handoff::Mailbox;
use crate::rt::{self, DeniedResources, ThreadParams};

pub use counters::{Counters, HOST_LATE_LIMIT, Tally, TaskCounters};
pub use handle::DispatcherHandle;
pub use link::{LINK_DISKS_MAX, LinkEnd, LinkPlaces};
pub use request::{Io, RejectReason, Rejected};
pub use run::HELP_BYTES_MAX;
pub use service_times::{
    BUCKET_PERMILLE, BUCKETS, KindTimes, OVERRUNS_KEPT, Overrun, Piece, RequestKind, RequestUser,
    ServiceTimes, SizeClass,
};
pub use slots::Places;
pub use state::{Action, Answer, DispatcherReport, DispatcherState, Health};

use inbox::Inbox;
use request::DiskLimits;
use run::Runner;
use slots::Slots;

/// Time limits for a disk that holds requests and completes none.
///
/// A stall is not an error: drives retry sectors, and paths fail over. During a stall, requests to that
/// disk wait, requests to other disks do not, and status reports it. Only the second limit fails requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StallLimits {
    /// After this time the disk counts as stalled.
    pub stalled_after: Nanos,
    /// After this time the disk is given up: all requests queued or on it fail.
    pub give_up_after: Nanos,
}

impl Default for StallLimits {
    /// 2 s, longer than a healthy drive takes for any request; and 60 s, because the kernel gives a SCSI
    /// command 30 s, resets the drive, and then reports the result.
    fn default() -> Self {
        Self {
            stalled_after: Nanos::from_secs(2),
            give_up_after: Nanos::from_secs(60),
        }
    }
}

/// Parts of a new dispatcher.
pub struct DispatcherConfig {
    /// The disk's name, for reports.
    pub name: String,
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// Its scheduler, which must be able to queue as many requests as there are slots.
    pub scheduler: DiskScheduler,
    /// Scheduling parameters of the thread.
    pub thread: ThreadParams,
    /// Number of requests that may be queued at a time.
    pub places: Places,
    /// Time limits for a disk that does not answer.
    pub patience: StallLimits,
    /// Its end of a link on which places are lent.
    pub link: Option<LinkEnd>,
}

/// A running dispatcher. Dropping it stops it: queued requests fail, requests on the disk are awaited.
#[derive(Debug)]
pub struct Dispatcher {
    handle: DispatcherHandle,
    thread: Option<JoinHandle<()>>,
}

/// The dispatcher has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disk's dispatcher has stopped")]
pub struct Stopped;

/// The reason why a task did not join.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// The dispatcher has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The scheduler refused.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// A call of the control plane.
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
    SetSlow {
        range: Range<Sector>,
        extra: Nanos,
    },
    Cancel(RequestId),
    Report(oneshot::Sender<DispatcherReport>),
    /// Replies with the disk's health and the time since its last completion.
    Health(oneshot::Sender<(Health, Nanos)>),
    Stop {
        drain: bool,
    },
}

/// State that submitters and the dispatcher share.
struct Shared {
    name: String,
    limits: DiskLimits,
    /// See [`Disk::completes_at_once`].
    at_once: bool,
    slots: Arc<Slots>,
    inbox: Inbox,
    control: Mailbox<Control>,
    bell: Arc<Doorbell>,
    /// The disk and its state, while the thread sleeps and other threads may run them: see [`loan`].
    idle: AtomicCell<Option<Box<Runner>>>,
    /// Set when the inbox and the control queue are no longer read.
    closed: AtomicBool,
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Makes sure that newly queued requests are handled: by the dispatcher, or if that has ended, by
    /// dropping them, which answers them.
    fn announce(&self) {
        // If the queues are empty, another thread has taken the requests and serves them.
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
    /// Starts the thread. Also returns the resources that the host denied it.
    ///
    /// # Errors
    /// When the disk cannot be attached or no thread can be started.
    pub fn start(config: DispatcherConfig) -> io::Result<(Self, DeniedResources)> {
        let DispatcherConfig {
            name,
            mut disk,
            scheduler,
            thread,
            places,
            patience,
            link,
        } = config;
        let slots = Arc::new(Slots::new(places));
        let limits = DiskLimits {
            capacity: disk.capacity(),
            block: (u64::from(disk.block_bytes()) / SECTOR_BYTES).max(1),
        };
        let shared = Arc::new(Shared {
            name,
            limits,
            at_once: disk.completes_at_once(),
            inbox: Inbox::new(places.total()),
            // Control calls may allocate: no request passes through this mailbox.
            control: Mailbox::new(0),
            bell: match &link {
                Some(link) => link.bell(),
                None => Arc::new(Doorbell::new()?),
            },
            idle: AtomicCell::new(None),
            closed: AtomicBool::new(false),
            slots: Arc::clone(&slots),
        });
        let state = DispatcherState::with_slots(scheduler, slots, disk.places(), patience);
        let state = state.on_link(link);
        let (attached, outcome) = mpsc::sync_channel(1);
        let thread_shared = Arc::clone(&shared);
        let (thread, mut denied) = rt::spawn(&thread, move || {
            let result = disk.attach();
            let failed = result.is_err();
            // The starter is waiting on the other end.
            let _ = attached.send(result);
            if !failed {
                run::run(&thread_shared, state, disk);
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

    /// A handle for submitters and the control plane.
    #[must_use]
    pub fn handle(&self) -> DispatcherHandle {
        self.handle.clone()
    }

    /// Stops the thread and waits for its end. With `drain`, all queued requests complete first; otherwise
    /// they fail with [`IoError::Stopped`](crate::completion::IoError::Stopped).
    pub fn stop(mut self, drain: bool) {
        self.end(drain);
    }

    fn end(&mut self, drain: bool) {
        if let Some(thread) = self.thread.take() {
            self.handle.control(Control::Stop { drain });
            // Even if the thread panicked, all requests have been answered.
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
