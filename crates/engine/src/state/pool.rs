//! An open pool.

pub(crate) mod admission;
pub(crate) mod committer;
pub(crate) mod core;
pub(crate) mod frozen;
pub(crate) mod io;
pub(crate) mod keeper;
pub(crate) mod meta;
pub(crate) mod repair;
