//! Hand-over of requests to a disk.
//!
//! The worker must not sleep on a disk, and neither must a thread that submits in batches for many
//! clients. If the disk's inbox is full, such a request goes to a feeder thread of that disk, which may
//! sleep. A disk that does not answer therefore delays only its own requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use sched::request::{Class, RequestId};

use crate::dispatcher::{DispatcherHandle, Io, RejectReason, Rejected};

/// The way of handing a request to a disk whose inbox may be full.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubmitMode {
    /// The caller sleeps while the inbox is full.
    Blocking,
    /// The caller does not sleep, and wakes the disk once at the end of its batch by [`Feeder::announce`].
    Batch,
    /// The caller does not sleep; the disk is woken at once.
    NonBlocking,
}

/// Hands requests to a disk, also for threads that must not sleep while its inbox is full.
pub(crate) struct Feeder {
    handle: DispatcherHandle,
    /// One each for streams, clients with a reservation, and plain best effort: none delays another.
    backlogs: [Backlog; 3],
}

/// Requests that found the inbox full, in order of arrival.
#[derive(Default)]
struct Backlog {
    /// To the thread that sleeps until there is room. It is started by the first request that has to wait.
    sender: Mutex<Option<mpsc::Sender<Io>>>,
    /// Number of requests in the backlog.
    waiting: Arc<AtomicUsize>,
}

impl Feeder {
    pub(crate) fn new(handle: DispatcherHandle) -> Self {
        Self {
            handle,
            backlogs: Default::default(),
        }
    }

    /// Hands over a request. If the disk refuses it, its target is answered as stopped. Returns the disk's
    /// id of it; `None` if it waits in the backlog or was refused.
    pub(crate) fn submit(&self, io: Io, mode: SubmitMode) -> Option<RequestId> {
        let backlog = &self.backlogs[match io.class {
            Class::Stream(_) | Class::Swept(..) => 0,
            Class::Reserved(..) => 1,
            Class::BestEffort(_) => 2,
        }];
        let handed_over = match mode {
            SubmitMode::Blocking => self.handle.submit(io),
            // A later request must not overtake those in the backlog.
            SubmitMode::Batch | SubmitMode::NonBlocking
                if backlog.waiting.load(Ordering::Acquire) > 0 =>
            {
                Err(Rejected::full(io))
            }
            SubmitMode::Batch => self.handle.try_submit_quietly(io),
            SubmitMode::NonBlocking => self.handle.try_submit(io),
        };
        match handed_over {
            Ok(id) => Some(id),
            Err(rejected) => {
                if rejected.reason == RejectReason::Full {
                    // Requests that would make room may be among those not yet announced.
                    self.handle.announce();
                    backlog.put(&self.handle, *rejected.io);
                }
                None
            }
        }
    }

    /// See [`DispatcherHandle::completes_at_once`].
    pub(crate) fn completes_at_once(&self) -> bool {
        self.handle.completes_at_once()
    }

    /// Wakes the disk for the requests of a batch.
    pub(crate) fn announce(&self) {
        self.handle.announce();
    }
}

impl Backlog {
    fn put(&self, handle: &DispatcherHandle, io: Io) {
        let mut sender = self.sender.lock();
        if sender.is_none() {
            *sender = self.begin(handle);
        }
        match &*sender {
            Some(sender) => {
                self.waiting.fetch_add(1, Ordering::AcqRel);
                // If the thread has ended, the request is dropped, which answers its target.
                let _: Result<(), _> = sender.send(io);
            }
            // Without a thread the caller has to sleep: slow is better than failed.
            None => drop(handle.submit(io)),
        }
    }

    fn begin(&self, handle: &DispatcherHandle) -> Option<mpsc::Sender<Io>> {
        let (sender, receiver) = mpsc::channel::<Io>();
        let (handle, waiting) = (handle.clone(), Arc::clone(&self.waiting));
        let feed = move || {
            for io in receiver {
                drop(handle.submit(io));
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
        };
        let name = "clockwise-feed".to_owned();
        let begun = std::thread::Builder::new().name(name).spawn(feed);
        begun.is_ok().then_some(sender)
    }
}
