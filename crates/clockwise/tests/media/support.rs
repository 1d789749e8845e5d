//! Recordings of the tests' own making, and pools for them.

/// Shared with the benchmark `index`.
#[allow(dead_code, reason = "these tests use some of it")]
pub(crate) mod day;
pub(crate) mod made;
pub(crate) mod rig;
pub(crate) mod small;
pub(crate) mod tape;
