//! Cameras that are pulled from say more than they should, or less: they are recorded all the same, or it is
//! said why not.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::rtsp::camera::{Camera, OPENS};
use testkit::rtsp::source::{
    add, called, connected, ends, has, is, packets, played, reasons, records, reports, says, send,
    shown,
};
use testkit::rtsp::{rtp, sdp, serving};

/// Challenge of a camera with passwords.
const DIGEST: &str = "WWW-Authenticate: Digest realm=\"cam\", nonce=\"1a2b\"";

/// A stranger that sends a packet between those of a camera does not take its place: the camera's recording
/// goes on, without the stranger's packet.
#[test]
fn a_packet_from_somebody_else_does_not_end_a_track() {
    let (site, server, address, _camera, mut visit) = called("tcp");
    let sent = packets(0..20, 7);
    send(&mut visit, &sent);
    let stray = packets(500..501, 8);
    send(&mut visit, &stray);
    let unit = has(&site, 21)["bytes"].as_u64().expect("a number") / 21;
    // The sender is not known at once.
    let mut late = 20;
    is(&site, "it goes on", |of| {
        send(&mut visit, &packets(late..late + 1, 7));
        late += 1;
        of["packets"].as_u64() > Some(22)
    });
    // And not again what comes between.
    let rest: Vec<_> = (late..late + 40)
        .flat_map(|number| {
            [
                packets(number..number + 1, 7),
                packets(number..number + 1, 8),
            ]
        })
        .flatten()
        .collect();
    send(&mut visit, &rest);
    // The last one is longer than the others.
    let last = late + 40;
    let last = rtp(last, u32::from(last), 7, &[1; 1_001]);
    send(&mut visit, std::slice::from_ref(&last));
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let all = is(&site, "all of it has come", |of| {
        number(of, "bytes") % unit == 1
    });
    let count = number(&all, "packets") as usize;
    site.json(&["source", "remove", "door"]);
    let got = played(address, count);
    let from = got
        .iter()
        .position(|packet| *packet == stray[0])
        .expect("the stray one");
    assert_eq!(got[..from], sent);
    let behind = [packets(20..late + 40, 7), vec![last]].concat();
    assert_eq!(got[from + 1..], behind[behind.len() - (count - from - 1)..]);
    server.terminate();
}

/// Cameras name addresses in their answers, also such that are no part of the grammar.
#[test]
fn a_camera_may_say_where_packets_come_from() {
    let (site, server, address, _camera, mut visit) = connected("", &[]);
    visit.named = ";destination=2001:db8::5;source=2001:db8::1;mode=\"PLAY\";ssrc=0x1;".to_owned();
    visit.plays(&sdp(800));
    records(&site, address, &mut visit, &packets(0..20, 7));
    server.terminate();
}

/// Some cameras give no answer to what keeps them alive, or do not say to what one is: packets say that they
/// are there.
#[test]
fn a_camera_whose_packets_come_need_not_answer() {
    let (site, server, _, _camera, mut visit) = connected("", &[]);
    visit.says_numbers = false;
    visit.plays(&sdp(800));
    let begun = Instant::now();
    // Longer than an answer is waited for, with a keep-alive each second.
    for number in 0.. {
        send(&mut visit, &packets(number..number + 1, 7));
        has(&site, u64::from(number) + 1);
        if begun.elapsed() > Duration::from_secs(13) {
            break;
        }
    }
    let now = shown(&site);
    assert_eq!(
        (&now["gaps"], &now["state"]),
        (&0.into(), &"recording".into()),
        "{now}"
    );
    site.json(&["source", "remove", "door"]);
    server.terminate();
}

