//! A set of small numbers that any thread takes from and gives to.
//!
//! What a look finds and what a giver does after it are in one order with the other sequentially consistent
//! operations of both, so that whoever finds nothing may announce that before it looks, and a giver who looks
//! for announcements after it has given needs no fence: on x86 giving is one already.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::sync::AtomicU64;

/// A set of numbers out of a fixed range, as bits. Low numbers are taken first, so what they name stays
/// in the processor's caches.
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

    /// Takes a number out. `None` if there was none wherever it looked when it looked there: one that is
    /// given back meanwhile may be overlooked.
    pub(crate) fn take(&self) -> Option<u32> {
        for (at, word) in (0..).zip(&self.words) {
            let mut seen = word.load(Ordering::SeqCst);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                // What the last owner did with what the number names comes before.
                seen = word.fetch_and(!bit, Ordering::SeqCst);
                if seen & bit != 0 {
                    return Some(self.base + at * u64::BITS + bit.trailing_zeros());
                }
            }
        }
        None
    }

    /// Puts a number back. Never waits, never fails.
    pub(crate) fn give(&self, index: u32) {
        let at = index - self.base;
        let bit = 1 << (at % u64::BITS);
        let before = self.words[(at / u64::BITS) as usize].fetch_or(bit, Ordering::SeqCst);
        debug_assert!(before & bit == 0, "{index} was given back twice");
    }
}
