//! RTSP as it may come: in order and out of it, and what is no RTSP at all.

use std::net::{SocketAddr, UdpSocket};
use testkit::process::WITHIN;
use testkit::rtsp::{
    Client, SDP_TYPE, SECOND, TCP, block_of, played, publisher, publisher_of_two, reservations,
    rtp, sdp, sender_report, serving, serving_logged,
};
use testkit::site::call;
use testkit::until;

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
        ("cam/live", "is not being recorded"),
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

/// Missing packets are reported by number, each once; late packets are not.
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
    assert_eq!(log.matches(": not received").count(), 3, "{log}");
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
fn simultaneous_frames_are_played_together() {
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
fn reserved_rate_is_reported_and_changed() {
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
    // This rate is reserved from now on.
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
        // The stream before holds its early writes until they would have been due.
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
        // The rest of the one before it.
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
    let (serve, address) = testkit::rtsp::serve(&site);
    check(address, 1, 3);
    record(address, 4);
    check(address, 2, 4);
    serve.terminate();
}

#[test]
fn publisher_gets_receiver_reports() {
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

/// A publisher that is faster than that is recorded, and does not read reports any more.
#[test]
fn packets_of_a_vanished_publisher_are_recorded() {
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

/// A client need not wait for an answer before it asks for something else.
#[test]
fn pipelined_requests_are_answered() {
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

/// Encoders have an application and a stream, or call their only track nothing.
#[test]
fn path_below_a_volume_is_recorded_in_the_volume() {
    let (site, serve, address) = serving("");
    let sound = "m=audio 0 RTP/AVP 97\r\nb=AS:64\r\na=rtpmap:97 X-SOUND/8000\r\na=control:two\r\n";
    let two = sdp(800) + sound;
    let nameless = sdp(800).replace("a=control:one\r\n", "");
    let absolute = sdp(800).replace("control:one", "control:rtsp://127.0.0.1/cam/stream/one");
    for (description, setups) in [
        (
            &two,
            &[
                ("stream/one", 200),
                ("stream/none", 404),
                ("stream/two", 200),
            ][..],
        ),
        (&two, &[("one", 200), ("two", 200)]),
        (&nameless, &[("stream", 200)]),
        (&nameless, &[("stream/any", 200)]),
        (&absolute, &[("stream/none", 404), ("stream/one", 200)]),
    ] {
        let mut client = Client::connect(address);
        client
            .ask("ANNOUNCE", "cam/stream", SDP_TYPE, description)
            .is(200);
        for ((track, status), transport) in setups.iter().zip([TCP, SECOND, SECOND]) {
            let path = format!("cam/{track}");
            client.ask("SETUP", &path, transport, "").is(*status);
        }
        client.ask("RECORD", "cam/stream", "", "").is(200);
        client.packet(0, &rtp(1, 1, 1, b"x"));
        client.ask("TEARDOWN", "cam/stream", "", "").is(200);
        until("the reservation is given back", || reservations(&site) == 0);
    }
    serve.terminate();
}

/// Nobody relies on what there is not (RFC 2326, section 12.32).
#[test]
fn unknown_required_feature_is_refused() {
    let (_site, serve, address) = serving("");
    let mut client = Client::connect(address);
    for (method, body) in [("OPTIONS", ""), ("DESCRIBE", ""), ("SETUP", "")] {
        let said = client
            .ask(method, "cam", "Require: onvif-replay\r\n", body)
            .is(551);
        assert_eq!(said.header("Unsupported"), Some("onvif-replay"));
    }
    client.ask("OPTIONS", "cam", "", "").is(200);
    serve.terminate();
}

/// A path below a presentation whose URL has a query comes behind the query, as many clients write it.
#[test]
fn tracks_may_be_named_behind_a_query() {
    let (_site, serve, address) = serving("");
    let mut client = Client::connect(address);
    let sound = "m=audio 0 RTP/AVP 97\r\nb=AS:64\r\na=rtpmap:97 X-SOUND/8000\r\na=control:two\r\n";
    let url = "cam?user=a&pass=b/c";
    client
        .ask("ANNOUNCE", url, SDP_TYPE, &(sdp(800) + sound))
        .is(200);
    client
        .ask("SETUP", "cam?user=a&pass=b/c/two", SECOND, "")
        .is(200);
    client
        .ask("SETUP", "cam?user=a&pass=b/c/three", TCP, "")
        .is(404);
    client
        .ask("SETUP", "cam?user=a&pass=b/c/one", TCP, "")
        .is(200);
    client.ask("RECORD", url, "", "").is(200);
    let sent = [rtp(0, 0, 7, b"one"), rtp(0, 0, 8, b"two")];
    client.packet(0, &sent[0]);
    client.packet(2, &sent[1]);
    client.ask("TEARDOWN", url, "", "").is(200);
    let mut player = Client::connect(address);
    player.ask("DESCRIBE", "cam?x=1", "", "").is(200);
    player.ask("SETUP", "cam?x=1/track1", TCP, "").is(200);
    player.ask("SETUP", "cam?x=1/track0", SECOND, "").is(200);
    player.ask("PLAY", "cam?x=1/", "", "").is(200);
    assert_eq!(player.packets_on(2, 1), sent[..1]);
    // The only one need not be named, whatever the query is.
    let mut client = Client::connect(address);
    client
        .ask("ANNOUNCE", "cam?token=a/b=", SDP_TYPE, &sdp(800))
        .is(200);
    client.ask("SETUP", "cam?token=a/b=", TCP, "").is(200);
    serve.terminate();
}
