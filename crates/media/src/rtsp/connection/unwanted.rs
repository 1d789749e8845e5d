//! Why what a player asks for is not played.

use crate::archive::ArchiveError;
use crate::archive::archives::OpenError;

/// Why what is asked for cannot be played.
pub(super) enum Unwanted {
    /// It makes no sense, or there is no such time.
    Range(String),
    /// What is recorded cannot be read.
    Archive(OpenError),
}

impl From<OpenError> for Unwanted {
    fn from(error: OpenError) -> Self {
        Self::Archive(error)
    }
}

impl From<ArchiveError> for Unwanted {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error.into())
    }
}

pub(super) fn range_error(why: impl Into<String>) -> Unwanted {
    Unwanted::Range(why.into())
}

/// That it begins behind the end.
pub(super) fn ends_at(end_ns: u64) -> Unwanted {
    let end = seconds(end_ns);
    range_error(format!("the recording ends at {end} s"))
}

/// A time as people read it.
pub(super) fn seconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}
