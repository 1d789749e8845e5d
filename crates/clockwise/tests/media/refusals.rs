//! Refusals over RTSP: strangers, requests in the wrong state, input that is no RTSP, and more clients than
//! fit.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use testkit::rtsp::files::{change, damage};
use testkit::rtsp::udp::{Pair, Publisher};
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, played, publisher, reservations, rtp, sdp, serve, serving,
    serving_logged, with_rtsp,
};
use testkit::site::{Site, call};
use testkit::skip::is_root;
use testkit::until;

#[test]
fn by_udp_only_the_peer_is_heard() {
    let (site, serve, address) = serving("");
    let near = |port: u16| UdpSocket::bind(("127.0.0.1", port));
    // A pair of ports of ours.
    let (rtp_socket, rtcp_socket) = (0..100)
        .find_map(|_| {
            let first = near(0).ok()?;
            let port = first.local_addr().ok()?.port();
            Some((first, near(port.checked_add(1)?).ok()?))
        })
        .expect("two ports in a row");
    let port = rtp_socket.local_addr().unwrap().port();
    let transport = format!(
        "Transport: RTP/AVP;unicast;client_port={port}-{}\r\n",
        port + 1
    );
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    let said = client.ask("SETUP", "cam/one", &transport, "").is(200);
    let server_port: u16 = said
        .header("Transport")
        .and_then(|header| header.split("server_port=").nth(1))
        .and_then(|ports| ports.split(['-', ';']).next())
        .and_then(|port| port.parse().ok())
        .unwrap_or_else(|| panic!("{said:?}"));
    client.ask("RECORD", "cam", "", "").is(200);
    let to = ("127.0.0.1", server_port);
    let stranger = near(0).unwrap();
    stranger
        .send_to(&rtp(900, 0, 9, b"a stranger's"), to)
        .unwrap();
    let sent: Vec<Vec<u8>> = (0..50)
        .map(|number| {
            rtp(
                number,
                4 * u32::from(number),
                9,
                &vec![number as u8; 100 + 25 * usize::from(number)],
            )
        })
        .collect();
    for packet in &sent {
        rtp_socket.send_to(packet, to).unwrap();
    }
    drop(rtcp_socket);
    // Packets by UDP have come: they lie in the socket before this request.
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let got = played(address, "cam", "", sent.len());
    assert_eq!(got, sent);
    let check = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(check["packets"], sent.len());
    serve.terminate();
}

#[test]
fn request_in_the_wrong_state_changes_nothing() {
    let (site, serve, address) = serving("");
    let mut client = Client::connect(address);
    let methods = client.ask("OPTIONS", "", "", "").is(200);
    assert!(methods.header("Public").unwrap().contains("ANNOUNCE"));
    client.ask("PLAY", "cam", "", "").is(455);
    client.ask("RECORD", "cam", "", "").is(455);
    client.ask("PAUSE", "cam", "", "").is(455);
    client.ask("REDIRECT", "cam", "", "").is(501);
    let other_version = client
        .request("OPTIONS", "", "", "")
        .replace("RTSP/1.0", "RTSP/2.0");
    client.send(other_version.as_bytes());
    client.answer().unwrap().is(505);
    client.ask("SETUP", "cam/one", TCP, "").is(404);
    client
        .ask("ANNOUNCE", "cam", "Content-Type: text/html\r\n", "x")
        .is(415);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, "garbage").is(400);
    client
        .ask("ANNOUNCE", "nowhere", SDP_TYPE, &sdp(800))
        .is(404);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(455);
    client.ask("RECORD", "cam", "", "").is(455);
    client.ask("SETUP", "cam/two", TCP, "").is(404);
    let multicast = "Transport: RTP/AVP;multicast\r\n";
    client.ask("SETUP", "cam/one", multicast, "").is(461);
    client
        .ask("SETUP", "cam/one", "Transport: what;is;this\r\n", "")
        .is(461);
    client.ask("SETUP", "cam/one", "", "").is(461);
    assert_eq!(reservations(&site), 0, "nothing was reserved for these");
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(455);
    assert_eq!(reservations(&site), 1);
    client.ask("PLAY", "cam", "", "").is(455);
    // Somebody else cannot record there meanwhile, nor speak for this session.
    let mut other = Client::connect(address);
    other.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    let said = other.ask("SETUP", "cam/one", TCP, "").is(403);
    assert!(said.body.contains("being recorded"), "{said:?}");
    let mine = other.session.replace(client.session.clone().unwrap());
    other.ask("TEARDOWN", "cam", "", "").is(454);
    other.session = mine;
    other.ask("TEARDOWN", "cam", "", "").is(200);
    drop(client);
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
}

