//! RTSP with ffmpeg: what it publishes is what it plays, frame by frame, whoever is killed meanwhile.

#![allow(clippy::print_stdout, reason = "a measurement is told")]

use std::net::SocketAddr;
use std::process::Command;

use testkit::nbd::Wire;
use testkit::process::Process;
use testkit::rtsp::{Client, lines, logged, serve, serving, serving_logged};
use testkit::site::{Site, call, outcome};
use testkit::skip::{have, tool};
use testkit::until;

/// A clip of some seconds: video with key frames a second apart, and sound that is not compressed. Enough to
/// fill blocks.
fn clip(site: &Site, seconds: u32) -> String {
    clip_of(site, seconds, "0")
}

/// A clip with this many B-frames in a row.
fn clip_of(site: &Site, seconds: u32, b_frames: &str) -> String {
    let path = site.path("clip.nut").display().to_string();
    let video = format!("testsrc2=size=426x240:rate=25:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=44100:duration={seconds}");
    outcome(ffmpeg().args([
        "-f",
        "lavfi",
        "-i",
        &video,
        "-f",
        "lavfi",
        "-i",
        &sound,
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-crf",
        "20",
        "-g",
        "25",
        "-bf",
        b_frames,
        "-c:a",
        "pcm_s16be",
        "-ac",
        "1",
        &path,
    ]))
    .done();
    path
}

fn ffmpeg() -> Command {
    let mut command = tool("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]);
    command
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("rtsp://{address}/{path}")
}

fn publish(clip: &str, transport: &str, url: &str) -> Command {
    let mut command = ffmpeg();
    // At the speed at which it is to be seen: a faster sender by UDP overruns what is reserved.
    command.args([
        "-re",
        "-i",
        clip,
        "-c",
        "copy",
        "-f",
        "rtsp",
        "-rtsp_transport",
        transport,
        url,
    ]);
    command
}

/// Pictures and sound of a player.
struct PlayerOutput {
    /// The sum of each frame.
    video: Vec<String>,
    /// Samples.
    sound: Vec<u8>,
}

/// All frames and samples of an input.
fn shown(site: &Site, input: &[&str]) -> PlayerOutput {
    let mut heard = tempfile::NamedTempFile::new_in(site.folder.path()).expect("a file");
    let path = heard.path().display().to_string();
    let seen = [
        "-map",
        "0:v",
        "-fps_mode",
        "passthrough",
        "-f",
        "framemd5",
        "-",
    ];
    let said = outcome(
        ffmpeg()
            .args(input)
            .args(seen)
            .args(["-map", "0:a", "-f", "s16be", &path]),
    )
    .done();
    let mut sound = Vec::new();
    std::io::Read::read_to_end(&mut heard, &mut sound).expect("samples");
    PlayerOutput {
        video: sums(&said.out),
        sound,
    }
}

fn sums(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.split(',').nth(5)?.trim().to_owned()))
        .collect()
}

fn played(site: &Site, transport: &str, url: &str) -> PlayerOutput {
    shown(site, &["-rtsp_transport", transport, "-i", url])
}

/// True if the server has given everything back.
fn is_idle(site: &Site) -> bool {
    let (_, said) = testkit::site::call(site, "GET", "/v1/status", "");
    said["streams"].as_array().is_some_and(Vec::is_empty)
}

#[test]
fn published_frames_are_played_frames() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"");
    let clip = clip(&site, 3);
    let wanted = shown(&site, &["-i", &clip]);
    assert!(wanted.video.len() == 75 && wanted.sound.len() == 2 * 3 * 44_100);
    for (number, publishing) in ["tcp", "udp"].into_iter().enumerate() {
        outcome(&mut publish(&clip, publishing, &url(address, "cam"))).done();
        until("the recording is closed", || is_idle(&site));
        // Two at once.
        let url = url(address, &format!("cam/{}", number + 1));
        let [one, other] = std::thread::scope(|scope| {
            let players = ["tcp", "udp"].map(|by| scope.spawn(|| played(&site, by, &url)));
            players.map(|player| player.join().expect("it plays"))
        });
        for (got, by) in [(one, "tcp"), (other, "udp")] {
            let what = format!("published by {publishing}, played by {by}");
            assert_eq!(got.video, wanted.video, "{what}");
            assert!(
                got.sound == wanted.sound,
                "{what}: {} bytes",
                got.sound.len()
            );
        }
    }
    // From a time on: it begins with the key frame before it.
    let from = outcome(
        ffmpeg()
            .args([
                "-rtsp_transport",
                "tcp",
                "-noaccurate_seek",
                "-ss",
                "1.5",
                "-i",
            ])
            .arg(url(address, "cam/1"))
            .args([
                "-map",
                "0:v",
                "-fps_mode",
                "passthrough",
                "-f",
                "framemd5",
                "-",
            ]),
    )
    .done();
    assert_eq!(sums(&from.out), wanted.video[25..]);
    serve.terminate();
}

/// For pictures that refer to later ones ffmpeg asks for what is a little earlier, also where that is before
/// the beginning.
#[test]
fn ffmpeg_plays_from_the_very_beginning() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"");
    let clip = clip_of(&site, 3, "2");
    let wanted = shown(&site, &["-i", &clip]).video;
    assert_eq!(wanted.len(), 75);
    outcome(&mut publish(&clip, "tcp", &url(address, "cam"))).done();
    until("the recording is closed", || is_idle(&site));
    for from in ["0", "0.04"] {
        let url = url(address, "cam");
        // The player decides which of the received frames it shows.
        let how = ["-rtsp_transport", "tcp", "-noaccurate_seek"];
        let got = shown(&site, &[&how[..], &["-ss", from, "-i", &url]].concat());
        assert_eq!(got.video, wanted, "{from}");
    }
    serve.terminate();
}

