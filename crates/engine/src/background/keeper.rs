//! The pool's keeper: gives up reservations that are closed or whose time is over, on a thread that
//! may wait for a disk's dispatcher.

use std::sync::Arc;

use crate::clock;
use crate::state::pool::core::PoolCore;
use crate::state::pool::keeper::{Due, Keeper, Timer};
use crate::state::stream::core::{StreamCore, last_deadline};

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(&self, pool: &Arc<PoolCore>) {
        let pool = Arc::clone(pool);
        let keep = move || {
            while let Some(due) = pool.keeper.next() {
                match due {
                    Due::Close(stream) => give_up(&pool, &stream),
                    Due::Timer(timer) => expire(&pool, &timer),
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
        Timer::Freed => {
            let now = clock::now();
            let mut admission = pool.admission.lock();
            admission.prune(now);
            admission.tell_delta_l(&pool.io.disks, now);
        }
    }
}

/// The span of a stream is over: no more blocks are taken, and of those that are in the disks' queues only
/// what is due by the last deadline that the books know of is served.
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

/// Takes a stream's tasks from the disks.
fn give_up(pool: &PoolCore, stream: &StreamCore) {
    if !stream.begin_leave() {
        return;
    }
    let now = clock::now();
    let mut free_from = now;
    let mut admission = pool.admission.lock();
    for task in stream.tasks() {
        // A dispatcher that has stopped has no schedule to keep free.
        let free = pool.io.disks[task.disk].leave(task.id).unwrap_or(now);
        admission.ended(task.disk, task.id, free);
        free_from = free_from.max(free);
    }
    admission.streams.remove(&stream.key);
    admission.tell_delta_l(&pool.io.disks, clock::now());
    drop(admission);
    pool.keeper.forget_span(stream);
    pool.keeper.freed_at(free_from);
    stream.set_left();
}
