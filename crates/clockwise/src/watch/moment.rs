//! Instants of the wall clock, in seconds.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds since 1970, UTC. Written as `2026-11-30T04:20:00Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment(u64);

/// The end of the year 9999, beyond which RFC 3339 writes no time.
const MAX: u64 = 253_402_300_799;

impl Moment {
    /// The present time of the host's clock, which may be wrong.
    pub(super) fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self(since.map_or(0, |since| since.as_secs()).min(MAX))
    }

    /// The day, such as `2026-11-30`.
    pub(super) fn day(self) -> Day {
        Day(self.0 / Day::SECONDS)
    }

    /// This moment, `earlier` before it.
    pub(super) fn before(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier.as_secs()))
    }

    #[cfg(test)]
    pub(super) fn at(seconds: u64) -> Self {
        Self(seconds)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.0);
        humantime::format_rfc3339_seconds(time).fmt(f)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = humantime::parse_rfc3339(&text).map_err(D::Error::custom)?;
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.map_err(D::Error::custom)?.as_secs();
        if seconds > MAX {
            return Err(D::Error::custom("a time after the year 9999"));
        }
        Ok(Self(seconds))
    }
}

/// Days since 1970, UTC. Written as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) struct Day(pub(super) u64);

impl Day {
    const SECONDS: u64 = 24 * 60 * 60;
}
