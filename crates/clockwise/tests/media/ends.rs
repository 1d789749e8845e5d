//! Ends of sessions: what RTCP says, what somebody else says, who says nothing, and what comes after it all.

#![allow(
    clippy::print_stdout,
    reason = "how much is left of what was cut off is told"
)]

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::nbd::Wire;
use testkit::rtsp::camera::Camera;
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, bye, lines, played, publisher, publisher_of_two, reservations, rtp, sdp,
    sender_report, serve, serving, serving_logged, sized,
};
use testkit::site::{Site, call};
use testkit::until;

/// A publisher of one track, however its packets go.
struct Sender {
    client: Client,
    /// Sockets and server addresses for UDP: RTP and RTCP.
    udp: Option<[(UdpSocket, SocketAddr); 2]>,
    /// Number of receiver reports.
    told: usize,
}

impl Sender {
    fn new(address: SocketAddr, transport: &str) -> Self {
        if transport == "tcp" {
            let client = publisher(address, TCP);
            return Self {
                client,
                udp: None,
                told: 0,
            };
        }
        let mut client = Client::connect(address);
        client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
        let pair = pair();
        let port = port(&pair[0]);
        let asked = format!(
            "Transport: RTP/AVP;unicast;client_port={port}-{}\r\n",
            port + 1
        );
        let said = client.ask("SETUP", "cam/one", &asked, "").is(200);
        let to = server_port(said.header("Transport"));
        client.ask("RECORD", "cam", "", "").is(200);
        let mut to = [to, to + 1].map(|port| SocketAddr::new(address.ip(), port));
        to.reverse();
        let mut to = to.to_vec();
        let udp = pair.map(|socket| (socket, to.pop().expect("two")));
        Self {
            client,
            udp: Some(udp),
            told: 0,
        }
    }

    /// One that has sent twenty packets, which have come, and these.
    fn of_twenty(site: &Site, address: SocketAddr, transport: &str) -> (Self, Vec<Vec<u8>>) {
        let mut sender = Self::new(address, transport);
        let sent = packets(0..20, 7);
        sent.iter().for_each(|packet| sender.send(false, packet));
        has(site, 20);
        (sender, sent)
    }

    fn send(&mut self, rtcp: bool, packet: &[u8]) {
        match &self.udp {
            None => self.client.packet(u8::from(rtcp), packet),
            Some(udp) => {
                let (socket, to) = &udp[usize::from(rtcp)];
                socket.send_to(packet, to).expect("it is sent");
            }
        }
    }

    fn ask(&mut self, method: &str) -> u16 {
        self.client.ask(method, "cam", "", "").status
    }

    /// Waits until the server says how well packets come, five seconds after the recording has begun or it
    /// was told last.
    fn is_told(&mut self) {
        self.told += 1;
        match &self.udp {
            None => drop(self.client.packets_on(1, self.told)),
            Some([_, (rtcp, _)]) => {
                rtcp.set_read_timeout(Some(testkit::process::WITHIN))
                    .expect("a time");
                rtcp.recv(&mut [0; 1_500]).expect("a report");
            }
        }
    }
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("it is bound").port()
}

fn server_port(transport: Option<&str>) -> u16 {
    let ports = transport.and_then(|of| of.split("server_port=").nth(1));
    let first = ports.and_then(|of| of.split('-').next());
    first.and_then(|of| of.parse().ok()).expect("a port")
}

/// Two ports, one after the other.
fn pair() -> [UdpSocket; 2] {
    loop {
        let first = UdpSocket::bind("127.0.0.1:0").expect("a port");
        if let Some(next) = port(&first).checked_add(1)
            && let Ok(second) = UdpSocket::bind(("127.0.0.1", next))
        {
            return [first, second];
        }
    }
}

fn packets(numbers: std::ops::Range<u16>, ssrc: u32) -> Vec<Vec<u8>> {
    let packet = |number: u16| rtp(number, u32::from(number), ssrc, &[number as u8; 900]);
    numbers.map(packet).collect()
}

fn recordings(site: &Site) -> Vec<bool> {
    let listed = site.json(&["recording", "list", "cam"]);
    let listed = listed.as_array().expect("a list").iter();
    listed.map(|of| of["is_recorded"] == true).collect()
}

/// RTP packets in a closed recording.
fn recorded(site: &Site, number: u64) -> u64 {
    let found = site.json(&["recording", "check", "cam", &number.to_string()]);
    assert_eq!(found["is_sound"], true, "{found}");
    // Before the 64th block of a volume only one that says that it is the last has a section of the index.
    assert_eq!(found["sections"], 1, "{found}");
    count(&found, "packets")
}