/// A `Content-Base` that is no URL is not gone by.
#[test]
fn a_camera_may_say_a_base_that_is_none() {
    let (site, server, address) = serving("");
    let camera = Camera::new();
    for base in [
        "rtsp://::ffff:192.168.1.123/onvif/profile.1/",
        "rtsp://",
        "nonsense",
    ] {
        add(&site, &camera.url(""), &[]);
        let mut visit = camera.visit();
        visit.base = Some(base.to_owned());
        visit.plays(&sdp(800));
        records(&site, address, &mut visit, &packets(0..5, 7));
    }
    server.terminate();
}

/// Some cameras do not say by UDP from which ports they send, or that those are 0: they may be any of its address.
#[test]
fn a_camera_need_not_say_from_which_ports_it_sends() {
    for ports in ["", ";server_port=0-1"] {
        let (site, server, address, _camera, mut visit) = connected("", &["--transport", "udp"]);
        visit.ports = Some(ports.to_owned());
        visit.plays(&sdp(800));
        let sent = packets(0..20, 7);
        send(&mut visit, &sent);
        has(&site, 20);
        visit.report(&testkit::rtsp::sender_report(7, 1 << 32, 1));
        reports(&site, 1);
        ends(&site, address, &sent);
        server.terminate();
    }
}

/// A camera that says another number than that of the request, or more than it has counted of its
/// description, is understood.
#[test]
fn an_answer_is_one_to_what_was_asked_whatever_number_it_says() {
    let (site, server, address, _camera, mut visit) = connected("", &[]);
    visit.number = Some(4_711);
    let wanted = visit.wants("OPTIONS");
    visit.answer(&wanted, "501 Not Implemented", "", "");
    let wanted = visit.wants("DESCRIBE");
    visit.does(&wanted, &sdp(800));
    visit.send(b"a=behind:it\r\n");
    visit.plays(&sdp(800));
    records(&site, address, &mut visit, &packets(0..20, 7));
    server.terminate();
}

/// Either side may ask (RFC 2326, section 10.1); some cameras hang up if they are not answered.
#[test]
fn requests_of_a_camera_are_answered() {
    let (site, server, address, camera, mut visit) = connected("", &[]);
    let ask = |what: &str| format!("{what} RTSP/1.0\r\nCSeq: 77\r\n\r\n");
    let wanted = visit.wants("OPTIONS");
    visit.send(ask("OPTIONS *").as_bytes());
    let said = visit.is_answered();
    assert_eq!((&*said.uri, said.header("CSeq")), ("200", Some("77")));
    visit.does(&wanted, "");
    visit.plays(&sdp(800));
    let mut sent = packets(0..5, 7);
    send(&mut visit, &sent);
    has(&site, 5);
    for (what, status) in [
        ("OPTIONS *", "200"),
        ("GET_PARAMETER rtsp://cam/live", "200"),
        ("ANNOUNCE rtsp://cam/live", "501"),
        ("PLAY_NOTIFY rtsp://cam/live", "501"),
    ] {
        visit.send(ask(what).as_bytes());
        let said = visit.is_answered();
        assert_eq!(
            (&*said.uri, said.header("CSeq")),
            (status, Some("77")),
            "{what}"
        );
    }
    let more = packets(5..10, 7);
    send(&mut visit, &more);
    assert_eq!(has(&site, 10)["gaps"], 0);
    sent.extend(more);
    // The camera ends the session, and is called again.
    visit.send(ask("TEARDOWN rtsp://cam/live").as_bytes());
    assert_eq!(visit.is_answered().uri, "200");
    visit.is_left();
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    let more = packets(20..25, 8);
    send(&mut visit, &more);
    assert_eq!(has(&site, 15)["gaps"], 1);
    sent.extend(more);
    // The camera redirects, which does not count for later calls.
    let other = Camera::new();
    let to = format!(
        "REDIRECT * RTSP/1.0\r\nCSeq: 78\r\nLocation: {}\r\n\r\n",
        other.url("")
    );
    visit.send(to.as_bytes());
    assert_eq!(visit.is_answered().uri, "200");
    visit.is_left();
    let mut visit = other.visit();
    visit.plays(&sdp(800));
    let more = packets(30..35, 9);
    send(&mut visit, &more);
    assert_eq!(has(&site, 20)["gaps"], 2);
    sent.extend(more);
    drop(visit);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    let more = packets(40..45, 10);
    send(&mut visit, &more);
    has(&site, 25);
    sent.extend(more);
    ends(&site, address, &sent);
    server.terminate();
}

