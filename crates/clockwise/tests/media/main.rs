//! Cameras, players and browsers: RTSP, HLS, clips, and what recordings are made of.

#[path = "../common/mod.rs"]
mod common;
#[path = "../rtsp_support/made.rs"]
mod made;
#[path = "../nbd_support/mod.rs"]
mod nbd_support;
#[path = "../rtsp_support/rig.rs"]
mod rig;
#[path = "../rtsp_support/mod.rs"]
mod rtsp_support;
#[path = "../rtsp_support/small.rs"]
mod small;
#[path = "../tape_support/mod.rs"]
mod tape_support;
#[path = "../../../engine/tests/engine/common/watch.rs"]
mod watch;

mod blocks;
mod browser;
mod came_back;
mod cameras;
mod clients;
mod clips;
mod copies;
mod cuts;
mod drift;
mod ends;
mod export;
mod export_gone;
mod export_load;
mod faithful;
mod frames;
mod full;
mod gstreamer;
mod gstreamer_ends;
mod hls;
mod http;
mod index;
mod keep;
mod login;
mod many;
mod missing;
mod numbers;
mod opened;
mod parts;
mod play;
mod rates;
mod reads;
mod rebuilt;
mod refusals;
mod refused;
mod retention;
mod rings;
mod scale;
mod seek;
mod source;
mod sync;
mod tape;
mod tls;
mod together;
mod wire;
