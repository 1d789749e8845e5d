//! The pool's worker: what has to follow a completion and must not be done on a disk's thread.
//!
//! It never sleeps on a disk.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::after;
use super::issue;
use super::rounds;
use crate::completion::Completion;
use crate::event::Doorbell;
use crate::handoff::Mailbox;
use crate::rt::{self, ThreadParams};
use crate::state::disk::feeder::Feed;
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