#[test]
fn input_that_is_no_rtsp_ends_its_own_connection_only() {
    let (_site, serve, address) = serving("timeout = \"2s\"\n");
    let mut good = publisher(address, TCP);
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc],
        &[0; 100],
        b"OPTIONS * RTSP/1.0\r\nContent-Length: -1\r\n\r\n",
        &[b"OPTIONS * RTSP/1.0\r\nX: ", &[b'x'; 80_000][..]].concat(),
    ] {
        let mut client = Client::connect(address);
        // The server may close before all of it was sent.
        let _ = std::io::Write::write_all(&mut client.socket, bytes);
        while let Some(said) = client.answer() {
            assert_eq!(said.status, 400, "{said:?}");
        }
        good.packet(0, &rtp(1, 1, 1, b"goes on"));
    }
    // One that says nothing is not kept, and who does is.
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let good = &mut good;
        scope.spawn(move || {
            while is_done.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout)
            {
                good.packet(0, &rtp(1, 1, 1, b"goes on"));
            }
        });
        // Also where this fails.
        let done = done;
        let mut silent = Client::connect(address);
        assert!(silent.answer().is_none());
        drop(done);
    });
    good.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

#[test]
fn session_beyond_the_disks_is_refused_with_453() {
    let site = Site::new(0);
    let mut text = testkit::site::read_text(&site.config());
    text += "[[disk]]\npath = \"drive\"\nkind = \"emulated\"\nplant = \"quantum-atlas-ii\"\n\
             profile = \"quantum-atlas-ii\"\n";
    std::fs::write(site.config(), text).unwrap();
    with_rtsp(&site, "");
    site.run(&["pool", "create"]).done();
    let (serve, address) = serve(&site);
    for volume in ["cam", "other"] {
        site.run(&["volume", "create", volume, "--size", "20MiB"])
            .done();
    }
    // Also what is more than can be counted.
    for kbit in [80_000, u64::MAX / 1_000, u64::MAX] {
        let mut large = Client::connect(address);
        large.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(kbit)).is(200);
        let refused = large.ask("SETUP", "cam/one", TCP, "").is(453);
        for word in ["drive", "promised", "would fit"] {
            assert!(refused.body.contains(word), "{kbit}: {refused:?}");
        }
    }
    assert_eq!(reservations(&site), 0, "nothing half reserved stays behind");
    // The largest number that fits, and no more.
    let mut clients = Vec::new();
    let mut volumes = ["cam", "other"].into_iter();
    let refused = loop {
        let Some(volume) = volumes.next() else {
            panic!("{} recordings of 1.5 MB/s are no load", clients.len());
        };
        let mut client = Client::connect(address);
        client
            .ask("ANNOUNCE", volume, SDP_TYPE, &sdp(11_000))
            .is(200);
        let said = client.ask("SETUP", &format!("{volume}/one"), TCP, "");
        if said.status != 200 {
            break said;
        }
        clients.push(client);
    };
    assert_eq!(refused.status, 453, "{refused:?}");
    assert!(refused.body.contains("; blocks of "), "{refused:?}");
    assert_eq!(reservations(&site), clients.len());
    drop(clients);
    until("all is given back", || reservations(&site) == 0);
    serve.terminate();
}

/// True if the newest recording has been closed.
fn is_closed(site: &Site) -> bool {
    let all = call(site, "GET", "/v1/volumes/cam/recordings", "").1;
    let last = all.as_array().and_then(|all| all.last().cloned());
    last.is_some_and(|of| of["is_recorded"] == false)
}

#[test]
fn a_source_that_says_nothing_any_more_has_its_recording_closed() {
    let (site, serve, address) = serving("timeout = \"2s\"\n");
    let word = rtp(1, 5, 1, b"the last word");
    for (number, by_udp) in (1..).zip([false, true]) {
        let mut source = Publisher::new(address, 800, by_udp);
        source.packet(&word);
        // The server ends it, and what was said is on the disks then.
        assert!(source.client.answer().is_none());
        until("the reservation is given back", || reservations(&site) == 0);
        assert!(is_closed(&site));
        let check = site.json(&["recording", "check", "cam", &number.to_string()]);
        // Before the 64th block of a volume only one that says that it is the last has a section of the index.
        assert_eq!(
            (&check["packets"], &check["sections"]),
            (&1.into(), &1.into()),
            "{check}"
        );
        assert_eq!(played(address, "cam", "", 1), [&word[..]]);
    }
    serve.terminate();
}

