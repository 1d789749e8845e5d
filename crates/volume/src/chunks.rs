//! A set of chunks of one extent, as a plain value.

use core::ops::Range;

use crate::limits::CHUNKS_PER_EXTENT_MAX;

/// Words in a set: one bit for each chunk there can be.
pub(crate) const WORDS: usize = (CHUNKS_PER_EXTENT_MAX / 64) as usize;

/// Chunks of one extent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChunkSet(pub(crate) [u64; WORDS]);

impl ChunkSet {
    /// No chunk.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The chunks of `range`.
    #[must_use]
    pub fn of(range: Range<u32>) -> Self {
        let mut set = Self::EMPTY;
        for (word, bits) in set.0.iter_mut().enumerate() {
            let low = (word as u32) * 64;
            let from = range.start.clamp(low, low + 64) - low;
            let to = range.end.clamp(low, low + 64) - low;
            if from < to {
                *bits = (u64::MAX >> (64 - (to - from))) << from;
            }
        }
        set
    }

    /// True if the set contains `chunk`.
    #[must_use]
    pub const fn has(&self, chunk: u32) -> bool {
        self.0[(chunk / 64) as usize] & (1 << (chunk % 64)) != 0
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Number of chunks.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Those in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// Those in this and not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Those in either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The end of the run of chunks that, like the chunk `from`, are in it, or are not; at most `end`.
    #[must_use]
    pub fn run_end(&self, from: u32, end: u32) -> u32 {
        let inside = self.has(from);
        let mut at = from;
        while at < end {
            let word = self.0[(at / 64) as usize] >> (at % 64);
            let same = (if inside {
                word.trailing_ones()
            } else {
                word.trailing_zeros()
            })
            .min(64 - at % 64);
            at += same;
            if !at.is_multiple_of(64) || same == 0 {
                break;
            }
        }
        at.min(end)
    }

    /// The runs of chunks in it, below `end`.
    pub fn runs(&self, end: u32) -> impl Iterator<Item = Range<u32>> + use<> {
        let set = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            if at < end && !set.has(at) {
                at = set.run_end(at, end);
            }
            if at >= end {
                return None;
            }
            let from = at;
            at = set.run_end(at, end);
            Some(from..at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u32 = CHUNKS_PER_EXTENT_MAX as u32;

    #[test]
    fn runs_are_what_single_bits_say() {
        for (from, to) in [
            (0, 0),
            (0, 1),
            (3, END / 8),
            (END / 8 - 1, END / 8 + 1),
            (0, END),
            (END / 5, END / 2),
            (END - 1, END),
        ] {
            let set = ChunkSet::of(from..to);
            assert_eq!(set.len(), to - from);
            assert!((0..END).all(|chunk| set.has(chunk) == (from..to).contains(&chunk)));
            let runs: Vec<_> = set.runs(END).collect();
            assert_eq!(
                runs,
                Some(from..to)
                    .filter(|run| !run.is_empty())
                    .into_iter()
                    .collect::<Vec<_>>()
            );
        }
        let (a, b) = (END / 9, END / 3);
        let set = ChunkSet::of(1..3)
            .or(&ChunkSet::of(a..b))
            .or(&ChunkSet::of(END - 1..END));
        assert_eq!(
            set.runs(END).collect::<Vec<_>>(),
            [1..3, a..b, END - 1..END]
        );
        assert_eq!(set.runs(b - 1).collect::<Vec<_>>(), [1..3, a..b - 1]);
        assert_eq!(set.run_end(3, END), a);
        assert_eq!(set.without(&ChunkSet::of(2..END - 1)).len(), 2);
    }
}
