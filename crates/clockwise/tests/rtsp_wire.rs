//! RTSP as it may come: in order and out of it, and what is no RTSP at all.

mod common;
mod rtsp_support;

use common::{Site, WITHIN, call, until};
use rtsp_support::sized;
use rtsp_support::udp::Pair;
use rtsp_support::{
    Client, SDP_TYPE, SECOND, TCP, block_of, lines, logged, played, publisher, publisher_of_two,
    reservations, rtp, sdp, sender_report, serve, serving, serving_logged, with_blocks_of,
};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

#[test]
fn packets_come_back_as_they_came_and_once() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    let body = |number: u16| -> Vec<u8> {
        let first = number as u8;
        (0..1_200)
            .map(|at: u16| first.wrapping_add(at as u8))
            .collect()
    };
    let packet = |number: u16| rtp(number, u32::from(number) * 2, 7, &body(number));
    // Numbers that wrap, one that is late, one twice, two that never come, and somebody else's.
    let numbers = [65_533, 65_535, 65_534, 0, 0, 1, 4, 5, 6];
    for number in numbers {
        client.packet(0, &packet(number));
    }
    client.packet(0, &rtp(7, 14, 8, b"of another source"));
    client.packet(0, b"no RTP, but long enough");
    client.packet(0, b"short");
    client.packet(9, b"a channel that nobody has");
    client.packet(0, &packet(7));
    assert_eq!(client.ask("GET_PARAMETER", "cam", "", "").status, 200);
    // In pieces, as a network may have it.
    let last = packet(8);
    let [high, low] = (last.len() as u16).to_be_bytes();
    for piece in [&[b'$', 0, high, low][..], &last].concat().chunks(100) {
        client.send(piece);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    let expected: Vec<Vec<u8>> = [65_533, 65_535, 65_534, 0, 1, 4, 5, 6, 7, 8]
        .map(packet)
        .to_vec();
    for path in ["cam", "cam/1"] {
        assert_eq!(played(address, path, "", expected.len()), expected);
    }
    let mut client = Client::connect(address);
    for (path, said) in [
        ("cam/2", "no recording 2"),
        ("cam/live", "nobody records"),
        ("other", "other"),
        ("", "name a volume"),
    ] {
        let answer = client.ask("DESCRIBE", path, "", "").is(404);
        assert!(answer.body.contains(said), "{path}: {answer:?}");
    }
    serve.terminate();
}

/// Packets without a body fill a block as well, with what is noted of each.
#[test]
fn packets_without_a_body_fill_blocks_and_end_nothing() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    for number in 0..5_000_u16 {
        client.packet(0, &rtp(number, u32::from(number), 7, b""));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let found = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (&found["packets"], &found["is_sound"]),
        (&5_000.into(), &true.into()),
        "{found}"
    );
    serve.terminate();
}