/// Some cameras play each track for itself.
#[test]
fn a_camera_that_plays_no_aggregate_is_told_to_play_each_track() {
    let (site, server, address, _camera, mut visit) = connected("", &[]);
    let both = sdp(800) + "m=audio 0 RTP/AVP 0\r\nb=AS:64\r\na=control:two\r\n";
    let whole = visit.is_asked_to_play(&both);
    visit.answer(&whole, "459 Aggregate Operation Not Allowed", "", "");
    for track in ["one", "two"] {
        let wanted = visit.is_asked_to_play(&both);
        assert_eq!(wanted.uri, format!("{}{track}", whole.uri));
        visit.does(&wanted, "");
    }
    records(&site, address, &mut visit, &packets(0..5, 7));
    server.terminate();
}

/// Some cameras say no to what keeps their session, though it is kept; and some know of none any more.
#[test]
fn a_keep_alive_that_is_refused_is_followed_by_the_other() {
    let (site, server, address, camera, mut visit) = called("tcp");
    let mut sent = packets(0..5, 7);
    send(&mut visit, &sent);
    has(&site, 5);
    let refuses =
        |visit: &mut testkit::rtsp::camera::CameraConnection, method: &str, status: &str| {
            let wanted = visit.wants(method);
            assert_eq!(wanted.header("Session"), Some("12345678"));
            visit.answer(&wanted, status, "", "");
        };
    refuses(&mut visit, "GET_PARAMETER", "405 Method Not Allowed");
    let wanted = visit.wants("OPTIONS");
    visit.does(&wanted, "");
    // This one does it.
    refuses(&mut visit, "OPTIONS", "501 Not Implemented");
    refuses(&mut visit, "GET_PARAMETER", "400 Bad Request");
    // Neither, but it is alive.
    let more = packets(5..10, 7);
    send(&mut visit, &more);
    assert_eq!(has(&site, 10)["gaps"], 0);
    sent.extend(more);
    refuses(&mut visit, "OPTIONS", "454 Session Not Found");
    visit.is_left();
    reasons(&site, "454 Session Not Found");
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    let more = packets(20..25, 8);
    send(&mut visit, &more);
    assert_eq!(has(&site, 15)["gaps"], 1);
    sent.extend(more);
    ends(&site, address, &sent);
    server.terminate();
}

/// The session's timeout may be in the answer to PLAY alone.
#[test]
fn a_session_is_kept_alive_as_its_last_answer_says() {
    let (site, server, address, _camera, mut visit) = connected("", &[]);
    let wanted = loop {
        let wanted = visit.wanted().expect("it goes on up to SETUP");
        if wanted.method == "SETUP" {
            break wanted;
        }
        visit.does(&wanted, &sdp(800));
    };
    let transport = wanted.header("Transport").expect("a transport");
    let headers = format!("Transport: {transport}\r\nSession: 12345678;timeout=600\r\n");
    visit.answer(&wanted, "200 OK", &headers, "");
    let wanted = visit.wants("PLAY");
    visit.does(&wanted, "");
    let wanted = visit.wants("GET_PARAMETER");
    visit.does(&wanted, "");
    records(&site, address, &mut visit, &packets(0..5, 7));
    server.terminate();
}

