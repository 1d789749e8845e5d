//! Reservations for unknown streams, and the words for refused clients and in the log.

use testkit::rtsp::camera::Camera;
use testkit::rtsp::source::{add, reasons};
use testkit::rtsp::{
    Client, SDP_TYPE, TCP, lines, publisher, reservations, rtp, sdp, serving, serving_logged,
};
use testkit::site::{Site, call};
use testkit::until;

/// Recorded first, in packets of a kilobyte.
const PACKETS: u16 = 400;

/// Reservation of the only stream.
fn reserved(site: &Site) -> Option<u64> {
    let status = call(site, "GET", "/v1/status", "").1;
    status["streams"][0]["rate_bytes_per_second"].as_u64()
}

fn recorded(site: &Site, client: &mut Client) {
    for number in 0..PACKETS {
        client.packet(0, &rtp(number, u32::from(number), 7, &[1; 1_000]));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(site) == 0);
}

/// One that fits no more, or asks for more than there is, is told by how much, and so is who reads the log.
#[test]
fn refused_source_gets_the_reason_and_so_does_the_log() {
    let (site, serve, address) = serving_logged("");
    let mut client = publisher(address, TCP);
    recorded(&site, &mut client);
    let set_up = || {
        let mut client = Client::connect(address);
        let said = client.ask("SETUP", "cam/track0", TCP, "");
        (client, said)
    };
    let mut players = Vec::new();
    let refused = loop {
        let (client, said) = set_up();
        if said.status != 200 {
            break said;
        }
        players.push(client);
    };
    assert_eq!(refused.status, 453, "{refused:?}");
    assert!(refused.body.contains("cannot carry it"), "{refused:?}");
    assert!(
        refused
            .body
            .contains("MB/s are from the reservation for recording it"),
        "{refused:?}"
    );
    assert_eq!(reservations(&site), players.len());
    let mut player = players.pop().expect("there is room for one");
    drop(players);
    until("they have gone", || reservations(&site) == 1);
    let text = "Content-Type: text/parameters\r\n";
    let more = player.ask("SET_PARAMETER", "cam", text, "rate: 900000000\r\n");
    assert!(more.is(453).body.contains("would fit"));
    // It plays as fast as can be promised.
    let said = player.ask("PLAY", "cam", "Speed: 1000\r\n", "").is(200);
    assert_eq!(said.header("Speed"), Some("1.000"));
    player.ask("TEARDOWN", "cam", "", "").is(200);
    let (status, log) = serve.terminate();
    assert_eq!(status, Some(0), "{log}");
    for (said, parts) in [
        ("a player is refused", ["peer=127.0.0.1:", "volume=\"cam\""]),
        (
            "a change of a session is refused",
            ["session=", "would fit"],
        ),
        ("a Speed is refused", ["peer=127.0.0.1:", "would fit"]),
    ] {
        let [line] = lines(&log, said)[..] else {
            panic!("{said}: {log}");
        };
        for part in parts.iter().chain(&["cannot carry it"]) {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

/// A client that is refused a rate is told its origin, and how to reserve less: some declare far more than
/// they send.
#[test]
fn a_refusal_says_where_the_rate_comes_from() {
    let (site, server, address) = serving("rate = \"2GB/s\"");
    let unknown: String = sdp(800).replace("b=AS:800\r\n", "");
    let much = sdp(50_000_000);
    for (described, options, words) in [
        (
            &much,
            &[][..],
            [
                "the 6875.000 MB/s are from the camera's description",
                "b=AS",
                "`--rate` of the source",
            ],
        ),
        (
            &much,
            &["--rate", "3GB/s"][..],
            [
                "the 3000.000 MB/s are from `--rate` of the source",
                "`--rate`",
                "lower rate",
            ],
        ),
    ] {
        let camera = Camera::new();
        add(&site, &camera.url(""), options);
        let mut visit = camera.visit();
        for _ in ["OPTIONS", "DESCRIBE"] {
            let wanted = visit.wanted().expect("it asks");
            visit.does(&wanted, described);
        }
        visit.is_left();
        let reason = reasons(&site, "cannot carry it");
        for word in words {
            assert!(reason.contains(word), "{word}: {reason}");
        }
        site.json(&["source", "remove", "door"]);
    }
    for (described, words) in [
        (
            &much,
            [
                "the 6875.000 MB/s are from the announced description",
                "announce a lower rate",
            ],
        ),
        // A guess of a source is lowered to what fits.
        (
            &unknown,
            [
                "the 2000.000 MB/s are a guess, `rate` under [rtsp]",
                "announce one",
            ],
        ),
    ] {
        let mut client = Client::connect(address);
        client.ask("ANNOUNCE", "cam", SDP_TYPE, described).is(200);
        let said = client.ask("SETUP", "cam/one", TCP, "").is(453);
        for word in words {
            assert!(said.body.contains(word), "{word}: {said:?}");
        }
    }
    server.terminate();
}

/// An undeclared rate is the one in the file, and players are told that.
#[test]
fn unknown_stream_has_the_default_rate() {
    let (site, serve, address) = serving("rate = \"300KB/s\"");
    let unknown: String = sdp(800)
        .split_inclusive("\r\n")
        .filter(|line| !line.starts_with("b="))
        .collect();
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &unknown).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    assert_eq!(reserved(&site), Some(300_000));
    client.ask("RECORD", "cam", "", "").is(200);
    // Less than can be told a rate by.
    for number in 0..3_u16 {
        client.packet(0, &rtp(number, 100 * u32::from(number), 7, &[1; 1_000]));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || {
        reserved(&site).is_none()
    });
    let mut player = Client::connect(address);
    let described = player.ask("DESCRIBE", "cam", "", "").is(200).body;
    // Without the tenth that is reserved beyond what is said.
    assert!(described.contains("b=TIAS:2181818\r\n"), "{described}");
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    assert_eq!(reserved(&site), Some(300_000));
    drop(player);
    until("the reservation is given back", || {
        reserved(&site).is_none()
    });
    let camera = Camera::new();
    let url = camera.url("");
    site.json(&["source", "add", "door", &url, "--volume", "cam"]);
    let mut visit = camera.visit();
    visit.plays(&unknown);
    assert_eq!(reserved(&site), Some(300_000));
    site.json(&["source", "remove", "door"]);
    serve.terminate();
}
