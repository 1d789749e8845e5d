//! All code of the `clockwise` binary, as a library so that tests and benches reach its parts.

#![forbid(unsafe_code)]

pub mod client;
pub mod cmd;
pub mod config;
pub mod demo;
mod descriptors;
pub mod device;
pub mod disks;
pub mod doctor;
mod events;
pub mod exports;
pub mod failure;
pub mod first_pool;
pub mod hooks;
pub mod http;
mod local_time;
mod log;
pub mod measuring;
mod panics;
pub mod print;
pub mod quantity;
pub mod server;
mod service_manager;
pub mod session;
mod socket;
mod text;
mod watch;
pub mod wire;
