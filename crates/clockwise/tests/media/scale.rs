//! Faster and backwards, recordings begin with the key frame that is shown first, which the answer names.

use std::net::SocketAddr;

use serde_json::Value;
use testkit::rtsp::frames::*;
use testkit::rtsp::{Client, SDP_TYPE, SECOND, TCP, publisher_of, rtp, serving};
use testkit::site::{Site, call};
use testkit::until;

/// A part of a frame of JPEG, whose fragment offset (RFC 2435, section 3.1.2) is 0 in the first part alone.
/// The number of the frame lies around it.
fn jpeg(frame: u64, number: u64) -> Vec<u8> {
    let mut packet = part(frame, number);
    packet[13..18].copy_from_slice(&[
        number as u8,
        0,
        0,
        frame as u8,
        (frame >> 8 << 4 | number) as u8,
    ]);
    packet
}

/// Frame and part of such a packet.
fn of_jpeg((sequence, timestamp, frame, part): (u16, u32, u64, u8)) -> (u16, u32, u64, u8) {
    let frame = (frame & 0xff) | u64::from(part >> 4) << 8;
    (sequence, timestamp, frame, part & 0xf)
}

/// Motion-JPEG is a picture whose frames all stand alone, also where sound was announced before it.
#[test]
fn motion_jpeg_is_shown_faster_and_backwards_by_whole_frames() {
    let (site, serve, address) = serving("");
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
            parts.for_each(|number| client.packet(2, &jpeg(frame, number)));
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
        let packets: Vec<_> = packets.into_iter().map(of_jpeg).collect();
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
    shows_what_goes_on_in_the_next_group(&site, address);
    serve.terminate();
}

/// A range that begins between key frames is played faster from its first key frame on, at that frame's time;
/// the answer describes that.
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
        // The time of a block that was not read is that of the packet before.
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

/// Overwritten blocks are not waited for at any scale, also after a pause there.
#[test]
fn play_does_not_wait_for_overwritten_blocks() {
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

/// A frame that goes on in the next group of blocks is shown like others, and is what the answer is about.
fn shows_what_goes_on_in_the_next_group(site: &Site, address: SocketAddr) {
    let path = "/v1/volumes/cam/recordings/1/index?from_ns=0";
    let index = call(site, "GET", path, "").1;
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let keys = index["keys"].as_array().expect("keys");
    let whole = keys.iter().map(|key| number(key, "bytes")).max();
    // The rest of a live recording is in another group.
    let going_on = keys
        .iter()
        .position(|key| Some(number(key, "bytes")) < whole);
    let going_on = going_on.expect("none goes on");
    let numbered = (0_u64..).zip(keys);
    for (frame, key) in numbered.skip(going_on - 2).take(5) {
        let at_ms = number(key, "begins_ns") / 1_000_000 + 1;
        for scale in [4, -4] {
            let mut client = player(address);
            client.ask("SETUP", "cam/track1", SECOND, "").is(200);
            let range = format!("Range: npt={}.{:03}-", at_ms / 1_000, at_ms % 1_000);
            let headers = format!("{range}\r\nScale: {scale}\r\n");
            let said = client.ask("PLAY", "cam", &headers, "").is(200);
            let packets = client.packets_on(2, PARTS as usize);
            let shown: Vec<_> = packets.iter().map(|packet| of_jpeg(seen(packet))).collect();
            assert_eq!((shown[0].0, shown[0].1), told(&said), "{frame} at {scale}");
            let expected = (0..PARTS as u8).map(|part| (frame, part));
            let parts = shown.iter().take(PARTS as usize).map(|of| (of.2, of.3));
            assert!(parts.eq(expected), "{frame} at {scale}: {shown:?}");
        }
    }
}

/// A recording in which only these frames are key frames, which has ended.
fn recorded_with(site: &Site, address: SocketAddr, keys: &[u64]) {
    let number = recordings(site).as_array().map_or(0, Vec::len);
    let mut client = publisher(address);
    let is_sent = |frame: &u64| keys.contains(frame) || !frame.is_multiple_of(GOP);
    for frame in (0..720).filter(is_sent) {
        publish(&mut client, frame..frame + 1);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(site)[number]["is_recorded"] == false
    });
    let blocks = recordings(site)[number]["blocks"].as_u64();
    assert!(blocks > Some(2 * 64), "{blocks:?}");
}

