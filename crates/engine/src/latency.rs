//! Latency distributions.
//!
//! A [`Histogram`] is updated by several threads without a lock, and has percentiles of a window. Its buckets are
//! linear within powers of two, 32 to each, so a percentile is at most 3.2 % above the recorded value. Count, sum and
//! maximum are exact. [`BucketCounts`] belongs to one thread, and counts from its beginning in a few fixed buckets, as
//! monitoring systems expect.
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

/// The upper limits of the buckets of [`BucketCounts`]; each bucket includes its limit.
pub const BUCKET_LIMITS: [Nanos; 16] = [
    Nanos::from_micros(100),
    Nanos::from_micros(250),
    Nanos::from_micros(500),
    Nanos::from_micros(1_000),
    Nanos::from_micros(2_500),
    Nanos::from_micros(5_000),
    Nanos::from_micros(10_000),
    Nanos::from_micros(25_000),
    Nanos::from_micros(50_000),
    Nanos::from_micros(100_000),
    Nanos::from_micros(250_000),
    Nanos::from_micros(500_000),
    Nanos::from_secs(1),
    Nanos::from_micros(2_500_000),
    Nanos::from_secs(5),
    Nanos::from_secs(10),
];

/// Number of values in each of a few fixed buckets, and their sum. See the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BucketCounts {
    /// By bucket; the last one holds the values above the last of [`BUCKET_LIMITS`].
    pub counts: [u64; BUCKET_LIMITS.len() + 1],
    /// The sum of all values.
    pub sum_ns: u64,
}

impl BucketCounts {
    pub(crate) fn record(&mut self, value: Nanos) {
        let bucket = BUCKET_LIMITS.partition_point(|limit| *limit < value);
        self.counts[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(value.0);
    }

    /// Number of all values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// A distribution in a window. See the [module](self).
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
    fn fixed_buckets_include_their_limits() {
        let mut counts = BucketCounts::default();
        for limit in BUCKET_LIMITS {
            counts.record(limit);
            counts.record(Nanos(limit.0 + 1));
        }
        counts.record(Nanos::ZERO);
        let mut expected = [2; BUCKET_LIMITS.len() + 1];
        expected[BUCKET_LIMITS.len()] = 1;
        assert_eq!(counts.counts, expected);
        assert_eq!(counts.count(), 33);
        let limits: u64 = BUCKET_LIMITS.iter().map(|limit| limit.0).sum();
        assert_eq!(counts.sum_ns, 2 * limits + 16);
    }

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
