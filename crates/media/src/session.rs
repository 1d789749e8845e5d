//! Sessions of RTSP and their reservations: who has one, how large it is, and when a session asks for another rate.

pub mod demand;
pub(crate) mod negotiation;
pub(crate) mod rate_from;
pub mod registry;
pub(crate) mod scale;

pub use scale::Scale;
