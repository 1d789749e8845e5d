//! What a pool does beside taking requests: its own transfers, changes of its metadata, ending reservations, moves.

pub(crate) mod keeper;
pub(crate) mod metadata;
pub(crate) mod mover;
pub(crate) mod ownership;
pub(crate) mod raw;
