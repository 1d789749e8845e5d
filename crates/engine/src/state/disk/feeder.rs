//! Handing requests over to a disk.
//!
//! The worker never sleeps on a disk, and nor does who submits in batches for many clients: a request for a disk
//! whose inbox is full goes to a thread of that disk that may sleep, so that a disk that does not answer
//! holds up nobody else's requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use sched::request::{Class, RequestId};

use crate::dispatcher::{DispatcherHandle, Io, Reason, Rejected};

/// How requests are handed to disks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// By a thread that sleeps while an inbox is full.
    Caller,
    /// By a thread that does not, in a batch: the disk is told at its end, by [`Feeder::announce`].
    Batch,
    /// By the worker, which does not sleep either.
    Worker,
}

/// Hands requests over to a disk, also for threads that must not sleep while its inbox is full.
pub(crate) struct Feeder {
    handle: DispatcherHandle,
    /// Of streams, of clients with a reservation, and plain: none is in the way of another.
    backlogs: [Backlog; 3],
}

/// What came while every place was taken, in the order in which it came.
#[derive(Default)]
struct Backlog {
    /// To the thread that sleeps until there is a place; it begins with the first that has to wait.
    sender: Mutex<Option<mpsc::Sender<Io>>>,
    /// How many there are.
    waiting: Arc<AtomicUsize>,
}

impl Feeder {
    pub(crate) fn new(handle: DispatcherHandle) -> Self {
        Self {
            handle,
            backlogs: Default::default(),
        }
    }

    /// Hands over a request. One that the disk does not take answers its target as stopped. Returns
    /// what the disk knows it by; `None` if that is not known yet, or it was not taken.
    pub(crate) fn feed(&self, io: Io, feed: Feed) -> Option<RequestId> {
        let backlog = &self.backlogs[match io.class {
            Class::Stream(_) | Class::Swept(..) => 0,
            Class::Reserved(..) => 1,
            Class::BestEffort(_) => 2,
        }];
        let handed_over = match feed {
            Feed::Caller => self.handle.submit(io),
            // Nobody overtakes who waits.
            Feed::Batch | Feed::Worker if backlog.waiting.load(Ordering::Acquire) > 0 => {
                Err(Rejected::full(io))
            }
            Feed::Batch => self.handle.try_submit_quietly(io),
            Feed::Worker => self.handle.try_submit(io),
        };
        match handed_over {
            Ok(id) => Some(id),
            Err(rejected) => {
                if rejected.reason == Reason::Full {
                    // What is to make room may be among what has not been announced.
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

    /// Ends a batch.
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
                // A thread that is gone drops the request, which answers its target.
                let _: Result<(), _> = sender.send(io);
            }
            // The host has no thread to spare: better slow than failed.
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
