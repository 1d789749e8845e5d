//! Cameras, players and browsers: RTSP, HLS, clips, and what recordings are made of.

/// Shared with `server`.
#[allow(dead_code, reason = "these tests use some of it")]
#[path = "../support/served.rs"]
mod served;
mod support;

mod blocks;
mod browser;
mod browser_live;
mod came_back;
mod cameras;
mod clients;
mod clips;
mod clock;
mod clock_gaps;
mod codecs;
mod copies;
mod cuts;
mod drift;
mod ends;
mod export;
mod export_gone;
mod export_load;
mod faithful;
mod first_camera;
mod frames;
mod full;
mod gstreamer;
mod gstreamer_ends;
mod hls;
mod http;
mod index;
mod keep;
mod list_reads;
mod live;
mod load;
mod locks;
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
mod timeline;
mod tls;
mod together;
mod users;
mod webrtc;
mod wire;
