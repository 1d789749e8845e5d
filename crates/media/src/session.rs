//! What has something reserved over RTSP: who, how much, and when another rate is asked for.

pub mod demand;
pub(crate) mod negotiation;
pub(crate) mod rate_from;
pub mod registry;
pub(crate) mod scale;

pub use scale::Scale;
