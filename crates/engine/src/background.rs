//! Work of a pool beside client requests: its own transfers, metadata changes, ends of reservations, moves, and
//! measurements.

pub(crate) mod keeper;
pub(crate) mod measuring;
pub(crate) mod metadata;
pub(crate) mod mover;
pub(crate) mod ownership;
pub(crate) mod raw;
pub(crate) mod repair;
