//! Configuration and status of the NBD server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;

/// The default limit of connections: enough for the clients of a machine, and few enough for its descriptors, three for
/// each connection.
pub const CONNECTIONS_MAX_DEFAULT: usize = 1024;

/// Configuration of the NBD server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdConfig {
    /// The path of a unix socket. A socket that nothing listens at is replaced.
    pub unix: Option<PathBuf>,
    /// The permission bits of the unix socket, which decide who may connect.
    pub unix_mode: u32,
    /// A TCP address to listen on; port 0 takes a free port. Anyone who reaches it may connect.
    pub tcp: Option<SocketAddr>,
    /// The most connections at a time. Further ones are refused with a message.
    pub connections_max: usize,
    /// Time for each step of a client in its handshake.
    pub handshake_within: Duration,
    /// Number of threads that serve connections; `None` is one for each processor, at most four.
    pub workers: Option<usize>,
}

impl Default for NbdConfig {
    /// No address. A unix socket is open to its owner and group.
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

/// Reason why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has no address.
    #[error("the block export has neither a unix socket nor a TCP address to listen on")]
    NoAddress,
    /// Listening on the TCP address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        source: std::io::Error,
    },
    /// Listening on the unix socket failed.
    #[error("{}", .0.what)]
    Socket(Failure),
    /// The process lacks resources.
    #[error("cannot start the block export: {0}")]
    Resources(#[from] std::io::Error),
}

/// Counters of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct NbdStatus {
    /// Connections open now, those in their handshake included.
    pub connections: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Connections ended because the client broke the protocol or missed a deadline.
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
