//! Counters that every client of an export adds to.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an export has done for its clients since its start. Each client counts for itself and adds a
/// turn's sum.
#[derive(Debug, Default)]
pub(in crate::exports) struct Counters {
    requests: AtomicU64,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// What one client did in a turn, or all of them so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::exports) struct Turn {
    /// Requests answered, errors included.
    pub(in crate::exports) requests: u64,
    /// Requests answered with an error.
    pub(in crate::exports) errors: u64,
    pub(in crate::exports) read_bytes: u64,
    pub(in crate::exports) written_bytes: u64,
}

impl Counters {
    /// Adds what a client did, and clears it.
    pub(in crate::exports) fn add(&self, turn: &mut Turn) {
        let Turn {
            requests,
            errors,
            read_bytes,
            written_bytes,
        } = std::mem::take(turn);
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

    /// What all of them did.
    pub(in crate::exports) fn sum(&self) -> Turn {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Turn {
            requests: load(&self.requests),
            errors: load(&self.errors),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
        }
    }
}
