//! Cameras that are pulled from: what they send is recorded as it is, whatever becomes of the connection meanwhile.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::rtsp::camera::Camera;
use testkit::rtsp::source::{
    add, called, connected, ends, has, is, packets, played, reports, says, send, shown,
};
use testkit::rtsp::{
    Client, TCP, block_of, bye, publisher, rtp, sdp, sender_report, serve, serving,
};
use testkit::site::{Site, call};
use testkit::until;

#[test]
fn packets_of_a_camera_are_recorded_unchanged() {
    for transport in ["tcp", "udp"] {
        let (site, server, address) = serving("");
        let camera = Camera::new();
        let added = add(&site, &camera.url(""), &["--transport", transport]);
        assert_eq!(
            (&added["name"], &added["transport"]),
            (&"door".into(), &transport.into())
        );
        let mut visit = camera.visit();
        let play = visit.plays(&sdp(2_000));
        assert_eq!(play.uri, format!("{}/", camera.url("")));
        let sent = packets(0..300, 7);
        // By UDP not faster than they are taken.
        for some in sent.chunks(50) {
            send(&mut visit, some);
            let last = some.last().expect("some");
            has(&site, u64::from(last[3]) + 256 * u64::from(last[2]) + 1);
        }
        let keep_alive = visit.wants("GET_PARAMETER");
        visit.does(&keep_alive, "");
        let now = shown(&site);
        assert_eq!(
            (&now["state"], &now["recording"]),
            (&"recording".into(), &1.into())
        );
        assert_eq!((&now["gaps"], &now["lost"]), (&0.into(), &0.into()));
        let removed = site.json(&["source", "remove", "door"]);
        assert_eq!(removed["state"], "ended");
        visit.is_left();
        assert_eq!(site.json(&["source", "list"]), serde_json::json!([]));
        assert_eq!(
            site.json(&["recording", "list", "cam"])[0]["is_recorded"],
            false
        );
        assert!(played(address, 300) == sent, "{transport}");
        server.terminate();
    }
}

/// One that says that it leaves is left at once, and called again as soon as one that is lost.
#[test]
fn a_camera_that_says_bye_is_called_again_and_goes_on_in_the_same_recording() {
    for transport in ["tcp", "udp"] {
        let (site, server, address, camera, mut visit) = called(transport);
        let first = packets(0..20, 7);
        send(&mut visit, &first);
        has(&site, 20);
        // Somebody else's farewell is none.
        visit.report(&bye(&[8]));
        reports(&site, 1);
        // Nor is one after which it goes on under another name.
        visit.report(&bye(&[7]));
        reports(&site, 2);
        let second = packets(100..110, 8);
        send(&mut visit, &second);
        has(&site, 30);
        visit.told();
        assert_eq!(shown(&site)["gaps"], 0, "{transport}");
        visit.report(&bye(&[8]));
        says(&site, "waiting", "BYE");
        let paused = Instant::now();
        // It may have been asked before if it is there.
        while visit.wanted().is_some() {}
        let mut visit = camera.visit();
        // The first pause is a second, and the timeout a minute.
        assert!(paused.elapsed().as_secs() < 20, "{transport}");
        visit.plays(&sdp(800));
        let third = packets(10..30, 9);
        send(&mut visit, &third);
        let now = has(&site, 50);
        assert_eq!((&now["gaps"], &now["recording"]), (&1.into(), &1.into()));
        ends(&site, address, &[first, second, third].concat());
        server.terminate();
    }
}

/// Distances between the first recording's 50 key frames in its index.
#[track_caller]
fn keys_apart(site: &Site) -> Vec<Duration> {
    let path = "/v1/volumes/cam/recordings/1/index?from_ns=0";
    let (status, index) = call(site, "GET", path, "");
    assert_eq!(status, 200, "{index}");
    let keys = index["keys"].as_array().expect("keys").iter();
    let times = keys.map(|of| of["begins_ns"].as_u64().expect("a number"));
    let times: Vec<Duration> = times.map(Duration::from_nanos).collect();
    assert_eq!(times.len(), 50, "{index}");
    times.windows(2).map(|of| of[1] - of[0]).collect()
}

