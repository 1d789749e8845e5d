//! Recordings as files: what is exported is what was published, whatever it was encoded in.

mod common;
mod rtsp_support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use common::skip::{have, tool};
use common::{Ready, Site, outcome, until};
use rtsp_support::{Client, SDP_TYPE, TCP, publisher, rtp, serve, serving, users, with_rtsp};

/// A port of its own for browsers.
const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

fn ffmpeg() -> Command {
    let mut command = tool("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]);
    command
}

/// A clip of so many seconds, with pictures and sound that are encoded like this.
fn clip(site: &Site, name: &str, seconds: u32, encoded: &[&str]) -> String {
    let path = site.path(name).display().to_string();
    let video = format!("testsrc2=size=320x240:rate=25:duration={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let inputs = ["-f", "lavfi", "-i", &video, "-f", "lavfi", "-i", &sound];
    outcome(ffmpeg().args(inputs).args(encoded).arg(&path)).done();
    path
}

/// Records a clip as it is. The number of the recording.
fn record(site: &Site, address: SocketAddr, clip: &str, transport: &str) -> String {
    let url = format!("rtsp://{address}/cam");
    let to = [
        "-c",
        "copy",
        "-f",
        "rtsp",
        "-rtsp_transport",
        transport,
        &url,
    ];
    outcome(ffmpeg().args(["-re", "-i", clip]).args(to)).done();
    closed(site)
}

/// Waits until nothing is recorded any more, and says which recording was the last.
fn closed(site: &Site) -> String {
    let mut number = 0;
    until("the recording is closed", || {
        let list = site.json(&["recording", "list", "cam"]);
        let last = list.as_array().and_then(|list| list.last()).cloned();
        let Some(last) = last.filter(|of| of["is_recorded"] == false) else {
            return false;
        };
        number = last["number"].as_u64().expect("a number");
        true
    });
    number.to_string()
}

fn export(site: &Site, number: &str, to: &str, more: &[&str]) -> String {
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
fn sums(input: &str, how: &[&str]) -> Vec<String> {
    let said = outcome(
        ffmpeg()
            .args(["-i", input])
            .args(how)
            .args(["-f", "framemd5", "-"]),
    );
    sums_in(&said.done().out)
}

fn sums_in(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.split(',').nth(5)?.trim().to_owned()))
        .collect()
}

const SEEN: [&str; 4] = ["-map", "0:v", "-fps_mode", "passthrough"];
const HEARD: [&str; 4] = ["-map", "0:a", "-c", "copy"];

/// When each frame is shown, from the first one on, and how long what is heard is, in microseconds.
fn times(input: &str, stream: &str) -> Vec<i64> {
    let asked = [
        "-v",
        "error",
        "-select_streams",
        stream,
        "-show_entries",
        "frame=pts_time",
    ];
    let said = outcome(tool("ffprobe").args(asked).args(["-of", "csv=p=0", input]))
        .done()
        .out;
    let lines = said.lines().map(|line| line.trim_end_matches(','));
    let seconds = lines.filter_map(|line| line.parse::<f64>().ok());
    let micros: Vec<i64> = seconds.map(|of| (of * 1e6).round() as i64).collect();
    micros.iter().map(|of| of - micros[0]).collect()
}

/// That what was heard is what is heard, but for the last packet's frames, which ffmpeg does not send.
#[track_caller]
fn is_heard(got: &[String], wanted: &[String]) {
    assert!(
        got.len() + 8 >= wanted.len(),
        "{} of {}",
        got.len(),
        wanted.len()
    );
    assert_eq!(*got, wanted[..got.len()]);
}

#[test]
fn an_mp4_file_has_the_frames_that_were_published_at_their_times() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let h264 = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-c:a",
        "aac",
    ];
    // Frames that are shown in another order than they are decoded in.
    let reordered = [&h264[..], &["-bf", "2", "-preset", "veryfast"]].concat();
    let h265 = [
        "-c:v",
        "libx265",
        "-preset",
        "ultrafast",
        "-x265-params",
        "log-level=none:keyint=25",
        "-c:a",
        "libopus",
    ];
    let kinds = [
        ("a.mp4", &h264[..], "tcp"),
        ("b.mp4", &reordered, "udp"),
        ("c.mkv", &h265, "tcp"),
    ];
    for (name, encoded, transport) in kinds {
        let clip = clip(&site, name, 5, encoded);
        let number = record(&site, address, &clip, transport);
        let file = export(&site, &number, &format!("{name}.out.mp4"), &[]);
        assert_eq!(sums(&file, &SEEN), sums(&clip, &SEEN), "{name}");
        let wanted = times(&clip, "v");
        assert!(
            times(&file, "v")
                .iter()
                .zip(&wanted)
                .all(|(got, wanted)| (got - wanted).abs() <= 20),
            "{name}"
        );
        is_heard(&sums(&file, &HEARD), &sums(&clip, &HEARD));
        // From the key frame before a time up to another.
        let part = export(
            &site,
            &number,
            "part.mp4",
            &["--from", "2.5s", "--until", "4s"],
        );
        let (seen, all) = (sums(&part, &SEEN), sums(&clip, &SEEN));
        assert!(
            (30..=55).contains(&seen.len()),
            "{name}: {} frames",
            seen.len()
        );
        // Those at the end may have been decoded for others before them.
        let seen = &seen[..seen.len() - 2];
        let from = all.windows(seen.len()).position(|of| of == seen);
        assert!(
            from.is_some_and(|from| from % 25 == 0),
            "{name}: from {from:?}"
        );
        let checked = site.json(&["recording", "check", "cam", &number]);
        assert_eq!(checked["is_sound"], true, "{checked}");
        assert_eq!(checked["lost"], 0, "{checked}");
    }
    serve.terminate();
}

