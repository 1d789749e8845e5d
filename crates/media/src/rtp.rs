//! Packets of the real-time transport protocol (RTP, RFC 3550).

pub(crate) mod datagram;
pub mod packet;
pub mod parameters;
pub mod reception;
pub(crate) mod sps;
