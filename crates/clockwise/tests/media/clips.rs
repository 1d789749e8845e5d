//! Clips of real cameras and encoders with real peers: ffmpeg publishes them, ffmpeg and GStreamer play them,
//! by UDP and TCP, and they are exported. Nothing of them is lost.

#![allow(clippy::print_stdout, reason = "what a peer loses by itself is told")]

use std::net::SocketAddr;

use testkit::rtsp::files::{closed as recorded, export};
use testkit::rtsp::http::{get, http};
use testkit::rtsp::peers::{
    PlayerOutput, bare_frames, bare_sound, closed, ffmpeg, frames, gstreamer_play, has_played,
    is_whole, publish, shared_clips, shown, without_server,
};
use testkit::rtsp::{Client, publisher_of, reservations, rtp, serving};
use testkit::site::{Site, outcome};
use testkit::skip::{have, tool};
use testkit::until;

const TRANSPORTS: [&str; 2] = ["tcp", "udp"];

/// A clip, and what of it comes from one ffmpeg to another.
struct Clip {
    path: String,
    /// Its volumes begin with this.
    name: &'static str,
    has_sound: bool,
    wanted: PlayerOutput,
}

impl Clip {
    fn new(site: &Site, path: &std::path::Path, name: &'static str, frames: usize) -> Self {
        let path = path.display().to_string();
        // Sound is where there is some: 250 packets of it in one of the two.
        let has_sound = name == "bunny";
        let clip = shown(site, &["-i", &path], has_sound);
        assert_eq!(clip.seen.len(), frames, "{name}");
        // ffmpeg keeps back what its last packet of AAC would be, whoever it sends to.
        let wanted = without_server(site, &path, has_sound);
        assert_eq!(wanted.seen, clip.seen, "{name}, without a server");
        let kept_back = clip.heard.len() - wanted.heard.len();
        println!("{name}: ffmpeg does not send the last {kept_back} frames of sound");
        assert!(kept_back <= 8, "{kept_back} frames");
        assert_eq!(wanted.heard, clip.heard[..wanted.heard.len()]);
        Self {
            path,
            name,
            has_sound,
            wanted,
        }
    }

    fn volume(&self, published_by: &str) -> String {
        format!("{}-{published_by}", self.name)
    }
}

#[test]
#[ignore = "alone: a player by UDP that has to wait for a processor loses packets"]
fn clips_of_cameras_come_back_whole_from_ffmpeg_gstreamer_and_files() {
    if !have("ffmpeg") || !have("gst-launch-1.0") {
        return;
    }
    let Some([bunny, bikes]) = shared_clips(["bigbuckbunny.mp4", "bikes.mp4"]) else {
        return;
    };
    let (site, serve, address) = serving("");
    let clips = [
        Clip::new(&site, &bunny, "bunny", 132),
        // Every third of its frames is shown before one that was decoded earlier.
        Clip::new(&site, &bikes, "bikes", 250),
    ];
    let all = || {
        TRANSPORTS
            .iter()
            .flat_map(|by| clips.iter().map(move |clip| (clip, *by)))
    };
    for (clip, by) in all() {
        let volume = clip.volume(by);
        site.run(&["volume", "create", &volume, "--size", "12MiB"])
            .done();
    }
    std::thread::scope(|scope| {
        for (clip, by) in all() {
            let url = format!("rtsp://{address}/{}", clip.volume(by));
            // By UDP nothing holds a sender up that is faster.
            let mut publish = publish(&clip.path, by, &url, by == "udp");
            scope.spawn(move || outcome(&mut publish).done());
        }
    });
    for (clip, by) in all() {
        closed(&site, &clip.volume(by), 1);
        let packets = is_whole(&site, &clip.volume(by), 1);
        assert!(packets > clip.wanted.seen.len() as u64, "{packets} packets");
    }
    for clip in &clips {
        for published in TRANSPORTS {
            is_played(&site, address, clip, published);
        }
        is_exported(&site, clip);
    }
    until("what was reserved is given back", || {
        reservations(&site) == 0
    });
    serve.terminate();
}

