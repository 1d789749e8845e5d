//! HLS playlists of recordings with gaps, and of those whose beginning is overwritten.

use std::net::SocketAddr;

use serde_json::Value;
use testkit::process::Process;
use testkit::rtsp::files::{closed, damage, export, is_heard, sums};
use testkit::rtsp::frames::{decodable, publish, publisher};
use testkit::rtsp::http::{get, header, http};
use testkit::rtsp::peers::{HEARD, SEEN, ffmpeg};
use testkit::rtsp::{Client, serving};
use testkit::site::{Site, call, outcome};
use testkit::skip::{have, tool};
use testkit::until;

/// A port of its own for browsers.
const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

/// A playlist of segments.
#[derive(Debug)]
struct Playlist {
    text: String,
    sequence: u64,
    target_s: u64,
    /// The name of each, how long it is, and whether nothing came before it.
    segments: Vec<(String, f64, bool)>,
    /// The dates, in milliseconds of a day.
    dates_ms: Vec<u64>,
}

impl Playlist {
    fn get(browsers: SocketAddr, path: &str) -> Option<Self> {
        let (status, _, body) = get(browsers, &format!("{path}/media.m3u8"), "");
        (status == 200).then(|| Self::parse(String::from_utf8(body).expect("text")))
    }

    fn parse(text: String) -> Self {
        let (mut length, mut is_behind) = (0.0, false);
        let mut said = Self {
            sequence: 0,
            target_s: 0,
            segments: Vec::new(),
            dates_ms: Vec::new(),
            text: String::new(),
        };
        for line in text.lines() {
            match line.split_once(':').unwrap_or((line, "")) {
                ("#EXT-X-MEDIA-SEQUENCE", of) => said.sequence = of.parse().expect("a number"),
                ("#EXT-X-TARGETDURATION", of) => said.target_s = of.parse().expect("a number"),
                ("#EXTINF", of) => length = of.trim_end_matches(',').parse().expect("a number"),
                ("#EXT-X-DISCONTINUITY", _) => is_behind = true,
                ("#EXT-X-PROGRAM-DATE-TIME", of) => said.dates_ms.push(of_day_ms(of)),
                _ if line.starts_with('#') => {}
                _ => {
                    let is_behind = std::mem::take(&mut is_behind);
                    said.segments.push((line.to_owned(), length, is_behind));
                }
            }
        }
        Self { text, ..said }
    }
}

/// The time of a date like `2026-01-31T12:34:56.789Z`.
fn of_day_ms(date: &str) -> u64 {
    let (_, time) = date.trim_end_matches('Z').split_once('T').expect("a time");
    let parts: Vec<&str> = time.split([':', '.']).collect();
    let [hours, minutes, seconds, millis] = parts[..] else {
        panic!("{date}");
    };
    let number = |of: &str| of.parse::<u64>().expect("a number");
    ((number(hours) * 60 + number(minutes)) * 60 + number(seconds)) * 1_000 + number(millis)
}

