//! Faults of emulated drives.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The faults of an emulated drive.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveFaults {
    /// All of them; a request meets each that it touches.
    pub faults: Vec<DriveFault>,
}

/// A place of a drive that fails or needs retries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveFault {
    /// Where it begins on the drive, in bytes; a multiple of 512.
    pub from_byte: u64,
    /// Its length, a multiple of 512.
    pub bytes: u64,
    /// The requests that meet it; without it, reads and writes.
    #[serde(default)]
    pub op: Option<FaultOp>,
    /// Rotations that the drive spends on retries.
    #[serde(default)]
    pub rotations: u32,
    /// True if requests fail after that.
    #[serde(default)]
    pub fails: bool,
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FaultOp {
    /// Reads.
    Read,
    /// Writes.
    Write,
}
