//! The server: what the `clockwise` binary is made of, as a library so that tests and benches
//! reach its parts.

#![forbid(unsafe_code)]

pub mod client;
pub mod cmd;
pub mod config;
pub mod demo;
mod descriptors;
pub mod disks;
pub mod export;
pub mod failure;
pub mod http;
mod log;
pub mod media;
mod panics;
mod places;
pub mod quantity;
mod seldom;
pub mod server;
pub mod session;
mod socket;