/// Nothing comes for ten seconds, as where a camera is lost: that is no part of a segment, all else is, and
/// who goes by how long segments are does not wait for as long.
#[test]
fn a_gap_is_between_two_segments() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    let gap = "between(t,6,16)";
    let (picture, sound) = (
        format!("select='not({gap})'"),
        format!("aselect='not({gap})'"),
    );
    let video = "testsrc2=size=320x240:rate=25:duration=22";
    let heard = "sine=frequency=440:sample_rate=48000:duration=22";
    let seen = ["-f", "lavfi", "-i", video, "-vf", &picture];
    let seen = [&seen[..], &["-fps_mode", "passthrough", "-c:v", "libx264"]].concat();
    let seen = [&seen[..], &["-preset", "ultrafast", "-g", "25", "-bf", "0"]].concat();
    let heard = ["-f", "lavfi", "-i", heard, "-af", &sound, "-c:a", "aac"];
    // A recording of sound alone has no segment that begins with a key frame.
    for (encoded, how) in [(&seen[..], &SEEN[..]), (&heard[..], &HEARD[..])] {
        let clip = site.path("clip.mkv").display().to_string();
        outcome(ffmpeg().args(encoded).arg("-y").arg(&clip)).done();
        let to = ["-c", "copy", "-f", "rtsp", "-rtsp_transport", "tcp"];
        let url = format!("rtsp://{address}/cam");
        outcome(ffmpeg().args(["-re", "-i", &clip]).args(to).arg(url)).done();
        let path = format!("/media/cam/{}", closed(&site));
        let told = Playlist::get(browsers, &path).expect("a playlist");
        let behind: Vec<usize> = (0..told.segments.len())
            .filter(|number| told.segments[*number].2)
            .collect();
        assert_eq!(behind.len(), 1, "{}", told.text);
        assert!(told.target_s < 10, "{}", told.text);
        let lengths = told.segments.iter().map(|of| of.1);
        assert!(
            lengths.clone().all(|of| of <= told.target_s as f64),
            "{}",
            told.text
        );
        let all: f64 = lengths.clone().sum();
        assert!((11.0..12.5).contains(&all), "{all} s: {}", told.text);
        // By their dates the second part begins when it came.
        let before: f64 = lengths.take(behind[0]).sum();
        let [first, second] = told.dates_ms[..] else {
            panic!("{}", told.text);
        };
        let day_ms = 86_400_000;
        let apart_ms = (second + day_ms - first) % day_ms;
        assert!(before < 6.5, "{}", told.text);
        assert!((15_500..16_500).contains(&apart_ms), "{}", told.text);
        // All of it is there.
        let playlist = format!("http://{browsers}{path}/index.m3u8");
        match how == HEARD {
            true => is_heard(&sums(&playlist, how), &sums(&clip, how)),
            false => assert_eq!(sums(&playlist, how), sums(&clip, how)),
        }
    }
    serve.terminate();
}

