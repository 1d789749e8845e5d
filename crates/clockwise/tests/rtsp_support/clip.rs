//! A clip, and what is seen of it.

use crate::common::skip::tool;
use crate::common::{Site, outcome};

/// A clip of three seconds, in packets of an encoder.
pub(crate) fn clip(site: &Site) -> String {
    let path = site.path("clip.mp4").display().to_string();
    let video = "testsrc2=size=320x240:rate=25:duration=3";
    let encoded = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-bf",
        "0",
    ];
    let mut command = tool("ffmpeg");
    command.args([
        "-nostdin",
        "-loglevel",
        "error",
        "-y",
        "-f",
        "lavfi",
        "-i",
        video,
    ]);
    outcome(command.args(encoded).arg(&path)).done();
    path
}

/// The sum of each frame of an input; the error if there is none.
pub(crate) fn frames(input: &[&str]) -> Result<Vec<String>, String> {
    let mut command = tool("ffmpeg");
    command
        .args(["-nostdin", "-loglevel", "error", "-y"])
        .args(input);
    command.args([
        "-map",
        "0:v",
        "-fps_mode",
        "passthrough",
        "-f",
        "framemd5",
        "-",
    ]);
    let said = outcome(&mut command);
    if said.code != 0 {
        return Err(said.err);
    }
    let lines = said.out.lines().filter(|line| !line.starts_with('#'));
    Ok(lines
        .filter_map(|line| Some(line.split(',').nth(5)?.trim().to_owned()))
        .collect())
}
