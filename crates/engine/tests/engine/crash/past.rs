//! The states that a power cut may leave, and the number of operations between power cuts.

use std::sync::atomic::{AtomicU64, Ordering};

/// The successive states of an object. A change is durable when the call that makes it returns.
pub(crate) struct PossibleStates<T> {
    states: Vec<T>,
    settled: usize,
}

impl<T: Clone> PossibleStates<T> {
    pub(crate) fn new(first: T) -> Self {
        Self {
            states: vec![first],
            settled: 0,
        }
    }

    pub(crate) fn last(&self) -> &T {
        self.states.last().expect("there is always one")
    }

    /// Records that a change to `state` begins.
    pub(crate) fn begin(&mut self, state: T) {
        self.states.push(state);
    }

    /// Records that the change is durable.
    pub(crate) fn end(&mut self) {
        self.settled = self.states.len() - 1;
    }

    /// Forgets states that a power cut can no longer restore.
    pub(crate) fn forget(&mut self) {
        self.states.drain(..self.settled);
        self.settled = 0;
    }

    /// The states that a power cut may leave.
    pub(crate) fn states(&self) -> Vec<T> {
        self.states.clone()
    }
}

/// Operations during which the power may be cut.
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

/// Number of operations of each kind.
#[derive(Default, Debug)]
pub(crate) struct Tally([AtomicU64; KINDS]);

impl Tally {
    pub(crate) fn did(&self, kind: Kind, times: u64) {
        self.0[kind as usize].fetch_add(times, Ordering::SeqCst);
    }

    pub(crate) fn so_far(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| self.0[kind].load(Ordering::SeqCst))
    }

    /// True if each kind has happened since `before`.
    pub(crate) fn is_beyond(&self, before: &[u64; KINDS]) -> bool {
        let now = self.so_far();
        before.iter().zip(now).all(|(before, now)| now > *before)
    }
}
