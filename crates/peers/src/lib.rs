//! Protection of every server against its peers: limits on connections, and on lines of the log that peers cause.

#![forbid(unsafe_code)]

pub mod connection_limits;
pub mod log_throttle;
