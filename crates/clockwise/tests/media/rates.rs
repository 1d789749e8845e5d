//! Sessions that turn out to need another rate than they reserved: buffers first, then more bandwidth, then
//! the truth.

use std::io::Write;
use std::net::SocketAddr;

use testkit::rtsp::camera::Camera;
use testkit::rtsp::sized::{BLOCK, BODY, number, packets, publisher, sessions, whole};
use testkit::rtsp::udp::Publisher;
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, lines, played, reservations, rtp, sdp, serve_logged, serving,
    serving_logged, with_rtsp,
};
use testkit::site::{Serve, Site, read_text};
use testkit::until;
#[test]
fn a_recorder_that_meets_more_borrows_buffers_then_reserves_more_and_loses_nothing() {
    let (site, serve, address) = serving("");
    // Less than half a block in a second, and 75 blocks come that show what fifteen seconds are.
    let mut client = publisher(address, 200);
    let mut sent = packets(0, 75, 0, 200);
    let asked = number(&sessions(&site)[0], "rate_bytes_per_second");
    assert_eq!(asked, 27_500);
    for packet in &sent {
        client.packet(0, packet);
    }
    until("it reserves what it has seen and a tenth", || {
        let of = &sessions(&site)[0];
        number(of, "rate_changes") >= 1 && number(of, "rate_bytes_per_second") >= 5 * BLOCK
    });
    let of = sessions(&site).remove(0);
    assert_eq!(number(&of, "asked_bytes_per_second"), asked, "{of}");
    assert!(number(&of, "rate_bytes_per_second") <= 6 * BLOCK, "{of}");
    assert!(
        number(&of, "buffers_full_max") > number(&of, "buffers"),
        "{of}"
    );
    assert_eq!(
        (&of["does"], &of["volume"]),
        (&"records".into(), &"cam".into())
    );
    // Later packets show the reserved rate.
    let more = packets(sent.len() as u64, 3, 15_000, 200);
    more.iter().for_each(|packet| client.packet(0, packet));
    sent.extend(more);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(reservations(&site), 0);
    assert_eq!(sessions(&site).len(), 0);
    // It needs this rate to be played.
    let mut player = Client::connect(address);
    let described = player.ask("DESCRIBE", "cam", "", "").is(200).body;
    assert!(
        !described.contains("b=AS") && described.contains("b=TIAS:"),
        "{described}"
    );
    whole(&site, sent.len());
    serve.terminate();
}

#[test]
fn a_recorder_that_is_refused_more_goes_on_with_what_it_has() {
    let (site, serve, address) = serving_logged("");
    let mut client = publisher(address, 2_000);
    // A day in a second is more than any disk carries.
    let sent = packets(0, 80, 0, 1);
    for packet in &sent {
        client.packet(0, packet);
    }
    until("more is refused, and what fits is taken", || {
        let of = &sessions(&site)[0];
        number(of, "rate_changes") == 1
    });
    client.ask("TEARDOWN", "cam", "", "").is(200);
    whole(&site, sent.len());
    let (_, log) = serve.terminate();
    assert!(log.contains("needs another rate: refused"), "{log}");
    assert!(log.contains("lost=0"), "{log}");
}