/// A player that has gone without a word holds its reservation for no longer than the timeout; one that says
/// by RTCP that it is there keeps it.
#[test]
fn a_player_is_kept_by_what_it_says() {
    let (site, serve, address) = serving("timeout = \"4s\"\n");
    let mut client = publisher(address, TCP);
    // Sixteen seconds of it.
    let sent: Vec<Vec<u8>> = (0..160)
        .map(|number| rtp(number, 100 * u32::from(number), 1, &[1; 100]))
        .collect();
    sent.iter().for_each(|packet| client.packet(0, packet));
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);

    let mut silent = Client::connect(address);
    silent.ask("SETUP", "cam/track0", TCP, "").is(200);
    silent.ask("PLAY", "cam", "", "").is(200);
    let came = silent.packets_on(0, sent.len());
    assert!(came.len() < sent.len() / 2, "{} came", came.len());
    until("the reservation is given back", || reservations(&site) == 0);

    let pair = Pair::new();
    let mut there = Client::connect(address);
    let said = there
        .ask("SETUP", "cam/track0", &pair.transport(), "")
        .is(200);
    pair.agreed(address, &said);
    there.ask("PLAY", "cam", "", "").is(200);
    let mut bytes = [0; 2_000];
    loop {
        let packet = pair.receive(&mut bytes).expect("a packet").to_vec();
        if Some(&packet) == sent.last() {
            break;
        }
        // A receiver report of nobody.
        pair.report(&[0x80, 201, 0, 1, 0, 0, 0, 5]);
    }
    there.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

/// A firewall that lets no reports in says nothing of the packets.
#[test]
fn publisher_that_blocks_reports_is_recorded() {
    if !is_root("a raw socket") {
        return;
    }
    let (site, serve, address) = serving("");
    let mut source = Publisher::new(address, 800, true);
    let sent: Vec<Vec<u8>> = (0..40)
        .map(|number| rtp(number, u32::from(number), 9, &[1; 100]))
        .collect();
    for some in sent.chunks(10) {
        source.prohibit();
        some.iter().for_each(|packet| source.packet(packet));
        // Both have been seen when this is answered.
        source.client.ask("OPTIONS", "cam", "", "").is(200);
    }
    source.client.ask("TEARDOWN", "cam", "", "").is(200);
    assert_eq!(played(address, "cam", "", sent.len()), sent);
    until("the reservation is given back", || reservations(&site) == 0);
    serve.terminate();
}

/// A client that sends without end can be ended, and so can the server; its good packets are written.
#[test]
fn a_flood_holds_up_neither_disks_nor_whoever_ends_it() {
    let (site, serve, address) = serving("");
    let mut none = rtp(9, 9, 1, &[0; 4]);
    // More contributing sources than it has bytes.
    none[0] |= 15;
    let [high, low] = (none.len() as u16).to_be_bytes();
    let packet = [&[b'$', 0, high, low], &none[..]].concat();
    let answers = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n".to_vec();
    let begin = |flood: &[u8]| {
        let mut client = publisher(address, TCP);
        client.packet(0, &rtp(1, 1, 1, b"before it"));
        let flood = flood.repeat(2_000);
        std::thread::spawn(move || while client.socket.write_all(&flood).is_ok() {})
    };
    for (number, flood) in (1..).zip([&answers, &packet]) {
        let sending = begin(flood);
        let session = || call(&site, "GET", "/v1/sessions", "").1[0]["number"].clone();
        until("it is recorded", || session().is_u64());
        site.run(&["session", "end", &session().to_string()]).done();
        sending.join().unwrap();
        until("the reservation is given back", || reservations(&site) == 0);
        let check = site.json(&["recording", "check", "cam", &number.to_string()]);
        assert_eq!(check["packets"], 1, "{check}");
    }
    let sending = begin(&answers);
    until("it is recorded", || reservations(&site) == 1);
    serve.terminate();
    sending.join().unwrap();
}