#[test]
fn a_camera_that_is_back_goes_on_in_the_same_recording() {
    let (site, server, address, camera, mut visit) = connected("", &[]);
    visit.plays(&sdp(800));
    let begun = Instant::now();
    let first = packets(0..20, 7);
    send(&mut visit, &first);
    has(&site, 20);
    let gone = Instant::now();
    drop(visit);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    let back = Instant::now();
    let second = packets(10..30, 8);
    send(&mut visit, &second);
    let now = has(&site, 40);
    // From the last packet that had come to the first one that came again.
    let silent = back - gone..=begun.elapsed();
    assert_eq!((&now["gaps"], &now["recording"]), (&1.into(), &1.into()));
    let gap_ns = now["gap_ns"].as_u64().expect("a number");
    // The first pause is a second.
    assert!(gap_ns >= 1_000_000_000, "{now}");
    let gap = Duration::from_nanos(gap_ns);
    assert!(silent.contains(&gap), "{gap:?} of {silent:?}");
    // It begins anew without leaving: the camera has another name.
    let third = packets(5_000..5_010, 9);
    send(&mut visit, &third);
    let now = has(&site, 50);
    let since_back = back.elapsed();
    assert_eq!((&now["gaps"], &now["lost"]), (&1.into(), &0.into()));
    site.json(&["source", "remove", "door"]);
    let recordings = site.json(&["recording", "list", "cam"]);
    assert_eq!(recordings.as_array().map(Vec::len), Some(1));
    let length_ns = recordings[0]["length_ns"].as_u64().expect("a number");
    assert!(length_ns >= gap_ns, "{recordings} {gap_ns}");
    // Each packet is a key; numbers are from 0, and the gap is before 20.
    for (number, apart) in (1..).zip(keys_apart(&site)) {
        let is_right = match number {
            20 => silent.contains(&apart),
            // It began anew some time after the others.
            40 => apart <= since_back,
            _ => apart == Duration::from_millis(1),
        };
        assert!(is_right, "{apart:?} before packet {number}");
    }
    let (came, counted) = played_and_counted(address, 50);
    assert!(came == [first, second, third].concat());
    assert_eq!(counted, [(7, 0), (8, 0), (9, 0)]);
    server.terminate();
}

/// As [`played`], with the sender and packet count of each report before these packets.
fn played_and_counted(address: SocketAddr, count: usize) -> (Vec<Vec<u8>>, Vec<(u32, u32)>) {
    let mut client = Client::connect(address);
    client.ask("SETUP", "cam/track0", TCP, "").is(200);
    client.ask("PLAY", "cam", "Range: npt=0-\r\n", "").is(200);
    let came = client.packets_on(0, count);
    let mut all = client.packets.iter();
    let last = all.rposition(|(channel, _)| *channel == 0).expect("some");
    let told = client.packets[..last].iter();
    let told = told.filter(|(channel, report)| *channel == 1 && report[1] == 200);
    let word = |of: &[u8], at: usize| u32::from_be_bytes(of[at..at + 4].try_into().unwrap());
    let told = told.map(|(_, report)| (word(report, 4), word(report, 20)));
    (came, told.collect())
}

/// One whose connection is reset in the middle of a packet is one that is lost, whose recording stays; and
/// what had come before that is written while it is away, when it is a minute old.
#[test]
fn a_camera_that_is_cut_off_within_a_packet_goes_on_in_the_same_recording() {
    let (site, server, address, camera, mut visit) = called("tcp");
    let first = packets(0..20, 7);
    send(&mut visit, &first);
    has(&site, 20);
    // A part of a body, which is received before the connection is seen to be reset.
    let next = &packets(20..21, 7)[0];
    let [high, low] = (next.len() as u16).to_be_bytes();
    visit.send(&[&[b'$', 0, high, low], &next[..500]].concat());
    visit.reset();
    is(&site, "it is seen", |of| {
        of["reason"].as_str().is_some_and(|of| of.contains("reset"))
    });
    let session = || call(&site, "GET", "/v1/sessions", "").1[0].clone();
    let durable = |of: &Value| of["durable_bytes"].as_u64().expect("it is recorded");
    // It is called every 5 s; when it is a minute old, it is written.
    for _ in 0..5 {
        let visit = camera.visit();
        assert_eq!(durable(&session()), 0);
        drop(visit);
    }
    until("it is written", || {
        drop(camera.visit());
        durable(&session()) > 0
    });
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    let second = packets(10..30, 8);
    send(&mut visit, &second);
    let now = has(&site, 40);
    assert_eq!((&now["gaps"], &now["recording"]), (&1.into(), &1.into()));
    // Those behind the gap are played a minute later.
    ends(&site, address, &first);
    let check = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (&check["packets"], &check["is_sound"]),
        (&40.into(), &true.into()),
        "{check}"
    );
    server.terminate();
}

