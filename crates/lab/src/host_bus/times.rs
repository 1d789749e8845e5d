//! Times of transactions: measured points, and straight lines between them.

use sched::units::{Bytes, Nanos};

/// Bytes of a word of the bus.
pub const WORD_BYTES: u64 = 4;

/// The way of data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From a channel to memory.
    ToMemory,
    /// From memory to a channel.
    FromMemory,
}

/// What an adapter does with the bus at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The way of its data.
    pub direction: Direction,
    /// Their size.
    pub size: Bytes,
    /// The place of the first byte in its cache line.
    pub offset: u64,
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Bytes of the transaction; 0 for the time before the first word.
    pub bytes: u64,
    /// Its time.
    pub ns: u64,
}

/// Times of transactions of all sizes in one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Times(Vec<Point>);

impl Times {
    /// Times through the points.
    ///
    /// # Errors
    /// When there are too few points, or they do not rise, or one is faster than the bus. The text says what is wrong
    /// and what to do.
    pub fn new(word: Nanos, points: Vec<Point>) -> Result<Self, String> {
        if points.len() < 2 || points[0].bytes != 0 {
            return Err("give two points or more, the first with `bytes = 0`".to_owned());
        }
        for pair in points.windows(2) {
            if pair[1].bytes <= pair[0].bytes || pair[1].ns <= pair[0].ns {
                return Err(format!(
                    "the point of {} bytes follows that of {}: order points by bytes, with rising times",
                    pair[1].bytes, pair[0].bytes
                ));
            }
        }
        for Point { bytes, ns } in &points {
            if bytes % WORD_BYTES != 0 {
                return Err(format!(
                    "{bytes} bytes are no whole words: give a multiple of {WORD_BYTES}"
                ));
            }
            let least = bytes / WORD_BYTES * word.get();
            if *ns <= least {
                return Err(format!(
                    "{bytes} bytes in {ns} ns are faster than the bus, which needs {least} ns: correct the point, \
                     or `word_ns`"
                ));
            }
        }
        Ok(Self(points))
    }

    /// The largest transaction with a known time.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        Bytes(self.0.last().map_or(0, |point| point.bytes))
    }

    /// The time of so many bytes in whole words, at most the largest known.
    #[must_use]
    pub fn of(&self, size: Bytes) -> Nanos {
        let bytes = size.get().next_multiple_of(WORD_BYTES);
        let after = self.0.partition_point(|point| point.bytes < bytes);
        let after = after.clamp(1, self.0.len() - 1);
        let (low, high) = (self.0[after - 1], self.0[after]);
        let part = (bytes.min(high.bytes) - low.bytes) * (high.ns - low.ns);
        Nanos(low.ns + part / (high.bytes - low.bytes))
    }
}
