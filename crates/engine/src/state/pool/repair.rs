//! The queue of the pool's repair thread: places that failed or are slow, and writes that failed there.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use volume::{Grade, Place};

use crate::state::op::FailedWrite;

/// Work for the repair thread.
#[derive(Default)]
pub(crate) struct RepairBatch {
    /// Grades to be recorded if they are news.
    pub(crate) grades: BTreeMap<Place, Grade>,
    /// Writes to be made elsewhere.
    pub(crate) writes: Vec<FailedWrite>,
    /// Extents with a grade are to be moved away.
    pub(crate) sweep: bool,
}

#[derive(Default)]
struct Queue {
    batch: RepairBatch,
    stopping: bool,
}

/// The queue of the repair thread.
#[derive(Default)]
pub(crate) struct Repairs {
    queue: Mutex<Queue>,
    changed: Condvar,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Repairs {
    /// A place has turned out to be bad or slow.
    pub(crate) fn note(&self, place: Place, grade: Grade) {
        let mut queue = self.queue.lock();
        let known = queue.batch.grades.entry(place).or_insert(grade);
        *known = grade.max(*known);
        self.changed.notify_all();
    }

    /// A write failed.
    ///
    /// # Errors
    /// The write, if the thread has ended.
    pub(crate) fn rewrite(&self, write: FailedWrite) -> Result<(), FailedWrite> {
        let mut queue = self.queue.lock();
        if queue.stopping {
            return Err(write);
        }
        queue.batch.writes.push(write);
        self.changed.notify_all();
        Ok(())
    }

    /// Takes the grades that have been noted since the last batch.
    pub(crate) fn take_grades(&self) -> BTreeMap<Place, Grade> {
        std::mem::take(&mut self.queue.lock().batch.grades)
    }

    /// Extents with a grade may have to be moved: there is a new grade, a reservation has begun, or the pool was opened.
    pub(crate) fn sweep(&self) {
        self.queue.lock().batch.sweep = true;
        self.changed.notify_all();
    }

    /// True if something came that is more urgent than a sweep.
    pub(crate) fn is_urgent(&self) -> bool {
        let queue = self.queue.lock();
        queue.stopping || !queue.batch.writes.is_empty()
    }

    /// Waits for work. `None`: stopped, and no write waits.
    pub(crate) fn next(&self) -> Option<RepairBatch> {
        let mut queue = self.queue.lock();
        loop {
            let batch = &queue.batch;
            if queue.stopping && batch.writes.is_empty() {
                return None;
            }
            if batch.sweep || !batch.grades.is_empty() || !batch.writes.is_empty() {
                return Some(std::mem::take(&mut queue.batch));
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Ends the thread after the writes that are posted.
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
