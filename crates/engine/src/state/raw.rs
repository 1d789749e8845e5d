//! Resources of the engine's own transfers.

use std::sync::atomic::AtomicBool;

use sched::request::Urgency;

use crate::buffer::Account;
use crate::completion::CompletionQueue;

/// Buffers and completion queue of the engine's own transfers. One caller uses them at a time.
pub(crate) struct RawIo {
    pub(crate) account: Account,
    pub(crate) queue: CompletionQueue,
    pub(crate) urgency: Urgency,
    pub(crate) piece_bytes: usize,
    /// The last failure was one of the medium.
    pub(crate) failed_medium: AtomicBool,
}
