//! Packets to players, with other requests meanwhile and with slow readers.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;
use testkit::rtsp::udp::Pair;
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, lines, logged, played, publisher, reservations, rtp, sdp, serve,
    serving, serving_logged, sized, with_blocks_of,
};
use testkit::site::{Site, call};
use testkit::until;

/// Publishes packets with these numbers and times to `cam`, in milliseconds, and ends that; what was sent.
fn recorded(address: SocketAddr, numbers: Range<u16>, at_ms: fn(u32) -> u32) -> Vec<Vec<u8>> {
    let mut publisher = publisher(address, TCP);
    let packet = |n: u16| rtp(n, at_ms(n.into()), 1, &[n as u8; 900]);
    let sent: Vec<_> = numbers.map(packet).collect();
    sent.iter().for_each(|packet| publisher.packet(0, packet));
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    sent
}

/// A player of all of `cam`.
fn playing(address: SocketAddr) -> Client {
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
    player
}

/// Packets are sent from the buffers that the disks filled, also those of the block in which the beginning
/// was found.
#[test]
fn played_packets_are_not_copied() {
    let (_site, serve, address) = serving_logged("");
    let sent = sized::packets(0, 8, 0, 100);
    let mut client = publisher(address, TCP);
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    for by_udp in [false, true] {
        let pair = Pair::new();
        let transport = if by_udp { &pair.transport() } else { TCP };
        let mut player = Client::connect(address);
        let said = player.ask("SETUP", "cam/track0", transport, "").is(200);
        if by_udp {
            pair.agreed(address, &said);
        }
        player.ask("PLAY", "cam", "", "").is(200);
        let came = match by_udp {
            false => player.packets_on(0, sent.len()),
            true => {
                let mut bytes = [0; 2_000];
                let packet = |_: &_| pair.receive(&mut bytes).expect("a packet").to_vec();
                sent.iter().map(packet).collect()
            }
        };
        assert!(came == sent, "what came is not what was sent");
        player.ask("TEARDOWN", "cam", "", "").is(200);
    }
    let (_, log) = serve.terminate();
    let ended = lines(&log, "playing ends");
    assert_eq!(ended.len(), 2, "{log}");
    let bytes: usize = sent.iter().map(Vec::len).sum();
    let expected = (sent.len() as u64, bytes as u64, 0);
    for line in ended {
        let [packets, bytes, copied] =
            ["packets", "bytes", "copied_bytes"].map(|name| logged(line, name));
        assert_eq!((packets, bytes, copied), expected, "{line}");
    }
}

#[test]
fn playing_goes_on_where_it_was_paused_and_from_where_it_is_asked_to() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    // Ten a second, sent at once.
    let sent: Vec<Vec<u8>> = (0..30)
        .map(|number| rtp(number, 100 * u32::from(number), 1, &[number as u8; 50]))
        .collect();
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    // The first packet came a moment after RECORD.
    let of = call(&site, "GET", "/v1/volumes/cam/recordings/1", "").1;
    let begins_ms = of["begins_ns"].as_u64().expect("a number") / 1_000_000;
    let npt = |ms: u64| {
        let ms = begins_ms + ms;
        format!("{}.{:03}", ms / 1_000, ms % 1_000)
    };
    let from_begin = format!("npt={}-", npt(0));

    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    let said = player.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(said.header("Range"), Some(from_begin.as_str()));
    assert!(
        said.header("RTP-Info")
            .is_some_and(|info| info.ends_with("seq=0;rtptime=0"))
    );
    player.packets_on(0, 5);
    player.ask("PAUSE", "cam", "", "").is(200);
    let before = player.packets_on(0, 0).len();
    assert!((5..30).contains(&before), "{before} packets");
    // Nothing comes, whatever is asked for meanwhile.
    player.ask("GET_PARAMETER", "cam", "", "").is(200);
    assert_eq!(player.packets_on(0, 0).len(), before);
    player.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(player.packets_on(0, sent.len()), sent);
    // From elsewhere, while it plays and when it has ended.
    for _ in 0..2 {
        player.packets.clear();
        let range = format!("Range: npt={}-{}\r\n", npt(2_550), npt(2_750));
        let said = player.ask("PLAY", "cam", &range, "").is(200);
        let range = format!("npt={}-{}", npt(2_500), npt(2_750));
        assert_eq!(said.header("Range"), Some(range.as_str()));
        assert_eq!(player.packets_on(0, 3), sent[25..28]);
    }
    // Before the beginning there is nothing, as ffmpeg writes that.
    player.packets.clear();
    let said = player
        .ask("PLAY", "cam", "Range: npt=0.-110-\r\n", "")
        .is(200);
    assert_eq!(said.header("Range"), Some(from_begin.as_str()));
    assert_eq!(player.packets_on(0, 3), sent[..3]);
    for (range, status) in [
        ("npt=90-", 457),
        ("npt=2-1", 457),
        ("clock=20200101T000000Z-20200102T000000Z", 457),
        ("clock=20991231T000000Z-", 457),
        ("smpte=0:00:01-", 457),
        ("nonsense", 457),
    ] {
        player
            .ask("PLAY", "cam", &format!("Range: {range}\r\n"), "")
            .is(status);
    }
    player.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(reservations(&site), 0);
    serve.terminate();
}

