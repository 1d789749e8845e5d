//! Other programs as publishers and players: ffmpeg and GStreamer, and what is to be seen and heard of what they get.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::clip::ENCODED;
use crate::site::{Outcome, Site, call, outcome};
use crate::skip::{skipped, tool};
use crate::until;

/// ffmpeg, which says what is wrong and asks nothing.
pub fn ffmpeg() -> Command {
    let mut command = tool("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]);
    command
}

/// The clips that come with the project's data; `None`, and the test is skipped, where those are not.
pub fn shared_clips<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("CLOCKWISE_SHARED").map_or(beside, PathBuf::from);
    let clips = names.map(|name| shared.join("data/video").join(name));
    let missing = clips.iter().find(|clip| !clip.is_file());
    if let Some(missing) = missing {
        skipped(&format!("there is no {}", missing.display()));
        return None;
    }
    Some(clips)
}

/// A clip of so many seconds without sound and without frames that are reordered, a key frame each second.
pub fn made(site: &Site, seconds: u32, kbit: u32) -> String {
    let path = site.path("made.mp4").display().to_string();
    let video = format!("testsrc2=size=320x240:rate=25:duration={seconds}");
    let rate = format!("{kbit}k");
    let even = [
        "-b:v",
        &rate,
        "-x264-params",
        "nal-hrd=cbr",
        "-minrate",
        &rate,
        "-maxrate",
        &rate,
        "-bufsize",
        &rate,
    ];
    let from = ["-f", "lavfi", "-i", &video];
    let mut command = ffmpeg();
    command.args(from).args(ENCODED).args(even).arg(&path);
    outcome(&mut command).done();
    path
}

/// Pictures and sound of a player.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlayerOutput {
    /// The sum of each frame, as it is decoded.
    pub seen: Vec<String>,
    /// The sum of each packet of the sound, as it is encoded; none where there is no sound.
    pub heard: Vec<String>,
}

/// All of an input, which may be named with options.
pub fn shown(site: &Site, input: &[&str], has_sound: bool) -> PlayerOutput {
    let name = tempfile::NamedTempFile::new_in(site.folder.path()).expect("a file");
    let sound = name.path().display().to_string();
    let mut command = ffmpeg();
    command.args(input).args(SEEN).args(SUMS).arg("-");
    if has_sound {
        command.args(HEARD).args(SUMS).arg(&sound);
    }
    let said = outcome(&mut command).done();
    PlayerOutput {
        seen: sums(&said.out),
        heard: sums(&crate::site::read_text(name.path())),
    }
}

/// Every frame that is seen, once.
pub const SEEN: [&str; 4] = ["-map", "0:v", "-fps_mode", "passthrough"];
/// The sound, as it is encoded.
pub const HEARD: [&str; 4] = ["-map", "0:a", "-c", "copy"];
/// The sum of each frame or packet.
pub const SUMS: [&str; 2] = ["-f", "framemd5"];

/// The sums that ffmpeg has printed.
pub fn sums(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.split(',').nth(5)?.trim().to_owned()))
        .collect()
}

/// The sum of each frame of an input as it is decoded.
pub fn frames(input: &[&str]) -> Vec<String> {
    super::clip::frames(input).expect("frames")
}

/// Publishes a clip as it is: no faster than it is to be seen, or as fast as it is taken.
pub fn publish(clip: &str, transport: &str, url: &str, is_paced: bool) -> Command {
    let mut command = ffmpeg();
    if is_paced {
        command.arg("-re");
    }
    command.args(["-i", clip, "-c", "copy", "-f", "rtsp"]);
    command.args(["-rtsp_transport", transport, url]);
    command
}

/// The output of one ffmpeg that plays from another one, without a server between them.
pub fn without_server(site: &Site, clip: &str, has_sound: bool) -> PlayerOutput {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its number");
    drop(free);
    let url = format!("rtsp://{address}/clip");
    std::thread::scope(|scope| {
        let from = ["-rtsp_flags", "listen", "-i", &url];
        let receiving = scope.spawn(move || shown(site, &from, has_sound));
        until("it listens", || receiving.is_finished() || listens(address));
        outcome(&mut publish(clip, "tcp", &url, false)).done();
        receiving.join().expect("it receives")
    })
}

