//! Any time of a recording is found in its index, and it is played faster, slower and backwards from there.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::nbd::Wire;
use testkit::rtsp::frames::*;
use testkit::rtsp::{Client, serving};
use testkit::site::{Site, call};
use testkit::until;

/// Bytes read and written without a deadline so far.
fn best_effort(site: &Site) -> u64 {
    let status = call(site, "GET", "/v1/status", "").1;
    status["best_effort"]["count"].as_u64().expect("a number")
}

fn streams(site: &Site) -> usize {
    let status = call(site, "GET", "/v1/status", "").1;
    status["streams"].as_array().map_or(0, Vec::len)
}

/// Checks that playing from a time after the beginning on begins with the key frame before it.
#[track_caller]
fn begins_at_its_key(client: &mut Client, begins_ms: u64, at_ms: u64) {
    let text = |ms: u64| format!("npt={}.{:03}-", ms / 1_000, ms % 1_000);
    // The beginning is told to the millisecond before.
    let range = format!("Range: {}\r\n", text(begins_ms + at_ms + 1));
    let said = client.ask("PLAY", "cam", &range, "").is(200);
    let frame = at_ms * FRAMES_PER_SECOND / 1_000 / GOP * GOP;
    let sequence = (SEQUENCE + frame * PARTS) as u16;
    let timestamp = (TIMESTAMP + frame * CLOCK / FRAMES_PER_SECOND) as u32;
    let info = format!("seq={sequence};rtptime={timestamp}");
    let told = said.header("RTP-Info").unwrap_or_default();
    assert!(told.ends_with(&info), "at {at_ms} ms: {told}, not {info}");
    let range = text(begins_ms + frame * 1_000 / FRAMES_PER_SECOND);
    assert_eq!(said.header("Range"), Some(range.as_str()));
    client.ask("PAUSE", "cam", "", "").is(200);
}

#[test]
fn any_time_is_found_with_two_reads_and_played_at_any_scale() {
    let frames = 900;
    let (site, serve, address) = recorded(frames);
    let blocks = recordings(&site)[0]["blocks"].as_u64().expect("a number");
    assert!(blocks > 3 * 64, "{blocks} blocks are no three groups");
    let mut client = player(address);
    let last_ms = (frames - 1) * 1_000 / FRAMES_PER_SECOND;
    let begins = begins_ms(&mut client);
    let times_ms = [
        1,
        398,
        400,
        17_123,
        last_ms - 1,
        9_998,
        10_000,
        30_000,
        5_000,
    ];
    for at_ms in times_ms {
        begins_at_its_key(&mut client, begins, at_ms);
    }
    // Every section has been used. Then only the block of the start is read, in at most two pieces.
    let before = best_effort(&site);
    let seeks = 10;
    for number in 0..seeks {
        begins_at_its_key(&mut client, begins, 700 + number * 3_400);
    }
    let reads = best_effort(&site) - before;
    assert!(reads <= 2 * seeks, "{reads} reads for {seeks} seeks");
    // Nothing is known any more, and then what SETUP needs: at most a section and a block, each in two pieces.
    drop(client);
    until("the archive is closed", || streams(&site) == 0);
    let mut client = player(address);
    let before = best_effort(&site);
    begins_at_its_key(&mut client, begins, 17_123);
    let reads = best_effort(&site) - before;
    assert!(reads <= 4, "{reads} reads for a seek");
    let late = format!("Range: npt={}-\r\n", last_ms / 1_000 + 9);
    let said = client.ask("PLAY", "cam", &late, "").is(457);
    assert!(said.body.contains("the recording ends at"), "{said:?}");

    drop(client);
    scales(address, begins);
    clock(&site, address, begins);
    hours(address, begins);
    pace(address, begins);
    speeds(&site, address);
    serve.terminate();
}

/// Nothing is behind the end, also where the last key frame is so far back that its block does not tell.
#[test]
fn behind_the_end_nothing_is_played() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    for frame in (0..200).filter(|frame| *frame == 0 || frame % GOP != 0) {
        publish(&mut client, frame..frame + 1);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)[0]["is_recorded"] == false
    });
    let blocks = recordings(&site)[0]["blocks"].as_u64();
    assert!(blocks > Some(20), "{blocks:?}");
    let mut client = player(address);
    for scale in ["", "Scale: 4\r\n"] {
        let late = format!("Range: npt=900-\r\n{scale}");
        let said = client.ask("PLAY", "cam", &late, "").is(457);
        assert!(said.body.contains("the recording ends at"), "{said:?}");
    }
    serve.terminate();
}