/// What is played is sent from where the disks put it, the block in which the beginning was found as well.
#[test]
fn what_is_played_is_not_copied() {
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

/// What did not come is said by its numbers, each once, and what came late is not.
#[test]
fn packets_that_are_missing_are_named() {
    let (_site, serve, address) = serving_logged("");
    let mut client = publisher(address, TCP);
    for number in [65_533, 65_534, 2, 3, 6, 5, 9] {
        client.packet(0, &rtp(number, 0, 7, b"a body"));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let (_, log) = serve.terminate();
    for range in ["65535 to 1 at ", ": 4 to 4 at ", ": 7 to 8 at "] {
        assert_eq!(log.matches(range).count(), 1, "{range}: {log}");
    }
    assert_eq!(log.matches(": did not come").count(), 3, "{log}");
    assert!(
        !log.contains("5 to 5") && log.contains("packets are missing"),
        "{log}"
    );
}

/// A camera's clock that is set, forward or back, by seconds or by days, is no reason to wait, or to lose anything.
#[test]
fn clocks_that_jump_are_played_as_if_they_had_gone_on() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    let begins = [
        0,
        0x7000_0000,
        0x9000_0000,
        5,
        0xffff_ff00,
        8_000 * 3_600,
        0,
    ];
    let mut sent = Vec::new();
    for (part, begin) in (0_u16..).zip(begins) {
        for number in 0..20_u16 {
            let sequence = part * 20 + number;
            let timestamp = u32::wrapping_add(begin, u32::from(number) * 8);
            sent.push(rtp(sequence, timestamp, 7, &[part as u8; 900]));
        }
    }
    for packet in &sent {
        client.packet(0, packet);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let recording = &call(&site, "GET", "/v1/volumes/cam/recordings", "").1[0];
    let length_ns = recording["length_ns"].as_u64().expect("a length");
    // A jump of less than ten seconds is a pause, as far as anybody can tell: none of these is one.
    assert!(length_ns < 10_000_000_000, "{recording}");
    assert_eq!(played(address, "cam/1", "", sent.len()), sent);
    serve.terminate();
}

/// When a track's timestamp is, by the only sender report among these, in nanoseconds.
fn time_of(reports: &[Vec<u8>], timestamp: u32, clock_rate: i128) -> i128 {
    let report = &reports[0];
    assert_eq!(report[1], 200, "a sender report comes first");
    let ntp = u64::from_be_bytes(report[8..16].try_into().expect("eight"));
    let at = u32::from_be_bytes(report[16..20].try_into().expect("four"));
    let after = i128::from(timestamp.wrapping_sub(at) as i32);
    ((i128::from(ntp) * 1_000_000_000) >> 32) + after * 1_000_000_000 / clock_rate
}

/// The picture is 250 ms earlier than the sound by what their sender says, whenever their packets came.
#[test]
fn what_was_at_one_time_is_played_at_one_time() {
    let (site, serve, address) = serving("");
    let mut client = publisher_of_two(address);
    let (picture, sound) = (4_294_967_000_u32, 77_u32);
    let ntp = 0xe000_0000_4000_0000_u64;
    client.packet(1, &sender_report(1, ntp, picture));
    client.packet(3, &sender_report(2, ntp + (1 << 30), sound));
    for number in 0..40_u16 {
        let after = u32::from(number) * 25;
        client.packet(0, &rtp(number, picture.wrapping_add(after), 1, &[1; 200]));
        client.packet(2, &rtp(number, sound + 8 * after, 2, &[2; 200]));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    for from in ["npt=0-", "npt=0.5-"] {
        let mut player = Client::connect(address);
        player.ask("SETUP", "cam/track0", TCP, "").is(200);
        player.ask("SETUP", "cam/track1", SECOND, "").is(200);
        let range = format!("Range: {from}\r\n");
        player.ask("PLAY", "cam", &range, "").is(200);
        let (of_picture, of_sound) = (player.packets_on(1, 1), player.packets_on(3, 1));
        let shown = time_of(&of_picture, picture, 1_000);
        let heard = time_of(&of_sound, sound, 8_000);
        let apart_us = (heard - shown) / 1_000 - 250_000;
        assert!(apart_us.abs() < 1_000, "{apart_us} us apart, {from}");
    }
    serve.terminate();
}

#[test]
fn what_is_reserved_is_told_and_changed() {
    let (site, serve, address) = serving("");
    let reserved = || {
        let status = call(&site, "GET", "/v1/status", "").1;
        status["streams"][0]["rate_bytes_per_second"].as_u64()
    };
    const TYPE: &str = "Content-Type: text/parameters\r\n";
    let mut client = Client::connect(address);
    client
        .ask("SET_PARAMETER", "cam", TYPE, "rate: 1\r\n")
        .is(455);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    let moves = |client: &mut Client, rate: u64| {
        let said = client.ask("GET_PARAMETER", "cam", TYPE, "rate\r\nblock\r\n");
        assert_eq!(
            said.is(200).body,
            format!("rate: {rate}\r\nblock: 65536\r\n")
        );
        // However often one of them is asked for.
        let said = client.ask(
            "GET_PARAMETER",
            "cam",
            TYPE,
            &"block\r\nrate\r\n".repeat(999),
        );
        assert_eq!(
            said.is(200).body,
            format!("block: 65536\r\nrate: {rate}\r\n")
        );
        let more = format!("rate: {}\r\n", rate + 5);
        client.ask("SET_PARAMETER", "cam", TYPE, &more).is(200);
        until("it is changed", || reserved() == Some(rate + 5));
        let refused = client.ask("SET_PARAMETER", "cam", TYPE, "rate: 900000000\r\n");
        assert!(refused.is(453).body.contains("would fit"));
        for (text, status) in [
            ("rate: much\r\n", 400),
            ("rate\r\n", 400),
            ("block: 5\r\n", 400),
            ("colour: red\r\n", 451),
        ] {
            client.ask("SET_PARAMETER", "cam", TYPE, text).is(status);
        }
        assert_eq!(reserved(), Some(rate + 5), "it keeps what it had");
    };
    moves(&mut client, 110_000);
    client.ask("RECORD", "cam", "", "").is(200);
    moves(&mut client, 110_005);
    (0..20).for_each(|number| client.packet(0, &rtp(number, 1_000 * u32::from(number), 1, b"x")));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    moves(&mut player, 110_000);
    player.ask("PLAY", "cam", "", "").is(200);
    moves(&mut player, 110_005);
    player.ask("PAUSE", "cam", "", "").is(200);
    // It is what is reserved from now on.
    player.ask("PLAY", "cam", "", "").is(200);
    assert_eq!(reserved(), Some(110_010));
    serve.terminate();
}

#[test]
fn a_recording_that_is_paused_goes_on_as_another() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    for number in 1..=2 {
        let packet = rtp(number, 0, 1, &[number as u8; 9]);
        client.packet(0, &packet);
        client.ask("PAUSE", "cam", "", "").is(200);
        assert_eq!(reservations(&site), 0, "nothing is held for it");
        assert_eq!(played(address, "cam", "", 1), [packet]);
        until("the player is gone", || reservations(&site) == 0);
        // Packets meanwhile are nobody's.
        client.packet(0, &rtp(99, 0, 1, b"between"));
        client.ask("RECORD", "cam", "", "").is(200);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let listed = call(&site, "GET", "/v1/volumes/cam/recordings", "").1;
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    serve.terminate();
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
    // Whatever is asked for meanwhile, nothing comes.
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
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
}

/// A ring of fifteen blocks: what is recorded overwrites the oldest, also after the server has been started again.
#[test]
fn a_full_volume_keeps_what_is_newest() {
    let (site, serve, address) = serving("");
    site.run(&["volume", "create", "ring", "--size", "1MiB"])
        .done();
    let packet = |recording: u16, number: u16| {
        let number_in_all = recording * 1_000 + number;
        rtp(
            number_in_all,
            5 * u32::from(number),
            5,
            &[recording as u8; 1_388],
        )
    };
    let record = |address: SocketAddr, recording: u16| {
        let mut client = Client::connect(address);
        client
            .ask("ANNOUNCE", "ring", SDP_TYPE, &sdp(3_200))
            .is(200);
        // What the one before has written early it still holds, until that would have been due.
        until("there is room on the disks", || {
            client.ask("SETUP", "ring/one", TCP, "").status == 200
        });
        client.ask("RECORD", "ring", "", "").is(200);
        // Eight blocks and a part of one.
        (0..380).for_each(|number| client.packet(0, &packet(recording, number)));
        client.ask("TEARDOWN", "ring", "", "").is(200);
    };
    let is_there = |address: SocketAddr, number: u16| {
        let path = format!("ring/{number}");
        Client::connect(address)
            .ask("DESCRIBE", &path, "", "")
            .status
            == 200
    };
    let check = |address: SocketAddr, gone: u16, whole: u16| {
        assert!(!is_there(address, gone), "recording {gone}");
        assert!(
            is_there(address, gone + 1),
            "a part of recording {}",
            gone + 1
        );
        let got = played(address, &format!("ring/{whole}"), "", 380);
        let expected: Vec<Vec<u8>> = (0..380).map(|number| packet(whole, number)).collect();
        assert!(got == expected, "recording {whole}: {} packets", got.len());
        // Of the one before it what is left.
        let before = played(address, &format!("ring/{}", whole - 1), "", 100);
        let from = (1..380).find(|number| before[0] == packet(whole - 1, *number));
        let from = from.expect("a packet of the recording, but not its first");
        for (number, got) in (from..).zip(&before) {
            assert!(*got == packet(whole - 1, number), "packet {number}");
        }
    };
    (1..=3).for_each(|recording| record(address, recording));
    check(address, 1, 3);
    let listed = site.json(&["recording", "list", "ring"]);
    let numbers: Vec<u64> = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|of| of["number"].as_u64())
        .collect();
    assert_eq!(numbers, [2, 3], "{listed}");
    assert_eq!(listed[1]["tracks"][0], "X-TEST", "{listed}");
    assert_eq!(listed[1]["length_ns"], 1_895_000_000_u64, "{listed}");
    serve.terminate();
    let (serve, address) = rtsp_support::serve(&site);
    check(address, 1, 3);
    record(address, 4);
    check(address, 2, 4);
    serve.terminate();
}

#[test]
fn who_is_recorded_is_told_how_well_its_packets_come() {
    let (_site, serve, address) = serving("");
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let reports = UdpSocket::bind("127.0.0.1:0").unwrap();
    reports.set_read_timeout(Some(WITHIN)).unwrap();
    let [rtp_port, rtcp_port] = [&server, &reports].map(|of| of.local_addr().unwrap().port());
    let udp = format!("Transport: RTP/AVP;unicast;client_port={rtp_port}-{rtcp_port}\r\n");
    let mut by_udp = Client::connect(address);
    let (site, other, its_address) = serving("");
    let mut by_tcp = publisher(its_address, TCP);
    by_udp.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    let said = by_udp.ask("SETUP", "cam/one", &udp, "").is(200);
    by_udp.ask("RECORD", "cam", "", "").is(200);
    let transport = said.header("Transport").expect("a transport").to_owned();
    let ports = transport.split("server_port=").nth(1).expect("ports");
    let to = ports.split([';', '-']).next().expect("a port");
    let to = SocketAddr::new(address.ip(), to.parse().expect("a number"));
    // Ten of which the fourth is lost.
    for number in (0..10).filter(|number| *number != 3) {
        let packet = rtp(number + 100, u32::from(number), 77, b"a body");
        by_tcp.packet(0, &packet);
        server.send_to(&packet, to).unwrap();
    }
    by_tcp.packet(1, &sender_report(77, 0x1111_2222_3333_4444, 9));
    let told = by_tcp.packets_on(1, 1).remove(0);
    let [source, lost, highest, _, last, since] = block_of(&told);
    assert_eq!((source, lost, highest), (77, 25 << 24 | 1, 109));
    assert_eq!(last, 0x2222_3333);
    assert!(since > 65_536, "it came some seconds ago, not {since}");
    let mut told = [0; 256];
    let count = reports.recv(&mut told).expect("a report");
    let [source, lost, highest, ..] = block_of(&told[..count]);
    assert_eq!((source, lost, highest), (77, 25 << 24 | 1, 109));
    by_tcp.ask("TEARDOWN", "cam", "", "").is(200);
    by_udp.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
    other.terminate();
}

/// Who publishes faster than that is recorded, and does not listen any more when reports come.
#[test]
fn what_a_publisher_has_sent_is_recorded_when_it_has_gone() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    let sent = 1_600;
    for number in 0..sent {
        client.packet(
            0,
            &rtp(number, u32::from(number), 7, &[number as u8; 1_000]),
        );
    }
    // Its socket is closed, and what was sent is on its way: at 110 KB/s longer than two reports are apart.
    drop(client);
    until("the recording has ended", || reservations(&site) == 0);
    let all = played(address, "cam", "Range: npt=0-\r\n", usize::from(sent));
    assert_eq!(all.len(), usize::from(sent));
    serve.terminate();
}

/// Processor time that a process has used, in ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = common::read_text(format!("/proc/{process}/stat").as_ref());
    let (_, after) = stat.rsplit_once(") ").expect("its name is in parentheses");
    let times = after.split(' ').skip(11).take(2);
    times.map(|of| of.parse::<u64>().expect("a number")).sum()
}

