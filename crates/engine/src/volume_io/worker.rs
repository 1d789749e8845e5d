//! The pool's worker: what has to follow a completion and must not be done on a disk's thread.
//!
//! It never sleeps on a disk, and nor does who submits in batches for many clients: a request for a disk
//! whose inbox is full goes to a thread of that disk that may sleep, so that a disk that does not answer
//! holds up nobody else's requests.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sched::request::{Class, RequestId};

use super::after;
use super::issue;
use super::rounds;
use crate::completion::Completion;
use crate::dispatcher::{DispatcherHandle, Io, Reason, Rejected};
use crate::event::Doorbell;
use crate::handoff::Mailbox;
use crate::rt::{self, ThreadParams};
use crate::state::op::Op;
use crate::state::stream::core::StreamCore;
use crate::state::volume::VolumeCore;

/// Jobs that the worker may be behind without an allocation for each that comes.
const JOBS_RESERVED: u32 = 256;

/// Something for the worker.
pub(crate) enum Job {
    /// A disk has answered and its thread could not wait for the op's lock.
    Answered(Arc<Op>, Completion),
    /// Nothing is in the op's way any more.
    Ready(Arc<Op>),
    /// All that the op followed on its disk is complete.
    Followed(Arc<Op>),
    /// Held ops of the volume may go on.
    Gate(Arc<VolumeCore>),
    /// Parked spans of the volume may begin.
    Retry(Arc<VolumeCore>),
    /// The op has to be made durable.
    Join(Arc<Op>),
    /// The data of a round is durable, or cannot be made so.
    Synced(Arc<rounds::Round>),
    /// Nothing of the stream is in flight.
    Idle(Arc<StreamCore>),
    /// Somebody wants to know that everything posted before has been done.
    Fence(mpsc::Sender<()>),
}

/// The way to the worker.
pub(crate) struct Worker {
    jobs: Mailbox<Job>,
    bell: Doorbell,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// # Errors
    /// When the process has no descriptors left.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            jobs: Mailbox::new(JOBS_RESERVED),
            bell: Doorbell::new()?,
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
        }))
    }

    /// Starts the thread. Returns what it was denied.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(self: &Arc<Self>, params: &ThreadParams) -> io::Result<rt::Denied> {
        let worker = Arc::clone(self);
        let (thread, denied) = rt::spawn(params, move || worker.run())?;
        *self.thread.lock() = Some(thread);
        Ok(denied)
    }

    /// Hands over a job, from any thread.
    pub(crate) fn post(&self, job: Job) {
        self.jobs.push(job);
        self.bell.ring();
    }

    /// Waits until everything posted before has been done.
    pub(crate) fn fence(&self) {
        let (sender, done) = mpsc::channel();
        self.post(Job::Fence(sender));
        // A worker that is gone does nothing more.
        done.recv().unwrap_or_default();
    }

    /// Does what has been posted and ends the thread.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.bell.ring();
        let thread = self.thread.lock().take();
        if let Some(thread) =
            thread.filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            // A panic of the worker has been reported by the panic hook.
            let _: Result<(), _> = thread.join();
        }
    }

    fn run(&self) {
        loop {
            self.jobs.take_all().for_each(Self::perform);
            if self.stopping.load(Ordering::SeqCst) && self.jobs.is_empty() {
                return;
            }
            self.bell.arm();
            if self.jobs.is_empty() && !self.stopping.load(Ordering::SeqCst) {
                self.bell.event().wait(None);
            }
            self.bell.disarm();
        }
    }

    fn perform(job: Job) {
        match job {
            Job::Answered(op, completion) => op.answered(&mut op.state.lock(), &completion),
            Job::Ready(op) => issue::start(&op, Feed::Worker),
            Job::Followed(op) => after::followed(&op, Feed::Worker),
            Job::Gate(volume) => {
                while let Some(op) = volume.next_held() {
                    if op.waited() {
                        issue::start(&op, Feed::Worker);
                    }
                }
            }
            Job::Retry(volume) => issue::retry(&volume),
            Job::Join(op) => rounds::join(&op),
            Job::Synced(round) => rounds::synced(round),
            Job::Idle(stream) => stream.idle(),
            // Whoever asked waits for it.
            Job::Fence(asked) => asked.send(()).unwrap_or_default(),
        }
    }
}

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
