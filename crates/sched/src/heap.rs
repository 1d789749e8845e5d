//! A binary heap of task slots, each at most once, from which any can be taken out.
//!
//! `BinaryHeap` cannot take out what is not on top, and lazy deletion grows without bound under a
//! client that submits and cancels. Slots are small dense numbers, so where each stands is an array.

use crate::task::TaskId;
use crate::units::Time;
use alloc::vec::Vec;

const ABSENT: u32 = u32::MAX;

/// Key of the heap: the instant, then the task, so that ties always break alike.
type Key = (Time, TaskId);

/// A heap of slots, least key on top.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotHeap {
    entries: Vec<(Key, u32)>,
    places: Vec<u32>,
}

impl SlotHeap {
    /// Makes room for slots up to `slot`.
    pub(crate) fn admit(&mut self, slot: u32) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, ABSENT);
        }
        self.entries.reserve(self.places.len() - self.entries.len());
    }

    /// The least key and its slot.
    pub(crate) fn first(&self) -> Option<(Key, u32)> {
        self.entries.first().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts a slot in that is not there.
    pub(crate) fn insert(&mut self, key: Key, slot: u32) {
        debug_assert_eq!(
            self.places[slot as usize], ABSENT,
            "a slot stands in a heap once"
        );
        self.entries.push((key, slot));
        self.up(self.entries.len() - 1);
    }

    /// Takes a slot out, if it is there.
    pub(crate) fn remove(&mut self, slot: u32) {
        let place = self.places[slot as usize];
        if place == ABSENT {
            return;
        }
        self.places[slot as usize] = ABSENT;
        let place = place as usize;
        self.entries.swap_remove(place);
        if place < self.entries.len() {
            self.places[self.entries[place].1 as usize] = place as u32;
            let place = self.up(place);
            self.down(place);
        }
    }

    fn up(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.entries[parent].0 <= self.entries[place].0 {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
        self.places[self.entries[place].1 as usize] = place as u32;
        place
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(least) =
                (left..self.entries.len().min(left + 2)).min_by_key(|&child| self.entries[child].0)
            else {
                return;
            };
            if self.entries[place].0 <= self.entries[least].0 {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.places[self.entries[a].1 as usize] = a as u32;
        self.places[self.entries[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use testkit::cases;

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn the_least_is_on_top_whatever_is_put_in_and_taken_out(steps in prop::collection::vec((0u32..16, 0u64..50), 0..200)) {
            let mut heap = SlotHeap::default();
            heap.admit(15);
            let mut model = alloc::collections::BTreeMap::new();
            for (slot, at) in steps {
                if model.remove(&slot).is_some() {
                    heap.remove(slot);
                } else {
                    let key = (Time(at), TaskId(u64::from(slot)));
                    heap.insert(key, slot);
                    model.insert(slot, key);
                }
                let least = model.iter().map(|(&slot, &key)| (key, slot)).min();
                prop_assert_eq!(heap.first(), least);
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
