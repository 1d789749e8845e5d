//! Recording and playing over RTSP: a server whose SETUP is an admission test.
//!
//! # What it is for
//!
//! Cameras and encoders publish (ANNOUNCE, RECORD), players play. Each of them holds a reservation on the disks that it
//! touches, so a recording never waits for best effort; what the disks cannot carry is refused with 453. Cameras that
//! do not publish are pulled from ([camera]).
//!
//! # Model
//!
//! A thread for each connection owns its socket, its session, its transports and its reservation; everything that it
//! waits for is in one `poll`. A presentation is a recording in an
//! [archive], or several that are played together: its packets lie in blocks in the order
//! in which they came, and each [block](archive::block) explains itself.
//!
//! Packets are received so that their bodies lie back to back in a buffer that the disks write from, and are sent from
//! a buffer that the disks read into. What the processor copies on the way is counted
//! ([`record::Tally::copied_bytes`]).
//!
//! Who may do what is in [`rtsp::access`]; by [`rtsp::tls`] the same requests and packets go encrypted.
//!
//! # Parts
//!
//! | module | what it is | uses |
//! |---|---|---|
//! | [sdp] | what a recording consists of, as SDP has it | |
//! | [rtp] | packets: their clocks and numbers, frames in them, datagrams | sdp |
//! | [session] | what has something reserved, and when to ask for another rate | |
//! | [archive] | recordings in a volume: blocks, their index, rings, what is kept | sdp, session |
//! | [record] | from packets to blocks | archive, rtp |
//! | [play] | from blocks to packets | archive, rtp |
//! | [rtsp] | connections, their bytes, users, and the server | record, play |
//! | [camera] | cameras that are pulled from | rtsp, record |
//! | [files] | recordings as files, for browsers and players of files | archive, rtp |
//!
//! # Deliberately absent
//!
//! Decoding. Multicast. Sessions that outlive their connection.

#![forbid(unsafe_code)]

pub mod archive;
pub mod camera;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod play;
pub mod record;
pub mod rtp;
pub mod rtsp;
pub mod sdp;
pub mod session;

pub use rtsp::server::{MediaConfig, Server, StartError};
