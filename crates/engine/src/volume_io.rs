//! The data path: volume requests in, physical requests out, completions back.
//!
//! | module | what it is for |
//! |---|---|
//! | `request` | what a client asks |
//! | `volume`, `client`, `stream` | what clients hold: open volumes, themselves, open reservations |
//! | `share` | disk time that best-effort clients have reserved |
//! | `submit` | taking a request, or saying what is wrong with it |
//! | `calls` | transfers that their client waits for |
//! | `issue` | from a volume request to disk requests |
//! | `after` | the order that a request keeps with earlier ones |
//! | `rounds` | flushes and forced writes |
//! | `jobs` | what follows a completion and must not be done on a disk's thread |

mod after;
mod calls;
pub(crate) mod client;
mod issue;
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
