//! The base layer of a pool: its disks, volumes, streams, clients and requests at run time, as values that the
//! layers above act on. It imports none of them.
//!
//! | module | what it is |
//! |---|---|
//! | `pool::io` | what requests need of a pool: disks and memory |
//! | `pool::core` | what everything else needs beside that: metadata, books, volumes |
//! | `pool::admission` | what the disks have promised |
//! | `pool::{keeper, committer}`, `worker` | what is to be done by threads of the pool |
//! | `disk` | a disk, the way to it, and the thread on which the host makes its data durable |
//! | `volume`, `op`, `client`, `round` | a volume, its requests in flight, who asked, and flushes |
//! | `charge` | on whose account a request is served |
//! | `stream` | a reservation and the evidence of what happened to it |
//! | `request`, `options`, `error`, `refusal`, `warning` | what is said |

pub(crate) mod charge;
pub(crate) mod client;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod follow;
pub(crate) mod op;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod raw;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod round;
pub(crate) mod stream;
pub(crate) mod volume;
pub(crate) mod warning;
pub(crate) mod worker;