#[test]
fn a_player_reads_faster_where_more_was_recorded() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, 4_000);
    // A block a second for six seconds, then eight a second.
    let mut sent = packets(0, 6, 0, 1_000);
    sent.extend(packets(sent.len() as u64, 48, 6_000, 125));
    for packet in &sent {
        client.packet(0, packet);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    let before = number(&sessions(&site)[0], "rate_bytes_per_second");
    // 54 blocks in twelve seconds, as the index has them, and a tenth.
    let wanted = 54 * BLOCK / 12 * 11 / 10;
    assert!(before.abs_diff(wanted) < wanted / 25, "{before}, {wanted}");
    player.ask("PLAY", "cam", "", "").is(200);
    let came = player.packets_on(0, sent.len());
    let of = sessions(&site).remove(0);
    assert!(number(&of, "rate_changes") >= 1, "{of}");
    assert!(
        number(&of, "rate_bytes_per_second") > before,
        "{before}: {of}"
    );
    assert_eq!(came, sent);
    assert_eq!(number(&of, "packets"), sent.len() as u64);
    player.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

#[test]
fn buffers_are_reserved_and_given_back_from_either_side() {
    const TYPE: &str = "Content-Type: text/parameters\r\n";
    let (site, serve, address) = serving("");
    let mut client = publisher(address, 800);
    let get = |client: &mut Client| {
        let said = client.ask("GET_PARAMETER", "cam", TYPE, "rate\r\nbuffers\r\n");
        said.is(200).body
    };
    assert_eq!(get(&mut client), "rate: 110000\r\nbuffers: 4\r\n");
    client
        .ask(
            "SET_PARAMETER",
            "cam",
            TYPE,
            "buffers: 9\r\nrate: 120000\r\n",
        )
        .is(200);
    assert_eq!(get(&mut client), "rate: 120000\r\nbuffers: 9\r\n");
    for (text, status) in [
        ("buffers: 3\r\n", 400),
        ("buffers: 5000\r\n", 400),
        ("buffers: few\r\n", 400),
        // All of it or nothing.
        ("buffers: 12\r\nrate: 900000000\r\n", 453),
    ] {
        client.ask("SET_PARAMETER", "cam", TYPE, text).is(status);
        assert_eq!(get(&mut client), "rate: 120000\r\nbuffers: 9\r\n", "{text}");
    }
    let shown = site.run(&["session", "list"]).done();
    assert!(
        shown.out.contains("cam/1") && shown.out.contains("of 9"),
        "{shown:?}"
    );
    let session = number(&sessions(&site)[0], "number").to_string();
    let set = |arguments: &[&str]| site.run(&[&["session", "set", &session], arguments].concat());
    let shown = set(&["--rate", "200KB/s", "--buffers", "6"]).done();
    assert!(shown.out.contains("200.0 KB/s"), "{shown:?}");
    assert_eq!(get(&mut client), "rate: 200000\r\nbuffers: 6\r\n");
    let said = site.json(&["session", "set", &session, "--buffers", "6"]);
    assert_eq!(said, site.json(&["session", "show", &session]));
    assert_eq!(number(&said, "buffers"), 6);
    assert_eq!(set(&["--rate", "900MB/s"]).code, 3);
    assert_eq!(set(&["--buffers", "1"]).code, 2);
    // Packets in them meanwhile are recorded.
    let sent = packets(0, 20, 0, 100);
    for (number, packet) in sent.iter().enumerate() {
        client.packet(0, packet);
        if number % 100 == 99 {
            let rate = 120_000 + number;
            let text = format!("rate: {rate}\r\nbuffers: {}\r\n", 4 + number / 100);
            client.ask("SET_PARAMETER", "cam", TYPE, &text).is(200);
        }
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(played(address, "cam", "", sent.len()), sent);
    assert_eq!(site.run(&["session", "show", "999"]).code, 2);
    serve.terminate();
}

/// True if all buffers are full that a session has and may borrow.
fn is_full(of: &serde_json::Value) -> bool {
    let full = number(of, "buffers_full");
    full + 1 >= number(of, "buffers") + number(of, "buffers_borrowed")
        && full > number(of, "buffers")
}

fn with_little_memory() -> (Site, Serve, SocketAddr) {
    with_memory("")
}

/// A server with 4 MiB for buffers, and what it logs.
fn with_memory(more: &str) -> (Site, Serve, SocketAddr) {
    let site = Site::new(2);
    let text = read_text(&site.config()).replace("total = \"64MiB\"", "total = \"4MiB\"");
    std::fs::write(site.config(), text).unwrap();
    with_rtsp(&site, more);
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve_logged(&site);
    (site, serve, address)
}

/// A publisher that sends more than is written meanwhile is not read while no buffer is free, and that is no
/// silence of its.
#[test]
fn publisher_that_waits_for_a_buffer_is_not_silent() {
    let (site, serve, address) = with_memory("timeout = \"2s\"\n");
    site.run(&["volume", "create", "cam", "--size", "40MiB"])
        .done();
    // A block in three seconds, which is what it says they are; more than all buffers and sockets hold.
    let mut client = publisher(address, 160);
    let sending = std::thread::spawn(move || {
        // The server ends the session before it has taken all of it.
        assert!(client.socket.write_all(&in_connection(500)).is_err());
    });
    let mut last = sessions(&site).remove(0);
    until("all buffers are full", || {
        last = sessions(&site).remove(0);
        is_full(&last)
    });
    let shown = site.run(&["session", "list"]).done().out;
    let buffers = number(&last, "buffers");
    let (before, _) = shown.split_once(&format!(" of {buffers}+")).expect(&shown);
    let full = before.rsplit(' ').next().and_then(|of| of.parse().ok());
    assert!(full > Some(buffers), "{shown}");
    let blocks = || {
        let listed = site.json(&["recording", "list", "cam"]);
        number(&listed[0], "blocks")
    };
    let before = blocks();
    until("four blocks more are written, which take longer", || {
        assert_eq!(sessions(&site).len(), 1);
        blocks() >= before + 4
    });
    let session = number(&last, "number").to_string();
    site.run(&["session", "end", &session]).done();
    sending.join().unwrap();
    until("the recording is closed", || sessions(&site).is_empty());
    let found = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (number(&found, "lost"), &found["is_sound"]),
        (0, &true.into())
    );
    let (_, log) = serve.terminate();
    let packets = format!(" packets={} ", number(&found, "packets"));
    assert!(
        log.contains(&packets) && !log.contains("nothing was received"),
        "{log}"
    );
}

/// Neither is a camera that is pulled from; and what it answers lies behind the packets that nobody reads.
#[test]
fn a_camera_whose_packets_wait_for_a_buffer_is_not_left() {
    let (site, serve, _) = with_memory("timeout = \"2s\"\n");
    site.run(&["volume", "create", "cam", "--size", "40MiB"])
        .done();
    let camera = Camera::new();
    let url = camera.url("");
    site.json(&["source", "add", "door", &url, "--volume", "cam"]);
    let mut visit = camera.visit();
    visit.plays(&sdp(160));
    let mut socket = visit.socket.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        assert!(socket.write_all(&in_connection(500)).is_err());
    });
    until("all buffers are full", || {
        sessions(&site).first().is_some_and(is_full)
    });
    let blocks = || number(&sessions(&site)[0], "blocks");
    let before = blocks();
    until(
        "five blocks more are written, which take longer than an answer",
        || {
            let of = site.json(&["source", "show", "door"]);
            assert_eq!(
                (&of["state"], &of["gaps"]),
                (&"recording".into(), &0.into())
            );
            blocks() >= before + 5
        },
    );
    site.run(&["source", "remove", "door"]).done();
    sending.join().unwrap();
    let (_, log) = serve.terminate();
    assert!(!log.contains("continues after a gap"), "{log}");
}

