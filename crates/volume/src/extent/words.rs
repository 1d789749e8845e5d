//! A set of chunks that many threads change at once.

use std::sync::atomic::Ordering::SeqCst;

use crate::chunks::{ChunkSet, WORDS};
use crate::sync::AtomicU64;

#[derive(Default)]
pub(super) struct Words([AtomicU64; WORDS]);

impl Words {
    pub(super) fn of(set: &ChunkSet) -> Self {
        Self(set.0.map(AtomicU64::new))
    }

    pub(super) fn load(&self) -> ChunkSet {
        ChunkSet(std::array::from_fn(|word| self.0[word].load(SeqCst)))
    }

    pub(super) fn has_all(&self, set: &ChunkSet) -> bool {
        let mut words = self.0.iter().zip(set.0).filter(|(_, bits)| *bits != 0);
        words.all(|(word, bits)| word.load(SeqCst) & bits == bits)
    }

    pub(super) fn insert(&self, set: &ChunkSet) {
        for (word, bits) in self.0.iter().zip(set.0).filter(|(_, bits)| *bits != 0) {
            word.fetch_or(bits, SeqCst);
        }
    }

    /// Removes `set`; true if anything changed.
    pub(super) fn remove(&self, set: &ChunkSet) -> bool {
        let mut changed = false;
        for (word, bits) in self.0.iter().zip(set.0).filter(|(_, bits)| *bits != 0) {
            changed |= word.fetch_and(!bits, SeqCst) & bits != 0;
        }
        changed
    }

    /// All of `set`, or none.
    pub(super) fn try_claim(&self, set: &ChunkSet) -> bool {
        for (index, bits) in set.0.iter().enumerate().filter(|(_, bits)| **bits != 0) {
            let before = self.0[index].fetch_or(*bits, SeqCst);
            if before & bits != 0 {
                self.0[index].fetch_and(before | !bits, SeqCst);
                for (word, bits) in self.0.iter().zip(set.0).take(index) {
                    word.fetch_and(!bits, SeqCst);
                }
                return false;
            }
        }
        true
    }

    pub(super) fn take(&self) -> ChunkSet {
        ChunkSet(std::array::from_fn(|word| self.0[word].swap(0, SeqCst)))
    }
}
