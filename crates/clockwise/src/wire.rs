//! What goes over the control API: requests, answers and problems, as the server writes them and clients read them.

pub mod ask;
mod problem;
pub mod profile;
pub mod recordings;
pub mod sessions;
pub mod sources;
pub mod streams;
pub mod view;

pub use problem::Problem;
pub(crate) use problem::{NAME_HELP, PROBLEM_TYPE};

/// The trailer that says how many blocks are missing of a file whose length was not said.
pub const MISSING_BLOCKS: &str = "clockwise-missing-blocks";
