//! A latency histogram that a disk's real-time thread can update without a lock.
//!
//! Buckets are linear within powers of two, 32 to each, so a percentile is at most 3.2 % above the recorded
//! value. Count, sum and maximum are exact.
//!
//! Deliberately absent: exactness while [`Histogram::reset`] runs concurrently. A value recorded then may be
//! counted in either window.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sched::units::Nanos;
use serde::Serialize;

const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS + 1) as usize) << SUB_BITS;

/// A latency distribution.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// Number of values.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// See the [module](self).
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, value: Nanos) {
        self.buckets[bucket(value.0)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value.0, Relaxed);
        self.max.fetch_max(value.0, Relaxed);
    }

    /// Begins a new window.
    pub(crate) fn reset(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Relaxed);
        }
        self.sum.store(0, Relaxed);
        self.max.store(0, Relaxed);
    }

    pub(crate) fn summary(&self) -> Latency {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Relaxed))
            .collect();
        let count: u64 = counts.iter().sum();
        let max = self.max.load(Relaxed);
        let at = |percent: u64| {
            let rank = (count * percent).div_ceil(100).max(1);
            let mut below = 0;
            let found = counts.iter().position(|count| {
                below += count;
                below >= rank
            });
            found.map_or(0, |bucket| highest(bucket).min(max))
        };
        Latency {
            count,
            mean_ns: self.sum.load(Relaxed).checked_div(count).unwrap_or(0),
            p50_ns: at(50),
            p99_ns: at(99),
            max_ns: max,
        }
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    (((u64::from(shift) + 1) << SUB_BITS) + ((value >> shift) - SUB)) as usize
}

/// The highest value of a bucket.
fn highest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let first = u128::from(SUB + (bucket & (SUB - 1))) << shift;
    u64::try_from(first + (1 << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_near_its_highest_value() {
        for power in 0..64u32 {
            for offset in [0, 1, 7] {
                let value = (1u64 << power).saturating_add(offset << power.saturating_sub(4));
                let top = highest(bucket(value));
                assert!(top >= value, "{value} in a bucket up to {top}");
                assert!(
                    top - value <= value / SUB,
                    "{value} in a bucket up to {top}"
                );
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_what_was_recorded() {
        let histogram = Histogram::new();
        for value in 1..=1000 {
            histogram.record(Nanos(value * 1000));
        }
        let summary = histogram.summary();
        assert_eq!(
            (summary.count, summary.mean_ns, summary.max_ns),
            (1000, 500_500, 1_000_000)
        );
        assert!((500_000..=516_000).contains(&summary.p50_ns), "{summary:?}");
        assert!(
            (990_000..=1_000_000).contains(&summary.p99_ns),
            "{summary:?}"
        );
        histogram.reset();
        assert_eq!(histogram.summary(), Latency::default());
    }
}
