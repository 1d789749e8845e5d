//! Counts of requests and bytes, summed over all clients of an export.

use std::sync::atomic::{AtomicU64, Ordering};

/// The sums of an export since its start. Each client counts for itself and adds its counts once a turn.
#[derive(Debug, Default)]
pub(in crate::exports) struct Counters {
    requests: AtomicU64,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Counts of one client since they were last added, or the sums of all clients.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::exports) struct RequestCounts {
    /// Requests answered, errors included.
    pub(in crate::exports) requests: u64,
    /// Requests answered with an error.
    pub(in crate::exports) errors: u64,
    pub(in crate::exports) read_bytes: u64,
    pub(in crate::exports) written_bytes: u64,
}

impl Counters {
    /// Adds the counts of a client, and clears them.
    pub(in crate::exports) fn add(&self, counts: &mut RequestCounts) {
        let RequestCounts {
            requests,
            errors,
            read_bytes,
            written_bytes,
        } = std::mem::take(counts);
        for (sum, count) in [
            (&self.requests, requests),
            (&self.errors, errors),
            (&self.read_bytes, read_bytes),
            (&self.written_bytes, written_bytes),
        ] {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub(in crate::exports) fn sum(&self) -> RequestCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestCounts {
            requests: load(&self.requests),
            errors: load(&self.errors),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
        }
    }
}