/// Blocks of a recording on the disks, without a gap.
fn blocks(site: &Site, number: u64) -> u64 {
    let listed = call(site, "GET", "/v1/volumes/cam/recordings", "").1;
    let mut all = listed.as_array().into_iter().flatten();
    let of = all.find(|of| of["number"] == number);
    of.map_or(0, |of| count(of, "blocks"))
}

fn sessions(site: &Site) -> Vec<Value> {
    let listed = call(site, "GET", "/v1/sessions", "").1;
    listed.as_array().cloned().unwrap_or_default()
}

fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"))
}

/// Its only session has brought so many packets, reports included.
fn has(site: &Site, packets: u64) {
    until("the packets have come", || {
        sessions(site)
            .first()
            .is_some_and(|of| count(of, "packets") + count(of, "reports") == packets)
    });
}

/// Waits until the only recording is, and its reservation is given back.
fn is_closed(site: &Site) {
    until("the recording is closed", || {
        recordings(site) == [false] && reservations(site) == 0
    });
}

#[test]
fn a_publisher_that_says_bye_has_ended() {
    for transport in ["tcp", "udp"] {
        let (site, serve, address) = serving("");
        let (mut sender, sent) = Sender::of_twenty(&site, address, transport);
        sender.send(true, &bye(&[7]));
        is_closed(&site);
        // Requests after the BYE are answered: some clients pause before they tear down, and some begin
        // again.
        assert_eq!(sender.ask("PAUSE"), 200, "{transport}");
        assert_eq!(sender.ask("GET_PARAMETER"), 200, "{transport}");
        // Packets meanwhile belong to no recording.
        packets(20..25, 7)
            .iter()
            .for_each(|packet| sender.send(false, packet));
        assert_eq!(sender.ask("RECORD"), 200, "{transport}");
        let more = packets(30..33, 8);
        more.iter().for_each(|packet| sender.send(false, packet));
        has(&site, 3);
        assert_eq!(sender.ask("TEARDOWN"), 200, "{transport}");
        assert_eq!(sender.ask("TEARDOWN"), 454, "{transport}");
        assert_eq!([1, 2].map(|number| recorded(&site, number)), [20, 3]);
        assert_eq!(played(address, "cam/1", "", sent.len()), sent);
        assert_eq!(played(address, "cam/2", "", more.len()), more);
        serve.terminate();
    }
}

/// The host closes the connection of a killed publisher.
#[test]
fn a_publisher_that_is_gone_without_a_word_leaves_a_recording_that_is_closed() {
    for transport in ["tcp", "udp"] {
        let (site, serve, address) = serving("");
        let (sender, sent) = Sender::of_twenty(&site, address, transport);
        drop(sender);
        is_closed(&site);
        assert_eq!(recorded(&site, 1), 20, "{transport}");
        assert_eq!(played(address, "cam/1", "", sent.len()), sent);
        serve.terminate();
    }
}

/// Whenever the server is killed, what a flush has made durable is there, and of what came behind that no
/// more than is whole.
#[test]
fn a_server_that_is_killed_leaves_what_was_flushed() {
    let (site, mut server, mut address) = serving("");
    // On one disk, which has one request at a time: no block is written before the one in front of it.
    site.run(&["volume", "delete", "cam"]).done();
    let on_one = ["volume", "create", "cam", "--size", "40MiB", "--disk", "0"];
    site.run(&on_one).done();
    let sent = Arc::new(sized::packets(0, 400, 0, 140));
    for (round, at_least) in (1..).zip([1, 2, 3, 5, 9, 14]) {
        let mut publisher = sized::publisher(address, 4_000);
        let packets = Arc::clone(&sent);
        let sending = std::thread::spawn(move || {
            // As fast as they are taken, until the server has gone.
            for packet in packets.iter() {
                let [high, low] = (packet.len() as u16).to_be_bytes();
                let bytes = [&[b'$', 0, high, low], &packet[..]].concat();
                if publisher.socket.write_all(&bytes).is_err() {
                    break;
                }
            }
            publisher
        });
        until("blocks are written", || blocks(&site, round) >= at_least);
        let flushed = blocks(&site, round);
        Wire::flush(&site.path("nbd.sock"), "cam");
        // At once, or when there are some behind them.
        until("more are written", || {
            blocks(&site, round) >= flushed + round % 3
        });
        let written = blocks(&site, round);
        drop(server);
        drop(sending.join().expect("it ends"));
        (server, address) = serve(&site);
        let found = site.json(&["recording", "check", "cam", &round.to_string()]);
        let left = count(&found, "blocks");
        println!("{left} blocks are left of {written}, of which {flushed} were flushed");
        assert!(left >= flushed, "round {round}: {found}");
        assert_eq!(
            (&found["is_sound"], &found["damaged"], &found["lost"]),
            (&true.into(), &0.into(), &0.into()),
            "round {round}: {found}"
        );
        let there = count(&found, "packets") as usize;
        let played = played(address, &format!("cam/{round}"), "", there);
        assert!(played == sent[..there], "round {round}: {found}");
        until("what was reserved is given back", || {
            reservations(&site) == 0
        });
    }
    server.terminate();
}

