//! The pool's keeper: gives up reservations that are closed or whose time is over, on a thread that
//! may wait for a disk's dispatcher.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sched::units::Time;

use crate::clock;
use crate::state::pool::core::PoolCore;
use crate::state::stream::core::StreamCore;

/// Something to be done at an instant.
enum Timer {
    /// The span of a stream ends.
    SpanEnds(Weak<StreamCore>),
    /// The share of a task that has left is free, and delta-L larger.
    Freed,
}

/// Which of those that are due at the same instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Of {
    /// All that is free then: one look serves them.
    Freed,
    /// A stream, by its key.
    Stream(u64),
}

#[derive(Default)]
struct Queue {
    closing: Vec<Arc<StreamCore>>,
    timers: BTreeMap<(Time, Of), Timer>,
    stopping: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Keeper {
    queue: Mutex<Queue>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    pub(crate) fn start(&self, pool: &Arc<PoolCore>) {
        let pool = Arc::clone(pool);
        *self.thread.lock() = Some(std::thread::spawn(move || pool.keeper.run(&pool)));
    }

    /// Gives up the reservation of a stream that has nothing in flight any more.
    pub(crate) fn close(&self, stream: Arc<StreamCore>) {
        let mut queue = self.queue.lock();
        if queue.stopping {
            // The disks' schedules end with the pool.
            stream.set_left();
        } else {
            queue.closing.push(stream);
            self.changed.notify_one();
        }
    }

    /// Closes a stream at the end of its span.
    pub(crate) fn close_at(&self, at: Time, stream: &Arc<StreamCore>) {
        let timer = Timer::SpanEnds(Arc::downgrade(stream));
        self.set((at, Of::Stream(stream.key)), timer);
    }

    /// Nothing of a stream is left to close at the end of its span.
    fn forget_span(&self, stream: &StreamCore) {
        if let Some(until) = stream.span.and_then(|span| span.until) {
            let of = Of::Stream(stream.key);
            self.queue.lock().timers.remove(&(until, of));
        }
    }

    /// Looks at delta-L again when a share is free.
    pub(crate) fn freed_at(&self, at: Time) {
        self.set((at, Of::Freed), Timer::Freed);
    }

    fn set(&self, at: (Time, Of), timer: Timer) {
        self.queue.lock().timers.insert(at, timer);
        self.changed.notify_one();
    }

    /// Does what is due and ends the thread.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic has been reported by the panic hook.
            let _: Result<(), _> = thread.join();
        }
    }

    fn run(&self, pool: &Arc<PoolCore>) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(stream) = queue.closing.pop() {
                drop(queue);
                give_up(&stream);
                queue = self.queue.lock();
                continue;
            }
            if queue.stopping {
                return;
            }
            let now = clock::now();
            match queue.timers.first_entry() {
                Some(entry) if entry.key().0 <= now => {
                    let timer = entry.remove();
                    drop(queue);
                    expire(pool, &timer);
                    queue = self.queue.lock();
                }
                Some(entry) => {
                    let left = Duration::from_nanos(entry.key().0.saturating_since(now).0);
                    self.changed.wait_for(&mut queue, left);
                }
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

fn expire(pool: &Arc<PoolCore>, timer: &Timer) {
    match timer {
        Timer::SpanEnds(stream) => {
            if let Some(stream) = stream.upgrade() {
                stream.end_span();
            }
        }
        Timer::Freed => {
            let now = clock::now();
            let mut admission = pool.admission.lock();
            admission.prune(now);
            admission.tell_delta_l(&pool.disks, now);
        }
    }
}

/// Takes a stream's tasks from the disks.
fn give_up(stream: &Arc<StreamCore>) {
    if !stream.begin_leave() {
        return;
    }
    let pool = &stream.pool;
    let now = clock::now();
    let mut free_from = now;
    let mut admission = pool.admission.lock();
    for task in stream.tasks() {
        // A dispatcher that has stopped has no schedule to keep free.
        let free = pool.disks[task.disk].leave(task.id).unwrap_or(now);
        admission.ended(task.disk, task.id, free);
        free_from = free_from.max(free);
    }
    admission.streams.remove(&stream.key);
    admission.tell_delta_l(&pool.disks, clock::now());
    drop(admission);
    pool.keeper.forget_span(stream);
    pool.keeper.freed_at(free_from);
    stream.set_left();
}

#[cfg(test)]
mod tests {
    use sched::request::Op;
    use sched::units::Nanos;

    use super::*;
    use crate::disk::Durability;
    use crate::stream::{Span, StreamSpec};
    use crate::test_rig::{MIB, Rig, stream_spec, volume};

    #[test]
    fn the_end_of_a_span_is_forgotten_with_its_stream() {
        let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
        let volume = volume(&pool, "v", 4 * MIB);
        let until = clock::now() + Nanos::from_secs(86_400);
        let planned = |name: &str| StreamSpec {
            name: name.into(),
            span: Some(Span {
                from: clock::now(),
                until: Some(until),
            }),
            ..stream_spec(&volume, Op::Read, 1 << 20, 65536)
        };
        let ends = || {
            let queue = pool.core.keeper.queue.lock();
            let ends = queue.timers.keys();
            ends.filter_map(|&(at, of)| match of {
                Of::Stream(key) => Some((at, key)),
                Of::Freed => None,
            })
            .collect::<Vec<_>>()
        };
        let [first, second] = ["a", "b"].map(|name| pool.reserve(planned(name)).unwrap());
        let [a, b] = [&first, &second].map(|stream| (until, stream.core().key));
        assert_eq!(ends(), [a, b]);
        first.close();
        assert_eq!(ends(), [b]);
        second.close();
        assert_eq!(ends(), []);
    }
}