/// Answers that nobody takes are not heaped up: who takes none is not listened to until it does.
#[test]
fn player_that_takes_no_answers_is_not_read_from() {
    let (_site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    (0..60).for_each(|number| client.packet(0, &rtp(number, 5, 1, &[1; 1_400])));
    until("a block is on the disks", || {
        Client::connect(address)
            .ask("DESCRIBE", "cam", "", "")
            .status
            == 200
    });
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/live/track0", TCP, "").is(200);
    // It goes on for as long as the volume is recorded.
    player.ask("PLAY", "cam/live", "", "").is(200);
    let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 77\r\n\r\n";
    let requests = request.repeat(2_000);
    let mut sent = 0;
    player.socket.set_nonblocking(true).unwrap();
    'asking: loop {
        let from = sent % request.len();
        match player.socket.write(&requests[from..]) {
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // All that lies in sockets has gone by then, however slow the host is, or it only asks for less.
                let mut fd = [PollFd::new(&player.socket, PollFlags::OUT)];
                let wait = Timespec {
                    tv_sec: 3,
                    tv_nsec: 0,
                };
                if rustix::event::poll(&mut fd, Some(&wait)).unwrap() == 0 {
                    break 'asking;
                }
            }
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 64 << 20, "all of {sent} bytes of requests was taken");
    }
    // All that was asked is answered as soon as that is taken.
    let wanted = sent / request.len();
    assert!(wanted > 1_000, "{wanted} requests");
    player.socket.set_nonblocking(false).unwrap();
    let (mut bytes, mut kept) = (vec![0; 1 << 16], Vec::new());
    let mut answers = 0;
    while answers < wanted {
        let count = player.socket.read(&mut bytes).expect("answers");
        assert!(count > 0, "{answers} answers of {wanted}");
        kept.extend_from_slice(&bytes[..count]);
        let begins = b"CSeq: 77\r\n";
        let last = kept.windows(begins.len()).rposition(|of| of == begins);
        answers += kept.windows(begins.len()).filter(|of| of == begins).count();
        kept.drain(..last.map_or(0, |at| at + 1));
    }
    assert_eq!(answers, wanted);
    serve.terminate();
}

/// Data at any place counts: volumes of file systems may begin with zeros.
#[test]
fn a_volume_that_holds_something_else_is_left_alone() {
    let (site, serve, address) = serving("");
    site.run(&["volume", "create", "late", "--size", "20MiB"])
        .done();
    let file = site.path("data");
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8 + 1).collect();
    std::fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    let places = [("cam", "0"), ("late", "5MiB")];
    for (volume, offset) in places {
        let record = [
            "stream", "record", "--volume", volume, "--rate", "8MB/s", "--offset", offset,
            "--from", file,
        ];
        site.run(&record).done();
    }
    let is_left_alone = |address| {
        for (volume, offset) in places {
            let mut client = Client::connect(address);
            let said = client.ask("ANNOUNCE", volume, SDP_TYPE, &sdp(800)).is(403);
            assert!(said.body.contains("not a recording"), "{said:?}");
            client.ask("DESCRIBE", volume, "", "").is(403);
            site.run(&["recording", "list", volume])
                .fails(1, &["not a recording", "recorded to over RTSP"]);
            site.run(&["recording", "keep", volume, "--size", "10MiB"])
                .fails(1, &["not a recording"]);
            let back = site.path("back");
            let play = [
                "stream",
                "play",
                "--volume",
                volume,
                "--rate",
                "8MB/s",
                "--offset",
                offset,
                "--length",
                "512KiB",
                "--to",
                back.to_str().unwrap(),
            ];
            site.run(&play).done();
            let back = std::fs::read(&back).unwrap();
            assert!(back.starts_with(&bytes), "{volume} has changed");
        }
    };
    is_left_alone(address);
    serve.terminate();
    let (serve, address) = testkit::rtsp::serve(&site);
    is_left_alone(address);
    serve.terminate();
}

/// Discarded data counts as never written.
#[test]
fn a_volume_that_was_discarded_is_blank() {
    let (site, serve, address) = serving("");
    if !damage(&site, 5 << 20, 1 << 20) {
        return;
    }
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(403);
    change(&site, "discard 0 40M");
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    serve.terminate();
}

#[test]
fn many_may_be_connected() {
    let (site, serve, address) = serving("");
    let mut publisher = publisher(address, TCP);
    let count = connections_of_one() - 10;
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.ask("OPTIONS", "cam", "", "").is(200);
    }
    publisher.packet(0, &rtp(1, 5, 1, b"recorded meanwhile"));
    publisher.ask("TEARDOWN", "cam", "", "").is(200);
    drop(clients);
    until("the reservation is given back", || reservations(&site) == 0);
    assert_eq!(played(address, "cam", "", 1).len(), 1);
    serve.terminate();
}

/// Connections of one address that a server takes; this host may open that many, and others beside them.
fn connections_of_one() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a limit can be raised up to its maximum");
    let most = limit.maximum.map_or(usize::MAX, |most| most as usize);
    (most / 4).min(1_024) / 2
}

