//! The data path: volume requests in, physical requests out, completions back.
//!
//! | module | what it is for |
//! |---|---|
//! | `request` | what a client asks, and what it is told |
//! | `client` | a client: memory, requests in flight, completions |
//! | `share` | disk time that best-effort clients have reserved |
//! | `submit` | taking a request, or saying what is wrong with it |
//! | `issue` | from a volume request to disk requests |
//! | `after` | the order that a request keeps with earlier ones |
//! | `rounds` | flushes and forced writes |
//! | `worker` | what follows a completion and must not be done on a disk's thread |

pub(crate) mod after;
pub(crate) mod client;
pub(crate) mod issue;
pub(crate) mod request;
pub(crate) mod rounds;
pub(crate) mod share;
mod submit;
pub(crate) mod worker;

pub use crate::state::request::{IoFailure, Tag, Timeliness, VolumeCompletion, VolumeOp};
pub use client::{Client, ClientOptions, SyncError};
pub use request::{AFTER_MAX, REQUEST_BYTES_MAX, SubmitError, VolumeRequest};
pub use share::{BestEffortReservation, ReservedShare};
