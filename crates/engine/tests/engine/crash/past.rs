//! What has been, and how much of it a power cut can bring back; and what has been done meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

/// What something has been, change by change. A change is durable when the call that makes it returns.
pub(crate) struct Past<T> {
    states: Vec<T>,
    settled: usize,
}

impl<T: Clone> Past<T> {
    pub(crate) fn new(first: T) -> Self {
        Self {
            states: vec![first],
            settled: 0,
        }
    }

    pub(crate) fn last(&self) -> &T {
        self.states.last().expect("there is always one")
    }

    /// A change begins that will make it this.
    pub(crate) fn begin(&mut self, state: T) {
        self.states.push(state);
    }

    /// The change has been made.
    pub(crate) fn end(&mut self) {
        self.settled = self.states.len() - 1;
    }

    /// Forgets what no power cut from now on can bring back.
    pub(crate) fn forget(&mut self) {
        self.states.drain(..self.settled);
        self.settled = 0;
    }

    /// What it was, from the last change on that had been made when the rest was forgotten.
    pub(crate) fn states(&self) -> Vec<T> {
        self.states.clone()
    }
}

/// What is done while the power may be cut.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Create,
    Write,
    Grow,
    Shrink,
    Delete,
    Move,
    Flush,
}

const KINDS: usize = Kind::Flush as usize + 1;

/// How often each of it has been done.
#[derive(Default, Debug)]
pub(crate) struct Tally([AtomicU64; KINDS]);

impl Tally {
    pub(crate) fn did(&self, kind: Kind, times: u64) {
        self.0[kind as usize].fetch_add(times, Ordering::SeqCst);
    }

    pub(crate) fn so_far(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| self.0[kind].load(Ordering::SeqCst))
    }

    /// Whether all of it has been done since.
    pub(crate) fn is_beyond(&self, before: &[u64; KINDS]) -> bool {
        let now = self.so_far();
        before.iter().zip(now).all(|(before, now)| now > *before)
    }
}
