//! Clips with sound, recordings of them, and files that are made of those.

use std::net::SocketAddr;

use serde_json::Value;

use super::peers::{self, SUMS, ffmpeg};
use crate::site::{Site, outcome};
use crate::skip::{have, tool};
use crate::until;

/// A clip of so many seconds, with pictures and sound that are encoded like this.
pub fn clip(site: &Site, name: &str, seconds: u32, encoded: &[&str]) -> String {
    let path = site.path(name).display().to_string();
    let video = format!("testsrc2=size=320x240:rate=25:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let inputs = ["-f", "lavfi", "-i", &video, "-f", "lavfi", "-i", &sound];
    outcome(ffmpeg().args(inputs).args(encoded).arg(&path)).done();
    path
}

/// Writes something else over a part of `cam`, as who exports the volume may; `false`: there is nothing to do
/// it with.
pub fn damage(site: &Site, offset: u64, bytes: u64) -> bool {
    if !have("qemu-io") {
        return false;
    }
    change(site, &format!("write -P 0x5a {offset} {bytes}"));
    true
}

/// Has qemu-io do something to `cam`.
pub fn change(site: &Site, command: &str) {
    let socket = site.path("nbd.sock");
    let uri = format!("nbd+unix:///cam?socket={}", socket.display());
    let arguments = ["-f", "raw", "-c", command, "-c", "flush", &uri];
    outcome(tool("qemu-io").args(arguments)).done();
}

/// Records a clip as it is. The number of the recording.
pub fn record(site: &Site, address: SocketAddr, clip: &str, transport: &str) -> String {
    record_as(site, address, clip, transport, &[])
}

/// As [`record`], with these options of ffmpeg for the sender.
pub fn record_as(
    site: &Site,
    address: SocketAddr,
    clip: &str,
    transport: &str,
    sent: &[&str],
) -> String {
    let url = format!("rtsp://{address}/cam");
    let copied = ["-c", "copy", "-f", "rtsp"];
    let to = ["-rtsp_transport", transport, &url];
    let mut publish = ffmpeg();
    publish.args(["-re", "-i", clip]).args(copied);
    let before = newest(site);
    outcome(publish.args(sent).args(to)).done();
    closed_after(site, before)
}

/// The last recording that is listed.
fn last(site: &Site) -> Option<Value> {
    let list = site.json(&["recording", "list", "cam"]);
    list.as_array().and_then(|list| list.last()).cloned()
}

fn number(of: &Value) -> u64 {
    of["number"].as_u64().expect("a number")
}

/// The number of the last recording that is listed; 0 if there is none.
pub fn newest(site: &Site) -> u64 {
    last(site).map_or(0, |last| number(&last))
}

/// Waits until a recording after this one is closed: a sender may be gone before its recording is listed. Returns its
/// number.
pub fn closed_after(site: &Site, before: u64) -> String {
    until("a new recording is listed", || newest(site) > before);
    closed(site)
}

/// Waits until nothing is recorded any more, and says which recording was the last.
pub fn closed(site: &Site) -> String {
    let mut closed = None;
    until("the recording is closed", || {
        closed = last(site).filter(|of| of["is_recorded"] == false);
        closed.is_some()
    });
    number(&closed.expect("a recording")).to_string()
}

/// Has a recording made a file; where that is.
pub fn export(site: &Site, number: &str, to: &str, more: &[&str]) -> String {
    let path = site.path(to).display().to_string();
    let command = ["recording", "export", "cam", number, "--to", &path];
    let said = site.json(&[&command[..], more].concat());
    let written = std::fs::metadata(&path).map(|of| of.len());
    assert_eq!(
        said,
        serde_json::json!({ "to": path, "bytes": written.ok() })
    );
    path
}

/// The sum of each frame that is seen, or of each packet of the sound.
pub fn sums(input: &str, how: &[&str]) -> Vec<String> {
    let said = outcome(ffmpeg().args(["-i", input]).args(how).args(SUMS).arg("-"));
    peers::sums(&said.done().out)
}

/// Compares the sound of two files, except for the last packet's frames, which ffmpeg does not send.
#[track_caller]
pub fn is_heard(got: &[String], wanted: &[String]) {
    assert!(
        got.len() + 8 >= wanted.len(),
        "{} of {}",
        got.len(),
        wanted.len()
    );
    assert_eq!(*got, wanted[..got.len()]);
}
