//! Every volume of the pool as an export of a network block device (NBD) server.
//!
//! | module | what it is |
//! |---|---|
//! | [`proto`] | the bytes of the protocol: pure functions, no I/O |
//! | [`negotiate`] | the handshake as a pure state machine: bytes in, bytes out |
//! | [`config`] | what the operator decides, and what the server reports |
//! | [`server`] | listeners, threads, and their end |
//! | `worker` | a thread that serves connections |
//! | `connection` | one connection: first `handshake`, then `session` |
//! | `exports` | the pool's volumes as exports |
//! | `logged` | what the log says of connections |
//! | `input`, `ahead` | bytes without a request, writes received together |
//!
//! The protocol is the fixed newstyle one of the NBD project's `doc/proto.md`, without TLS.

mod ahead;
pub mod config;
mod connection;
mod exports;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod input;
mod linger;
mod logged;
pub mod negotiate;
pub mod proto;
pub mod server;
mod session;
mod stats;
mod worker;

pub use config::{NbdConfig, NbdStatus, StartError};
pub(crate) use exports::USER;
pub use server::Server;