/// EvoStream does not list GET_PARAMETER and answers OPTIONS, but only the former keeps a session.
#[test]
fn a_session_that_is_not_kept_is_kept_alive_otherwise_the_next_time() {
    let (site, server, address, camera, mut visit) = connected("", &[]);
    let can = "DESCRIBE, OPTIONS, PAUSE, PLAY, SETUP, TEARDOWN";
    visit.can = can.to_owned();
    visit.plays(&sdp(800));
    let mut sent = packets(0..5, 7);
    send(&mut visit, &sent);
    has(&site, 5);
    let wanted = visit.wants("OPTIONS");
    visit.does(&wanted, "");
    drop(visit);
    let mut visit = camera.visit();
    visit.can = can.to_owned();
    visit.plays(&sdp(800));
    let more = packets(20..25, 8);
    send(&mut visit, &more);
    assert_eq!(has(&site, 10)["gaps"], 1);
    sent.extend(more);
    for _ in 0..3 {
        let wanted = visit.wants("GET_PARAMETER");
        visit.does(&wanted, "");
    }
    ends(&site, address, &sent);
    server.terminate();
}

/// A camera that has one way for packets, which is not the one that was asked for, is recorded by that, and
/// it is said so.
#[test]
fn a_camera_that_refuses_a_transport_is_asked_for_the_other() {
    for (asked, cannot, by, other) in [
        ("tcp", "RTP/AVP/TCP", "by UDP", "by TCP"),
        ("udp", "client_port", "by TCP", "by UDP"),
    ] {
        let (site, server, address, camera, mut visit) = connected("", &["--transport", asked]);
        let mut sent = Vec::new();
        for _ in 0..2 {
            visit.cannot = cannot.to_owned();
            // Once may be as it is starting.
            while let Some(wanted) = visit.wanted() {
                visit.does(&wanted, &sdp(800));
            }
            let reason = reasons(&site, "461 Unsupported Transport");
            assert!(reason.contains("as with --transport"), "{reason}");
            visit = camera.visit();
        }
        for (number, ssrc) in [(0, 7), (20, 8)] {
            // The request that worked before is sent at once.
            visit.cannot = cannot.to_owned();
            visit.plays(&sdp(800));
            let some = packets(number..number + 5, ssrc);
            send(&mut visit, &some);
            sent.extend(some);
            let now = has(&site, sent.len() as u64);
            assert_eq!(
                (&now["state"], &now["transport"]),
                (&"recording".into(), &asked.into())
            );
            let reason = now["reason"].as_str().expect("a reason");
            for word in [by, other, "461 Unsupported Transport"] {
                assert!(reason.contains(word), "{word}: {reason}");
            }
            if number == 0 {
                drop(visit);
                visit = camera.visit();
            }
        }
        ends(&site, address, &sent);
        server.terminate();
    }
}

/// A firewall may let nothing of it through.
#[test]
fn a_camera_of_which_nothing_comes_by_udp_is_asked_for_tcp() {
    let (site, server, address, camera, mut visit) =
        connected("timeout = \"2s\"", &["--transport", "udp"]);
    let play = visit.plays(&sdp(800));
    // The camera goes on answering.
    while let Some(wanted) = visit.wanted() {
        visit.does(&wanted, "");
    }
    reasons(&site, "no packets by UDP");
    let mut visit = camera.visit();
    let again = visit.plays(&sdp(800));
    assert_eq!(again.uri, play.uri);
    let sent = packets(0..5, 7);
    send(&mut visit, &sent);
    let now = has(&site, 5);
    let reason = now["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with("receiving by TCP, not by UDP: no packets"),
        "{reason}"
    );
    ends(&site, address, &sent);
    server.terminate();
}