#[test]
fn source_beyond_the_disks_is_reported_and_holds_nothing() {
    let (site, server, address, _camera, mut visit) = connected("", &["--rate", "9GB/s"]);
    for _ in ["OPTIONS", "DESCRIBE"] {
        let wanted = visit.wanted().expect("it asks");
        visit.does(&wanted, &sdp(800));
    }
    visit.is_left();
    says(&site, "refused", "cannot carry");
    // Somebody else has the volume and its disks.
    let mut other = publisher(address, TCP);
    other.packet(0, &rtp(0, 0, 1, b"x"));
    other.ask("TEARDOWN", "cam", "", "").is(200);
    site.run(&["source", "remove", "door"]).done();
    server.terminate();
}

#[test]
fn sources_survive_the_server() {
    let (site, server, _) = serving("");
    let camera = Camera::new();
    add(&site, &camera.url("u:p%22w@"), &["--rate", "100KB/s"]);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..5, 7));
    has(&site, 5);
    let before = shown(&site);
    // It ends while packets come, and during the wait for it.
    server.terminate();
    visit.is_left();
    let (server, _) = serve(&site);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..3, 7));
    let now = has(&site, 3);
    assert_eq!((&now["recording"], &now["gaps"]), (&2.into(), &0.into()));
    for member in [
        "url",
        "user",
        "volume",
        "transport",
        "rate_bytes_per_second",
    ] {
        assert_eq!(now[member], before[member]);
    }
    drop((visit, camera));
    is(&site, "it waits", |of| of["state"] == "waiting");
    let exists = site.run(&["source", "add", "door", "rtsp://h/", "--volume", "cam"]);
    exists.fails(1, &["already"]);
    let nowhere = site.run(&["source", "add", "x", "rtsp://h/", "--volume", "none"]);
    nowhere.fails(2, &["none"]);
    site.run(&["source", "show", "x"])
        .fails(2, &["source list"]);
    site.run(&["source", "remove", "x"])
        .fails(2, &["no source"]);
    let secret = site.run(&[
        "source",
        "add",
        "x",
        "http://u:secret@h/",
        "--volume",
        "cam",
    ]);
    secret.fails(2, &["rtsp"]);
    assert!(!secret.err.contains("secret"), "{secret:?}");
    server.terminate();
}

#[test]
fn a_camera_that_falls_silent_is_called_again() {
    let (site, server, _, camera, mut visit) = connected("timeout = \"2s\"", &[]);
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..5, 7));
    has(&site, 5);
    // It goes on answering, and sends nothing.
    while let Some(wanted) = visit.wanted() {
        visit.does(&wanted, "");
    }
    says(&site, "waiting", "no data from the camera");
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(5..7, 7));
    let now = has(&site, 7);
    assert_eq!((&now["gaps"], &now["recording"]), (&1.into(), &1.into()));
    server.terminate();
}

#[test]
fn a_camera_that_shows_something_else_is_another_recording() {
    let (site, server, _, camera, mut visit) = connected("", &[]);
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..5, 7));
    has(&site, 5);
    drop(visit);
    let other = sdp(800).replace("X-TEST/1000", "X-TEST/2000");
    let mut visit = camera.visit();
    for _ in ["OPTIONS", "DESCRIBE"] {
        let wanted = visit.wanted().expect("it asks");
        visit.does(&wanted, &other);
    }
    visit.is_left();
    let mut visit = camera.visit();
    visit.plays(&other);
    send(&mut visit, &packets(0..4, 7));
    let now = has(&site, 4);
    assert_eq!((&now["gaps"], &now["recording"]), (&0.into(), &2.into()));
    site.run(&["source", "remove", "door"]).done();
    let recordings = site.json(&["recording", "list", "cam"]);
    assert_eq!(recordings.as_array().map(Vec::len), Some(2));
    server.terminate();
}

/// A wait ends with its source: neither the answer nor the timeout has come then.
#[test]
fn a_source_ends_whatever_it_waits_for() {
    let (site, server, _) = serving("");
    let camera = Camera::new();
    for asked in 0..3 {
        add(&site, &camera.url(""), &[]);
        let mut visit = camera.visit();
        for _ in 0..asked {
            let wanted = visit.wanted().expect("it asks");
            visit.does(&wanted, &sdp(800));
        }
        visit.wanted().expect("it asks, and is not answered");
        let removed = site.json(&["source", "remove", "door"]);
        assert_eq!(
            (&removed["state"], &removed["reason"]),
            (&"ended".into(), &Value::Null)
        );
        visit.is_left();
    }
    add(&site, &camera.url(""), &[]);
    let mut visit = camera.visit();
    visit.wanted().expect("it asks, and is not answered");
    server.terminate();
    visit.is_left();
}