#[test]
fn a_track_alone_is_what_was_published() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"");
    let pictures = [
        "-c:v", "mjpeg", "-q:v", "14", "-pix_fmt", "yuvj420p", "-huffman", "default",
    ];
    let jpeg = [&pictures[..], &["-c:a", "pcm_s16be"]].concat();
    let clip_jpeg = clip(&site, "j.nut", 3, &jpeg);
    let number = record(&site, address, &clip_jpeg, "tcp");
    let shown = site.json(&["recording", "show", "cam", &number]);
    let alone: Vec<_> = shown["tracks"]
        .as_array()
        .expect("tracks")
        .iter()
        .map(|of| of["raw"].clone())
        .collect();
    assert_eq!(alone, ["mjpeg", "s16be"]);
    let ns = |name: &str| shown[name].as_u64().expect("a time");
    assert!(ns("ends_ns") > ns("begins_ns"), "{shown}");
    assert_eq!(ns("ends_unix_ns"), ns("begun_unix_ns") + ns("ends_ns"));
    let ended = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(ns("ends_unix_ns"));
    let ended = format!("ended      {}\n", humantime::format_rfc3339_millis(ended));
    let said = site.run(&["recording", "show", "cam", &number]).done().out;
    assert!(said.contains(&ended), "{said}, not {ended}");
    let file = export(&site, &number, "out.mjpeg", &["--track", "0"]);
    assert_eq!(sums(&file, &SEEN), sums(&clip_jpeg, &SEEN));
    let sound = export(&site, &number, "out.s16be", &["--track", "1"]);
    let wanted = site.path("wanted.s16be").display().to_string();
    outcome(ffmpeg().args(["-i", &clip_jpeg, "-map", "0:a", "-f", "s16be", &wanted])).done();
    assert!(std::fs::read(&sound).unwrap() == std::fs::read(&wanted).unwrap());
    // Nothing of it can be in MP4, and that is said before there is a file.
    let none = site.path("none.mp4");
    let none = none.display().to_string();
    let refused = site.run(&["recording", "export", "cam", &number, "--to", &none]);
    refused.fails(1, &["MP4", "JPEG, L16", "recording show"]);
    assert!(!std::path::Path::new(&none).exists());

    let coded = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-bf",
        "0",
        "-c:a",
        "aac",
    ];
    let clip_coded = clip(&site, "k.mp4", 3, &coded);
    let number = record(&site, address, &clip_coded, "udp");
    let file = export(&site, &number, "out.h264", &["--track", "0"]);
    assert_eq!(sums(&file, &SEEN), sums(&clip_coded, &SEEN));
    let sound = export(&site, &number, "out.aac", &["--track", "1"]);
    let bare = [&HEARD[..], &["-bsf:a", "aac_adtstoasc"]].concat();
    is_heard(&sums(&sound, &bare), &sums(&clip_coded, &HEARD));
    let piped = site
        .run(&[
            "recording",
            "export",
            "cam",
            &number,
            "--to",
            "-",
            "--track",
            "0",
        ])
        .done();
    assert_eq!(
        piped.out.len(),
        String::from_utf8_lossy(&std::fs::read(&file).unwrap()).len()
    );
    serve.terminate();
}