#[test]
fn who_takes_no_packets_costs_nothing_and_gets_them_later() {
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

    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
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

/// Who asks for as much as the description tells, as GStreamer does, gets all of it.
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

/// A client need not wait for an answer before it asks for something else.
#[test]
fn what_comes_with_a_request_is_answered_as_well() {
    let (site, serve, address) = serving("");
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    let record = client.request("RECORD", "cam", "", "");
    let packet = rtp(1, 5, 1, &[7; 500]);
    let [high, low] = (packet.len() as u16).to_be_bytes();
    let teardown = client.request("TEARDOWN", "cam", "", "");
    let all = [
        record.as_bytes(),
        &[b'$', 0, high, low],
        &packet,
        teardown.as_bytes(),
    ];
    client.send(&all.concat());
    for _ in 0..2 {
        client.answer().expect("an answer").is(200);
    }
    assert_eq!(played(address, "cam", "", 1), [packet]);
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    let play = player.request("PLAY", "cam", "", "");
    let pause = player.request("PAUSE", "cam", "", "");
    player.send((play + &pause).as_bytes());
    for _ in 0..2 {
        player.answer().expect("an answer").is(200);
    }
    player.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(reservations(&site), 0);
    serve.terminate();
}

/// As who shows many cameras in turn does for days, without a pause.
/// Encoders have an application and a stream, or call their only track nothing.
#[test]
fn what_is_published_below_a_volume_is_recorded_there() {
    let (site, serve, address) = serving("");
    let two = sdp(800)
        + "m=audio 0 RTP/AVP 97\r\nb=AS:64\r\na=rtpmap:97 X-SOUND/8000\r\na=control:streamid=1\r\n";
    let nameless = sdp(800).replace("a=control:one\r\n", "");
    let absolute = sdp(800).replace("control:one", "control:rtsp://127.0.0.1/cam/stream/one");
    for (description, tracks) in [
        (&two, &["cam/stream/one", "cam/stream/streamid=1"][..]),
        (&two, &["cam/one", "cam/streamid=1"]),
        (&nameless, &["cam/stream"]),
        (&absolute, &["cam/stream/one"]),
    ] {
        let mut client = Client::connect(address);
        client
            .ask("ANNOUNCE", "cam/stream", SDP_TYPE, description)
            .is(200);
        client
            .ask("SETUP", "cam/stream/none", TCP, "")
            .is(match description == &nameless {
                true => 200,
                false => 404,
            });
        for (number, track) in tracks
            .iter()
            .enumerate()
            .skip(usize::from(description == &nameless))
        {
            let channels = format!(
                "Transport: RTP/AVP/TCP;unicast;interleaved={}-{}\r\n",
                2 * number,
                2 * number + 1
            );
            client.ask("SETUP", track, &channels, "").is(200);
        }
        client.ask("RECORD", "cam/stream", "", "").is(200);
        client.packet(0, &rtp(1, 1, 1, b"x"));
        client.ask("TEARDOWN", "cam/stream", "", "").is(200);
        until("the reservation is given back", || reservations(&site) == 0);
    }
    serve.terminate();
}

/// A clock that goes back and back is at zero in the end, and the recording ends before it began.
#[test]
fn a_recording_whose_clock_goes_back_is_played() {
    let (_site, serve, address) = serving("");
    let mut publisher = publisher(address, TCP);
    let sent: Vec<_> = (0..900)
        .map(|n| rtp(n, 1_000_000 - 9 * u32::from(n), 1, &[n as u8; 1_000]))
        .collect();
    sent.iter().for_each(|packet| publisher.packet(0, packet));
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(played(address, "cam", "", 900), sent);
    serve.terminate();
}

/// A player's packet that comes in pieces holds up nothing: neither what it is sent, nor whoever ends it.
#[test]
fn a_packet_in_pieces_does_not_hold_up_who_plays() {
    let (site, serve, address) = serving("");
    let mut publisher = publisher(address, TCP);
    let sent: Vec<_> = (0..40)
        .map(|n| rtp(n, 50 * u32::from(n), 1, &[n as u8; 900]))
        .collect();
    sent.iter().for_each(|packet| publisher.packet(0, packet));
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
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

/// Who asks while it plays is no further back for that: to see whether somebody is there (RFC 2326, section 10.5), to have it
/// faster as VLC does, or for what there is not.
#[test]
fn playing_goes_on_from_where_it_is() {
    let (_site, serve, address) = serving("");
    let mut publisher = publisher(address, TCP);
    // Ten a second.
    let sent: Vec<_> = (0..40)
        .map(|n| rtp(n, 100 * u32::from(n), 1, &[n as u8; 900]))
        .collect();
    sent.iter().for_each(|packet| publisher.packet(0, packet));
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
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
    // As it was shown: slower, and that is kept where something else is refused.
    let said = player.ask("PLAY", "cam", "Scale: 0.5\r\n", "").is(200);
    assert_eq!(said.header("Scale"), Some("0.500"));
    let range = said.header("Range").expect("a range");
    let from = range
        .strip_prefix("npt=")
        .and_then(|of| of.split('-').next());
    let from: f64 = from.expect("a time").parse().expect("a number");
    assert!((2.2..4.0).contains(&from), "{range}");
    let before = player.packets_on(0, 0).len();
    assert!((24..40).contains(&before), "{before} packets");
    player
        .ask("PLAY", "cam", "Range: npt=9999-\r\n", "")
        .is(457);
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

#[test]
fn play_may_be_asked_for_as_often_as_one_likes() {
    let (_site, serve, address) = serving("");
    let mut publisher = publisher(address, TCP);
    let packets: Vec<_> = (0..100)
        .map(|n| rtp(n, 100 * u32::from(n), 1, &[n as u8; 900]))
        .collect();
    packets
        .iter()
        .for_each(|packet| publisher.packet(0, packet));
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
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
