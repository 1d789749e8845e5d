//! The pool's keeper: ends reservations that are closed or whose span is over, on a thread that may wait for a
//! disk's dispatcher.

use std::sync::Arc;

use crate::clock;
use crate::state::pool::core::PoolCore;
use crate::state::pool::keeper::{Keeper, KeeperTask, Timer};
use crate::state::stream::core::{StreamCore, last_deadline};

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(&self, pool: &Arc<PoolCore>) {
        let pool = Arc::clone(pool);
        let keep = move || {
            while let Some(due) = pool.keeper.next() {
                match due {
                    KeeperTask::Close(stream) => release_reservation(&pool, &stream),
                    KeeperTask::Timer(timer) => expire(&pool, &timer),
                }
            }
        };
        *self.thread.lock() = Some(std::thread::spawn(keep));
    }
}

fn expire(pool: &PoolCore, timer: &Timer) {
    match timer {
        Timer::SpanEnds(stream) => {
            if let Some(stream) = stream.upgrade() {
                end_span(pool, &stream);
            }
        }
        Timer::ShareFreed => {
            let now = clock::now();
            let mut admission = pool.admission.lock();
            admission.prune(now);
            admission.publish_delta_l(&pool.io.disks, now);
            drop(admission);
            pool.keeper.tell_freed();
        }
    }
}

/// Ends the span of a stream: no more blocks are accepted, and of the queued ones only those are served that are
/// due by the last deadline known to the books.
fn end_span(pool: &PoolCore, stream: &Arc<StreamCore>) {
    pool.keeper.begin_close(stream);
    let tasks = stream.tasks();
    let Some(until) = stream.span.and_then(|span| span.until) else {
        return;
    };
    let last = last_deadline(until, stream.longest_period(), stream.disks_max);
    for task in tasks {
        pool.io.disks[task.disk].handle.end_span(task.id, last);
    }
}

/// Removes a stream's tasks from the disks and the books.
fn release_reservation(pool: &PoolCore, stream: &StreamCore) {
    if !stream.begin_leave() {
        return;
    }
    let now = clock::now();
    let mut free_from = now;
    let mut admission = pool.admission.lock();
    for task in stream.tasks() {
        // A stopped dispatcher has no schedule, so the share is free at once.
        let free = pool.io.disks[task.disk].leave(task.id).unwrap_or(now);
        admission.ended(task.disk, task.id, free);
        free_from = free_from.max(free);
    }
    admission.streams.remove(&stream.key);
    admission.publish_delta_l(&pool.io.disks, clock::now());
    drop(admission);
    pool.keeper.forget_span(stream);
    pool.keeper.freed_at(free_from);
    stream.set_left();
}
