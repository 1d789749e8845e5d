//! An open pool.

pub(crate) mod admission;
pub(crate) mod core;
pub(crate) mod frozen;