/// Plays it with all peers at once.
fn is_played(site: &Site, address: SocketAddr, clip: &Clip, published: &str) {
    std::thread::scope(|scope| {
        for played in TRANSPORTS {
            let what = format!("{}, published by {published}, played by", clip.name);
            let url = format!("rtsp://{address}/{}", clip.volume(published));
            let (by_ffmpeg, from) = (format!("{what} ffmpeg by {played}"), url.clone());
            scope.spawn(move || {
                let input = ["-rtsp_transport", played, "-i", &from];
                let got = shown(site, &input, clip.has_sound);
                is(&by_ffmpeg, &got.seen, &clip.wanted.seen);
                is(&by_ffmpeg, &got.heard, &clip.wanted.heard);
            });
            let by_gstreamer = format!("{what} GStreamer by {played}");
            scope.spawn(move || {
                let at =
                    |kind: &str| site.path(&format!("{}-{published}-{played}.{kind}", clip.name));
                let [seen, heard] = ["h264", "aac"].map(|kind| at(kind).display().to_string());
                let sound = clip.has_sound.then_some(heard.as_str());
                has_played(&outcome(&mut gstreamer_play(&url, played, &seen, sound)));
                is(&by_gstreamer, &bare_frames(&seen), &clip.wanted.seen);
                if let Some(sound) = sound {
                    is(&by_gstreamer, &bare_sound(sound), &clip.wanted.heard);
                }
            });
        }
    });
}

/// Exports the recording to a file and compares it with the clip.
fn is_exported(site: &Site, clip: &Clip) {
    for by in TRANSPORTS {
        let volume = clip.volume(by);
        let to = site.path(&format!("{volume}.mp4")).display().to_string();
        site.json(&["recording", "export", &volume, "1", "--to", &to]);
        let got = shown(site, &["-i", &to], clip.has_sound);
        is(&format!("{volume} as a file"), &got.seen, &clip.wanted.seen);
        is(
            &format!("{volume} as a file"),
            &got.heard,
            &clip.wanted.heard,
        );
    }
}

/// Two lists of sums are the same; where they are not, which is the first that differs is said.
#[track_caller]
fn is(what: &str, got: &[String], wanted: &[String]) {
    let first = got
        .iter()
        .zip(wanted)
        .position(|(got, wanted)| got != wanted);
    assert!(
        got == wanted,
        "{what}: {} of {}, the first that differs is {first:?}",
        got.len(),
        wanted.len()
    );
}

/// Frames in a second of a small clip, and from one key frame to the next.
const RATE: u32 = 10;
const GOP: usize = 10;

/// A small clip in H.264 of 40 frames, and the NAL units of each of them.
fn small_clip(site: &Site) -> (String, Vec<Vec<Vec<u8>>>) {
    let path = site.path("small.h264").display().to_string();
    let input = format!("testsrc2=size=64x48:rate={RATE}:duration=4");
    let encoded = [
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-threads",
        "1",
        "-g",
        "10",
        "-bsf:v",
        "h264_metadata=aud=insert",
        "-f",
        "h264",
    ];
    let made = outcome(
        ffmpeg()
            .args(["-f", "lavfi", "-i", &input])
            .args(encoded)
            .arg(&path),
    );
    made.done();
    let bytes = std::fs::read(&path).expect("a clip");
    let starts: Vec<usize> = (0..bytes.len() - 2)
        .filter(|at| bytes[*at..*at + 3] == [0, 0, 1])
        .collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let mut pictures: Vec<Vec<Vec<u8>>> = Vec::new();
    for (start, end) in starts.iter().zip(ends) {
        let unit = &bytes[start + 3..end];
        let last = unit.iter().rposition(|byte| *byte != 0).expect("a unit");
        match unit[0] & 0x1f {
            9 => pictures.push(Vec::new()),
            _ => pictures
                .last_mut()
                .expect("a delimiter")
                .push(unit[..=last].to_vec()),
        }
    }
    assert_eq!(pictures.len(), 40);
    (path, pictures)
}