#[test]
fn bye_for_another_source_ends_nothing() {
    for transport in ["tcp", "udp"] {
        let (site, serve, address) = serving("");
        let mut sender = Sender::new(address, transport);
        let sent = packets(0..10, 7);
        sent.iter().for_each(|packet| sender.send(false, packet));
        // Another's, from where packets come; and the sender's own, from elsewhere.
        sender.send(true, &bye(&[8, 9]));
        sender.send(true, b"\x80\xcb\0\x01");
        if let Some([_, (_, to)]) = &sender.udp {
            let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
            stranger.send_to(&bye(&[7]), to).expect("it is sent");
        }
        sender.is_told();
        assert_eq!(sessions(&site).len(), 1, "{transport}");
        let more = packets(10..20, 7);
        more.iter().for_each(|packet| sender.send(false, packet));
        // An encoder that begins anew says so, and comes at once under another name.
        sender.send(true, &bye(&[7]));
        has(&site, 23);
        let anew = packets(500..510, 70);
        anew.iter().for_each(|packet| sender.send(false, packet));
        has(&site, 33);
        // The one before says it again, late.
        sender.send(true, &bye(&[7]));
        has(&site, 34);
        sender.is_told();
        assert_eq!(sessions(&site).len(), 1, "{transport}");
        sender.send(true, &bye(&[70]));
        until("the recording is closed", || recordings(&site) == [false]);
        let all = [sent, more, anew].concat();
        assert_eq!(played(address, "cam/1", "", all.len()), all);
        serve.terminate();
    }
}

#[test]
fn one_track_of_two_that_leaves_ends_only_itself() {
    let (site, serve, address) = serving("");
    let mut client = publisher_of_two(address);
    client.packet(0, &rtp(0, 0, 7, b"picture"));
    // The other one has reported, and sends nothing before the first has left.
    client.packet(3, &sender_report(8, 1 << 40, 0));
    client.packet(1, &bye(&[7, 8]));
    // Each says it where it sends.
    client.packets_on(1, 1);
    assert_eq!(sessions(&site).len(), 1);
    client.packet(2, &rtp(0, 0, 8, b"sound"));
    has(&site, 4);
    client.packet(3, &bye(&[8]));
    until("the recording is closed", || {
        recordings(&site) == [false] && reservations(&site) == 0
    });
    client.ask("TEARDOWN", "cam", "", "").is(200);
    serve.terminate();
}

#[test]
fn a_recording_that_is_ended_from_outside_is_closed_properly() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    let sent = packets(0..200, 7);
    sent.iter().for_each(|packet| client.packet(0, packet));
    has(&site, 200);
    let number = sessions(&site)[0]["number"].to_string();
    let ended = site.json(&["session", "end", &number]);
    assert_eq!(
        (&ended["number"].to_string(), &ended["packets"]),
        (&number, &200.into())
    );
    // The session is over when the answer arrives.
    assert!(sessions(&site).is_empty());
    assert_eq!(recordings(&site), [false]);
    assert!(client.answer().is_none(), "the connection is closed");
    assert_eq!(recorded(&site, 1), 200);
    assert_eq!(played(address, "cam/1", "", sent.len()), sent);
    until("the reservation is given back", || reservations(&site) == 0);
    site.run(&["session", "end", &number])
        .fails(2, &["no session", "session list"]);
    serve.terminate();
}

