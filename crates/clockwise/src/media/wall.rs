//! The clock on the wall, by which recordings are found and grow old. What is paced goes by the engine's.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub(super) fn now_unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