#[test]
fn a_camera_is_told_how_well_its_packets_come() {
    for transport in ["tcp", "udp"] {
        let (site, server, address, _camera, mut visit) = called(transport);
        // Ten of which the fourth is lost.
        let mut sent = packets(100..110, 77);
        sent.remove(3);
        send(&mut visit, &sent);
        has(&site, 9);
        visit.report(&sender_report(77, 0x1111_2222_3333_4444, 9));
        reports(&site, 1);
        let told = visit.told();
        let [source, lost, highest, _, last, since] = block_of(&told);
        assert_eq!(
            (source, lost, highest),
            (77, 25 << 24 | 1, 109),
            "{transport}"
        );
        assert_eq!(last, 0x2222_3333);
        assert!(since > 65_536, "it came some seconds ago, not {since}");
        // Nothing is lost since, and what is told is told again and again, between requests as well.
        send(&mut visit, &packets(110..120, 77));
        let told = visit.told();
        let [source, lost, highest, ..] = block_of(&told);
        assert_eq!((source, lost, highest), (77, 1, 119), "{transport}");
        // Nobody listens at its port any more, which ends nothing.
        if visit.rtcp.take().is_some() {
            let keep_alives = 6;
            for _ in 0..keep_alives {
                let wanted = visit.wants("GET_PARAMETER");
                visit.does(&wanted, "");
            }
        }
        send(&mut visit, &packets(120..125, 77));
        let now = has(&site, 24);
        assert_eq!(
            (&now["gaps"], &now["state"]),
            (&0.into(), &"recording".into())
        );
        site.json(&["source", "remove", "door"]);
        assert_eq!(played(address, 24).len(), 24);
        server.terminate();
    }
}

/// Another Clockwise is a camera as well.
#[test]
fn one_server_pulls_from_another() {
    let (far, far_server, far_address) = serving("");
    let mut source = publisher(far_address, TCP);
    let sent = packets(0..200, 7);
    for packet in &sent {
        source.packet(0, packet);
    }
    source.ask("TEARDOWN", "cam", "", "").is(200);
    let (site, server, address) = serving("");
    for transport in ["tcp", "udp"] {
        let url = format!("rtsp://{far_address}/cam");
        add(&site, &url, &["--transport", transport]);
        is(&site, "all packets have come", |of| {
            of["packets"].as_u64() >= Some(200)
        });
        site.run(&["source", "remove", "door"]).done();
        assert!(played(address, 200) == sent, "{transport}");
    }
    server.terminate();
    far_server.terminate();
    drop(far);
}

#[test]
fn a_source_that_would_record_its_own_recording_says_so() {
    let (site, server, address) = serving("");
    site.run(&["volume", "create", "copy", "--size", "40MiB"])
        .done();
    let sent = packets(0..100, 7);
    let mut client = publisher(address, TCP);
    sent.iter().for_each(|packet| client.packet(0, packet));
    let port = address.port();
    add(
        &site,
        &format!("rtsp://localhost:{port}/copy+cam/live"),
        &[],
    );
    says(&site, "waiting", "its own recording");
    assert_eq!(
        site.json(&["recording", "list", "cam"])
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    client.ask("TEARDOWN", "cam", "", "").is(200);
    // A recording of another volume serves as a camera.
    let url = format!("rtsp://localhost:{port}/cam");
    site.json(&["source", "add", "copies", &url, "--volume", "copy"]);
    until("it is copied", || {
        site.json(&["source", "show", "copies"])["packets"]
            .as_u64()
            .is_some_and(|packets| packets >= 100)
    });
    server.terminate();
}

/// Packets that a camera sent by UDP are recorded, however soon it goes.
#[test]
fn packets_in_the_sockets_of_a_vanished_camera_are_recorded() {
    let (site, server, address, camera, mut visit) = called("udp");
    let sent = packets(0..160, 7);
    send(&mut visit, &sent[..10]);
    has(&site, 10);
    // More than are received at a time, and no more than any socket has room for.
    send(&mut visit, &sent[10..]);
    drop(visit);
    assert_eq!(has(&site, 160)["lost"], 0);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    let more = packets(0..10, 8);
    send(&mut visit, &more);
    let now = has(&site, 170);
    assert_eq!((&now["lost"], &now["gaps"]), (&0.into(), &1.into()));
    ends(&site, address, &[sent, more].concat());
    server.terminate();
}
