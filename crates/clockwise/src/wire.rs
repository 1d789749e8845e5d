//! Requests, answers and problems of the control API, as the server writes them and clients read them.

pub mod ask;
pub mod cameras;
pub mod events;
pub mod faults;
pub mod locks;
pub mod measurement;
mod problem;
pub mod profile;
pub mod recordings;
pub mod service_times;
pub mod sessions;
pub mod sources;
pub mod streams;
pub mod users;
pub mod view;

pub use problem::Problem;
pub(crate) use problem::{NAME_HELP, PROBLEM_TYPE};

/// The HTTP trailer with the number of blocks that are missing in a file, for files sent without
/// `Content-Length`.
pub const MISSING_BLOCKS: &str = "clockwise-missing-blocks";

/// The HTTP header with the times that are in a file: `begin/end, begin/end`, as in RFC 3339.
pub const RECORDED: &str = "clockwise-recorded";