/// A challenge may change at each answer, with or without `stale`: the password was right before.
#[test]
fn a_camera_may_ask_for_the_password_of_each_request_anew() {
    let (site, server, address) = serving("");
    let camera = Camera::new();
    add(&site, &camera.url("admin:p%40ss@"), &[]);
    let mut visit = camera.visit();
    let mut nonce = 0;
    let mut sent = Vec::new();
    let mut kept = 0;
    while kept < 3 {
        let wanted = visit.wanted().expect("it goes on");
        let is_new = wanted.login("nonce") == Some(&*format!("n{nonce}"));
        if is_new && wanted.is_by("admin", "p@ss") {
            // A nonce is good for one request.
            nonce += 1;
            visit.does(&wanted, &sdp(800));
            kept += u32::from(wanted.method == "GET_PARAMETER");
            if wanted.method == "PLAY" {
                sent = packets(0..5, 7);
                send(&mut visit, &sent);
            }
            continue;
        }
        let challenge = format!("WWW-Authenticate: Digest realm=\"cam\", nonce=\"n{nonce}\"\r\n");
        visit.answer(&wanted, "401 Unauthorized", &challenge, "");
    }
    assert_eq!(has(&site, 5)["gaps"], 0);
    ends(&site, address, &sent);
    server.terminate();
}

/// Some cameras send what is no packet between their packets: it is passed over, as other clients do.
#[test]
fn bytes_between_a_cameras_packets_are_skipped() {
    let (site, server, address, _camera, mut visit) = called("tcp");
    let sent = packets(0..40, 7);
    for (number, packet) in sent.iter().enumerate() {
        // Other lengths than before, in which a packet seems to begin that is none, or the first bytes of one end.
        let stray = [
            &b"\0\x16\x03$\x07\0\x10\x80$\0\0\x0c"[..],
            &vec![7; 99 * number],
        ]
        .concat();
        match number % 4 {
            0 => {}
            1 => visit.send(&stray),
            2 if number % 8 == 2 => visit.send(b"hello\n"),
            2 => visit.send(&stray[..number % 12 + 1]),
            _ => {
                // The bytes come in pieces, each of which is examined.
                visit.send(&stray);
                visit.packet(packet);
                has(&site, number as u64 + 1);
                continue;
            }
        }
        visit.packet(packet);
    }
    has(&site, 40);
    ends(&site, address, &sent);
    server.terminate();
}

/// Reports among its packets are no packets of somebody else.
#[test]
fn reports_of_a_camera_may_come_among_its_packets() {
    let (site, server, address, _camera, mut visit) = called("tcp");
    let sent = packets(0..30, 7);
    for (number, packet) in (0_u32..).zip(&sent) {
        visit.packet(packet);
        // Each seems to be of somebody else, by the time that it tells.
        visit.packet(&testkit::rtsp::sender_report(
            7,
            u64::from(number) << 34 | 1 << 33,
            number,
        ));
    }
    has(&site, 30);
    ends(&site, address, &sent);
    server.terminate();
}

/// A firewall admits packets only from addresses that packets have gone out to before: both ports send one
/// before anything has come.
#[test]
fn ways_are_opened_by_udp_before_a_camera_sends() {
    let (site, server, address, _camera, mut visit) = called("udp");
    let [packet, report] = visit.opened();
    assert_eq!(packet, [&[0x80][..], &[0; 11]].concat());
    assert_eq!(report, OPENS);
    records(&site, address, &mut visit, &packets(0..5, 7));
    server.terminate();
}

/// Some play nothing unless they are told from where on.
#[test]
fn a_camera_that_wants_a_range_is_told_one() {
    let (site, server, address, _camera, mut visit) = connected("", &[]);
    let wanted = visit.is_asked_to_play(&sdp(800));
    assert_eq!(wanted.header("Range"), None, "{wanted:?}");
    visit.answer(&wanted, "457 Invalid Range", "", "");
    let wanted = visit.plays(&sdp(800));
    assert_eq!(wanted.header("Range"), Some("npt=0.000-"), "{wanted:?}");
    records(&site, address, &mut visit, &packets(0..5, 7));
    server.terminate();
}

