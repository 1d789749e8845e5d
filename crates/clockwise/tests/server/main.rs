//! The server and its commands: the API, pools and volumes, block exports, streams of bytes.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../volume/tests/volume/common/fuzz_targets.rs"]
mod fuzz_targets;
#[path = "../nbd_support/mod.rs"]
mod nbd_support;
#[path = "../../../sched/tests/sched/common/random.rs"]
#[allow(dead_code, reason = "each test uses its part of this")]
mod random;
#[path = "../rtsp_support/mod.rs"]
mod rtsp_support;
#[path = "../../../sched/tests/sched/common/seed.rs"]
mod seed;

mod abuse;
mod admit;
mod because;
mod config;
mod described;
mod errors;
mod first_commands;
mod fuzz;
mod kill;
mod kill_changes;
mod large_sectors;
mod life;
mod names;
mod nbd_clients;
mod nbd_connections;
mod nbd_durable;
mod nbd_memory;
mod nbd_reserved;
mod nbd_wire;
mod openapi;
mod placement;
mod pool;
mod pool_check;
mod profile;
mod refusals;
mod sim;
mod sizes;
mod status;
mod stream;
mod stream_ends;
mod stream_files;
mod terminal;
mod text;
mod unheard;
