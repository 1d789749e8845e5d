//! Reasons why a PLAY is refused.

use crate::archive::ArchiveError;
use crate::archive::archives::OpenError;

/// Why a PLAY is refused.
pub(super) enum PlayRefusal {
    /// Its Range, Scale or Speed is invalid, or the recording has no such time.
    Range(String),
    /// The recording cannot be read.
    Archive(OpenError),
}

impl From<OpenError> for PlayRefusal {
    fn from(error: OpenError) -> Self {
        Self::Archive(error)
    }
}

impl From<ArchiveError> for PlayRefusal {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error.into())
    }
}

pub(super) fn range_error(why: impl Into<String>) -> PlayRefusal {
    PlayRefusal::Range(why.into())
}

/// The refusal of a range that begins behind the end.
pub(super) fn ends_at(end_ns: u64) -> PlayRefusal {
    let end = seconds(end_ns);
    range_error(format!("the recording ends at {end} s"))
}

/// A time in seconds with milliseconds.
pub(super) fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}
