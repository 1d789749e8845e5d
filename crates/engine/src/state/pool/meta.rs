//! The pool's metadata, as it is kept under its lock.

use volume::{PoolState, Transaction};

use crate::state::raw::RawIo;

/// The pool's metadata. Its lock is held while a change is carried out, so changes run one at a time.
/// The data path never takes it.
///
/// # Frozen
///
/// A failed write of metadata *freezes* it. The write may have changed any part of its place, or may
/// change it later, so nothing else is written until it has succeeded. The transaction stays under way and
/// is retried from that write on, with the same bytes at the same places: by every caller with a change to
/// make, and by the committer each second. Reads, and writes with nothing new to record, continue
/// meanwhile.
///
/// A retry does not help after a failed host sync: earlier writes may be lost although a later sync
/// succeeds. If the transaction has written nothing yet, it is rolled back. Otherwise the metadata
/// accepts no more changes until the pool is reopened.
pub(crate) struct Meta {
    pub(crate) state: PoolState,
    pub(crate) raw: RawIo,
    /// The transaction to be retried, and the index of the step to retry from.
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