/// Packets for `blocks` blocks of three seconds each, as bytes of a connection.
fn in_connection(blocks: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets(0, blocks, 0, 3_000) {
        bytes.extend([b'$', 0]);
        bytes.extend((packet.len() as u16).to_be_bytes());
        bytes.extend(packet);
    }
    bytes
}

/// Short memory is a 453 as well, and nothing stays behind.
#[test]
fn too_little_memory_is_refused_with_453() {
    const TYPE: &str = "Content-Type: text/parameters\r\n";
    let (site, serve, address) = with_little_memory();
    for volume in ["cam", "other"] {
        site.run(&["volume", "create", volume, "--size", "20MiB"])
            .done();
    }
    let mut client = publisher(address, 80);
    // All that can be had but for less than a session needs.
    let mut refused = 0;
    for count in (4..=64).rev() {
        let text = format!("buffers: {count}\r\n");
        let said = client.ask("SET_PARAMETER", "cam", TYPE, &text);
        if said.status == 200 {
            break;
        }
        assert!(said.is(453).body.contains("of reserved buffers"));
        refused += 1;
    }
    let mut other = Client::connect(address);
    other.ask("ANNOUNCE", "other", SDP_TYPE, &sdp(80)).is(200);
    assert!(refused > 0, "it has all that it asks for");
    let said = other.ask("SETUP", "other/one", TCP, "");
    assert!(said.is(453).body.contains("can be guaranteed"));
    assert_eq!((sessions(&site).len(), reservations(&site)), (1, 1));
    client
        .ask("SET_PARAMETER", "cam", TYPE, "buffers: 4\r\n")
        .is(200);
    other.ask("SETUP", "other/one", TCP, "").is(200);
    // A command says so as it does of the disks.
    let session = number(&sessions(&site)[0], "number").to_string();
    site.run(&["session", "set", &session, "--buffers", "64"])
        .fails(3, &["can be guaranteed"]);
    let (_, log) = serve.terminate();
    assert!(log.contains("a recording is refused"), "{log}");
}

