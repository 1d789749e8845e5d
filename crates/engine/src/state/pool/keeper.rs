//! The queue of the pool's keeper, the thread that ends reservations: streams to close, and timers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sched::units::Time;

use crate::clock;
use crate::event::EventFd;
use crate::state::stream::core::StreamCore;

/// An action at a given time.
pub(crate) enum Timer {
    /// The span of a stream ends.
    SpanEnds(Weak<StreamCore>),
    /// The share of a departed task is free, and delta-L has grown.
    ShareFreed,
}

/// An action that is due.
pub(crate) enum KeeperTask {
    /// Nothing of a stream that is being closed is in flight any more: its reservation has to be released.
    Close(Arc<StreamCore>),
    /// The time of a timer has come.
    Timer(Timer),
}

/// Distinguishes timers of the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TimerKey {
    /// All shares that become free then; they need only one timer.
    ShareFreed,
    /// A stream, by its key.
    Stream(u64),
}

#[derive(Default)]
struct Queue {
    closing: Vec<Arc<StreamCore>>,
    timers: BTreeMap<(Time, TimerKey), Timer>,
    stopping: bool,
}

/// The queue of the thread that ends reservations.
#[derive(Default)]
pub(crate) struct Keeper {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Signalled when a share becomes free.
    listeners: Mutex<Vec<Weak<EventFd>>>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Keeper {
    /// Stops accepting blocks of a stream; its reservation is released when none is in flight.
    pub(crate) fn begin_close(&self, stream: &Arc<StreamCore>) {
        if stream.begin_close() {
            self.close(Arc::clone(stream));
        }
    }

    /// Nothing of a stream is in flight any more, and a thread waits for that.
    pub(crate) fn idle(&self, stream: Arc<StreamCore>) {
        if stream.idle() {
            self.close(stream);
        }
    }

    /// Releases the reservation of a stream that has nothing in flight.
    fn close(&self, stream: Arc<StreamCore>) {
        let mut queue = self.queue.lock();
        if queue.stopping {
            // The schedules end with the pool, so there is nothing to release.
            stream.set_left();
        } else {
            queue.closing.push(stream);
            self.changed.notify_one();
        }
    }

    /// Closes a stream at the end of its span.
    pub(crate) fn close_at(&self, at: Time, stream: &Arc<StreamCore>) {
        let timer = Timer::SpanEnds(Arc::downgrade(stream));
        self.set((at, TimerKey::Stream(stream.key)), timer);
    }

    /// Removes the timer of a stream's span, because the stream has ended.
    pub(crate) fn forget_span(&self, stream: &StreamCore) {
        if let Some(until) = stream.span.and_then(|span| span.until) {
            let key = TimerKey::Stream(stream.key);
            self.queue.lock().timers.remove(&(until, key));
        }
    }

    /// Publishes delta-L again when a share becomes free.
    pub(crate) fn freed_at(&self, at: Time) {
        self.set((at, TimerKey::ShareFreed), Timer::ShareFreed);
    }

    /// An event that is signalled each time that reserved disk time becomes free.
    pub(crate) fn listen(&self) -> io::Result<Arc<EventFd>> {
        let event = Arc::new(EventFd::new()?);
        let mut listeners = self.listeners.lock();
        listeners.retain(|of| of.strong_count() > 0);
        listeners.push(Arc::downgrade(&event));
        Ok(event)
    }

    /// A share has become free.
    pub(crate) fn tell_freed(&self) {
        for listener in self.listeners.lock().iter().filter_map(Weak::upgrade) {
            listener.signal();
        }
    }

    fn set(&self, at: (Time, TimerKey), timer: Timer) {
        self.queue.lock().timers.insert(at, timer);
        self.changed.notify_one();
    }

    /// Waits for an action; `None` when stopped.
    pub(crate) fn next(&self) -> Option<KeeperTask> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(stream) = queue.closing.pop() {
                return Some(KeeperTask::Close(stream));
            }
            if queue.stopping {
                return None;
            }
            let now = clock::now();
            match queue.timers.first_entry() {
                Some(entry) if entry.key().0 <= now => {
                    return Some(KeeperTask::Timer(entry.remove()));
                }
                Some(entry) => {
                    let left = Duration::from_nanos(entry.key().0.saturating_since(now).0);
                    self.changed.wait_for(&mut queue, left);
                }
                None => self.changed.wait(&mut queue),
            }
        }
    }

    /// Performs what is due and ends the thread.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic has been reported by the panic hook.
            let _: Result<(), _> = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use sched::request::Op;
    use sched::units::Nanos;

    use super::*;
    use crate::disk::Durability;
    use crate::stream::{Span, StreamSpec};
    use crate::test_rig::disks::{MIB, Rig, stream_spec, volume};

    #[test]
    fn span_timer_is_removed_with_its_stream() {
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
            ends.filter_map(|&(at, key)| match key {
                TimerKey::Stream(stream) => Some((at, stream)),
                TimerKey::ShareFreed => None,
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

    #[test]
    fn end_of_a_reservation_is_told() {
        let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
        let volume = volume(&pool, "v", 4 * MIB);
        let stream = pool.reserve(stream_spec(&volume, Op::Read, 1 << 20, 65536));
        let freed = pool.freed_time().unwrap();
        assert!(!freed.drain());
        stream.unwrap().close();
        assert!(freed.wait(None));
    }
}
