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
//! | `op` | a request in flight |
//! | `volume_core` | a volume at run time: order, parked writes, users |
//! | `rounds` | flushes and forced writes |
//! | `worker` | what follows a completion and must not be done on a disk's thread |
//! | `charge` | on whose account a request is served |

mod after;
pub(crate) mod charge;
pub(crate) mod client;
mod issue;
mod op;
mod request;
pub(crate) mod rounds;
mod share;
mod submit;
pub(crate) mod volume_core;
pub(crate) mod worker;

pub use client::{Client, ClientOptions, SyncError};
pub use request::{
    AFTER_MAX, IoFailure, REQUEST_BYTES_MAX, SubmitError, Tag, Timeliness, VolumeCompletion,
    VolumeOp, VolumeRequest,
};
pub use share::{BestEffortReservation, ReservedShare};
