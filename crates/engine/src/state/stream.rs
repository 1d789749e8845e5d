//! A reservation.

pub(crate) mod ahead;
pub(crate) mod core;
pub(crate) mod stats;