fn scales(address: SocketAddr, begins_ms: u64) {
    let npt = |ms: u64| {
        format!(
            "{}.{:03}",
            (begins_ms + ms) / 1_000,
            (begins_ms + ms) % 1_000
        )
    };
    for (scale, range, first) in [
        (8_i64, Some(0), 0),
        (2, Some(30_001), 750),
        (4, Some(25_001), 620),
        (-1, Some(3_001), 70),
        (-8, Some(34_001), 850),
        (-16, None, 890),
    ] {
        let range = range.map(|from| format!("Range: npt={}-\r\n", npt(from)));
        let range = range.unwrap_or_default();
        let mut client = player(address);
        if scale == 4 || scale == -1 {
            // In blocks of the disks of four of the volume's.
            let (of, text) = ("Content-Type: text/parameters\r\n", "block: 262144\r\n");
            client.ask("SET_PARAMETER", "cam", of, text).is(200);
        }
        let (packets, said) = played_by(client, &format!("{range}Scale: {scale}\r\n"));
        assert_eq!(said.header("Scale"), Some(format!("{scale}.000").as_str()));
        let (sequence, timestamp, begun, _) = packets[0];
        assert_eq!(begun, first, "scale {scale}");
        let info = format!("seq={sequence};rtptime={timestamp}");
        assert!(
            said.header("RTP-Info")
                .is_some_and(|told| told.ends_with(&info))
        );
        let (mut before, mut shown) = (None, 0);
        for (number, frame) in packets.chunks(PARTS as usize).enumerate() {
            let of = frame[0].2;
            assert_eq!(of % GOP, 0, "scale {scale}: frame {of} is no key frame");
            let apart = (of as i64 - begun as i64) * (CLOCK / FRAMES_PER_SECOND) as i64 / scale;
            for (part, seen) in frame.iter().enumerate() {
                let at = sequence.wrapping_add((number * PARTS as usize + part) as u16);
                let expected = (at, timestamp.wrapping_add(apart as u32), of, part as u8);
                assert_eq!(*seen, expected, "scale {scale}");
            }
            let is_further = before.is_none_or(|before| (of > before) == (scale > 0));
            assert!(is_further, "scale {scale}: {of} after {before:?}");
            before = Some(of);
            shown += 1;
        }
        let all = match scale > 0 {
            true => (890 - first) / GOP,
            false => first / GOP,
        } + 1;
        assert!(
            shown > 1 && shown <= all && shown * 20 > all,
            "scale {scale}: {shown} key frames of {all}"
        );
        let apart = before.map_or(0, |last| if scale > 0 { 890 - last } else { last });
        assert!(apart < 300, "scale {scale}: it ends at {before:?}");
    }
    let (packets, said) = played(
        address,
        &format!("Range: npt={}-{}\r\nScale: 0.5\r\n", npt(2_001), npt(2_999)),
    );
    assert_eq!(said.header("Scale"), Some("0.500"));
    assert_eq!(packets.len() as u64, 25 * PARTS);
    let (sequence, timestamp, ..) = packets[0];
    for (number, packet) in packets.iter().enumerate() {
        let after = number as u64 / PARTS;
        let at = timestamp.wrapping_add((after * 2 * CLOCK / FRAMES_PER_SECOND) as u32);
        let expected = (
            sequence.wrapping_add(number as u16),
            at,
            50 + after,
            (number % 10) as u8,
        );
        assert_eq!(*packet, expected);
    }
    let mut client = player(address);
    for wrong in [
        "Scale: 0\r\n",
        "Speed: 0\r\n",
        "Speed: -1\r\n",
        "Speed: nan\r\n",
        "Speed: fast\r\n",
        "Scale: quick\r\n",
        "Range: npt=0.1-1-\r\n",
        "Range: npt=9-5\r\n",
        "Range: npt=5-9\r\nScale: -1\r\n",
    ] {
        client.ask("PLAY", "cam", wrong, "").is(457);
    }
}

