//! Slots of a disk's requests, shared between submitters and the dispatcher.
//!
//! A submitter takes a slot before it hands its request over. So a disk's inbox never overflows, and the
//! dispatcher allocates no memory for a request. Streams, clients with a reservation and plain best effort
//! have slots of their own, so none of them can block another.
//!
//! A request's id is its slot and the number of times that the slot has been used. So ids are unique, and
//! a request is found by its id with an array access.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;
use sched::request::{Class, RequestId};

use crate::handoff::IndexSet;

/// Number of requests that may be queued at a disk at a time, by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// Requests of streams.
    pub stream: u32,
    /// Best-effort requests of clients that hold a reservation.
    pub reserved: u32,
    /// Other best-effort requests.
    pub best_effort: u32,
}

impl Places {
    /// The sum over all classes.
    #[must_use]
    pub const fn total(self) -> u32 {
        self.stream
            .saturating_add(self.reserved)
            .saturating_add(self.best_effort)
    }
}

impl Default for Places {
    /// The scheduler's default queue length, a quarter of it for streams: four requests for each of 256
    /// streams.
    fn default() -> Self {
        Self {
            stream: 1024,
            reserved: 512,
            best_effort: 2560,
        }
    }
}

/// The group of slots that a request's class uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pool {
    Stream,
    Reserved,
    BestEffort,
}

#[derive(Debug)]
struct Share {
    vacant: IndexSet,
    /// Threads that sleep until a slot is vacant, or are about to.
    sleepers: AtomicU32,
    /// The futex word: counts returned slots, and the closing.
    wake_count: AtomicU32,
}

impl Share {
    /// Takes a slot, sleeping while there is none. `None` once `closed` returns true.
    fn take_wait(&self, closed: impl Fn() -> bool) -> Option<u32> {
        loop {
            let wake_count = self.wake_count.load(Ordering::Acquire);
            if closed() {
                return None;
            }
            if let Some(index) = self.vacant.take() {
                return Some(index);
            }
            // The accesses of `sleepers` and `vacant`, here and in `give`, are sequentially consistent: a slot
            // returned after this check sees the sleeper and changes the futex word.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            let found = self.vacant.take();
            if found.is_none() {
                // Woken, interrupted, or too late to sleep: check again.
                let _ = futex::wait(&self.wake_count, futex::Flags::PRIVATE, wake_count, None);
            }
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
            if found.is_some() {
                return found;
            }
        }
    }

    fn give(&self, index: u32) {
        self.vacant.give(index);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake(1);
        }
    }

    fn wake(&self, threads: u32) {
        self.wake_count.fetch_add(1, Ordering::Release);
        // Fails only for an invalid address.
        let _ = futex::wake(&self.wake_count, futex::Flags::PRIVATE, threads);
    }
}

/// The slots of one disk.
#[derive(Debug)]
pub(super) struct Slots {
    shares: [Share; 3],
    /// Number of uses of each slot.
    uses: Box<[AtomicU32]>,
    places: Places,
}

const fn pool_of(class: Class) -> Pool {
    match class {
        Class::Stream(_) | Class::Swept(..) => Pool::Stream,
        Class::Reserved(..) => Pool::Reserved,
        Class::BestEffort(_) => Pool::BestEffort,
    }
}

/// The slot of an id.
pub(super) const fn index_of(id: RequestId) -> usize {
    (id.0 & 0xffff_ffff) as usize
}

impl Slots {
    pub(super) fn new(places: Places) -> Self {
        let mut next = 0;
        let mut share = |count: u32| {
            let vacant = IndexSet::full(next..next + count);
            next += count;
            Share {
                vacant,
                sleepers: AtomicU32::new(0),
                wake_count: AtomicU32::new(0),
            }
        };
        let shares = [
            share(places.stream),
            share(places.reserved),
            share(places.best_effort),
        ];
        Self {
            shares,
            uses: (0..places.total()).map(|_| AtomicU32::new(0)).collect(),
            places,
        }
    }

    pub(super) fn places(&self) -> Places {
        self.places
    }

    /// Takes a slot for a request of `class`.
    pub(super) fn take(&self, class: Class) -> Option<RequestId> {
        let index = self.share(class).vacant.take()?;
        Some(self.id(index))
    }

    /// Takes a slot, sleeping while there is none. `None` once `closed` returns true.
    pub(super) fn take_wait(&self, class: Class, closed: impl Fn() -> bool) -> Option<RequestId> {
        let index = self.share(class).take_wait(closed)?;
        Some(self.id(index))
    }

    fn share(&self, class: Class) -> &Share {
        &self.shares[pool_of(class) as usize]
    }

    /// The id for the next use of a slot, which the caller has taken.
    fn id(&self, index: u32) -> RequestId {
        let uses = self.uses[index as usize].fetch_add(1, Ordering::Relaxed);
        RequestId(u64::from(uses) << 32 | u64::from(index))
    }

    /// Returns a slot.
    pub(super) fn give(&self, id: RequestId) {
        let index = index_of(id) as u32;
        let pool = if index < self.places.stream {
            Pool::Stream
        } else if index < self.places.stream + self.places.reserved {
            Pool::Reserved
        } else {
            Pool::BestEffort
        };
        self.shares[pool as usize].give(index);
    }

    /// Wakes all sleepers, so that they see that the disk is closed.
    pub(super) fn wake_all(&self) {
        for share in &self.shares {
            share.wake(i32::MAX.unsigned_abs());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use sched::request::Urgency;
    use sched::task::TaskId;

    const FEW: Places = Places {
        stream: 1,
        reserved: 1,
        best_effort: 2,
    };
    const PLAIN: Class = Class::BestEffort(Urgency::Sync);

    #[test]
    fn classes_do_not_take_each_others_places() {
        let slots = Slots::new(FEW);
        assert!(slots.take(PLAIN).is_some());
        assert!(slots.take(PLAIN).is_some());
        assert!(slots.take(PLAIN).is_none());
        assert!(slots.take(Class::Stream(TaskId(1))).is_some());
        assert!(
            slots
                .take(Class::Reserved(TaskId(2), Urgency::Sync))
                .is_some()
        );
    }

    #[test]
    fn an_id_is_never_given_twice() {
        let slots = Slots::new(FEW);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            let id = slots.take(PLAIN).unwrap();
            assert!(seen.insert(id));
            slots.give(id);
        }
    }

    #[test]
    fn sleepers_get_places_that_are_given_back_and_hear_of_the_end() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 500;
        let slots = Arc::new(Slots::new(FEW));
        let closed = Arc::new(AtomicBool::new(false));
        let taking: Vec<_> = (0..THREADS)
            .map(|_| {
                let slots = Arc::clone(&slots);
                std::thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        let id = slots.take_wait(PLAIN, || false).unwrap();
                        slots.give(id);
                    }
                })
            })
            .collect();
        for thread in taking {
            thread.join().unwrap();
        }
        let held: Vec<_> = std::iter::from_fn(|| slots.take(PLAIN)).collect();
        assert_eq!(held.len(), 2);
        let waiting = {
            let (slots, closed) = (Arc::clone(&slots), Arc::clone(&closed));
            std::thread::spawn(move || slots.take_wait(PLAIN, || closed.load(Ordering::SeqCst)))
        };
        closed.store(true, Ordering::SeqCst);
        while !waiting.is_finished() {
            slots.wake_all();
            std::thread::yield_now();
        }
        assert_eq!(waiting.join().unwrap(), None);
    }
}