/// Processor time that a process has used, in ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = testkit::site::read_text(format!("/proc/{process}/stat").as_ref());
    let (_, after) = stat.rsplit_once(") ").expect("its name is in parentheses");
    let times = after.split(' ').skip(11).take(2);
    times.map(|of| of.parse::<u64>().expect("a number")).sum()
}

#[test]
fn player_that_reads_nothing_costs_nothing_and_gets_its_packets_later() {
    let site = Site::new(2);
    with_blocks_of(&site, "512KiB", "");
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "60MiB"])
        .done();
    let mut client = Client::connect(address);
    let description = sdp(24_000);
    client
        .ask("ANNOUNCE", "cam", SDP_TYPE, &description)
        .is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    // More than two sockets hold, and all of one moment.
    let sent: Vec<Vec<u8>> = (0..12_000)
        .map(|number| rtp(number, 0, 1, &[number as u8; 1_400]))
        .collect();
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    let mut player = playing(address);
    player.packets_on(0, 1);
    let come = || rustix::io::ioctl_fionread(&player.socket).expect("a socket");
    let look = || (come(), ticks(serve.pid()));
    until("nothing comes any more, and the server rests", || {
        let (came, used) = look();
        std::thread::sleep(Duration::from_secs(1));
        let (more, used_more) = look();
        came > 0 && more == came && used_more - used < 10
    });
    assert_eq!(player.packets_on(0, sent.len()), sent);
    serve.terminate();
}

/// A player that asks for the length of the description, as GStreamer does, gets all of it.
#[test]
fn the_range_that_is_told_has_the_last_packet_in_it() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    // The last one is at a whole second, and at what is none of milliseconds either.
    let packets: Vec<Vec<u8>> = (0..=20)
        .map(|number| rtp(number, 50 * u32::from(number), 9, &[1]))
        .collect();
    packets.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || reservations(&site) == 0);
    let mut asking = Client::connect(address);
    let told = asking.ask("DESCRIBE", "cam", "", "").is(200).body;
    let range = told
        .lines()
        .find_map(|line| line.strip_prefix("a=range:npt="));
    let until_ns = range
        .and_then(|range| range.strip_prefix("0-"))
        .unwrap_or_else(|| panic!("{told}"));
    let milliseconds = &until_ns[..until_ns.len() - 6];
    for until in [until_ns, milliseconds] {
        let range = format!("Range: npt=0-{until}\r\n");
        assert_eq!(
            played(address, "cam", &range, packets.len()),
            packets,
            "{until}"
        );
    }
    serve.terminate();
}

/// A clock that goes back and back is at zero in the end, and the recording ends before it began.
#[test]
fn a_recording_whose_clock_goes_back_is_played() {
    let (_site, serve, address) = serving("");
    let sent = recorded(address, 0..900, |n| 1_000_000 - 9 * n);
    assert_eq!(played(address, "cam", "", 900), sent);
    serve.terminate();
}

