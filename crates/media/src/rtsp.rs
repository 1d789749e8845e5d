//! The Real-Time Streaming Protocol (RTSP, RFC 2326): the server, its connections, and their packets.

pub mod access;
pub(crate) mod connection;
pub mod door;
pub mod input;
pub(crate) mod link;
pub(crate) mod poll;
pub(crate) mod receive;
pub(crate) mod reports;
pub(crate) mod server;
pub mod tls;
pub(crate) mod transport;
