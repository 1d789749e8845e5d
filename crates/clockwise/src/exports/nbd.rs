//! A network block device (NBD) server: every volume of the pool is an export.
//!
//! | module | contents |
//! |---|---|
//! | [`proto`] | the wire format: pure functions, no I/O |
//! | [`negotiate`] | the handshake as a pure state machine: bytes in, bytes out |
//! | [`config`] | configuration and status |
//! | [`server`] | listeners, threads, and shutdown |
//! | `worker` | a thread that serves connections |
//! | `connection` | a connection: first `handshake`, then `session` |
//! | `exports` | the pool's volumes as exports |
//! | `input` | bytes that have been received and not parsed |
//! | `stats`, `log_lines` | counters, and log lines about connections |
//!
//! The protocol is the fixed newstyle variant of the NBD project's `doc/proto.md`, without TLS.

pub mod config;
mod connection;
mod exports;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod input;
mod log_lines;
pub mod negotiate;
pub mod proto;
pub mod server;
mod session;
mod stats;
mod worker;

pub use config::{NbdConfig, NbdStatus, StartError};
pub(crate) use exports::USER;
pub use server::Server;
