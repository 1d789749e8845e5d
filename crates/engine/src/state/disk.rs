//! A disk of an open pool.

pub(crate) mod core;
pub(crate) mod feeder;
pub(crate) mod suspects;
pub(crate) mod syncer;
