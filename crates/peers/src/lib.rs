//! What every server keeps of its peers: how many are connected, and how often the log tells of them.

#![forbid(unsafe_code)]

pub mod connection_limits;
pub mod log_throttle;
