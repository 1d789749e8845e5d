//! The server and its commands: the API, pools and volumes, block exports, streams of bytes.

/// Shared with `media`.
#[path = "../support/served.rs"]
mod served;

mod abuse;
mod admit;
mod bad_places;
mod because;
mod commands;
mod config;
mod described;
mod doctor;
mod errors;
mod events;
mod first_commands;
mod fuse;
mod fuse_mount;
mod fuse_support;
mod fuzz;
mod guide;
mod hooks;
mod init;
mod kill;
mod kill_changes;
mod large_sectors;
mod life;
mod links;
mod measure;
mod metrics;
mod names;
mod nbd_clients;
mod nbd_connections;
mod nbd_durable;
mod nbd_memory;
mod nbd_reserved;
mod nbd_wire;
mod openapi;
mod package;
mod placement;
mod pool;
mod pool_check;
mod profile;
mod refusals;
mod reload;
mod service;
mod sim;
mod sizes;
mod status;
mod stream;
mod stream_ends;
mod stream_files;
mod terminal;
mod text;
mod unheard;