/// The camera's picture stops and its sound goes on: segments do not become longer and longer, players are
/// told of them while it is recorded, and they are the same afterwards.
#[test]
fn stream_without_key_frames_is_divided_into_segments() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    let clip = site.path("clip.mkv").display().to_string();
    let video = "testsrc2=size=320x240:rate=25:duration=5";
    let sound = "sine=frequency=440:sample_rate=48000:duration=120";
    let inputs = ["-f", "lavfi", "-i", video, "-f", "lavfi", "-i", sound];
    let encoded = ["-c:v", "libx264", "-preset", "ultrafast", "-g", "25"];
    let encoded = [&encoded[..], &["-bf", "0", "-c:a", "aac", &clip]].concat();
    outcome(ffmpeg().args(inputs).args(encoded)).done();
    let mut command = ffmpeg();
    command.args(["-readrate", "12", "-i", &clip, "-c", "copy"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    let encoder = Process::spawn(command.arg(format!("rtsp://{address}/cam")));
    let mut live = Vec::new();
    until("segments without key frames are told of", || {
        let told = Playlist::get(browsers, "/media/cam/1");
        live = told.map_or(Vec::new(), |told| {
            assert!(!told.text.contains("ENDLIST"), "{}", told.text);
            told.segments
        });
        live.len() >= 3
    });
    assert_eq!(closed(&site), "1");
    drop(encoder);
    let told = Playlist::get(browsers, "/media/cam/1").expect("a playlist");
    assert_eq!(told.segments[..live.len()], live, "{}", told.text);
    // A segment is as long as a block of more than half a minute.
    assert!(told.target_s <= 45, "{}", told.text);
    assert!(!told.text.contains("INDEPENDENT"), "{}", told.text);
    let all: f64 = told.segments.iter().map(|of| of.1).sum();
    assert!((118.0..122.0).contains(&all), "{all} s: {}", told.text);
    let playlist = format!("http://{browsers}/media/cam/1/index.m3u8");
    assert_eq!(sums(&playlist, &SEEN), sums(&clip, &SEEN));
    is_heard(&sums(&playlist, &HEARD), &sums(&clip, &HEARD));
    serve.terminate();
}

/// A recording that begins with frames that cannot be decoded has no playlist until one that can be comes.
#[test]
fn the_first_segment_begins_with_the_first_key_frame() {
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    let mut client = publisher(address);
    // More than a block of frames without a key.
    publish(&mut client, 1..10);
    until("a block of it is there", || {
        Playlist::get(browsers, "/media/cam/1").is_some_and(|told| {
            assert!(told.segments.is_empty(), "{}", told.text);
            true
        })
    });
    publish(&mut client, 10..200);
    ends(&site, &mut client);
    let told = Playlist::get(browsers, "/media/cam/1").expect("a playlist");
    let path = "/v1/volumes/cam/recordings/1/index?from_ns=0";
    let (_, said) = call(&site, "GET", path, "");
    let key = &said["keys"][0];
    let begins = format!("segments/{}.{}-", key["block"], key["packet"]);
    assert_ne!(begins, "segments/0.0-");
    assert!(told.segments[0].0.starts_with(&begins), "{}", told.text);
    serve.terminate();
}

/// A player that keeps a segment has what others get; one of which something is damaged is not kept.
#[test]
fn damaged_segment_is_not_cached() {
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    let mut client = decodable(address);
    publish(&mut client, 0..250);
    ends(&site, &mut client);
    let told = Playlist::get(browsers, "/media/cam/1").expect("a playlist");
    let first = format!("/media/cam/1/{}", told.segments[0].0);
    let (status, head, whole) = get(browsers, &first, "");
    assert_eq!(status, 200, "{head}{}", String::from_utf8_lossy(&whole));
    assert!(header(&head, "cache-control").is_some(), "{head}");
    // The third block, which lies behind the header and two others.
    if !damage(&site, 3 * 65_536, 4_096) {
        return;
    }
    let (status, head, some) = get(browsers, &first, "");
    assert_eq!(status, 200, "{head}");
    assert_eq!(header(&head, "cache-control"), None, "{head}");
    assert!(some.len() < whole.len());
    serve.terminate();
}

/// Ends a recording; its number.
fn ends(site: &Site, client: &mut Client) -> String {
    client.ask("TEARDOWN", "cam", "", "").is(200);
    closed(site)
}

/// The first block that is there of a recording.
fn first_block(site: &Site, volume: &str, number: u64) -> u64 {
    let path = format!("/v1/volumes/{volume}/recordings/{number}/index");
    let (status, said) = call(site, "GET", &path, "");
    assert_eq!(status, 200, "{said}");
    said["groups"][0]["block"].as_u64().expect("a block")
}

/// A key frame each ten seconds, in a ring with room for some of them: each segment has its own number for as
/// long as it is there (RFC 8216, section 6.2.2), also where many other recordings are looked at meanwhile,
/// or nobody looks for long.
#[test]
fn segments_keep_their_numbers_while_the_oldest_are_overwritten() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    // Number of recordings whose segments are known at a time.
    let others = 32;
    for number in 1..=others {
        let mut client = publisher(address);
        publish(&mut client, 0..3);
        assert_eq!(ends(&site, &mut client), number.to_string());
    }
    site.run(&["volume", "create", "ring", "--size", "2MiB"])
        .done();
    let video = "testsrc2=size=320x240:rate=25:duration=1200";
    let mut command = ffmpeg();
    command.args(["-readrate", "12", "-f", "lavfi", "-i", video]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "0"]);
    command.args(["-g", "250", "-keyint_min", "250", "-sc_threshold", "0"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    let publisher = Process::spawn(command.arg(format!("rtsp://{address}/ring")));
    let mut before: Option<Playlist> = None;
    let (mut overwritten, mut compared) = (0, 0);
    until("enough is overwritten", || {
        let Some(now) = Playlist::get(browsers, "/media/ring/1") else {
            return false;
        };
        if let (Some(before), Some(first)) = (&before, now.segments.first()) {
            let place = before.segments.iter().position(|of| of.0 == first.0);
            let gone = place.map(|of| of as u64);
            // Between two looks all may have gone, and the first one is there before it is whole.
            if let Some(gone) = gone {
                let (was, is) = (&before.text, &now.text);
                assert_eq!(now.sequence, before.sequence + gone, "{was}\n{is}");
                overwritten += gone;
                compared += 1;
            }
        }
        before = Some(now);
        // The knowledge about it is dropped for those.
        for number in (1..=others).filter(|_| overwritten >= 2) {
            let other = Playlist::get(browsers, &format!("/media/cam/{number}"));
            assert!(other.is_some(), "{number}");
        }
        overwritten >= 5
    });
    assert!(compared > 5);
    let before = before.expect("a playlist");
    let (last, ..) = before.segments.last().expect("a segment");
    let behind = |name: &str| -> u64 {
        let (_, behind) = name.split_once('-').expect("two places");
        behind.split('.').next().unwrap().parse().expect("a serial")
    };
    let behind = behind(last);
    until("all that was told of is overwritten", || {
        first_block(&site, "ring", 1) > behind + 8
    });
    let mut last = before.sequence + before.segments.len() as u64;
    until("something is told of again", || {
        let now = Playlist::get(browsers, "/media/ring/1").expect("a playlist");
        assert!(now.sequence >= last, "{}\n{}", before.text, now.text);
        last = now.sequence;
        !now.segments.is_empty()
    });
    drop(publisher);
    serve.terminate();
}

/// The beginning of what is left of a recording may be between key frames: a file begins with the first one
/// that is there, at time 0, also where it is to begin with something later that cannot be decoded.
#[test]
fn a_file_begins_with_what_is_there() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let video = "testsrc2=size=320x240:rate=25:duration=60";
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-i", video, "-f", "lavfi"]);
    command.args(["-i", "sine=frequency=440:sample_rate=48000:duration=60"]);
    command.args(["-c:a", "aac", "-c:v", "libx264"]);
    command.args(["-preset", "ultrafast", "-bf", "0", "-g", "500"]);
    command.args(["-keyint_min", "500", "-sc_threshold", "0"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    outcome(command.arg(format!("rtsp://{address}/cam"))).done();
    let number = closed(&site);
    let path = format!("/v1/volumes/cam/recordings/{number}/index?from_ns=0");
    let index = || call(&site, "GET", &path, "").1;
    let number_of = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let mut kept = index()["blocks"].as_array().expect("blocks").len();
    let said = loop {
        assert!(kept > 4, "{}", index());
        kept -= 1;
        site.run(&[
            "recording",
            "keep",
            "cam",
            "--size",
            &format!("{}KiB", 64 * kept),
            "--force",
        ])
        .done();
        let said = index();
        let first = number_of(&said["blocks"][0], "block");
        // It begins between two key frames, far before the second one.
        if first > 0 && number_of(&said["keys"][0], "block") > first + 3 {
            break said;
        }
    };
    let later = number_of(&said["blocks"][2], "begins_ns") / 1_000_000;
    let probed = |file: &str| {
        let said = outcome(
            tool("ffprobe")
                .args(["-v", "error", "-show_entries", "packet=pts_time,flags"])
                .args(["-of", "csv=p=0", file]),
        );
        said.done().out
    };
    for from in ["0s".to_owned(), format!("{later}ms")] {
        let name = format!("{from}.mp4");
        let out = export(&site, &number, &name, &["--from", &from]);
        let said = probed(&out);
        let first = said.lines().next().expect("a packet");
        assert!(first.starts_with("0.000000,K"), "from {from}: {first}");
    }
    // Sound alone is complete, whatever is seen.
    let more = ["--track", "1", "--from", &format!("{later}ms")];
    let out = export(&site, &number, "sound.aac", &more);
    let seconds = probed(&out).lines().count() as f64 * 1_024.0 / 48_000.0;
    let ends = number_of(&said, "ends_ns") / 1_000_000;
    let wanted = (ends - later) as f64 / 1_000.0;
    assert!((seconds - wanted).abs() < 0.5, "{seconds} s of {wanted} s");
    serve.terminate();
}
