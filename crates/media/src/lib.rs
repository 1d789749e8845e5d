//! Recording and playing over RTSP: a server whose SETUP is an admission test.
//!
//! # Purpose
//!
//! Cameras and encoders publish (ANNOUNCE, RECORD), players play. Each session holds a reservation on the disks
//! that it uses, so a recording never waits for best effort. A session that the disks cannot serve is refused with
//! status 453. The server pulls from cameras that do not publish ([camera]).
//!
//! # Model
//!
//! Each connection has a thread, which owns its socket, session, transports and reservation, and waits for all of
//! them in one `poll`. A presentation is a recording in an [archive], or several that are played together. Its
//! packets lie in blocks in the order of their arrival; each [block](archive::block) can be understood without the
//! others.
//!
//! Packets are received so that their bodies lie back to back in a buffer that the disks write from, and are sent from
//! a buffer that the disks read into. Bytes of bodies that the processor copies are counted
//! ([`record::Tally::copied_bytes`]).
//!
//! Users and their rights are in [`rtsp::access`]. [`rtsp::tls`] carries the same requests and packets encrypted.
//!
//! # Parts
//!
//! | module | contents | uses |
//! |---|---|---|
//! | [sdp] | descriptions of recordings | |
//! | [rtp] | packets: clocks, sequence numbers, frames, datagrams | sdp |
//! | [session] | sessions and their reservations | |
//! | [archive] | recordings in a volume: blocks, index, rings, retention | sdp, session |
//! | [live] | packets in memory from their arrival on | rtp |
//! | [record] | from packets to blocks and live streams | archive, rtp, live |
//! | [play] | from blocks to packets | archive, rtp |
//! | `private_file` | files with secrets | |
//! | [rtsp] | connections, their bytes, users, and the server | record, play, live |
//! | [camera] | cameras that the server pulls from | rtsp, record |
//! | [files] | recordings as media files | archive, rtp |
//! | [packager] | live streams in parts, for browsers | files, live |
//! | [webrtc] | live streams for browsers over WebRTC | live, rtsp |
//!
//! # Deliberately absent
//!
//! Decoding, multicast, and sessions that outlive their connection.

#![forbid(unsafe_code)]

pub mod archive;
pub mod camera;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod live;
pub mod packager;
pub mod play;
mod private_file;
pub mod record;
pub mod rtp;
pub mod rtsp;
pub mod sdp;
pub mod session;
pub mod webrtc;

pub use rtsp::server::{MediaConfig, Server, StartError};
