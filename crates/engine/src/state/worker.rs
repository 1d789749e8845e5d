//! The pool's worker: a thread for work that follows a completion and must not run on a disk's thread.
//!
//! This module holds its queue. The function that performs the jobs is given to [`Worker::start`].

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use volume::{Grade, Place};

use crate::completion::Completion;
use crate::event::Doorbell;
use crate::handoff::Mailbox;
use crate::rt::{self, ThreadParams};
use crate::state::op::{FailedWrite, Op};
use crate::state::round::Round;
use crate::state::stream::core::StreamCore;
use crate::state::volume::VolumeCore;

/// Jobs that may be queued before a further one allocates.
const JOBS_RESERVED: u32 = 256;

/// A job for the worker.
pub(crate) enum Job {
    /// A disk has answered and its thread could not get the op's lock.
    Answered(Arc<Op>, Completion),
    /// Everything that the op waited for has happened.
    Ready(Arc<Op>),
    /// All predecessors of the op on its disk are complete.
    Followed(Arc<Op>),
    /// Held ops of the volume may go on.
    Gate(Arc<VolumeCore>),
    /// Parked spans of the volume may begin.
    Retry(Arc<VolumeCore>),
    /// A write failed at a bad place.
    Rewrite(FailedWrite),
    /// A place has turned out to be bad or slow.
    Trouble(Place, Grade),
    /// The op needs a flush round.
    Join(Arc<Op>),
    /// The disks' syncs of a round have ended.
    Synced(Arc<Round>),
    /// Nothing of the stream is in flight any more, and a thread waits for that.
    Idle(Arc<StreamCore>),
    /// Answered when everything posted before has been done.
    Fence(mpsc::Sender<()>),
}

/// The queue of the worker.
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

    /// Starts the thread, which calls `perform` for each job in order. Returns what the host denied it.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        params: &ThreadParams,
        perform: impl Fn(Job) + Send + 'static,
    ) -> io::Result<rt::DeniedResources> {
        let worker = Arc::clone(self);
        let (thread, denied) = rt::spawn(params, move || worker.run(perform))?;
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
        // If the worker has ended, the channel is closed and there is nothing to wait for.
        done.recv().unwrap_or_default();
    }

    /// Performs all posted jobs and ends the thread.
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

    fn run(&self, perform: impl Fn(Job)) {
        loop {
            self.jobs.take_all().for_each(&perform);
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
}