/// Checks that these are the first of those, and counts them.
#[track_caller]
fn first_of(got: &[String], wanted: &[String]) -> usize {
    assert!(got.len() <= wanted.len() && got[..] == wanted[..got.len()]);
    got.len()
}

#[test]
fn a_publisher_that_is_killed_leaves_a_recording_and_a_server_that_is_killed_too() {
    if !have("ffmpeg") {
        return;
    }
    let (site, server, address) = serving("rate = \"400KB/s\"");
    let clip = clip(&site, 12);
    let wanted = shown(&site, &["-i", &clip]).video;
    for (transport, path) in [("tcp", "cam/1"), ("udp", "cam/2")] {
        let publisher = Process::spawn(&mut publish(&clip, transport, &url(address, "cam")));
        until("something is on the disks", || is_on_disks(&site, path));
        // The publisher is killed.
        drop(publisher);
        until("the recording is closed", || is_idle(&site));
        let got = played(&site, "tcp", &url(address, path)).video;
        // The last one may be half of one.
        let count = first_of(&got[..got.len().saturating_sub(1)], &wanted);
        assert!(count > 0, "{count} frames of {transport}");
    }
    let publisher = Process::spawn(&mut publish(&clip, "tcp", &url(address, "cam")));
    until("a third recording is on the disks", || {
        is_on_disks(&site, "cam/3")
    });
    let mut client = Client::connect(address);
    let there = client.ask("DESCRIBE", "cam/3", "", "").is(200);
    drop(client);
    // Killed, as it has no time to say anything.
    Wire::flush(&site.path("nbd.sock"), "cam");
    drop(server);
    drop(publisher);
    let (server, address) = serve(&site);
    let got = played(&site, "tcp", &url(address, "cam/3")).video;
    let count = first_of(&got[..got.len().saturating_sub(1)], &wanted);
    println!("{count} frames are left of a recording whose server was killed");
    assert!(count > 0, "{count} frames of {there:?}");
    // And it goes on behind that.
    outcome(ffmpeg().args([
        "-t",
        "2",
        "-i",
        &clip,
        "-c",
        "copy",
        "-f",
        "rtsp",
        "-rtsp_transport",
        "tcp",
        &url(address, "cam"),
    ]))
    .done();
    until("the recording is closed", || is_idle(&site));
    let got = played(&site, "tcp", &url(address, "cam/4")).video;
    assert!(first_of(&got, &wanted) >= 48, "{} frames", got.len());
    server.terminate();
}

fn is_on_disks(site: &Site, path: &str) -> bool {
    let listed = call(site, "GET", "/v1/volumes/cam/recordings", "").1;
    let listed = listed.as_array().cloned().unwrap_or_default();
    let is_it = |of: &serde_json::Value| format!("cam/{}", of["number"]) == path;
    listed
        .iter()
        .any(|of| is_it(of) && of["blocks"].as_u64() > Some(0))
}

/// A player of a live recording gets its packets from a key frame on.
#[test]
fn a_recording_is_played_while_it_is_made() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"");
    let clip = clip(&site, 16);
    let wanted = shown(&site, &["-i", &clip]).video;
    let mut publisher = Process::spawn(&mut publish(&clip, "tcp", &url(address, "cam")));
    let blocks = || {
        let listed = call(&site, "GET", "/v1/volumes/cam/recordings", "").1;
        listed[0]["blocks"].as_u64().unwrap_or(0)
    };
    until("some seconds are on the disks", || blocks() >= 12);
    let got = played(&site, "tcp", &url(address, "cam/live")).video;
    assert_eq!(publisher.wait().code(), Some(0));
    // Not from its beginning, but to its end.
    let count = got.len();
    assert!(count > 50 && count + 25 <= wanted.len(), "{count} frames");
    assert_eq!(got, wanted[wanted.len() - count..]);
    serve.terminate();
}

/// Recorded bodies are not copied by the processor by UDP, and hardly in a connection, if there is room for
/// the packets before they are received.
#[test]
fn bodies_are_received_where_they_stay() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving_logged("rate = \"400KB/s\"");
    let clip = clip(&site, 3);
    for transport in ["tcp", "udp"] {
        outcome(&mut publish(&clip, transport, &url(address, "cam"))).done();
        until("the recording is closed", || is_idle(&site));
    }
    let (status, log) = serve.terminate();
    assert_eq!(status, Some(0));
    let ended = lines(&log, "a recording ended");
    assert_eq!(ended.len(), 2, "{log}");
    for (line, transport) in ended.iter().zip(["tcp", "udp"]) {
        let number = |name: &str| logged(line, name);
        let copied = number("copied_bytes");
        let share = copied as f64 / number("bytes") as f64;
        println!("copied {share:.5} of each byte by {transport}");
        // If a read ends within the four bytes before a packet, the next 16 received bytes are the rest of
        // these, the packet's header and up to 3 bytes of its body; or up to 15 bytes of a report, which has
        // no header.
        let most = match transport {
            "tcp" => 3 * number("packets") + 15 * number("reports"),
            _ => 0,
        };
        assert!(copied <= most, "{line}");
        assert_eq!(
            (number("lost"), number("strangers"), number("missed")),
            (0, 0, 0),
            "{line}"
        );
    }
}
