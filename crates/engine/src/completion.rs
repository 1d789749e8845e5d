//! Delivery of results to clients.
//!
//! A request carries a [`Target`]: a sink and a token that the client chose. A target is answered exactly
//! once. If it is dropped unanswered, it answers [`IoError::Stopped`], so that no client waits for ever. The
//! usual sink is a [`CompletionQueue`]. It is bounded, and the place for the answer is taken when the target
//! is made, so answering never blocks, fails or allocates.
//!
//! Deliberately absent: callbacks into the client, and futures. An event loop polls
//! [`CompletionQueue::event`]; other callers use [`CompletionQueue::wait`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sched::disk::SubmitError;
use sched::request::Served;
use sched::units::{Nanos, Time};

use crate::disk::DiskError;
use crate::event::{Doorbell, EventFd};
use crate::handoff::{IndexSet, IndexStack};

/// The reason why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IoError {
    /// The disk failed it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A write that it was ordered after failed.
    #[error("an earlier write that it depends on failed")]
    PredecessorFailed,
    /// The disk exceeded the give-up limit; it accepts nothing until it answers.
    #[error("the disk did not answer in time")]
    Stalled,
    /// The scheduler refused it.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The client cancelled it before it was issued.
    #[error("cancelled")]
    Cancelled,
    /// The dispatcher ended before the request did.
    #[error("the disk's dispatcher has stopped")]
    Stopped,
}

/// Times of a request's steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// When it was submitted.
    pub submitted: Time,
    /// When its first piece was issued to the disk; zero if none was.
    pub issued: Time,
    /// When its last piece completed.
    pub completed: Time,
    /// When the disk completed its last piece; the host may have been late to notice.
    pub disk_completed: Time,
    /// The numbers of its first and of its last piece, in the order in which the dispatcher gave pieces of all requests
    /// to the disk; from 1, and 0 if none was.
    pub pieces: (u64, u64),
    /// Its deadline, if it had one.
    pub deadline: Option<Time>,
    /// The host's part of a miss: the time for which it is known to have kept the disk from its work, during
    /// this request or earlier ones, as far as the disk has not caught up since.
    pub host_late: Nanos,
    /// Time by which its pieces took longer than predicted, net of the host's delays.
    pub overrun: Nanos,
    /// The rule by which its last piece was served; `None` if none was.
    pub served: Option<Served>,
}

impl Timing {
    /// Time past the deadline, net of the host's own delay; zero if the deadline was met or there was none.
    #[must_use]
    pub fn lateness(&self) -> Nanos {
        self.lateness_gross().saturating_sub(self.host_late)
    }

    /// Time past the deadline, whatever the cause.
    #[must_use]
    pub fn lateness_gross(&self) -> Nanos {
        self.deadline.map_or(Nanos::ZERO, |deadline| {
            self.completed.saturating_since(deadline)
        })
    }
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The token of the request's target.
    pub token: u64,
    /// The result.
    pub result: Result<(), IoError>,
    /// Times of its steps.
    pub timing: Timing,
}

/// Receives answers. Called on the disk's real-time thread: implementations must be short and must not block,
/// allocate or panic.
pub trait Sink: Send + Sync {
    /// Receives one answer. The client need not be woken before [`Sink::wake`].
    fn complete(&self, completion: Completion);

    /// Ends a batch of answers: wakes the client.
    fn wake(&self);

    /// Sinks with the same id belong to one client; waking one of them is enough.
    fn wake_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// The receiver of one request's answer. Dropped unanswered, it answers [`IoError::Stopped`].
pub struct Target {
    sink: Option<Arc<dyn Sink>>,
    token: u64,
}

impl Target {
    /// A target that answers `token` to `sink`.
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>, token: u64) -> Self {
        Self {
            sink: Some(sink),
            token,
        }
    }

