//! Locks of recorded times.

use media::archive::locks::LockedCopy;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A range of times to lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeLock {
    /// The begin, in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// The end, in nanoseconds since 1970; not in the future.
    pub until_unix_ns: u64,
    /// Why it is locked, at most 512 bytes.
    #[serde(default)]
    pub note: String,
    /// When the lock ends by itself, in nanoseconds since 1970; if absent, it does not.
    #[serde(default)]
    pub expires_unix_ns: Option<u64>,
}

/// A lock.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LockView {
    /// The volume with the locked copy.
    pub name: String,
    /// The volume that it was copied from.
    pub volume: String,
    /// The begin of the locked times, in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// The end of the locked times, in nanoseconds since 1970.
    pub until_unix_ns: u64,
    /// Why it is locked.
    pub note: String,
    /// When it ends by itself, in nanoseconds since 1970; absent if it does not.
    pub expires_unix_ns: Option<u64>,
    /// The size of the copy.
    pub bytes: u64,
}

/// A lock that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MadeLock {
    /// The lock.
    #[serde(flatten)]
    pub lock: LockView,
    /// Blocks that are not in it: damaged, or overwritten before they were copied.
    pub missing_blocks: u64,
}

impl From<LockedCopy> for LockView {
    fn from(of: LockedCopy) -> Self {
        Self {
            name: of.copy,
            volume: of.lock.volume,
            from_unix_ns: of.lock.unix_ns.start,
            until_unix_ns: of.lock.unix_ns.end,
            note: of.lock.note,
            expires_unix_ns: of.lock.expires_unix_ns,
            bytes: of.bytes.get(),
        }
    }
}
