//! A stack of numbers on their way to one thread.

use std::sync::atomic::Ordering;

use crate::sync::AtomicU32;

const NONE: u32 = u32::MAX;

/// A stack of numbers, linked through an array with an entry for each. It is only ever taken whole, so there
/// is no ABA problem when a number returns while another thread examines it.
///
/// A number may be on the stack only once at a time.
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

    /// Pushes a number, and publishes everything that the caller has written before. Retries only if another
    /// push took effect in between.
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

    /// True if the stack is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == NONE
    }

    /// Takes all numbers, the latest first. A number may be pushed again as soon as `each` has it.
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

    /// Takes the oldest number in `batch`; if that is empty, moves all numbers from the stack to it first.
    /// Only one thread at a time may call this, always with the same `batch`, which must have enough
    /// capacity.
    pub(crate) fn take_first(&self, batch: &mut Vec<u32>) -> Option<u32> {
        if batch.is_empty() {
            self.take_all(|index| batch.push(index));
        }
        batch.pop()
    }
}
