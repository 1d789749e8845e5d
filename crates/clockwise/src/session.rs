//! Stream sessions: a reservation, the byte stream that goes with it, and what became of its blocks.
//!
//! A session is *reserved* through the control API, which answers with a token. Whoever connects to
//! the data socket and sends the token (see [`data`]) becomes its byte stream: a thread of its own
//! moves blocks straight between that socket and the pool's buffers, at the stream's pace. When it
//! *ends*, the reservation is given back at once, while the report stays until it is fetched and
//! deleted, or is among the oldest of too many.
//!
//! A reservation that nobody connects to expires, so that a client that died between the two steps
//! holds no bandwidth.

mod account;
mod blocks;
pub mod data;
#[doc(hidden)]
pub mod fuzzing;
mod planned;
mod registry;

pub use account::Session;
pub use registry::{RESERVATION_WAIT, SessionError, SessionKey, Sessions};

/// Blocks whose own account a session keeps. At a block a second this is the last nine hours; in
/// memory it is 4 MiB at most.
pub const BLOCKS_KEPT_MAX: usize = 32_768;