/// Also while it does not take what it has asked for, or what it is sent.
#[test]
fn a_session_that_takes_nothing_is_ended_from_outside() {
    let (site, serve, address) = serving_logged("");
    let ends = || {
        let number = sessions(&site)[0]["number"].to_string();
        site.run(&["session", "end", &number]).done();
        assert!(sessions(&site).is_empty());
        until("the reservation is given back", || reservations(&site) == 0);
    };
    for records in [true, false] {
        let mut client = match records {
            true => publisher(address, TCP),
            false => {
                let mut client = Client::connect(address);
                client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
                client.ask("SETUP", "cam/one", TCP, "").is(200);
                client
            }
        };
        // Until the server takes no more, as its answers do not go.
        let asks = b"OPTIONS * RTSP/1.0\r\nCSeq: 9\r\n\r\n".repeat(1_000);
        client
            .socket
            .set_write_timeout(Some(Duration::from_secs(1)))
            .expect("a time");
        while client.socket.write_all(&asks).is_ok() {}
        ends();
    }
    // More than a player's sockets take.
    let mut client = publisher(address, TCP);
    for number in 0..600 {
        let packet = rtp(number, 25 * u32::from(number), 7, &[7; 10_000]);
        client.packet(0, &packet);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let mut player = Client::with_little_room(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("PLAY", "cam", "", "").is(200);
    let (mut sent, mut since) = (0, Instant::now());
    until("nothing more is taken", || {
        let now = sessions(&site)[0]["bytes"].as_u64().unwrap_or(0);
        if std::mem::replace(&mut sent, now) != now {
            since = Instant::now();
        }
        sent > 0 && since.elapsed() > Duration::from_secs(3)
    });
    ends();
    let (_, log) = serve.terminate();
    let ended = lines(&log, "an RTSP connection ended");
    assert_eq!(ended.len(), 3, "{log}");
    let is_told = |of: &&str| of.contains("its session was ended");
    assert!(ended.iter().all(is_told), "{log}");
}

#[test]
fn a_player_that_is_ended_from_outside_is_told_so() {
    let (site, serve, address) = serving("");
    let mut client = publisher(address, TCP);
    for number in 0..100 {
        let packet = rtp(number, 1_000 * u32::from(number), 7, b"a second");
        client.packet(0, &packet);
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    for plays in [true, false] {
        let mut player = Client::connect(address);
        player.ask("SETUP", "cam/track0", TCP, "").is(200);
        if plays {
            player.ask("PLAY", "cam", "", "").is(200);
            player.packets_on(0, 1);
        }
        let number = sessions(&site)[0]["number"].to_string();
        let shown = site.run(&["session", "end", &number]).done();
        assert!(shown.out.contains("cam/1"), "{shown:?}");
        assert_eq!(reservations(&site), 0);
        let of_reports = player.packets_on(1, usize::MAX);
        let farewell = bye(&[7]);
        let is_told = of_reports.last().is_some_and(|last| *last == farewell);
        assert_eq!(is_told, plays, "{of_reports:?}");
        assert!(player.answer().is_none(), "the connection is closed");
    }
    serve.terminate();
}

#[test]
fn a_session_of_a_source_is_the_sources_to_end() {
    let (site, serve, _) = serving("");
    let camera = Camera::new();
    let url = camera.url("");
    site.run(&["source", "add", "door", &url, "--volume", "cam"])
        .done();
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    packets(0..5, 7)
        .iter()
        .for_each(|packet| visit.packet(packet));
    has(&site, 5);
    let number = sessions(&site)[0]["number"].to_string();
    site.run(&["session", "end", &number])
        .fails(1, &["source \"door\"", "source remove door"]);
    visit.packet(&packets(5..6, 7)[0]);
    has(&site, 6);
    site.run(&["source", "remove", "door"]).done();
    assert_eq!(recorded(&site, 1), 6);
    serve.terminate();
}

#[test]
fn udp_packets_after_the_end_belong_to_no_session() {
    let (site, serve, address) = serving("");
    let mut sender = Sender::new(address, "udp");
    let sent = packets(0..20, 7);
    sent.iter().for_each(|packet| sender.send(false, packet));
    has(&site, 20);
    // While it is paused, with its ports kept.
    assert_eq!(sender.ask("PAUSE"), 200);
    packets(20..40, 7)
        .iter()
        .for_each(|packet| sender.send(false, packet));
    sender.send(true, &bye(&[7]));
    assert_eq!(sender.ask("RECORD"), 200);
    packets(40..50, 7)
        .iter()
        .for_each(|packet| sender.send(false, packet));
    has(&site, 10);
    assert_eq!(sender.ask("TEARDOWN"), 200);
    // And when nothing is left of it, also where somebody else has its ports, maybe.
    let other = Sender::new(address, "udp");
    if let Some([rtp, rtcp]) = &sender.udp {
        let both = [&sender.udp, &other.udp].map(|of| of.as_ref().map(|of| (of[0].1, of[1].1)));
        for (to_rtp, to_rtcp) in both.into_iter().flatten() {
            for packet in packets(50..60, 7) {
                // A port that is closed says so.
                let _ = rtp.0.send_to(&packet, to_rtp);
                let _ = rtcp.0.send_to(&bye(&[7]), to_rtcp);
            }
        }
    }
    let mut other = other;
    let others = packets(0..10, 9);
    others.iter().for_each(|packet| other.send(false, packet));
    has(&site, 10);
    assert_eq!(other.ask("TEARDOWN"), 200);
    assert_eq!(
        [1, 2, 3].map(|number| recorded(&site, number)),
        [20, 10, 10]
    );
    assert_eq!(played(address, "cam/3", "", 10), others);
    serve.terminate();
}