/// One that sends nothing else any more is called again.
#[test]
fn a_camera_that_sends_no_packets_any_more_is_called_again() {
    let (site, server, address, camera, mut visit) = called("tcp");
    let mut sent = Vec::new();
    // Also where each few bytes begin as an answer does.
    for (number, stray) in [(0, &b"\x07"[..]), (1, b"RTSP/1.0 \0")] {
        let some = packets(number * 50..number * 50 + 10, u32::from(number));
        send(&mut visit, &some);
        sent.extend(some);
        has(&site, sent.len() as u64);
        visit.send(&stray.repeat(70_000 / stray.len()));
        says(&site, "waiting", "not RTSP");
        visit = camera.visit();
        visit.plays(&sdp(800));
    }
    let behind = packets(100..110, 8);
    send(&mut visit, &behind);
    has(&site, 30);
    sent.extend(behind);
    ends(&site, address, &sent);
    server.terminate();
}

/// A server in front of cameras may redirect to the camera.
#[test]
fn a_source_goes_where_its_camera_says_that_it_is() {
    let (site, server, address) = serving("");
    let (first, second) = (Camera::new(), Camera::new());
    let moves = |to: &str| first.moves("302 Found", to);
    add(&site, &first.url("admin:p%40ss@"), &[]);
    moves(&format!("Location: {}\r\n", second.url("")));
    let mut visit = second.visit();
    // The request there has no credentials.
    let wanted = visit.wants("OPTIONS");
    visit.answer(&wanted, "401 Unauthorized", &format!("{DIGEST}\r\n"), "");
    visit.is_left();
    says(&site, "waiting", "may belong to another party");
    // Back at the first, which names another path.
    moves("Location: /live/2\r\n");
    let mut visit = first.visit();
    let wanted = visit.wants("OPTIONS");
    assert!(wanted.uri.ends_with("/live/2"), "{wanted:?}");
    visit.answer(&wanted, "401 Unauthorized", &format!("{DIGEST}\r\n"), "");
    let wanted = visit.wants("OPTIONS");
    assert!(wanted.is_by("admin", "p@ss"), "{wanted:?}");
    visit.does(&wanted, "");
    visit.plays(&sdp(800));
    records(&site, address, &mut visit, &packets(0..5, 7));
    server.terminate();
}

/// A source that was sent on goes by what that host says from there, and tells it no password of the first one.
#[test]
fn a_source_that_was_sent_on_is_at_another_host() {
    let (site, server, _) = serving("");
    let (first, second) = (Camera::new(), Camera::new());
    add(&site, &first.url("admin:p%40ss@"), &[]);
    first.moves("302 Found", &format!("Location: {}\r\n", second.url("")));
    let mut visit = second.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..5, 7));
    has(&site, 5);
    visit.send(b"REDIRECT * RTSP/1.0\r\nCSeq: 78\r\nLocation: /live/2\r\n\r\n");
    assert_eq!(visit.is_answered().uri, "200");
    visit.is_left();
    let mut visit = second.visit();
    let wanted = visit.wants("OPTIONS");
    assert!(wanted.uri.ends_with("/live/2"), "{wanted:?}");
    visit.answer(&wanted, "401 Unauthorized", &format!("{DIGEST}\r\n"), "");
    visit.is_left();
    says(&site, "waiting", "may belong to another party");
    // The redirect leads nowhere, and the camera is asked at its first address again.
    let mut visit = first.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(20..25, 8));
    has(&site, 10);
    visit.send(b"REDIRECT * RTSP/1.0\r\nCSeq: 79\r\nLocation: http://h/live\r\n\r\n");
    assert_eq!(visit.is_answered().uri, "200");
    visit.is_left();
    says(&site, "waiting", "its scheme is \"http\"");
    server.terminate();
}

