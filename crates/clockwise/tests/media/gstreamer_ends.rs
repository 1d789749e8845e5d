//! GStreamer as more than one at once, and killed: two that play one recording, one that plays what is being
//! recorded, and publishers, players and servers that end without a word.

#![allow(
    clippy::print_stdout,
    reason = "how much is left of what was cut off is told"
)]

use testkit::process::Process;
use testkit::rtsp::peers::{
    bare_frames, closed, frames, gstreamer_play, gstreamer_publish, has_played, is_whole, made,
    recordings,
};
use testkit::rtsp::{reservations, serve, serving, with_rtsp};
use testkit::site::{ReadyServer, Site, call, outcome};
use testkit::skip::have;
use testkit::until;

/// Nothing is listed before a flush, and a host whose disk others share takes seconds for one: after twelve,
/// once. Longer than that, or there is nothing live any more when it is asked for.
const SECONDS: u32 = 24;
/// Bit rate of the pictures: a block of 64 KiB is less than a second of them.
const KBIT: u32 = 800;

/// Blocks are flushed every two seconds, and take 0.65 s each; with a second for the flush itself.
const NOT_FLUSHED_MAX: u64 = 5;

fn have_all() -> bool {
    have("ffmpeg") && have("gst-launch-1.0")
}

/// Counts how many of the first frames these are.
#[track_caller]
fn first_of(what: &str, got: &[String], wanted: &[String]) -> usize {
    let differs = got
        .iter()
        .zip(wanted)
        .position(|(got, wanted)| got != wanted);
    assert!(
        got.len() <= wanted.len() && differs.is_none(),
        "{what}: {} of {}, the first that differs is {differs:?}",
        got.len(),
        wanted.len()
    );
    println!("{what}: {} of {} frames", got.len(), wanted.len());
    got.len()
}

/// Blocks of a volume's newest recording, as far as it is there.
fn blocks(site: &Site) -> u64 {
    let last = recordings(site, "cam").pop();
    last.and_then(|of| of["blocks"].as_u64()).unwrap_or(0)
}

/// Blocks that the disks have of what is being recorded, and how many of them have been flushed.
fn written(site: &Site) -> (u64, u64) {
    let sessions = call(site, "GET", "/v1/sessions", "").1;
    let sessions = sessions.as_array().expect("a list").iter();
    let mut recorders = sessions.filter(|of| of["does"] == "records");
    let of = recorders.next().expect("it records");
    let number = |name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"));
    (
        number("blocks"),
        number("durable_bytes") / number("buffer_bytes"),
    )
}

/// A server, a clip and its frames, and where it is published; `None`: one of the peers is not there.
fn begun() -> Option<(Site, ReadyServer, String, Vec<String>, String)> {
    if !have_all() {
        return None;
    }
    let (site, serve, address) = serving("");
    let clip = made(&site, SECONDS, KBIT);
    let wanted = frames(&["-i", &clip]);
    let url = format!("rtsp://{address}/cam");
    Some((site, serve, clip, wanted, url))
}

/// A publisher that has begun; there are blocks of what it publishes.
fn publisher(site: &Site, clip: &str, transport: &str, url: &str) -> Process {
    let before = recordings(site, "cam").len();
    let process = Process::spawn(&mut gstreamer_publish(clip, transport, url));
    until("something is on the disks", || {
        recordings(site, "cam").len() > before && blocks(site) >= 4
    });
    process
}

#[test]
fn two_of_gstreamer_play_one_recording_and_one_that_is_killed_keeps_nothing() {
    if !have_all() {
        return;
    }
    let (site, serve, address) = serving("");
    let clip = made(&site, 4, KBIT);
    let wanted = frames(&["-i", &clip]);
    let url = format!("rtsp://{address}/cam");
    let published = testkit::rtsp::peers::publish(&clip, "tcp", &url, false);
    outcome(&mut { published }).done();
    closed(&site, "cam", 1);
    // A third one goes in the middle of it.
    let out = |name: &str| site.path(name).display().to_string();
    let third = Process::spawn(&mut gstreamer_play(&url, "udp", &out("third"), None));
    until("the third plays", || {
        std::fs::metadata(out("third")).is_ok_and(|file| file.len() > 0)
    });
    std::thread::scope(|scope| {
        for transport in ["tcp", "udp"] {
            let (url, to, wanted) = (&url, out(transport), &wanted);
            scope.spawn(move || {
                has_played(&outcome(&mut gstreamer_play(url, transport, &to, None)));
                assert_eq!(bare_frames(&to), *wanted, "by {transport}");
            });
        }
        until("all three have something reserved", || {
            reservations(&site) == 3
        });
        drop(third);
    });
    // By UDP its connection says that it has gone.
    until("what all of them had is given back", || {
        reservations(&site) == 0
    });
    serve.terminate();
}