/// A player's packet that comes in pieces holds up nothing: neither what it is sent, nor whoever ends it.
#[test]
fn a_packet_in_pieces_does_not_hold_up_who_plays() {
    let (site, serve, address) = serving("");
    let sent = recorded(address, 0..40, |n| 50 * n);
    let mut player = playing(address);
    let report = [7; 3_000];
    player.send(&[b'$', 1, 11, 184]);
    player.send(&report[..5]);
    assert_eq!(player.packets_on(0, 20), sent[..20]);
    player.send(&report[5..]);
    player.ask("PAUSE", "cam", "", "").is(200);
    // Also where nothing is played, and between the two.
    player.send(&[b'$', 1, 11, 184]);
    player.send(&report[..2_000]);
    player.send(&report[2_000..]);
    player.ask("PLAY", "cam", "", "").is(200);
    player.send(&[b'$', 1, 255, 255]);
    player.send(&report);
    assert_eq!(player.packets_on(0, 30), sent[..30]);
    // The rest of it never comes.
    let sessions = call(&site, "GET", "/v1/sessions", "").1;
    let number = sessions[0]["number"].as_u64().expect("a number");
    site.run(&["session", "end", &number.to_string()]).done();
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
}

/// A request during play does not set the player back: a keep-alive (RFC 2326, section 10.5), a higher speed
/// as VLC sends it, or a refused one.
#[test]
fn playing_goes_on_from_where_it_is() {
    let (_site, serve, address) = serving("");
    // Ten a second.
    let sent = recorded(address, 0..60, |n| 100 * n);
    let mut player = playing(address);
    // In order and once, whatever is asked for.
    for (count, headers, status) in [
        (8, "", 200),
        (12, "Range: npt=9999-\r\n", 457),
        (16, "Range: npt=2-1\r\n", 457),
        (20, "Scale: 0\r\n", 457),
    ] {
        assert_eq!(player.packets_on(0, count), sent[..count]);
        player.ask("PLAY", "cam", headers, "").is(status);
    }
    assert_eq!(player.packets_on(0, 24), sent[..24]);
    // The scale stays as it was, slower, if something else is refused.
    let said = player.ask("PLAY", "cam", "Scale: 0.5\r\n", "").is(200);
    assert_eq!(said.header("Scale"), Some("0.500"));
    let range = said.header("Range").expect("a range");
    let from = range
        .strip_prefix("npt=")
        .and_then(|of| of.split('-').next());
    let from: f64 = from.expect("a time").parse().expect("a number");
    assert!((2.2..5.0).contains(&from), "{range}");
    let before = player.packets_on(0, 0).len();
    assert!((24..50).contains(&before), "{before} packets");
    player.packets_on(0, before + 3);
    player
        .ask("PLAY", "cam", "Range: npt=9999-\r\n", "")
        .is(457);
    player.packets_on(0, before + 6);
    // Only a read of the recording can tell that this is too far.
    player.ask("PLAY", "cam", "Range: npt=-1\r\n", "").is(457);
    player.packets_on(0, before + 8);
    player.ask("PLAY", "cam", "", "").is(200);
    let all = player.packets_on(0, sent.len());
    let bodies = |of: &[Vec<u8>]| {
        of.iter()
            .map(|packet| packet[12..].to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(bodies(&all), bodies(&sent));
    let times: Vec<u32> = all[before + 1..]
        .iter()
        .map(|packet| u32::from_be_bytes(packet[4..8].try_into().unwrap()))
        .collect();
    let apart: Vec<u32> = times
        .windows(2)
        .map(|of| of[1].wrapping_sub(of[0]))
        .collect();
    // At half of it, and none begins anew.
    assert!(apart.iter().all(|of| *of == 200), "{apart:?}");
    player.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

/// A monitor that shows many cameras in turn does that for days, without a pause.
#[test]
fn play_may_be_asked_for_as_often_as_one_likes() {
    let (_site, serve, address) = serving("");
    let packets = recorded(address, 0..100, |n| 100 * n);
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    for _ in 0..100 {
        let plays: String = (0..60)
            .map(|second| {
                let range = format!("Range: npt=0.{}-\r\n", second % 10);
                player.request("PLAY", "cam", &range, "")
            })
            .collect();
        player.send(plays.as_bytes());
        for _ in 0..60 {
            player.answer().expect("an answer").is(200);
        }
    }
    player.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(played(address, "cam", "", 100), packets);
    serve.terminate();
}

/// A picture in H.264 of key frames of so many packets, three seconds apart, each of which says which one it is.
fn key_frames_recorded(site: &Site, address: SocketAddr, frames: u32, packets: u32) {
    let mut client = Client::connect(address);
    let description = sdp(24_000).replace("audio", "video");
    let description = description.replace("X-TEST/1000", "H264/90000");
    client
        .ask("ANNOUNCE", "cam", SDP_TYPE, &description)
        .is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    for number in 0..frames * packets {
        let mut body = vec![0x65];
        body.extend(number.to_be_bytes());
        body.resize(1_400, number as u8);
        let timestamp = number / packets * 3 * 90_000;
        client.packet(0, &rtp(number as u16, timestamp, 1, &body));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(site) == 0);
}

/// Also faster and backwards, within a key frame, which may begin again. Numbers and the counts of reports continue.
#[test]
fn refused_requests_within_a_key_frame_continue_its_numbers() {
    const PACKETS: u32 = 5_000;
    let site = Site::new(2);
    with_blocks_of(&site, "512KiB", "");
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve(&site);
    site.run(&["volume", "create", "cam", "--size", "60MiB"])
        .done();
    key_frames_recorded(&site, address, 2, PACKETS);
    for (scale, frames) in [("1.100", [0, 1]), ("-1.000", [1, 0])] {
        // The player has not been sent all of a key frame when its first packet has come.
        let mut player = Client::with_little_room(address);
        player.ask("SETUP", "cam/track0", TCP, "").is(200);
        let headers = format!("Scale: {scale}\r\n");
        let said = player.ask("PLAY", "cam", &headers, "").is(200);
        assert_eq!(said.header("Scale"), Some(scale));
        for count in [1, 2_000, 4_900, 6_000, 9_000] {
            player.packets_on(0, count);
            // Only a read of the recording can tell that there is nothing.
            let until = if frames[0] > 0 { 9_999 } else { 0 };
            let headers = format!("Range: npt=-{until}\r\nScale: {scale}\r\n");
            player.ask("PLAY", "cam", &headers, "").is(457);
        }
        player.packets_on(0, 9_500);
        player.ask("TEARDOWN", "cam", "", "").is(200);
        let (mut came, mut reports) = (Vec::new(), 0);
        for (channel, packet) in &player.packets {
            let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
            match (channel, packet[1]) {
                (0, _) => {
                    let number = u16::from_be_bytes([packet[2], packet[3]]);
                    came.push((word(13), number));
                }
                (_, 200) => {
                    let count = came.len() as u32;
                    assert_eq!((word(20), word(24)), (count, 1_400 * count), "{scale}");
                    reports += 1;
                }
                _ => {}
            }
        }
        assert_eq!(came[0].0, frames[0] * PACKETS, "{scale}");
        let continues = |of: &[(u32, u16)]| {
            let is_next = of[1].0 == of[0].0 + 1 || of[1].0.is_multiple_of(PACKETS);
            is_next && of[1].1 == of[0].1.wrapping_add(1)
        };
        assert!(came.windows(2).all(continues), "{scale}");
        assert!(reports >= 3, "{scale}: {reports}");
    }
    serve.terminate();
}

/// Reports count what was sent until the farewell, over a pause; and that this was all is said also to who
/// asks for nothing just before.
#[test]
fn reports_count_what_was_sent_until_the_farewell() {
    let (_site, serve, address) = serving("");
    let sent = recorded(address, 0..20, |n| 100 * n);
    let mut player = playing(address);
    player.packets_on(0, 5);
    player.ask("PAUSE", "cam", "", "").is(200);
    let paused = player.packets_on(0, 0).len();
    player.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(player.packets_on(0, sent.len()), sent);
    player.ask("PLAY", "cam", "Range: npt=-0\r\n", "").is(457);
    let is_farewell = |report: &Vec<u8>| report[1] == 201 && report[9] == 203;
    // Those of the two beginnings are before it.
    let reports = player.packets_on(1, 3);
    assert!(reports.iter().any(is_farewell), "{reports:?}");
    player.ask("PLAY", "cam", "", "").is(200);
    player.packets_on(0, sent.len() + 1);
    let reports = player.packets_on(1, 0);
    let told = reports.iter().map(|report| {
        let count = report.get(20..24).and_then(|of| of.try_into().ok());
        (
            report[1],
            u32::from_be_bytes(count.unwrap_or_default()) as usize,
        )
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[..2], [(200, 0), (200, paused)]);
    assert_eq!((told[2].0, told[3]), (201, (200, 0)));
    serve.terminate();
}
