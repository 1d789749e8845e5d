//! What is done for a pool that no client's request waits for.

pub(crate) mod keeper;
pub(crate) mod metadata;
pub(crate) mod mover;
pub(crate) mod ownership;
pub(crate) mod raw;
