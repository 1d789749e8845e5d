//! Faster and backwards, recordings begin with the key frame that is shown first, which the answer names.

mod common;
#[path = "rtsp_support/frames.rs"]
#[allow(dead_code, reason = "each test uses its part of this")]
mod frames;
mod rtsp_support;

use std::net::SocketAddr;

use common::{call, until};
use frames::*;
use rtsp_support::{Client, SDP_TYPE, SECOND, TCP, publisher_of, rtp, serving};

/// Motion-JPEG is a picture whose frames all stand alone, also where sound was announced before it.
#[test]
fn motion_jpeg_is_shown_faster_and_backwards_by_whole_frames() {
    let (_site, serve, address) = serving("");
    let description = description().replace(
        "m=video 0 RTP/AVP 96\r\nb=AS:5000\r\na=rtpmap:96 H264/90000\r\na=control:one\r\n",
        "m=audio 0 RTP/AVP 0\r\nb=AS:64\r\na=control:one\r\n\
         m=video 0 RTP/AVP 26\r\nb=AS:5000\r\na=control:two\r\n",
    );
    let mut client = publisher_of(address, &description);
    let frames = 400;
    for frame in 0..frames {
        // Frames begin within sound, and end there.
        for half in 0..2 {
            let number = 2 * frame + half;
            let sound = rtp(number as u16, (number * 160) as u32, 9, &[0x7f; 160]);
            client.packet(0, &sound);
            let parts = half * PARTS / 2..(half + 1) * PARTS / 2;
            parts.for_each(|number| client.packet(2, &part(frame, number)));
        }
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let begins = begins_ms(&mut player(address));
    for (scale, from) in [(4_i64, 2), (-1, 8)] {
        let mut client = player(address);
        client.ask("SETUP", "cam/track1", SECOND, "").is(200);
        // The beginning is told to the millisecond before.
        let at_ms = begins + from * 1_000 + 1;
        let range = format!("Range: npt={}.{:03}-", at_ms / 1_000, at_ms % 1_000);
        let headers = format!("{range}\r\nScale: {scale}\r\n");
        let (packets, said) = played_on(&mut client, 2, &headers);
        assert_eq!(said.header("Scale"), Some(format!("{scale}.000").as_str()));
        assert_eq!(client.packets_on(0, 0), Vec::<Vec<u8>>::new());
        let begun = packets[0].2;
        let expected = from * FRAMES_PER_SECOND;
        // Sound may have begun a little before the picture.
        assert!(begun.abs_diff(expected) <= 5, "{begun}, not {expected}");
        let shown: Vec<u64> = packets
            .iter()
            .step_by(PARTS as usize)
            .map(|of| of.2)
            .collect();
        for (number, packet) in packets.iter().enumerate() {
            let of = shown[number / PARTS as usize];
            let part = (number as u64 % PARTS) as u8;
            assert_eq!((packet.2, packet.3), (of, part), "scale {scale}");
        }
        let is_on = |pair: &[u64]| (pair[1] > pair[0]) == (scale > 0) && pair[1] != pair[0];
        assert!(shown.windows(2).all(is_on), "scale {scale}: {shown:?}");
        let all = expected.abs_diff(if scale > 0 { frames } else { 0 });
        let some = (all / 50..all / 2).contains(&(shown.len() as u64));
        assert!(some, "scale {scale}: {} of {all}", shown.len());
    }
    begins_with_what_is_shown(address, begins);
    serve.terminate();
}

/// What begins between key frames is played faster from the first one on, at its time, and that is what the answer is about.
#[test]
fn faster_it_begins_with_the_first_key_frame() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    publish(&mut client, GOP / 2..200);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)[0]["is_recorded"] == false
    });
    let begins = begins_ms(&mut player(address));
    let first_ms = begins + GOP / 2 * 1_000 / FRAMES_PER_SECOND;
    for (asked_ms, at_ms) in [
        (0, begins),
        (begins + 1, begins + 1),
        (begins + 80, begins + 80),
    ] {
        let text = |ms: u64| format!("npt={}.{:03}-", ms / 1_000, ms % 1_000);
        let headers = format!("Range: {}\r\nScale: 4\r\n", text(asked_ms));
        let (packets, said) = played(address, &headers);
        let (sequence, timestamp, shown, part) = packets[0];
        assert_eq!((shown, part), (GOP, 0), "at {at_ms}");
        assert_eq!(said.header("Range"), Some(text(at_ms).as_str()));
        let (number, begins) = told(&said);
        assert_eq!(sequence, number, "at {at_ms}");
        // The beginning is told to the millisecond before.
        let until_shown = (first_ms - at_ms) * CLOCK / 1_000 / 4;
        let apart = u64::from(timestamp.wrapping_sub(begins));
        assert!(
            apart.abs_diff(until_shown) <= CLOCK / 1_000,
            "at {at_ms}: {apart}"
        );
    }
    // Also where it was paused between key frames, whichever way it goes on.
    for scale in [4, -4] {
        let mut client = player(address);
        client.ask("PLAY", "cam", "Range: npt=2-\r\n", "").is(200);
        client.packets_on(0, 35);
        client.ask("PAUSE", "cam", "", "").is(200);
        let sent = client.next_packets();
        let sent = sent.iter().rfind(|(channel, _)| *channel == 0);
        let (.., frame, part) = seen(&sent.expect("packets").1);
        let next = frame + u64::from(u64::from(part) + 1 == PARTS);
        let (packets, said) = played_on(&mut client, 0, &format!("Scale: {scale}\r\n"));
        let (sequence, _, shown, part) = packets[0];
        assert_eq!(sequence, told(&said).0, "scale {scale}");
        // Of a block that has not been read the time is that of the packet before.
        let keys = [frame, next].map(|of| match scale > 0 {
            true => of.next_multiple_of(GOP),
            false => of / GOP * GOP,
        });
        assert!(
            keys.contains(&shown),
            "scale {scale}: {shown}, {next} is next"
        );
        assert_eq!(part, 0, "scale {scale}");
    }
    serve.terminate();
}