/// Packets do not come sooner than they are to be shown, however fast that is, nor more slowly, where the
/// host lets them: in one of three tries. At a higher Speed they are sent in less time than they are shown
/// in.
fn pace(address: SocketAddr, begins_ms: u64) {
    let from_ms = begins_ms + 4_001;
    let range = format!("Range: npt={}.{:03}-", from_ms / 1_000, from_ms % 1_000);
    // Frames of a time, or key frames of as many.
    for (how, frames, each_ms) in [
        ("Scale: 1", 50, 40),
        ("Scale: 0.5", 25, 80),
        ("Scale: 4", 20, 100),
        ("Speed: 1.25", 75, 32),
    ] {
        let is_in_time = (0..3).any(|_| {
            let mut client = player(address);
            let begun = Instant::now();
            client
                .ask("PLAY", "cam", &format!("{range}\r\n{how}\r\n"), "")
                .is(200);
            client.packets_on(0, 1);
            let came = Instant::now();
            let packets = client.packets_on(0, (frames * PARTS) as usize + 1);
            let (took, came) = (begun.elapsed(), came.elapsed());
            let apart = seen(packets.last().expect("packets")).1;
            let apart = apart.wrapping_sub(seen(&packets[0]).1);
            let shown = Duration::from_millis(u64::from(apart) * 1_000 / CLOCK);
            let (lasts, most) = match how {
                "Speed: 1.25" => (shown * 4 / 5, shown),
                _ => (shown, shown * 3 / 2),
            };
            assert!(
                lasts >= Duration::from_millis(frames * each_ms),
                "{how}: {lasts:?}"
            );
            assert!(took >= lasts, "{how}: {took:?} of {lasts:?}");
            client.ask("TEARDOWN", "cam", "", "").is(200);
            came < most
        });
        assert!(is_in_time, "{how}: it comes more slowly than it is shown");
    }
}

/// A time as hours, minutes and seconds is as good as one in seconds (RFC 2326, section 3.6).
fn hours(address: SocketAddr, begins_ms: u64) {
    let mut client = player(address);
    let at_ms = begins_ms + 17_124;
    let forms = [
        format!("0:00:{:02}.{:03}", at_ms / 1_000, at_ms % 1_000),
        format!("{}.{:03}", at_ms / 1_000, at_ms % 1_000),
    ];
    let [hours, seconds] = forms.map(|form| {
        let said = client
            .ask("PLAY", "cam", &format!("Range: npt={form}-\r\n"), "")
            .is(200);
        let info = said.header("RTP-Info").map(str::to_owned);
        client.ask("PAUSE", "cam", "", "").is(200);
        (info, said.header("Range").map(str::to_owned))
    });
    assert_eq!(hours, seconds);
    assert!(hours.0.is_some_and(|info| info.contains("seq=")));
    // Nothing is recorded now.
    let said = client.ask("PLAY", "cam", "Range: npt=now-\r\n", "").is(457);
    assert!(said.body.contains("the recording has ended"), "{said:?}");
}

