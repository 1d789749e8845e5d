//! What an export needs of a volume, whatever its protocol.

pub(super) mod pending;
pub(super) mod spare;
