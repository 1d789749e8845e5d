//! Recording and playing over RTSP: a server whose SETUP is an admission test.
//!
//! # What it is for
//!
//! Cameras and encoders publish (ANNOUNCE, RECORD), players play. Each of them holds a reservation on the disks that it
//! touches, so a recording never waits for best effort; what the disks cannot carry is refused with 453. Cameras that
//! do not publish are pulled from ([source]).
//!
//! # Model
//!
//! A thread for each connection owns its socket, its session, its transports and its reservation; everything that it
//! waits for is in one `poll`. A presentation is a recording in an
//! [archive], or several that are played together: its packets lie in blocks in the order
//! in which they came, and each [block] explains itself.
//!
//! Packets are received so that their bodies lie back to back in a buffer that the disks write from, and are sent from
//! a buffer that the disks read into. What the processor copies on the way is counted
//! ([`record::Tally::copied_bytes`]).
//!
//! Who may do what is in [access]; by [tls] the same requests and packets go encrypted.
//!
//! # Deliberately absent
//!
//! Decoding. Multicast. Sessions that outlive their connection.

#![forbid(unsafe_code)]

pub mod access;
pub mod archive;
pub mod archives;
pub mod block;
pub mod check;
mod connection;
mod datagram;
pub mod demand;
pub mod description;
mod drift;
pub mod export;
#[doc(hidden)]
pub mod fuzzing;
pub mod geometry;
mod growth;
pub mod index;
pub mod input;
pub mod keeping;
mod link;
pub mod missing;
mod negotiation;
pub mod packet;
pub mod play;
mod poll;
mod presentation;
mod rate_from;
mod receive;
pub mod reception;
pub mod record;
mod reports;
pub mod retention;
pub mod roster;
mod server;
pub mod source;
pub mod sources;
pub mod start;
pub mod tls;
mod transport;
pub mod trick;
pub mod wall;

pub use server::{MediaConfig, Server, StartError};
#[cfg(test)]
#[path = "../../sched/src/random_tests.rs"]
mod random_tests;
#[cfg(test)]
#[path = "../../sched/tests/common/seed.rs"]
mod seed;
