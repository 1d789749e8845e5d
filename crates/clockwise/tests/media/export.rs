//! Recordings as files: what is exported is what was published, whatever it was encoded in.

use std::net::SocketAddr;

use testkit::rtsp::clip::ENCODED;
use testkit::rtsp::files::{clip, closed, damage, export, is_heard, record, record_as, sums};
use testkit::rtsp::http::{get, http};
use testkit::rtsp::peers::{self, HEARD, SEEN, ffmpeg};
use testkit::rtsp::{Client, SDP_TYPE, TCP, publisher, rtp, serving};
use testkit::site::outcome;
use testkit::skip::{have, tool};

/// A port of its own for browsers.
const HTTP: &str = "rate = \"400KB/s\"\n[http]\nlisten = \"0\"";

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
    let lines = lines.filter(|line| !line.is_empty());
    let seconds = lines.map(|line| {
        let seconds: Result<f64, _> = line.parse();
        seconds.unwrap_or_else(|_| panic!("a frame of {input} has the time {line:?}"))
    });
    let micros: Vec<i64> = seconds.map(|of| (of * 1e6).round() as i64).collect();
    micros.iter().map(|of| of - micros[0]).collect()
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
    // Sound in MP4A-LATM.
    let latm = ["-rtpflags", "latm"];
    let kinds = [
        ("a.mp4", &h264[..], "tcp", &[][..]),
        ("b.mp4", &reordered, "udp", &latm),
        ("c.mkv", &h265, "tcp", &[]),
    ];
    for (name, encoded, transport, sent) in kinds {
        let clip = clip(&site, name, 5, encoded);
        let number = record_as(&site, address, &clip, transport, sent);
        let shown = site.json(&["recording", "show", "cam", &number]);
        let is_latm = shown["tracks"][1]["encoding"] == "MP4A-LATM";
        assert_eq!(is_latm, !sent.is_empty(), "{shown}");
        let file = export(&site, &number, &format!("{name}.out.mp4"), &[]);
        assert_eq!(sums(&file, &SEEN), sums(&clip, &SEEN), "{name}");
        let (got, wanted) = (times(&file, "v"), times(&clip, "v"));
        assert_eq!((got.len(), wanted.len()), (125, 125), "{name}");
        let apart = got.iter().zip(&wanted).map(|(got, wanted)| got - wanted);
        assert!(apart.into_iter().all(|of| of.abs() <= 20), "{name}");
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
    let ended = jiff::Timestamp::from_nanosecond(ns("ends_unix_ns").into()).expect("a time");
    let ended = format!("ended      {}\n", ended.strftime("%F %T.%3f+00:00"));
    let command = ["recording", "show", "cam", &number, "--zone", "UTC"];
    let said = site.run(&command).done().out;
    assert!(said.contains(&ended), "{said}, not {ended}");
    let blank = said.lines().filter(|line| line.is_empty()).count();
    assert_eq!(blank, 1, "before the tracks: {said}");
    let file = export(&site, &number, "out.mjpeg", &["--track", "0"]);
    assert_eq!(sums(&file, &SEEN), sums(&clip_jpeg, &SEEN));
    let sound = export(&site, &number, "out.s16be", &["--track", "1"]);
    let wanted = site.path("wanted.s16be").display().to_string();
    outcome(ffmpeg().args(["-i", &clip_jpeg, "-map", "0:a", "-f", "s16be", &wanted])).done();
    assert!(std::fs::read(&sound).unwrap() == std::fs::read(&wanted).unwrap());
    // Nothing of it can be in MP4, and that is said before there is a file.
    nonsense(address, "X-UNKNOWN/90000", "x");
    let number = closed(&site);
    let none = site.path("none.mp4");
    let none = none.display().to_string();
    let refused = site.run(&["recording", "export", "cam", &number, "--to", &none]);
    refused.fails(1, &["MP4", "X-UNKNOWN", "recording show"]);
    assert!(!std::path::Path::new(&none).exists());

    let coded = [&ENCODED[..], &["-c:a", "aac"]].concat();
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
fn senseless_export_is_refused_and_the_server_stays() {
    let (site, serve, address) = serving(HTTP);
    let aac = "sizelength=13;indexlength=3;indexdeltalength=3;config=1190";
    for (encoding, parameters) in [
        ("H264/90000", "packetization-mode=1"),
        ("H264/90000", "sprop-parameter-sets=Z0LA,aM4="),
        ("H265/90000", "sprop-sps=QgEB;sprop-pps=RAE=;sprop-vps=QAE="),
        ("JPEG/90000", "x"),
        ("MPEG4-GENERIC/48000", aac),
        ("MP4A-LATM/48000", "cpresent=1"),
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
fn damaged_part_is_named() {
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
    if !damage(&site, 196_608, 4_096) {
        return;
    }
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

/// For each payload of cameras and encoders, a player of RTSP gets the published packets, over TCP and UDP.
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
            peers::sums(&said.done().out)
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

/// VP8 and VP9 are in files and in lists for browsers. G.711 is in files; browsers do not play it.
#[test]
fn vp8_vp9_and_g711_come_back_from_files() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"\n[http]\nlisten = \"0\"");
    for (video, sound, codec) in [
        ("libvpx", "pcm_mulaw", "vp08"),
        ("libvpx-vp9", "pcm_alaw", "vp09"),
    ] {
        let encoded = ["-c:v", video, "-b:v", "300k", "-deadline", "realtime"];
        let encoded = [&encoded[..], &["-cpu-used", "8", "-g", "10"]].concat();
        let encoded = [&encoded[..], &["-c:a", sound, "-ar", "8000"]].concat();
        let clip = clip(&site, &format!("{video}.mkv"), 6, &encoded);
        let to = ["-c", "copy", "-strict", "experimental", "-f", "rtsp"];
        let url = format!("rtsp://{address}/cam");
        let mut command = ffmpeg();
        command.args(["-i", &clip]).args(to);
        outcome(command.args(["-rtsp_transport", "tcp", &url])).done();
        let number = closed(&site);
        let file = export(&site, &number, &format!("{video}.mp4"), &[]);
        assert_eq!(sums(&file, &SEEN), sums(&clip, &SEEN), "{video}");
        let decoded = ["-map", "0:a", "-af", "asetnsamples=n=800:p=0"];
        assert_eq!(sums(&file, &decoded), sums(&clip, &decoded), "{sound}");
        let list = format!("/media/cam/{number}/index.m3u8");
        let (_, _, said) = get(http(&serve), &list, "");
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(&format!("CODECS=\"{codec}.")), "{said}");
        assert!(!said.contains("law"), "{said}");
        let playlist = format!("http://{}{list}", http(&serve));
        assert_eq!(sums(&playlist, &SEEN), sums(&clip, &SEEN), "{video}");
        // Segments begin with key frames: there is more than one.
        let (_, _, media) = get(http(&serve), &format!("/media/cam/{number}/media.m3u8"), "");
        let media = String::from_utf8_lossy(&media).into_owned();
        assert_eq!(media.matches("#EXTINF").count(), 2, "{media}");
        assert!(media.contains("INDEPENDENT"), "{media}");
    }
    serve.terminate();
}
