//! A set of small numbers that any thread takes from and returns to.
//!
//! All operations are sequentially consistent, together with those of the callers. So a thread that finds the
//! set empty can announce a wait and check again, and a thread that returns a number can look for
//! announcements afterwards without a fence. On x86, returning a number is a full fence anyway.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::sync::AtomicU64;

/// A set of numbers of a fixed range, as bits. Low numbers are taken first, so that the objects they index
/// stay in the processor's caches.
#[derive(Debug)]
pub(crate) struct IndexSet {
    base: u32,
    words: Box<[AtomicU64]>,
}

impl IndexSet {
    /// The set of all numbers of `range`.
    pub(crate) fn full(range: Range<u32>) -> Self {
        let count = range.end.saturating_sub(range.start);
        let words = (0..count.div_ceil(u64::BITS)).map(|word| {
            let here = (count - word * u64::BITS).min(u64::BITS);
            AtomicU64::new(u64::MAX >> (u64::BITS - here))
        });
        Self {
            base: range.start,
            words: words.collect(),
        }
    }

    /// Takes a number. `None` if each word was empty when it was examined; a number returned meanwhile may be
    /// missed.
    pub(crate) fn take(&self) -> Option<u32> {
        for (at, word) in (0..).zip(&self.words) {
            let mut seen = word.load(Ordering::SeqCst);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                // Everything that the last owner did with the number's object happened before this.
                seen = word.fetch_and(!bit, Ordering::SeqCst);
                if seen & bit != 0 {
                    return Some(self.base + at * u64::BITS + bit.trailing_zeros());
                }
            }
        }
        None
    }

    /// Returns a number. Never waits, never fails.
    pub(crate) fn give(&self, index: u32) {
        let at = index - self.base;
        let bit = 1 << (at % u64::BITS);
        let before = self.words[(at / u64::BITS) as usize].fetch_or(bit, Ordering::SeqCst);
        debug_assert!(before & bit == 0, "{index} was given back twice");
    }
}
