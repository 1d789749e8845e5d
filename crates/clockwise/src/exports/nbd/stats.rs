//! Counters of the server, to which every connection adds.

use std::sync::atomic::{AtomicU64, Ordering};

use super::config::NbdStatus;
use crate::exports::requests::counters::Counters;

#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Open connections.
    pub(super) connections: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) counters: Counters,
}

impl Stats {
    pub(super) fn snapshot(&self) -> NbdStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sum = self.counters.sum();
        NbdStatus {
            connections: load(&self.connections),
            accepted: load(&self.accepted),
            refused: load(&self.refused),
            broken: load(&self.broken),
            requests: sum.requests,
            errors: sum.errors,
            read_bytes: sum.read_bytes,
            written_bytes: sum.written_bytes,
        }
    }
}