/// A request, and its answer: status, head and body.
fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    ask(address, "GET", path, headers)
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(common::WITHIN))
        .expect("a socket");
    let text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).expect("it takes it");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer
        .windows(4)
        .position(|of| of == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|of| of.parse().ok())
        .expect("a status");
    let body = answer.split_off(end + 4);
    (status, head, body)
}

fn http(serve: &Ready) -> SocketAddr {
    serve.said["http"]
        .as_str()
        .and_then(|of| of.parse().ok())
        .expect("an address")
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn browsers_get_a_file_in_parts_and_players_its_segments() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    let encoded = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-c:a",
        "aac",
    ];
    let clip = clip(&site, "a.mp4", 13, &encoded);
    let number = record(&site, address, &clip, "tcp");
    let path = format!("/media/cam/{number}");
    let file = format!("{path}/recording.mp4");
    let (status, head, whole) = get(browsers, &file, "");
    assert_eq!(
        (status, header(&head, "content-type")),
        (200, Some("video/mp4"))
    );
    assert_eq!(header(&head, "accept-ranges"), Some("bytes"));
    assert_eq!(
        header(&head, "content-length"),
        Some(&*whole.len().to_string())
    );
    let exported = export(&site, &number, "out.mp4", &[]);
    assert!(
        std::fs::read(&exported).unwrap() == whole,
        "a file is made in two ways"
    );
    // Any part, in any order, also from the middle of a fragment to the middle of another.
    let step = whole.len() / 7 + 1;
    for from in (0..whole.len()).step_by(step).rev() {
        let to = (from + step).min(whole.len());
        let range = format!("Range: bytes={from}-{}\r\n", to - 1);
        let (status, head, part) = get(browsers, &file, &range);
        assert_eq!(status, 206);
        let told = format!("bytes {from}-{}/{}", to - 1, whole.len());
        assert_eq!(header(&head, "content-range"), Some(&*told));
        assert!(part == whole[from..to], "{told}");
    }
    let (status, _, last) = get(browsers, &file, "Range: bytes=-5\r\n");
    assert!(status == 206 && last == whole[whole.len() - 5..]);
    assert_eq!(get(browsers, &file, "Range: bytes=999999999-\r\n").0, 416);
    let (status, head, body) = ask(browsers, "HEAD", &file, "");
    assert_eq!((status, body.len()), (200, 0));
    assert_eq!(
        header(&head, "content-length"),
        Some(&*whole.len().to_string())
    );

    // What a player makes of the segments is what was published.
    let playlist = format!("http://{browsers}{path}/index.m3u8");
    assert_eq!(sums(&playlist, &SEEN), sums(&clip, &SEEN));
    is_heard(&sums(&playlist, &HEARD), &sums(&clip, &HEARD));
    let (_, _, master) = get(browsers, &format!("{path}/index.m3u8"), "");
    let master = String::from_utf8_lossy(&master).into_owned();
    assert!(
        master.contains("avc1.") && master.contains("mp4a.40.2"),
        "{master}"
    );
    assert!(master.contains("RESOLUTION=320x240"), "{master}");
    let (_, _, media) = get(browsers, &format!("{path}/media.m3u8"), "");
    let media = String::from_utf8_lossy(&media).into_owned();
    let segments: Vec<&str> = media
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(
        (3..=5).contains(&segments.len()) && media.ends_with("#EXT-X-ENDLIST\n"),
        "{media}"
    );
    let second = format!("{path}/{}", segments[1]);
    let again = [get(browsers, &second, "").2, get(browsers, &second, "").2];
    assert!(again[0] == again[1] && !again[0].is_empty());
    let (status, _, page) = get(browsers, &format!("{path}/"), "");
    assert!(status == 200 && String::from_utf8_lossy(&page).contains("cam, recording 1"));
    let (_, _, list) = get(browsers, "/media/", "");
    assert!(String::from_utf8_lossy(&list).contains("href=\"cam/1/\""));

    // Bad input.
    for (path, status) in [
        ("/media/none/1/recording.mp4", 404),
        ("/media/cam/99/recording.mp4", 404),
        ("/media/cam/x/recording.mp4", 400),
        ("/media/cam/1/recording.mp4?from_ns=5&to_ns=5", 400),
        ("/media/cam/1/recording.mp4?from=5", 400),
        ("/media/cam/1/recording.mp4?from_ns=3600000000000", 409),
        ("/media/cam/1/track7", 404),
        ("/media/cam/1/trackx", 404),
        ("/media/cam/1/recording.avi", 404),
        ("/media/cam/1/segments/0.0-0.1.m4s", 404),
        ("/media/cam/1/segments/nonsense", 404),
        ("/media/cam/1/segments/0.0-99999999.0.m4s", 404),
        // What changes something is not here.
        ("/v1/volumes", 404),
    ] {
        let (got, _, body) = get(browsers, path, "");
        assert_eq!(got, status, "{path}: {}", String::from_utf8_lossy(&body));
    }
    assert_eq!(
        ask(browsers, "DELETE", "/media/cam/1/recording.mp4", "").0,
        405
    );
    serve.terminate();
}

