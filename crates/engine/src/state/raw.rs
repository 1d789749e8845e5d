//! What the engine's own transfers need.

use sched::request::Urgency;

use crate::buffer::Account;
use crate::completion::CompletionQueue;

/// Transfers of the engine's own, one caller at a time: the buffers that they use, and where they are answered.
pub(crate) struct RawIo {
    pub(crate) account: Account,
    pub(crate) queue: CompletionQueue,
    pub(crate) urgency: Urgency,
    pub(crate) piece_bytes: usize,
}
