//! Stream sessions: a reservation, its byte stream, and the report about its blocks.
//!
//! A client *reserves* a session through the control API, which returns a token. It then connects to the data socket
//! and sends the token (see [`data`]). That connection is the byte stream: a thread of its own moves blocks directly
//! between the socket and the pool's buffers, at the rate of the stream. When the session *ends*, the reservation is
//! freed at once. The report stays until it is deleted, or until too many newer sessions have ended.
//!
//! A reservation without a connection expires, so that a client that dies between the two steps holds no bandwidth.

mod account;
mod blocks;
pub mod data;
#[doc(hidden)]
pub mod fuzzing;
mod planned;
mod registry;

pub use account::Session;
pub use registry::{RESERVATION_WAIT, SessionError, SessionKey, Sessions};

/// The most blocks in the report of a session, the latest ones. At a block a second these are nine hours. They take at
/// most 4 MiB of memory.
pub const BLOCKS_KEPT_MAX: usize = 32_768;
