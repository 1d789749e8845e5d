//! A clip, and what is seen of it.

use super::peers::{SEEN, SUMS, ffmpeg, sums};
use crate::site::{Site, outcome};

/// Pictures that need little work and are not reordered, with a key frame each second.
pub const ENCODED: [&str; 8] = [
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-g",
    "25",
    "-bf",
    "0",
];

/// A clip of three seconds, in packets of an encoder.
pub fn clip(site: &Site) -> String {
    let path = site.path("clip.mp4").display().to_string();
    let video = "testsrc2=size=320x240:rate=25:duration=3";
    let from = ["-f", "lavfi", "-i", video];
    outcome(ffmpeg().args(from).args(ENCODED).arg(&path)).done();
    path
}

/// The sum of each frame of an input; the error if there is none.
pub fn frames(input: &[&str]) -> Result<Vec<String>, String> {
    let said = outcome(ffmpeg().args(input).args(SEEN).args(SUMS).arg("-"));
    match said.code {
        0 => Ok(sums(&said.out)),
        _ => Err(said.err),
    }
}
