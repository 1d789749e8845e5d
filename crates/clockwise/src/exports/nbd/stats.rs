//! Counters that every connection adds to.

use std::sync::atomic::{AtomicU64, Ordering};

use super::config::NbdStatus;

/// The server's counters since its start. Each connection counts for itself and adds a turn's sum.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) connections: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) broken: AtomicU64,
    requests: AtomicU64,
    errors: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// What one connection did in a turn.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turn {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
}

impl Stats {
    /// Adds what a connection did, and clears it.
    pub(super) fn add(&self, turn: &mut Turn) {
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

    pub(super) fn snapshot(&self) -> NbdStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NbdStatus {
            connections: load(&self.connections),
            accepted: load(&self.accepted),
            refused: load(&self.refused),
            broken: load(&self.broken),
            requests: load(&self.requests),
            errors: load(&self.errors),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
        }
    }
}
