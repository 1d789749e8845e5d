//! The pool's metadata under its lock.

use volume::{PoolState, Transaction};

use crate::state::raw::RawIo;

/// The pool's metadata. Its lock is held while a change is carried out, so that there is one at a
/// time; nothing on the data path takes it.
///
/// # Frozen
///
/// A disk that does not take a write of the metadata *freezes* it. The write may have changed any part of its
/// place, or may yet, so nothing else is written before it has been: the transaction stays under way and is tried
/// again from that write on, with the same bytes at the same places, by whoever has a change to make and by the
/// committer each second. Reads, and writes with nothing new to record, go on meanwhile.
///
/// After a host sync that failed this does not help: what was written before it may be lost although a later
/// sync succeeds. Where that comes before the transaction has written anything, the transaction is taken back.
/// Otherwise the metadata takes no more changes until the pool is opened anew.
pub(crate) struct Meta {
    pub(crate) state: PoolState,
    pub(crate) raw: RawIo,
    /// What is to be done again, from the step of that number on.
    pub(crate) pending: Option<(Transaction, usize)>,
}

impl Meta {
    pub(crate) fn new(state: PoolState, raw: RawIo) -> Self {
        Self {
            state,
            raw,
            pending: None,
        }
    }
}
