//! Cameras that do not publish: their presentations are pulled, by a client of RTSP.

pub mod source;
pub mod sources;