/// A request from now on begins with the newest packet, however it is named.
#[test]
fn now_is_where_it_is_recorded() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    publish(&mut client, 0..340);
    until("some blocks are written", || {
        recordings(&site)[0]["blocks"].as_u64() >= Some(40)
    });
    // Nothing more comes, and it goes on.
    let mut player = player(address);
    let first = |said: &testkit::rtsp::RtspResponse| {
        let info = said.header("RTP-Info").unwrap_or_default();
        let sequence = info
            .split("seq=")
            .nth(1)
            .and_then(|of| of.split(';').next());
        let sequence: u16 = sequence.and_then(|of| of.parse().ok()).expect("a number");
        u64::from(sequence.wrapping_sub(SEQUENCE as u16)) / PARTS
    };
    let ask = |player: &mut Client, range: &str| {
        let frame = first(&player.ask("PLAY", "cam", range, "").is(200));
        player.ask("PAUSE", "cam", "", "").is(200);
        frame
    };
    assert_eq!(ask(&mut player, "Range: npt=0-\r\n"), 0);
    // From memory, with the last key frame; also where it was paused.
    for _ in 0..2 {
        player.packets.clear();
        player.ask("PLAY", "cam", "Range: npt=now-\r\n", "").is(200);
        let first = seen(&player.packets_on(0, 1)[0]).2;
        assert_eq!(first, 339 / GOP * GOP);
        player.ask("PAUSE", "cam", "", "").is(200);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

fn clock(site: &Site, address: SocketAddr, begins_ms: u64) {
    let begun = recordings(site)[0]["begun_unix_ns"]
        .as_u64()
        .expect("a number");
    let text = |ms: u64| {
        let at = std::time::UNIX_EPOCH
            + std::time::Duration::from_nanos(begun + (begins_ms + ms) * 1_000_000);
        let text = humantime::format_rfc3339_millis(at).to_string();
        text.replace(['-', ':'], "")
    };
    let mut client = player(address);
    let range = format!("Range: clock={}-{}\r\n", text(10_005), text(11_000));
    let said = client.ask("PLAY", "cam", &range, "").is(200);
    let told = said.header("Range").unwrap_or_default();
    assert!(told.starts_with("clock=2"), "{told}");
    let first = client.packets_on(0, 1);
    assert_eq!(seen(&first[0]).2, 250);
}

fn speeds(site: &Site, address: SocketAddr) {
    let rate = || {
        let status = call(site, "GET", "/v1/status", "").1;
        status["streams"][0]["rate_bytes_per_second"].as_u64()
    };
    until("those before are gone", || rate().is_none());
    let mut client = player(address);
    let as_it_was = rate().expect("it plays");
    let said = client.ask("PLAY", "cam", "Speed: 1.5\r\n", "").is(200);
    assert_eq!(said.header("Speed"), Some("1.500"));
    let faster = as_it_was * 3 / 2;
    until("more is reserved", || rate() == Some(faster));
    let packets = client.packets_on(0, 500);
    let timestamps = packets.iter().take(500).map(|packet| seen(packet).1);
    assert!(timestamps.eq((0..50).flat_map(|frame| {
        [(TIMESTAMP + frame * CLOCK / FRAMES_PER_SECOND) as u32; PARTS as usize]
    })));
    // More than there is: as it was.
    let said = client
        .ask("PLAY", "cam", "Range: npt=0-\r\nSpeed: 16\r\n", "")
        .is(200);
    assert_eq!(said.header("Speed"), Some("1.000"));
    until("it is given back", || rate() == Some(as_it_was));
}

#[test]
fn recording_cut_by_a_crash_has_an_index_to_its_end() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    let frames = 340;
    publish(&mut client, 0..frames);
    until("a group and more is written", || {
        recordings(&site)[0]["blocks"].as_u64() > Some(68)
    });
    Wire::flush(&site.path("nbd.sock"), "cam");
    let shown = site.run(&["recording", "show", "cam", "1"]).done().out;
    assert!(
        shown.contains("recorded to  ") && shown.contains("recording"),
        "{shown}"
    );
    drop(serve);
    drop(client);
    let (serve, address) = testkit::rtsp::serve(&site);
    let of = &recordings(&site)[0];
    assert!(of["blocks"].as_u64() > Some(68), "{of}");
    let length_ms = of["length_ns"].as_u64().expect("a number") / 1_000_000;
    let mut client = player(address);
    let begins = begins_ms(&mut client);
    for at_ms in (0..length_ms).step_by(531).skip(1) {
        begins_at_its_key(&mut client, begins, at_ms);
    }
    // A missing section is rebuilt once: another look at it reads the played block and no more.
    begins_at_its_key(&mut client, begins, length_ms - 100);
    let before = best_effort(&site);
    begins_at_its_key(&mut client, begins, length_ms - 100);
    let reads = best_effort(&site) - before;
    assert!(reads <= 2, "{reads} reads");
    drop(client);

    let path = "/v1/volumes/cam/recordings/1/index?from_ns=0";
    let (status, index) = call(&site, "GET", path, "");
    assert_eq!((status, &index["groups_missing"]), (200, &0.into()));
    let blocks = index["blocks"].as_array().expect("blocks").len();
    assert_eq!(Some(blocks as u64), of["blocks"].as_u64());
    let keys = index["keys"].as_array().expect("keys");
    let last = length_ms * FRAMES_PER_SECOND / 1_000 / GOP;
    assert_eq!(keys.len() as u64, last + 1, "{keys:?}");
    let (status, said) = call(&site, "GET", "/v1/volumes/cam/recordings/1/check", "");
    assert_eq!((status, &said["is_sound"]), (200, &true.into()), "{said}");

    // Faster and backwards it goes from one end to the other.
    for (scale, first) in [(2, 0), (-2, last * GOP)] {
        let range = if scale > 0 { "Range: npt=0-\r\n" } else { "" };
        let (packets, _) = played(address, &format!("{range}Scale: {scale}\r\n"));
        let shown: Vec<u64> = packets.iter().map(seen_frame).collect();
        // The last key frame may not have come whole, and is not shown then.
        let apart = shown.first().map(|of| of.abs_diff(first));
        let most = if scale > 0 { 0 } else { GOP };
        assert!(
            apart <= Some(most) && apart.is_some(),
            "scale {scale}: it begins at {shown:?}"
        );
        let end = if scale > 0 { last * GOP } else { 0 };
        let apart = shown.last().map(|of| of.abs_diff(end));
        assert!(
            apart <= Some(3 * GOP),
            "scale {scale}: it ends at {shown:?}"
        );
    }
    serve.terminate();
}

fn seen_frame(packet: &(u16, u32, u64, u8)) -> u64 {
    packet.2
}
