//! Cameras that the server pulls as an RTSP client.

pub mod source;
pub mod sources;