/// A rate that is asked for during play at twice the speed is meant for that: at normal speed it takes half.
#[test]
fn a_rate_that_is_set_while_playing_at_twice_the_speed_is_halved_at_once() {
    const TYPE: &str = "Content-Type: text/parameters\r\n";
    let (site, serve, address) = serving("");
    let mut client = publisher(address, 800);
    for packet in packets(0, 20, 0, 500) {
        client.packet(0, &packet);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    let has = || {
        let of = sessions(&site).remove(0);
        let rate = |name| number(&of, name);
        (
            rate("rate_bytes_per_second"),
            rate("asked_bytes_per_second"),
        )
    };
    let (before, _) = has();
    let fast = "Speed: 2\r\nRange: npt=0-\r\n";
    let said = player.ask("PLAY", "cam", fast, "").is(200);
    assert_eq!(said.header("Speed"), Some("2.000"));
    assert_eq!(has(), (2 * before, before));
    let more = format!("rate: {}\r\n", 4 * before);
    player.ask("SET_PARAMETER", "cam", TYPE, &more).is(200);
    assert_eq!(has(), (4 * before, 2 * before));
    let session = number(&sessions(&site)[0], "number").to_string();
    let rate = format!("{}B/s", 3 * before);
    site.run(&["session", "set", &session, "--rate", &rate])
        .done();
    player.ask("PAUSE", "cam", "", "").is(200);
    assert_eq!(has(), (3 * before, 3 * before / 2));
    player.ask("PLAY", "cam", "Range: npt=0-\r\n", "").is(200);
    assert_eq!(has(), (3 * before / 2, 3 * before / 2));
    player.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

/// Packets that the kernel dropped while no buffer was free are counted as that, however many packets waited
/// before the gap.
#[test]
fn udp_packets_dropped_without_buffer_are_counted_as_that() {
    is_named_as_that(true);
}

/// So it is where no packet comes behind the gap, and of what is left in the socket.
#[test]
fn udp_packets_dropped_at_the_end_are_counted() {
    is_named_as_that(false);
}

fn is_named_as_that(is_shown: bool) {
    let (site, serve, address) = with_little_memory();
    site.run(&["volume", "create", "cam", "--size", "40MiB"])
        .done();
    let mut source = Publisher::new(address, 80, true);
    // As fast as it is taken, and played as slowly as it was reserved for.
    let mut sent = 0_u64;
    let mut send = || {
        let packet = rtp(sent as u16, (sent * 150) as u32, 7, &[sent as u8; BODY]);
        source.packet(&packet);
        sent += 1;
        sent
    };
    let mut last = sessions(&site).remove(0);
    while !is_full(&last) {
        let all = (0..20).map(|_| send()).last().unwrap();
        until("they are taken, or there is no room", || {
            last = sessions(&site).remove(0);
            number(&last, "packets") == all || is_full(&last)
        });
    }
    assert_eq!(number(&last, "lost"), 0, "{last}");
    // More than all buffers and the kernel have room for.
    (0..8_000).for_each(|_| {
        send();
    });
    if is_shown {
        last = sessions(&site).remove(0);
        let session = number(&last, "number").to_string();
        site.run(&["session", "set", &session, "--rate", "600KB/s"])
            .done();
        // Waiting packets come first, and then the first packet that found room shows the gap. The packets
        // behind it surely have room: fewer are sent than received.
        let mut received = 0;
        until("it is known what is missing", || {
            last = sessions(&site).remove(0);
            let all = number(&last, "packets");
            if all > received + 10 {
                received = all;
                send();
            }
            number(&last, "lost") > 0
        });
        (0..50).for_each(|_| {
            send();
        });
    }
    // Packets in the socket are received before this is answered; then each packet is recorded or counted.
    source.client.ask("TEARDOWN", "cam", "", "").is(200);
    let found = site.json(&["recording", "check", "cam", "1"]);
    let (_, log) = serve.terminate();
    let lost = sent - number(&found, "packets");
    assert!(lost > 1_000, "{found}");
    // The entry of the packet behind them says it.
    let is_said = if is_shown { lost } else { 0 };
    assert_eq!(number(&found, "lost"), is_said, "{found}");
    let said = format!(" lost={lost} lost_without_buffer={lost} ");
    assert!(log.contains(&said), "{said}: {log}");
    let named = lines(&log, "packets are missing").join("\n");
    assert!(named.contains("no buffer was free"), "{log}");
    assert!(!named.contains("not received"), "{log}");
}