/// Publishes packets that make no sense as what they are said to be.
fn nonsense(address: SocketAddr, encoding: &str, parameters: &str) {
    let description = format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
         b=AS:800\r\na=rtpmap:96 {encoding}\r\na=fmtp:96 {parameters}\r\na=control:one\r\n"
    );
    let mut client = Client::connect(address);
    client
        .ask("ANNOUNCE", "cam", SDP_TYPE, &description)
        .is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    for number in 0..200_u16 {
        let body: Vec<u8> = (0..number % 40)
            .map(|at| (number * 37 + at * 11) as u8)
            .collect();
        client.packet(0, &rtp(number, u32::from(number / 3) * 3_600, 7, &body));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
}

#[test]
fn what_makes_no_sense_is_said_and_the_server_stays() {
    let (site, serve, address) = serving(HTTP);
    let aac = "sizelength=13;indexlength=3;indexdeltalength=3;config=1190";
    for (encoding, parameters) in [
        ("H264/90000", "packetization-mode=1"),
        ("H264/90000", "sprop-parameter-sets=Z0LA,aM4="),
        ("H265/90000", "sprop-sps=QgEB;sprop-pps=RAE=;sprop-vps=QAE="),
        ("JPEG/90000", "x"),
        ("MPEG4-GENERIC/48000", aac),
        ("X-UNKNOWN/90000", "x"),
    ] {
        nonsense(address, encoding, parameters);
        let number = closed(&site);
        let to = site.path("out").display().to_string();
        for more in [&[][..], &["--track", "0"], &["--track", "9"]] {
            let command = ["recording", "export", "cam", &number, "--to", &to];
            let outcome = site.run(&[&command[..], more].concat());
            assert!(
                [0, 1, 2].contains(&outcome.code),
                "{encoding} {more:?}: {outcome:?}"
            );
            assert!(
                outcome.code == 0 || outcome.err.contains("help"),
                "{outcome:?}"
            );
        }
        for name in ["index.m3u8", "media.m3u8", "init.mp4", "recording.mp4"] {
            let (status, ..) = get(http(&serve), &format!("/media/cam/{number}/{name}"), "");
            assert!([200, 409].contains(&status), "{encoding} {name}: {status}");
        }
        assert_eq!(
            site.json(&["recording", "check", "cam", &number])["is_sound"],
            true
        );
    }
    let none = site.run(&[
        "recording",
        "export",
        "cam",
        "1",
        "--to",
        "-",
        "--from",
        "5s",
        "--until",
        "4s",
    ]);
    none.fails(2, &["--until", "not after --from"]);
    site.run(&["recording", "show", "cam", "77"])
        .fails(2, &["no recording 77", "recording list"]);
    serve.terminate();
}