/// What has been overwritten is nothing to wait for at any scale, also where it was paused before.
#[test]
fn what_has_been_overwritten_is_not_waited_for() {
    let (site, serve, address) = serving("");
    site.run(&["volume", "create", "ring", "--size", "2MiB"])
        .done();
    let mut client = Client::connect(address);
    let announced = client.ask("ANNOUNCE", "ring", SDP_TYPE, &description());
    announced.is(200);
    client.ask("SETUP", "ring/one", TCP, "").is(200);
    client.ask("RECORD", "ring", "", "").is(200);
    // 2 MiB are 1,400 packets and more, and 5 s and more.
    let frames = 400;
    publish(&mut client, 0..100);
    let listed = || call(&site, "GET", "/v1/volumes/ring/recordings", "").1;
    until("the first blocks are written", || {
        listed()[0]["blocks"].as_u64() > Some(4)
    });
    let player = || {
        let mut client = Client::connect(address);
        until("there is room for another player", || {
            client.ask("SETUP", "ring/track0", TCP, "").status == 200
        });
        client
    };
    let mut paused = [player(), player()];
    for client in &mut paused {
        client.ask("PLAY", "ring", "Range: npt=0-\r\n", "").is(200);
        client.packets_on(0, 15);
        client.ask("PAUSE", "ring", "", "").is(200);
        client.next_packets();
    }
    publish(&mut client, 100..frames);
    client.ask("TEARDOWN", "ring", "", "").is(200);
    until("the recording is closed", || {
        listed()[0]["is_recorded"] == false
    });
    let lasts_ms = frames * 1_000 / FRAMES_PER_SECOND;
    let begins = |client: &mut Client, headers: &str| {
        let said = client.ask("PLAY", "ring", headers, "").is(200);
        let range = said.header("Range").unwrap_or_default();
        let seconds = range.trim_start_matches("npt=").trim_end_matches('-');
        let at_ms: u64 = seconds.replace('.', "").parse().expect("seconds");
        let is_left = lasts_ms - 7_000..lasts_ms;
        assert!(is_left.contains(&at_ms), "{headers:?}: {range}");
        let (sequence, _, frame, part) = seen(&client.packets_on(0, 1)[0]);
        assert_eq!(sequence, told(&said).0, "{headers:?}");
        (frame * PARTS + u64::from(part), at_ms)
    };
    let [one, other] = &mut paused;
    let first = begins(one, "");
    let first_key = begins(other, "Scale: 4\r\n");
    for scale in ["1", "0.5"] {
        let headers = format!("Range: npt=0.001-\r\nScale: {scale}\r\n");
        assert_eq!(begins(&mut player(), &headers), first);
    }
    let headers = "Range: npt=0.001-\r\nScale: 4\r\n";
    assert_eq!(begins(&mut player(), headers), first_key);
    assert_eq!(first_key.0, first.0.next_multiple_of(PARTS * GOP));
    serve.terminate();
}

/// A frame that goes on in the next group of blocks is not shown at another scale, and is not what the answer is about: that
/// is the one before, and comes first.
fn begins_with_what_is_shown(address: SocketAddr, begins_ms: u64) {
    let mut client = player(address);
    client.ask("SETUP", "cam/track1", SECOND, "").is(200);
    let headers = |frame: u64| {
        let at_ms = begins_ms + frame * 1_000 / FRAMES_PER_SECOND + 1;
        let at = format!("{}.{:03}", at_ms / 1_000, at_ms % 1_000);
        format!("Range: npt={at}-\r\nScale: 4\r\n")
    };
    let mut begun = Vec::new();
    for frame in 220..300 {
        let said = client.ask("PLAY", "cam", &headers(frame), "").is(200);
        client.ask("PAUSE", "cam", "", "").is(200);
        let sequence = u64::from(told(&said).0.wrapping_sub(SEQUENCE as u16));
        begun.push((frame, sequence / PARTS));
    }
    let twice = begun.windows(2).find(|pair| pair[0].1 == pair[1].1);
    let (frame, before) = twice.unwrap_or_else(|| panic!("none goes on: {begun:?}"))[1];
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let mut client = player(address);
    client.ask("SETUP", "cam/track1", SECOND, "").is(200);
    let (packets, said) = played_on(&mut client, 2, &headers(frame));
    let (sequence, timestamp, shown, part) = packets[0];
    assert_eq!((sequence, timestamp), told(&said), "frame {frame}");
    assert_eq!((shown, part), (before, 0), "frame {frame}");
}
