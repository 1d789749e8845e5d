//! Shared state of an open pool: disks, volumes, streams, clients and requests.
//!
//! This is the bottom layer. The layers above act on these values; this layer imports none of them.
//!
//! | module | contents |
//! |---|---|
//! | `pool::io` | the part of a pool that requests need: disks and memory |
//! | `pool::core` | the rest of a pool: metadata, admission books, volumes |
//! | `pool::admission` | one admission book per disk and the reservations in force |
//! | `pool::{keeper, committer}`, `worker` | queues of the pool's background threads |
//! | `disk` | a disk, the hand-over of requests to it, and its sync thread |
//! | `volume`, `op`, `client`, `round` | a volume, its requests in flight, their submitter, and flush rounds |
//! | `charge` | the reservation that pays for a request |
//! | `stream` | a reservation and its statistics |
//! | `request`, `options`, `error`, `refusal`, `warning` | parameters, results and messages |

pub(crate) mod charge;
pub(crate) mod client;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod op;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod predecessors;
pub(crate) mod raw;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod round;
pub(crate) mod stream;
pub(crate) mod volume;
pub(crate) mod warning;
pub(crate) mod worker;
