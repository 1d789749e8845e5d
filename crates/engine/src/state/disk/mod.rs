//! A disk of an open pool.

pub(crate) mod core;
pub(crate) mod syncer;