/// True if a socket listens there; no connection is made.
pub fn listens(address: SocketAddr) -> bool {
    let wanted = format!(":{:04X} 00000000:0000 0A ", address.port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("/proc");
    sockets.contains(&wanted)
}

/// A pipeline of GStreamer.
pub fn gstreamer(text: &str) -> Command {
    let mut command = tool("gst-launch-1.0");
    command.arg("-q").args(text.split_whitespace());
    // Whose server is killed says so at length.
    command.stderr(Stdio::null());
    command
}

/// One that publishes the pictures of a clip; what paces it is what it sends to.
pub fn gstreamer_publish(clip: &str, transport: &str, url: &str) -> Command {
    gstreamer(&format!(
        "filesrc location={clip} ! qtdemux ! h264parse config-interval=-1 \
         ! rtspclientsink location={url} protocols={transport}"
    ))
}

/// One that plays pictures into a file, and sound into another one. GStreamer's sinks leave out what comes
/// later than the recording is long, counted from about when it was asked for: behind `single-segment` that
/// is not known.
pub fn gstreamer_play(url: &str, transport: &str, seen: &str, heard: Option<&str>) -> Command {
    let mut text = format!(
        "rtspsrc name=from location={url} protocols={transport} \
         from. ! application/x-rtp,media=video ! rtph264depay ! identity single-segment=true ! h264parse \
         ! video/x-h264,stream-format=byte-stream ! filesink location={seen}"
    );
    if let Some(heard) = heard {
        text += &format!(
            " from. ! application/x-rtp,media=audio ! rtpmp4gdepay \
             ! identity single-segment=true ! aacparse \
             ! audio/mpeg,stream-format=adts ! filesink location={heard}"
        );
    }
    gstreamer(&text)
}

/// True if GStreamer has cancelled at its end a send of another thread of its own (1.22). By then it has sent
/// or received everything.
pub fn has_cut_itself(ended: &Outcome, sending: &str) -> bool {
    let is_there = ended.err.contains(sending);
    let cut = "Could not send message. (Received end-of-file)";
    is_there && ended.err.contains(cut)
}

/// Checks that a player of GStreamer has ended as it should. It tells its source to pause and to close at one
/// time.
#[track_caller]
pub fn has_played(ended: &Outcome) {
    let is_cut = ended.code == 1 && has_cut_itself(ended, "gst_rtspsrc_pause ()");
    assert!(ended.code == 0 || is_cut, "{ended:?}");
}

/// Frames in a file of frames without times.
pub fn bare_frames(path: &str) -> Vec<String> {
    frames(&["-f", "h264", "-i", path])
}

/// The sums of packets in a file of AAC, as they are without its headers.
pub fn bare_sound(path: &str) -> Vec<String> {
    let copied = ["-c", "copy", "-bsf:a", "aac_adtstoasc"];
    let said = outcome(
        ffmpeg()
            .args(["-f", "aac", "-i", path])
            .args(copied)
            .args(SUMS)
            .arg("-"),
    );
    sums(&said.done().out)
}

/// The recordings of a volume.
pub fn recordings(site: &Site, volume: &str) -> Vec<serde_json::Value> {
    let path = format!("/v1/volumes/{volume}/recordings");
    let listed = call(site, "GET", &path, "").1;
    listed.as_array().cloned().unwrap_or_default()
}

/// Waits until so many recordings have been made in a volume, and none goes on.
#[track_caller]
pub fn closed(site: &Site, volume: &str, count: usize) {
    until("the recording is closed", || {
        let all = recordings(site, volume);
        all.len() == count && all.iter().all(|of| of["is_recorded"] == false)
    });
}

/// Checks that a recording is sound; how many packets it has, none of which is missing.
#[track_caller]
pub fn is_whole(site: &Site, volume: &str, number: usize) -> u64 {
    let found = site.json(&["recording", "check", volume, &number.to_string()]);
    assert_eq!(found["is_sound"], true, "{found}");
    assert_eq!(found["lost"], 0, "{found}");
    found["packets"].as_u64().expect("a number")
}