/// Publishes it as odd cameras do. Parameters have the time of the picture before, and a mark on the SPS
/// (retina #13), which has a byte behind its end (retina #102); of each five pictures the last two have one
/// time (homebridge-camera-ffmpeg #471).
fn publish_oddly(client: &mut Client, pictures: &[Vec<Vec<u8>>]) {
    let step = 90_000 / RATE;
    let mut number = 0;
    for (picture, units) in (0_u32..).zip(pictures) {
        let shown = if picture % 5 == 4 {
            picture - 1
        } else {
            picture
        };
        for (place, unit) in units.iter().enumerate() {
            let kind = unit[0] & 0x1f;
            let before = shown.saturating_sub(u32::from(matches!(kind, 6..=8)));
            let mut body = unit.clone();
            body.extend((kind == 7).then_some(0x04));
            let mut packet = rtp(number, 7_000 + before * step, 9, &body);
            let has_mark = kind == 7 || place + 1 == units.len();
            packet[1] |= if has_mark { 0x80 } else { 0 };
            client.packet(0, &packet);
            number += 1;
        }
    }
}

#[test]
fn odd_cameras_recordings_are_exported_picture_by_picture() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"\n[http]\nlisten = \"0\"");
    let (clip, pictures) = small_clip(&site);
    // The second picture never comes, and nothing says how it is decoded.
    let description = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets=\r\n\
         a=control:one\r\nm=video 0 RTP/AVP 98\r\na=rtpmap:98 H264/90000\r\na=control:two\r\n";
    let mut client = publisher_of(address, description);
    publish_oddly(&mut client, &pictures);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let number = recorded(&site);
    let wanted = frames(&["-i", &clip]);
    let file = export(&site, &number, "odd.mp4", &[]);
    assert_eq!(frames(&["-i", &file]), wanted);
    let asked = [
        "-v",
        "error",
        "-show_entries",
        "packet=pts,flags",
        "-of",
        "csv=p=0",
    ];
    let said = outcome(tool("ffprobe").args(asked).arg(&file)).done().out;
    let samples: Vec<(i64, bool)> = said
        .lines()
        .filter_map(|line| line.split_once(','))
        .map(|(pts, flags)| (pts.parse().expect("a time"), flags.starts_with('K')))
        .collect();
    let keys: Vec<usize> = (0..samples.len()).filter(|of| samples[*of].1).collect();
    assert_eq!(keys, [0, GOP, 2 * GOP, 3 * GOP]);
    assert!(samples.windows(2).all(|two| two[0].0 < two[1].0), "{said}");
    // From a time on it begins with the key frame before, or the one whose parameters were there by then.
    let part = export(&site, &number, "part.mp4", &["--from", "2550ms"]);
    assert_eq!(frames(&["-i", &part]), wanted[2 * GOP..]);
    let http = http(&serve);
    for name in ["index.m3u8", "init.mp4", "recording.mp4"] {
        let (status, ..) = get(http, &format!("/media/cam/{number}/{name}"), "");
        assert_eq!(status, 200, "{name}");
    }
    let shown = site.json(&["recording", "show", "cam", &number]);
    let mp4: Vec<bool> = (0..2)
        .map(|of| shown["tracks"][of]["mp4"] == true)
        .collect();
    assert_eq!(mp4, [true, false], "{shown}");
    let said = site.run(&["recording", "show", "cam", &number]).done().out;
    assert!(
        said.contains("track 1 cannot be in an MP4 file: its decoder parameters"),
        "{said}"
    );
    serve.terminate();
}