#[test]
fn a_source_does_not_go_everywhere() {
    let (site, server, _) = serving("");
    let camera = Camera::new();
    add(&site, &camera.url(""), &[]);
    let moves = |to: &str| camera.moves("301 Moved Permanently", to);
    moves("");
    says(&site, "waiting", "301 Moved Permanently");
    moves("Location: http://127.0.0.1/live\r\n");
    says(&site, "waiting", "its scheme is \"http\"");
    (0..4).for_each(|_| moves("Location: /again\r\n"));
    says(&site, "waiting", "more than 3 times");
    site.json(&["source", "remove", "door"]);
    server.terminate();
}

/// A microphone that is off ends no picture; without a picture there is nothing.
#[test]
fn a_track_that_is_refused_is_recorded_without() {
    let (site, server, address) = serving("");
    let camera = Camera::new();
    let sound = "m=audio 0 RTP/AVP 0\r\nb=AS:64\r\na=control:two\r\n";
    let both = sdp(800) + sound;
    let refuses = |track: &str| {
        let mut visit = camera.visit();
        loop {
            let wanted = visit.wanted().expect("it goes on up to PLAY");
            if wanted.method == "SETUP" && wanted.uri.ends_with(track) {
                visit.answer(&wanted, "404 Not Found", "", "");
                if track == "one" {
                    break;
                }
                continue;
            }
            visit.does(&wanted, &both);
            if wanted.method == "PLAY" {
                break;
            }
        }
        visit
    };
    add(&site, &camera.url(""), &[]);
    refuses("one").is_left();
    says(&site, "waiting", "404 Not Found");
    let mut visit = refuses("two");
    let sent = packets(0..10, 7);
    send(&mut visit, &sent);
    has(&site, 10);
    let tracks = |recording: &str| {
        let shown = site.json(&["recording", "show", "cam", recording]);
        shown["tracks"].as_array().expect("a list").len()
    };
    // A refused call continues the recording; an accepted one begins a new one.
    visit.reset();
    let mut visit = refuses("two");
    let more = packets(20..30, 7);
    send(&mut visit, &more);
    has(&site, 20);
    visit.reset();
    let mut visit = camera.visit();
    while let Some(wanted) = visit.wanted() {
        assert_ne!(wanted.method, "PLAY");
        visit.does(&wanted, &both);
    }
    let mut visit = camera.visit();
    visit.plays(&both);
    send(&mut visit, &packets(0..5, 7));
    is(&site, "another recording begins", |of| of["recording"] == 2);
    has(&site, 5);
    site.json(&["source", "remove", "door"]);
    assert_eq!((tracks("1"), tracks("2")), (1, 2));
    let first = [sent, more].concat();
    assert!(testkit::rtsp::played(address, "cam/1", "", first.len()) == first);
    server.terminate();
}

#[test]
fn a_camera_is_told_who_asks_in_the_way_that_it_asks_for() {
    let (site, server, _) = serving("");
    for (challenge, word) in [
        (format!("{DIGEST}\r\n"), "response="),
        (
            format!("{DIGEST}, qop=\"auth,auth-int\", algorithm=MD5\r\n"),
            "qop=auth,",
        ),
        (
            format!("{DIGEST}, qop=\"auth\", algorithm=SHA-256\r\n{DIGEST}, qop=\"auth\"\r\n"),
            "SHA-256",
        ),
        (
            "WWW-Authenticate: Basic realm=\"cam\"\r\n".to_owned(),
            "Basic YWRtaW46cEBzcw==",
        ),
    ] {
        let camera = Camera::new();
        let added = add(&site, &camera.url("admin:p%40ss@"), &[]);
        assert_eq!(
            (&added["user"], &added["url"]),
            (&"admin".into(), &camera.url("").into())
        );
        assert!(!added.to_string().contains("p@ss") && !added.to_string().contains("p%40ss"));
        let mut visit = camera.visit();
        loop {
            let wanted = visit.wanted().expect("it goes on up to PLAY");
            let said = wanted.header("Authorization").unwrap_or_default();
            if said.is_empty() && wanted.method != "OPTIONS" {
                visit.answer(&wanted, "401 Unauthorized", &challenge, "");
                continue;
            }
            if !said.is_empty() {
                assert!(said.contains(word), "{said}");
                let is_basic = said.starts_with("Basic");
                assert!(is_basic || wanted.is_by("admin", "p@ss"), "{wanted:?}");
            }
            visit.does(&wanted, &sdp(800));
            if wanted.method == "PLAY" {
                break;
            }
        }
        send(&mut visit, &packets(0..5, 7));
        has(&site, 5);
        let show = site.run(&["source", "show", "door"]).done();
        assert!(
            show.out.contains("admin") && !show.out.contains("p@ss"),
            "{show:?}"
        );
        site.run(&["source", "remove", "door"]).done();
    }
    server.terminate();
}

