//! What the operator decides about the NBD server, and what it says in return.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;

/// The most connections by default: enough for every client of a machine, few enough for its
/// descriptors (three a connection).
pub const CONNECTIONS_MAX_DEFAULT: usize = 1024;

/// How the server is reached and what it allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdConfig {
    /// The path of a unix socket; a dead one that is there is replaced.
    pub unix: Option<PathBuf>,
    /// The permission bits of the unix socket, which are the access rule.
    pub unix_mode: u32,
    /// An address to listen on with TCP; port 0 takes a free one. There is no access rule on TCP.
    pub tcp: Option<SocketAddr>,
    /// The most connections at a time; one more is told so and closed.
    pub connections_max: usize,
    /// How long a client may take for its handshake.
    pub handshake_within: Duration,
    /// The threads that serve connections; `None` is one for each processor, at most four.
    pub workers: Option<usize>,
}

impl Default for NbdConfig {
    /// Nowhere to be reached; the owner's group may use a unix socket.
    fn default() -> Self {
        Self {
            unix: None,
            unix_mode: 0o660,
            tcp: None,
            connections_max: CONNECTIONS_MAX_DEFAULT,
            handshake_within: Duration::from_secs(10),
            workers: None,
        }
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address was given.
    #[error("the block export has neither a unix socket nor a TCP address to listen on")]
    NoAddress,
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The path or address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The unix socket cannot be listened on.
    #[error("{}", .0.what)]
    Socket(Failure),
    /// The process lacks what the server needs.
    #[error("cannot start the block export: {0}")]
    Resources(#[from] std::io::Error),
}

/// What the server has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct NbdStatus {
    /// Connections open now, those in their handshake included.
    pub connections: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Connections ended because the client broke the protocol or ran out of time.
    pub broken: u64,
    /// Requests answered, errors included.
    pub requests: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read from volumes for clients.
    pub read_bytes: u64,
    /// Bytes written to volumes for clients.
    pub written_bytes: u64,
}