/// Also the one that is groups of blocks from what is asked for, or from where it was paused.
#[test]
fn a_key_frame_that_is_far_away_is_shown_and_told_of() {
    let (site, serve, address) = serving("");
    let shows = |client: Client, headers: &str, first| {
        let (packets, said) = played_by(client, headers);
        assert_eq!(whole_frames(&packets), [first], "{headers}");
        assert_eq!(packets[0].0, told(&said).0, "{headers}");
    };
    recorded_with(&site, address, &[0, 700]);
    let begins = begins_ms(&mut player(address));
    let at_ms = begins + 680 * 1_000 / FRAMES_PER_SECOND;
    let range = format!("Range: npt={}.{:03}-", at_ms / 1_000, at_ms % 1_000);
    for (scale, first) in [(4, 700), (-4, 0)] {
        let headers = format!("{range}\r\nScale: {scale}\r\n");
        shows(player(address), &headers, first);
    }
    for (scale, from, first) in [(50, 3, 700), (-50, 24, 0)] {
        let mut client = player(address);
        let range = format!("Range: npt={from}-\r\n");
        client.ask("PLAY", "cam", &range, "").is(200);
        client.packets_on(0, 35);
        client.ask("PAUSE", "cam", "", "").is(200);
        client.next_packets();
        shows(client, &format!("Scale: {scale}\r\n"), first);
    }
    // Nothing is shown before.
    recorded_with(&site, address, &[700]);
    shows(player(address), "Scale: 50\r\n", 700);
    serve.terminate();
}

/// The frames of these packets, each of which has come whole.
fn whole_frames(packets: &[(u16, u32, u64, u8)]) -> Vec<u64> {
    let frames: Vec<u64> = packets
        .chunks(PARTS as usize)
        .map(|packets| packets[0].2)
        .collect();
    let parts = packets.iter().map(|of| (of.2, of.3));
    let expected = frames.iter().copied();
    let expected = expected.flat_map(|frame| (0..PARTS as u8).map(move |part| (frame, part)));
    assert!(parts.eq(expected), "{packets:?}");
    frames
}

/// In a live recording, the unfinished group of blocks is played faster and backwards as well, up to the last
/// key frame on the disks.
#[test]
fn live_recording_is_played_up_to_its_end() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    let blocks = || recordings(&site)[0]["blocks"].as_u64();
    // All but what is in a buffer, of what is 64 KiB for four frames and more.
    let written = |frames: u64| until("it is written", || blocks() > Some(frames * 14 / 65 - 2));
    publish(&mut client, 0..150);
    written(150);
    let mut forward = player(address);
    let said = forward.ask("PLAY", "cam", "Range: npt=0-\r\nScale: 1.1\r\n", "");
    let said = said.is(200);
    forward.packets_on(0, PARTS as usize);
    // More comes while it is played.
    publish(&mut client, 150..250);
    let packets = up_to_the_farewell(&mut forward, 0);
    assert_eq!((packets[0].0, packets[0].1), told(&said));
    let frames = whole_frames(&packets);
    let is_on = |pair: &[u64]| pair[0] < pair[1];
    assert!(frames.windows(2).all(is_on), "{frames:?}");
    assert_eq!(frames[0], 0);
    assert!(frames.last() > Some(&150), "{frames:?}");

    // From the group that is being recorded into the one before it.
    publish(&mut client, 250..400);
    written(400);
    assert!(blocks() > Some(64), "{:?}", blocks());
    let (packets, said) = played(address, "Scale: -8\r\n");
    assert_eq!((packets[0].0, packets[0].1), told(&said));
    let frames = whole_frames(&packets);
    let is_on = |pair: &[u64]| pair[0] > pair[1];
    assert!(frames.windows(2).all(is_on), "{frames:?}");
    assert!(frames[0] >= 370, "{frames:?}");
    // The next one that far back would be before the beginning.
    assert!(frames.last() < Some(&100), "{frames:?}");
    client.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}
