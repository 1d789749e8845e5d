//! Numbers on their way to one thread.

use std::sync::atomic::Ordering;

use crate::sync::AtomicU32;

const NONE: u32 = u32::MAX;

/// A stack of numbers, linked through an array with a place for each, that is only ever taken whole; so
/// a number that comes back while another thread looks at it cannot confuse that thread.
///
/// A number may be on the stack once at a time.
#[derive(Debug)]
pub(crate) struct IndexStack {
    head: AtomicU32,
    next: Box<[AtomicU32]>,
}

impl IndexStack {
    /// An empty stack for numbers below `count`.
    pub(crate) fn new(count: u32) -> Self {
        Self {
            head: AtomicU32::new(NONE),
            next: (0..count).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    /// Hands over a number, and what the caller has written before. Tries again only if another number
    /// got in between.
    pub(crate) fn push(&self, index: u32) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(head, Ordering::Relaxed);
            match self
                .head
                .compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is nothing to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == NONE
    }

    /// Takes all there are, the latest first. A number may be pushed again as soon as `each` has it.
    pub(crate) fn take_all(&self, mut each: impl FnMut(u32)) {
        if self.is_empty() {
            return;
        }
        let mut at = self.head.swap(NONE, Ordering::Acquire);
        while at != NONE {
            let next = self.next[at as usize].load(Ordering::Relaxed);
            each(at);
            at = next;
        }
    }

    /// Takes the number that came first of those that have been taken to `batch`, or are here if that is
    /// empty. Only one thread at a time may do so, with always the same `batch`, of enough capacity.
    pub(crate) fn take_first(&self, batch: &mut Vec<u32>) -> Option<u32> {
        if batch.is_empty() {
            self.take_all(|index| batch.push(index));
        }
        batch.pop()
    }
}