    /// Delivers the answer. Returns the sink, which has yet to be woken.
    pub fn complete(mut self, result: Result<(), IoError>, timing: Timing) -> Arc<dyn Sink> {
        let sink = self
            .sink
            .take()
            .expect("a target holds its sink until it answers");
        sink.complete(Completion {
            token: self.token,
            result,
            timing,
        });
        sink
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            let result = Err(IoError::Stopped);
            sink.complete(Completion {
                token: self.token,
                result,
                timing: Timing::default(),
            });
            sink.wake();
        }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Every place of a completion queue is taken by a request in flight or an answer that has not been fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all {places} places of the completion queue are in use")]
pub struct QueueFull {
    /// The places of the queue.
    pub places: usize,
}

/// A place of a completion queue.
#[derive(Default)]
struct Place {
    /// The client's token.
    token: u64,
    answer: Option<Completion>,
}

struct QueueInner {
    vacant: IndexSet,
    /// Only a place's current owner locks it, so no lock is contended.
    places: Box<[Mutex<Place>]>,
    answered: IndexStack,
    /// Answers taken off the stack by the consumer.
    batch: Mutex<Vec<u32>>,
    /// Targets not answered, plus answers not fetched.
    taken: AtomicUsize,
    bell: Doorbell,
}

impl Sink for QueueInner {
    fn complete(&self, completion: Completion) {
        let index = completion.token as u32;
        let mut place = self.places[index as usize].lock();
        let token = place.token;
        place.answer = Some(Completion {
            token,
            ..completion
        });
        drop(place);
        self.answered.push(index);
    }

    fn wake(&self) {
        self.bell.ring();
    }
}

/// A bounded queue of answers, for one consumer at a time. Clones refer to the same queue.
#[derive(Clone)]
pub struct CompletionQueue(Arc<QueueInner>);

impl CompletionQueue {
    /// A queue for at most `places` requests at a time (at least one).
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(places: usize) -> io::Result<Self> {
        let places = u32::try_from(places).unwrap_or(u32::MAX).max(1);
        Ok(Self(Arc::new(QueueInner {
            vacant: IndexSet::full(0..places),
            places: (0..places).map(|_| Mutex::default()).collect(),
            answered: IndexStack::new(places),
            batch: Mutex::new(Vec::with_capacity(places as usize)),
            taken: AtomicUsize::new(0),
            bell: Doorbell::new()?,
        })))
    }

    /// Takes a place, and makes the target of a request whose answer will carry `token`.
    ///
    /// # Errors
    /// When every place is taken.
    pub fn target(&self, token: u64) -> Result<Target, QueueFull> {
        let queue = &*self.0;
        let places = queue.places.len();
        queue
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < places).then_some(taken + 1)
            })
            .map_err(|_| QueueFull { places })?;
        // `taken` guarantees a vacant place, but a single scan may miss it while others take and return places.
        let index = loop {
            if let Some(index) = queue.vacant.take() {
                break index;
            }
        };
        queue.places[index as usize].lock().token = token;
        let sink: Arc<dyn Sink> = Arc::<QueueInner>::clone(&self.0);
        Ok(Target::new(sink, u64::from(index)))
    }

    /// The next answer, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<Completion> {
        let queue = &*self.0;
        let index = queue.answered.take_first(&mut queue.batch.lock())?;
        let answer = queue.places[index as usize].lock().answer.take();
        queue.vacant.give(index);
        queue.taken.fetch_sub(1, Ordering::AcqRel);
        answer
    }

    /// The next answer; sleeps until there is one, at most until `until` (`None`: without limit).
    #[must_use]
    pub fn wait(&self, until: Option<Time>) -> Option<Completion> {
        loop {
            if let Some(completion) = self.poll() {
                return Some(completion);
            }
            if self.arm() {
                let woken = self.0.bell.event().wait(until);
                self.0.bell.disarm();
                if !woken {
                    return self.poll();
                }
            }
        }
    }

    /// For event loops: announces that the caller is about to sleep on [`event`](Self::event). If it returns
    /// false, the caller must not sleep, because answers are queued. The event fires once.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.0.bell.arm();
        let empty = self.0.answered.is_empty() && self.0.batch.lock().is_empty();
        if !empty {
            self.0.bell.disarm();
        }
        empty
    }

    /// Signalled when answers arrive after [`arm`](Self::arm). The caller has to drain it on waking.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        self.0.bell.event()
    }

    /// Requests in flight, plus answers that have not been fetched.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("taken", &self.taken())
            .finish_non_exhaustive()
    }
}
