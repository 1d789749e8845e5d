//! The event heap: what happens next, and in order of insertion what happens at the same instant.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use sched::units::Time;

struct Entry<E> {
    at: Time,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Events in order of time; ties in order of insertion.
pub struct EventHeap<E> {
    entries: BinaryHeap<Reverse<Entry<E>>>,
    inserted: u64,
}

impl<E> Default for EventHeap<E> {
    fn default() -> Self {
        Self {
            entries: BinaryHeap::new(),
            inserted: 0,
        }
    }
}

impl<E> EventHeap<E> {
    /// Adds an event.
    pub fn push(&mut self, at: Time, event: E) {
        let sequence = self.inserted;
        self.inserted += 1;
        self.entries.push(Reverse(Entry {
            at,
            sequence,
            event,
        }));
    }

    /// When the next event is.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.entries.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event, if it is not after `until`.
    pub fn pop_until(&mut self, until: Time) -> Option<(Time, E)> {
        if self.next_at()? > until {
            return None;
        }
        self.entries
            .pop()
            .map(|Reverse(entry)| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_come_out_in_the_order_in_which_they_went_in() {
        let mut heap = EventHeap::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            heap.push(Time(at), event);
        }
        assert_eq!(heap.pop_until(Time(2)), None);
        let order: String =
            std::iter::from_fn(|| heap.pop_until(Time(9)).map(|(_, e)| e)).collect();
        assert_eq!(order, "abcd");
    }
}