#[test]
fn gstreamer_plays_what_gstreamer_publishes_while_it_is_recorded() {
    let Some((site, serve, clip, wanted, url)) = begun() else {
        return;
    };
    for (count, (published, played)) in (1..).zip([("tcp", "udp"), ("udp", "tcp")]) {
        let publisher = publisher(&site, &clip, published, &url);
        let to = site.path(played).display().to_string();
        let player = Process::captured(&mut gstreamer_play(
            &format!("{url}/live"),
            played,
            &to,
            None,
        ));
        // The recording ends, and the player with it; the publisher may not, though it has sent all.
        until("the publisher has sent all", || {
            let newest = recordings(&site, "cam").pop().expect("it is there");
            newest["is_recorded"] == false || {
                let seconds = newest["length_ns"].as_u64().unwrap_or(0) / 1_000_000_000;
                seconds + 1 >= u64::from(SECONDS)
            }
        });
        drop(publisher);
        closed(&site, "cam", count);
        has_played(&player.output().into());
        let got = bare_frames(&to);
        // From a key frame on, to the end of what was recorded.
        let recorded = frames(&["-rtsp_transport", "tcp", "-i", &format!("{url}/{count}")]);
        let all = first_of("recorded", &recorded, &wanted);
        let what = format!("published by {published}, played by {played}");
        let from = all.checked_sub(got.len());
        let from = from.unwrap_or_else(|| panic!("{what}: {} frames", got.len()));
        assert_eq!(got, wanted[from..all], "{what}");
        assert!(
            got.len() > 50 && from.is_multiple_of(25),
            "{what}: from {from} to {all}"
        );
        is_whole(&site, "cam", count);
        until("all is given back", || reservations(&site) == 0);
    }
    serve.terminate();
}

#[test]
fn a_publisher_of_gstreamer_that_is_killed_leaves_a_recording_that_is_closed() {
    let Some((site, serve, clip, wanted, url)) = begun() else {
        return;
    };
    for (count, transport) in (1..).zip(["tcp", "udp"]) {
        let publisher = publisher(&site, &clip, transport, &url);
        assert_eq!(reservations(&site), 1);
        let there = blocks(&site);
        // By SIGKILL: it says no good-bye.
        drop(publisher);
        closed(&site, "cam", count);
        until("its reservation is given back", || reservations(&site) == 0);
        assert!(
            blocks(&site) >= there,
            "{} of {there} blocks",
            blocks(&site)
        );
        is_whole(&site, "cam", count);
        let played = frames(&["-rtsp_transport", "tcp", "-i", &url]);
        // A frame of which only a part had come is none of the clip.
        let whole = &played[..played.len() - 1];
        let seen = first_of(&format!("killed, by {transport}"), whole, &wanted);
        assert!(seen >= 25, "{seen} frames");
    }
    serve.terminate();
}

#[test]
fn a_server_that_is_killed_beside_gstreamer_has_what_was_flushed_and_nothing_reserved() {
    if !have_all() {
        return;
    }
    let site = Site::new(2);
    with_rtsp(&site, "");
    site.run(&["pool", "create"]).done();
    let clip = made(&site, SECONDS, KBIT);
    let wanted = frames(&["-i", &clip]);
    for (count, transport) in (1..).zip(["tcp", "udp"]) {
        let (serving, address) = serve(&site);
        if count == 1 {
            site.run(&["volume", "create", "cam", "--size", "40MiB"])
                .done();
        }
        let url = format!("rtsp://{address}/cam");
        let publisher = publisher(&site, &clip, transport, &url);
        let to = site.path(transport).display().to_string();
        let player = Process::spawn(&mut gstreamer_play(
            &format!("{url}/live"),
            transport,
            &to,
            None,
        ));
        until("it is recorded and played", || {
            reservations(&site) == 1 && std::fs::metadata(&to).is_ok_and(|file| file.len() > 0)
        });
        let (mut there, mut flushed) = (0, 0);
        until(
            "several flushes' blocks are written, and the host has not kept the last one back",
            || {
                (there, flushed) = written(&site);
                there >= 10 && there <= flushed + NOT_FLUSHED_MAX
            },
        );
        // By SIGKILL, as it has no time to say anything.
        drop(serving);
        drop((publisher, player));
        let (serving, address) = serve(&site);
        let url = format!("rtsp://{address}/cam");
        assert_eq!(reservations(&site), 0);
        closed(&site, "cam", count);
        let found = site.json(&["recording", "check", "cam", &count.to_string()]);
        println!(
            "{} of {there} blocks are left by {transport}, of which {flushed} were flushed",
            blocks(&site)
        );
        // ConnectionLimits that were written for the first time since the last flush read as zeros.
        assert!(blocks(&site) >= flushed, "{flushed} were flushed: {found}");
        assert_eq!(
            (&found["damaged"], &found["lost"]),
            (&0.into(), &0.into()),
            "{found}"
        );
        let played = frames(&["-rtsp_transport", "tcp", "-i", &url]);
        let whole = &played[..played.len() - 1];
        let seen = first_of(&format!("server killed, by {transport}"), whole, &wanted);
        assert!(seen >= 25, "{seen} frames");
        // The frames that the player had by then are frames of the clip.
        let got = bare_frames(&to);
        let got = &got[..got.len().saturating_sub(1)];
        let from = wanted.windows(got.len().max(1)).position(|of| of == got);
        assert!(
            from.is_some_and(|from| from.is_multiple_of(25)) || got.is_empty(),
            "from {from:?}"
        );
        serving.terminate();
    }
}
