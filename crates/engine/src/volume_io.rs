//! The data path: volume requests in, disk requests out, completions back.
//!
//! | module | contents |
//! |---|---|
//! | `request` | requests and reasons for refusing them |
//! | `volume`, `client`, `stream` | handles of clients: open volumes, clients, open streams |
//! | `share` | reserved disk time of best-effort clients |
//! | `submit` | check and start of a request |
//! | `calls` | blocking transfers |
//! | `issue` | division of a volume request into disk requests |
//! | `after` | the order of a request relative to earlier ones |
//! | `rounds` | flushes and forced writes |
//! | `jobs` | the worker's jobs: work that follows a completion and must not run on a disk's thread |

mod after;
mod calls;
pub(crate) mod client;
pub(crate) mod issue;
pub(crate) mod jobs;
pub(crate) mod request;
pub(crate) mod rounds;
pub(crate) mod share;
pub(crate) mod stream;
mod submit;
pub(crate) mod volume;

pub use crate::state::request::{IoFailure, Tag, Timeliness, VolumeCompletion, VolumeOp};
pub use calls::SyncError;
pub use client::{Client, ClientOptions};
pub use request::{AFTER_MAX, REQUEST_BYTES_MAX, SubmitError, VolumeRequest};
pub use share::{BestEffortReservation, ReservedShare};