#[test]
fn a_wrong_password_is_told_and_never_shown() {
    let (site, server) = {
        let (site, ready, _) = serving("");
        ready.terminate();
        let server = site.serve();
        (site, server)
    };
    let camera = Camera::new();
    add(&site, &camera.url("admin:secret@"), &[]);
    let mut visit = camera.visit();
    for _ in 0..2 {
        let wanted = visit.wants("OPTIONS");
        visit.answer(&wanted, "401 Unauthorized", &format!("{DIGEST}\r\n"), "");
    }
    visit.is_left();
    says(&site, "waiting", "refuses the password of user \"admin\"");
    site.run(&["source", "remove", "door"]).done();
    add(&site, &camera.url(""), &[]);
    let mut visit = camera.visit();
    let wanted = visit.wants("OPTIONS");
    visit.answer(&wanted, "401 Unauthorized", &format!("{DIGEST}\r\n"), "");
    says(&site, "waiting", "asks for a user and a password");
    let listed = site.run(&["source", "list"]).done().out;
    assert!(
        listed.contains("waiting: the camera asks for a user"),
        "{listed}"
    );
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0));
    assert!(
        log.contains("refuses the password") && !log.contains("secret"),
        "{log}"
    );
}

#[test]
fn no_answer_of_a_camera_does_harm() {
    let (site, server, _) = serving("");
    let camera = Camera::new();
    let long = "x".repeat(70_000);
    let well = "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\n";
    let answers: [(&str, String); 5] = [
        (
            "404",
            format!("{well}RTSP/1.0 404 Not Found\r\nCSeq: 2\r\n\r\n"),
        ),
        ("cannot be parsed", "HTTP/1.1 200 OK\r\n\r\n".to_owned()),
        ("cannot be parsed", format!("RTSP/1.0 200 OK\r\nX: {long}")),
        (
            "cannot be recorded",
            "RTSP/1.0 200 OK\r\nCSeq: 1\r\n\r\nRTSP/1.0 200 OK\r\nCSeq: 2\r\n\r\n".to_owned(),
        ),
        (
            "unsupported authentication scheme",
            "RTSP/1.0 401 No\r\nCSeq: 1\r\nWWW-Authenticate: Digest , ,=\r\n\r\n".to_owned(),
        ),
    ];
    let who = camera.url("u:p@");
    for (word, answer) in answers {
        // Each is met for the first time, so nobody waits long.
        add(&site, &who, &[]);
        let mut visit = camera.visit();
        visit.wants("OPTIONS");
        visit.send(answer.as_bytes());
        says(&site, "waiting", word);
        site.run(&["source", "remove", "door"]).done();
    }
    // Among packets.
    add(&site, &who, &[]);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..5, 7));
    has(&site, 5);
    visit.send(format!("RTSP/1.0 200 OK\r\nX: {long}").as_bytes());
    says(&site, "waiting", "cannot be parsed");
    site.run(&["source", "remove", "door"]).done();
    // Nobody is there.
    let nobody = camera.url("");
    drop(camera);
    add(&site, &nobody, &[]);
    says(&site, "waiting", "cannot be reached");
    server.terminate();
}