#[test]
fn what_is_damaged_is_named() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    for number in 0..500_u16 {
        client.packet(
            0,
            &rtp(number, u32::from(number) * 160, 1, &[number as u8; 1_000]),
        );
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let number = closed(&site);
    let sound = site.json(&["recording", "check", "cam", &number]);
    assert_eq!(
        (&sound["is_sound"], &sound["packets"]),
        (&true.into(), &500.into())
    );
    assert!(sound["sections"].as_u64() > Some(0), "{sound}");
    // The third block, which lies behind the header and two others.
    let noise = common::told::file(&site, "noise", &common::pattern(3, 4_096));
    let place = [
        "--offset", "196608", "--length", "4096", "--block", "4KiB", "--rate", "20KB/s",
    ];
    site.run(
        &[
            &["stream", "record", "--volume", "cam", "--from", &noise][..],
            &place,
        ]
        .concat(),
    )
    .done();
    let outcome = site.run(&["--json", "recording", "check", "cam", &number]);
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let damaged = outcome.json();
    assert_eq!(
        (&damaged["is_sound"], &damaged["damaged"]),
        (&false.into(), &1.into())
    );
    assert_eq!(damaged["damaged_at"], serde_json::json!([2]));
    serve.terminate();
}

/// Of each payload that cameras and encoders send, what is published is what a player of RTSP gets, from TCP and UDP.
#[test]
fn every_payload_is_played_as_it_was_published() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"");
    let kinds: [(&str, &[&str]); 5] = [
        (
            "h264.mkv",
            &[
                "-c:v",
                "libx264",
                "-preset",
                "ultrafast",
                "-g",
                "25",
                "-bf",
                "0",
                "-c:a",
                "pcm_mulaw",
                "-ar",
                "8000",
            ],
        ),
        (
            "h265.mkv",
            &[
                "-c:v",
                "libx265",
                "-preset",
                "ultrafast",
                "-x265-params",
                "log-level=none:keyint=25:bframes=0",
                "-c:a",
                "libopus",
            ],
        ),
        (
            "jpeg.nut",
            &[
                "-c:v",
                "mjpeg",
                "-q:v",
                "14",
                "-pix_fmt",
                "yuvj420p",
                "-huffman",
                "default",
                "-c:a",
                "pcm_s16be",
            ],
        ),
        (
            "mpeg4.mp4",
            &["-c:v", "mpeg4", "-q:v", "8", "-g", "25", "-c:a", "aac"],
        ),
        (
            "vp8.mkv",
            &[
                "-c:v",
                "libvpx",
                "-b:v",
                "500k",
                "-deadline",
                "realtime",
                "-g",
                "25",
                "-c:a",
                "libopus",
            ],
        ),
    ];
    let ways = [("tcp", "udp"), ("udp", "tcp")].into_iter().cycle();
    for ((name, encoded), (publish, play)) in kinds.into_iter().zip(ways) {
        let clip = clip(&site, name, 3, encoded);
        let number = record(&site, address, &clip, publish);
        let url = format!("rtsp://{address}/cam/{number}");
        let got = |how: &[&str]| {
            let input = ["-rtsp_transport", play, "-i", &url];
            let said = outcome(ffmpeg().args(input).args(how).args(["-f", "framemd5", "-"]));
            sums_in(&said.done().out)
        };
        assert_eq!(
            got(&SEEN),
            sums(&clip, &SEEN),
            "{name} published by {publish}"
        );
        // Samples that are not compressed come in other pieces than they were read in.
        if encoded.contains(&"libopus") || encoded.contains(&"aac") {
            is_heard(&got(&HEARD), &sums(&clip, &HEARD));
        } else {
            let decoded = ["-map", "0:a", "-af", "asetnsamples=n=800:p=0"];
            assert_eq!(
                got(&decoded),
                sums(&clip, &decoded),
                "{name} published by {publish}"
            );
        }
    }
    serve.terminate();
}

