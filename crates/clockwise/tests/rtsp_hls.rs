//! What players of HLS are told of recordings with gaps in them, and of those whose beginning is overwritten.

mod common;
mod rtsp_support;

use std::net::SocketAddr;

use common::skip::{have, tool};
use common::{Process, outcome, until};
use rtsp_support::files::{closed, export, is_heard, sums};
use rtsp_support::http::{get, http};
use rtsp_support::peers::{HEARD, SEEN, ffmpeg};
use rtsp_support::serving;

/// A port of its own for browsers.
const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

/// Of a playlist of segments.
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

/// Nothing comes for ten seconds, as where a camera is lost: that is no part of a segment, all else is, and who goes by how
/// long segments are does not wait for as long.
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
    // Of sound alone no segment begins with a key frame.
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

/// A key frame each ten seconds, in a ring with room for some of them: each segment has its own number for as long as it is there
/// (RFC 8216, section 6.2.2).
#[test]
fn segments_keep_their_numbers_while_the_oldest_are_overwritten() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let browsers = http(&serve);
    site.run(&["volume", "create", "ring", "--size", "2MiB"])
        .done();
    let video = "testsrc2=size=320x240:rate=25:duration=240";
    let mut command = ffmpeg();
    command.args(["-readrate", "12", "-f", "lavfi", "-i", video]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "0"]);
    command.args(["-g", "250", "-keyint_min", "250", "-sc_threshold", "0"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    let publisher = Process::spawn(command.arg(format!("rtsp://{address}/ring")));
    let mut before: Option<Playlist> = None;
    let mut overwritten = 0;
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
            }
        }
        before = Some(now);
        overwritten >= 4
    });
    drop(publisher);
    serve.terminate();
}

/// The beginning of what is left of a recording may be between key frames: a file begins with the first one that is there, at
/// time 0.
#[test]
fn a_file_begins_with_what_is_there() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving(HTTP);
    let video = "testsrc2=size=320x240:rate=25:duration=60";
    let mut command = ffmpeg();
    command.args(["-f", "lavfi", "-i", video, "-c:v", "libx264"]);
    command.args(["-preset", "ultrafast", "-bf", "0", "-g", "50"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    outcome(command.arg(format!("rtsp://{address}/cam"))).done();
    let number = closed(&site);
    site.run(&["recording", "keep", "cam", "--size", "1MiB"])
        .done();
    let out = export(&site, &number, "out.mp4", &[]);
    let said = outcome(
        tool("ffprobe")
            .args(["-v", "error", "-show_entries", "packet=pts_time,flags"])
            .args(["-of", "csv=p=0", &out]),
    );
    let said = said.done().out;
    let first = said.lines().next().expect("a packet");
    assert!(first.starts_with("0.000000,K"), "{first}");
    serve.terminate();
}
