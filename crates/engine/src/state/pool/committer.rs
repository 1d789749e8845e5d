//! The queue of the pool's committer thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::state::round::Round;

/// Interval between retries of the write that froze the metadata.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    rounds: Vec<Arc<Round>>,
    /// Rounds have been taken and have not ended.
    busy: bool,
    stopping: bool,
}

/// The queue of the thread that appends to the metadata log for flushes. All rounds that wait while it
/// writes share its next record.
#[derive(Default)]
pub(crate) struct Committer {
    queue: Mutex<Queue>,
    changed: Condvar,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(crate) fn post(&self, round: Arc<Round>) {
        self.queue.lock().rounds.push(round);
        self.changed.notify_all();
    }

    /// Makes it evaluate its conditions again.
    pub(crate) fn wake(&self) {
        // After taking the lock the thread has either seen the change or sleeps and will be notified.
        drop(self.queue.lock());
        self.changed.notify_all();
    }

    /// Waits for rounds and takes all of them; the caller reports their end by [`done`](Self::done). `None`:
    /// stopped. While `is_retry_due`, calls `retry` each [`RETRY_AFTER`].
    pub(crate) fn next(
        &self,
        is_retry_due: impl Fn() -> bool,
        retry: impl Fn(),
    ) -> Option<Vec<Arc<Round>>> {
        let mut queue = self.queue.lock();
        while queue.rounds.is_empty() && !queue.stopping {
            if is_retry_due() {
                let timed_out = self.changed.wait_for(&mut queue, RETRY_AFTER).timed_out();
                if timed_out {
                    MutexGuard::unlocked(&mut queue, &retry);
                }
            } else {
                self.changed.wait(&mut queue);
            }
        }
        if queue.rounds.is_empty() {
            return None;
        }
        queue.busy = true;
        Some(std::mem::take(&mut queue.rounds))
    }

    /// The rounds that were taken have ended.
    pub(crate) fn done(&self) {
        self.queue.lock().busy = false;
        self.changed.notify_all();
    }

    /// Waits until the rounds posted before have ended.
    pub(crate) fn fence(&self) {
        let mut queue = self.queue.lock();
        while queue.busy || !queue.rounds.is_empty() {
            self.changed.wait(&mut queue);
        }
    }

    /// Serves the waiting rounds and ends the thread.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic has been reported by the panic hook.
            let _: Result<(), _> = thread.join();
        }
    }
}