/// Where RTSP asks who somebody is, so does what browsers reach.
#[test]
fn browsers_are_asked_who_they_are() {
    if !have("ffmpeg") {
        return;
    }
    let site = Site::new(2);
    let more = "users = \"rtsp-users\"\nrate = \"400KB/s\"\n[[rtsp.permit]]\nuser = \"anna\"\nmay = [\"play\", \"record\"]\n\
        [[rtsp.permit]]\nuser = \"paul\"\nmay = [\"play\"]\nvolumes = [\"other\"]\n[http]\nlisten = \"0\"";
    with_rtsp(&site, more);
    users(
        &site,
        "rtsp-users",
        &[("anna", "of-anna"), ("paul", "of-paul")],
    );
    site.run(&["pool", "create"]).done();
    let (serving, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "20MiB"])
        .done();
    let encoded = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-bf",
        "0",
        "-an",
    ];
    let clip = clip(&site, "a.mp4", 3, &encoded);
    let url = format!("rtsp://anna:of-anna@{address}/cam");
    let to = ["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp", &url];
    outcome(ffmpeg().args(["-re", "-i", &clip]).args(to)).done();
    assert_eq!(closed(&site), "1");
    let browsers = http(&serving);
    let file = "/media/cam/1/recording.mp4";
    let (status, head, body) = get(browsers, file, "");
    assert_eq!(status, 401, "{}", String::from_utf8_lossy(&body));
    let challenge = header(&head, "www-authenticate").expect("a challenge");
    assert!(
        challenge.starts_with("digest realm=\"clockwise\""),
        "{challenge}"
    );
    // On one connection, as a nonce is of one.
    let mut keeps = Kept::connect(browsers);
    for (user, password, path, status) in [
        ("anna", "wrong", file, 401),
        ("nobody", "of-anna", file, 401),
        ("paul", "of-paul", file, 403),
    ] {
        let mut keeps = Kept::connect(browsers);
        assert_eq!(keeps.ask(path, Some((user, password))).0, status, "{user}");
    }
    let (status, all) = keeps.ask(file, Some(("anna", "of-anna")));
    assert!(status == 200 && !all.is_empty());
    assert_eq!(keeps.ask(file, None).0, 401);
    let (status, list) = keeps.ask("/media/", Some(("anna", "of-anna")));
    assert!(status == 200 && String::from_utf8_lossy(&list).contains("cam/1/"));
    let mut paul = Kept::connect(browsers);
    let (status, list) = paul.ask("/media/", Some(("paul", "of-paul")));
    assert!(status == 200 && !String::from_utf8_lossy(&list).contains("cam/1/"));
    // What plays it is asked and answers by itself, on as many connections as it likes.
    let playlist = format!("http://anna:of-anna@{browsers}/media/cam/1/index.m3u8");
    assert_eq!(sums(&playlist, &SEEN), sums(&clip, &SEEN));
    let guessed = format!("http://anna:guess@{browsers}/media/cam/1/index.m3u8");
    assert_ne!(
        outcome(ffmpeg().args(["-i", &guessed, "-f", "null", "-"])).code,
        0
    );
    // Who may use the control socket may do everything.
    export(&site, "1", "out.mp4", &[]);
    serving.terminate();
}

/// A connection that is kept, and what it was told to answer.
struct Kept {
    stream: TcpStream,
    login: Option<http_auth::PasswordClient>,
}

impl Kept {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream
            .set_read_timeout(Some(common::WITHIN))
            .expect("a socket");
        Self {
            stream,
            login: None,
        }
    }

    /// Asks, and asks again as somebody when it is told to say who it is.
    fn ask(&mut self, path: &str, who: Option<(&str, &str)>) -> (u16, Vec<u8>) {
        let mut authorization = String::new();
        for turn in 0..2 {
            if let (Some((username, password)), Some(login)) = (who, &mut self.login) {
                let params = http_auth::PasswordParams {
                    username,
                    password,
                    uri: path,
                    method: "GET",
                    body: None,
                };
                let said = login.respond(&params).expect("an answer");
                authorization = format!("Authorization: {said}\r\n");
            }
            let (status, head, body) = self.send(path, &authorization);
            let challenge = head
                .lines()
                .find_map(|line| line.strip_prefix("www-authenticate: "));
            let Some(challenge) = challenge.filter(|_| who.is_some() && turn == 0) else {
                return (status, body);
            };
            self.login = Some(challenge.try_into().expect("a challenge"));
        }
        unreachable!("the second turn is the last")
    }

    fn send(&mut self, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
        let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        self.stream.write_all(text.as_bytes()).expect("it takes it");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("a head");
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|of| of.parse().ok())
            .expect("a status");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|of| of.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        (status, head, body)
    }
}
