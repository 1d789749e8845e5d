//! Clips of real cameras and encoders with real peers: ffmpeg publishes them, ffmpeg and GStreamer play them, by UDP and
//! TCP, and they are exported. Nothing of them is lost.

#![allow(clippy::print_stdout, reason = "what a peer loses by itself is told")]

mod common;
mod rtsp_support;

use std::net::SocketAddr;

use common::skip::have;
use common::{Site, outcome};
use rtsp_support::peers::{
    Shown, bare_frames, bare_sound, closed, gstreamer_play, has_played, is_whole, publish,
    shared_clips, shown, without_server,
};
use rtsp_support::{reservations, serving};

const TRANSPORTS: [&str; 2] = ["tcp", "udp"];

/// A clip, and what of it comes from one ffmpeg to another.
struct Clip {
    path: String,
    /// Its volumes begin with this.
    name: &'static str,
    has_sound: bool,
    wanted: Shown,
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
    assert_eq!(reservations(&site), 0);
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

/// As a file it is what it was.
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