/// Half of all connections are for others, whoever has the first half.
#[test]
fn silent_connections_keep_no_client_out() {
    let (_site, serve, address) = serving_logged("");
    let each = connections_of_one();
    let silent: Vec<Client> = (0..each).map(|_| Client::connect(address)).collect();
    for _ in 0..20 {
        let mut more = Client::connect(address);
        assert!(more.answer().is_none(), "one more is taken");
    }
    let mut other = Client::from_another(address);
    other.ask("OPTIONS", "cam", "", "").is(200);
    drop(silent);
    until("a place is given back", || {
        let mut client = Client::connect(address);
        // It may be closed already.
        let _ = client
            .socket
            .write_all(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n");
        client.answer().is_some_and(|said| said.status == 200)
    });
    let (_, log) = serve.terminate();
    // However often that happens.
    let told = log.matches("an RTSP connection is closed").count();
    assert!((1..10).contains(&told), "{log}");
    let why = format!("per-address limit reached for 127.0.0.1 ({each})");
    assert!(log.contains(&why), "{log}");
}

#[test]
fn unknown_path_is_not_the_newest_recording() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    for number in 0..50 {
        client.packet(0, &rtp(number, 400, 9, &[7; 1_400]));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let mut client = Client::connect(address);
    for path in [
        "cam/NONSENSE",
        "cam/-1",
        "cam/trackx",
        "cam/live1",
        "cam/NONSENSE/track0",
        "cam/1/NONSENSE",
    ] {
        for (method, header) in [("DESCRIBE", ""), ("SETUP", TCP)] {
            let said = client.ask(method, path, header, "").is(404);
            assert!(
                said.body.contains("there is no "),
                "{method} {path}: {said:?}"
            );
        }
    }
    assert_eq!(reservations(&site), 0, "nothing was reserved for these");
    for path in ["cam", "cam/", "cam/1", "cam/1/", "cam/track0"] {
        client.ask("DESCRIBE", path, "", "").is(200);
    }
    for path in ["cam/track0", "cam/1/track0", "cam/1", "cam"] {
        client.ask("SETUP", path, TCP, "").is(200);
        let said = client.ask("PLAY", "cam/NONSENSE", "", "").is(404);
        assert!(said.body.contains("NONSENSE"), "{said:?}");
        client.ask("TEARDOWN", path, "", "").is(200);
        client.session = None;
    }
    for path in ["cam/1", "cam/7/one"] {
        let said = client.ask("ANNOUNCE", path, SDP_TYPE, &sdp(800)).is(400);
        assert!(
            said.body.contains("name the volume alone"),
            "{path}: {said:?}"
        );
    }
    serve.terminate();
}

#[test]
fn a_refused_request_is_one_line_in_the_log() {
    let (_site, serve, address) = serving_logged("");
    let mut client = Client::connect(address);
    client
        .ask("ANNOUNCE", "nowhere", SDP_TYPE, &sdp(800))
        .is(404);
    client.ask("DESCRIBE", "cam/NONSENSE", "", "").is(404);
    client.ask("RECORD", "cam", "", "").is(455);
    client.ask("PAUSE", "cam", "", "").is(455);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
    client.ask("SETUP", "cam/two", TCP, "").is(404);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    client.ask("DESCRIBE", "cam", "", "").is(455);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    // A refusal by admission has its own line.
    let mut greedy = Client::connect(address);
    greedy
        .ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(8_000_000))
        .is(200);
    greedy.ask("SETUP", "cam/one", TCP, "").is(453);
    let (status, log) = serve.terminate();
    assert_eq!(status, Some(0), "{log}");
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(" is refused"))
        .collect();
    let expected = [
        ["ANNOUNCE", "\"/nowhere\"", "status=404", "nowhere"],
        [
            "DESCRIBE",
            "\"/cam/NONSENSE\"",
            "status=404",
            "there is no recording",
        ],
        ["RECORD", "\"/cam\"", "status=455", "Method Not Valid"],
        [
            "SETUP",
            "\"/cam/two\"",
            "status=404",
            "there is no such track",
        ],
        ["DESCRIBE", "\"/cam\"", "status=455", "Method Not Valid"],
        [
            "a recording is refused",
            "volume=\"cam\"",
            "refusal=",
            "peer=",
        ],
    ];
    assert_eq!(lines.len(), expected.len(), "{log}");
    for (line, parts) in lines.iter().zip(expected) {
        assert!(
            line.contains("INFO") && line.contains("peer=127.0.0.1:"),
            "{line}"
        );
        for part in parts {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}
