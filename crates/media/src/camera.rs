//! Cameras that the server pulls as an RTSP client.

pub mod inspection;
pub mod plan;
pub mod source;
pub mod sources;
