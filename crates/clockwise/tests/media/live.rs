//! Live play: packets from memory as they arrive, without a reservation and without the disks.

use testkit::process::Process;
use testkit::rtsp::http::{get, http};
use testkit::rtsp::peers::{frames, made, publish};
use testkit::rtsp::{Client, SDP_TYPE, TCP, publisher, reservations, rtp, sdp, serving};
use testkit::site::{Site, call};
use testkit::skip::have;
use testkit::until;

/// The bodies of packets.
fn bodies(packets: &[Vec<u8>]) -> Vec<&[u8]> {
    packets.iter().map(|packet| &packet[12..]).collect()
}

fn blocks_of_sessions(site: &Site) -> Vec<(String, u64)> {
    let sessions = call(site, "GET", "/v1/sessions", "").1;
    let sessions = sessions.as_array().expect("a list").iter();
    let text = |of: &serde_json::Value| of["does"].as_str().expect("text").to_owned();
    sessions
        .map(|of| (text(of), of["blocks"].as_u64().expect("a number")))
        .collect()
}

/// A client that plays the first track of a path.
fn playing(address: std::net::SocketAddr, path: &str) -> Client {
    let mut client = Client::connect(address);
    client.ask("DESCRIBE", path, "", "").is(200);
    client
        .ask("SETUP", &format!("{path}/track0"), TCP, "")
        .is(200);
    client.ask("PLAY", path, "", "").is(200);
    client
}

/// Each packet is played as soon as it arrives, while the first block has room for hundreds.
#[test]
fn packets_are_played_as_they_arrive() {
    let (site, serve, address) = serving("");
    let mut camera = publisher(address, TCP);
    camera.packet(0, &rtp(1, 1, 7, b"first"));
    until("it has a key frame", || {
        let mut client = Client::connect(address);
        client.ask("DESCRIBE", "cam", "", "").status == 200
    });
    // By each path that names it, and several at a time.
    let mut players: Vec<Client> = ["cam", "cam/1", "cam/live"]
        .map(|path| playing(address, path))
        .into();
    for player in &mut players {
        assert_eq!(bodies(&player.packets_on(0, 1)), [b"first"]);
    }
    for number in 2..6_u16 {
        camera.packet(0, &rtp(number, number.into(), 7, &number.to_be_bytes()));
        for player in &mut players {
            let packets = player.packets_on(0, usize::from(number));
            assert_eq!(packets[usize::from(number) - 1][12..], number.to_be_bytes());
        }
    }
    let listed = call(&site, "GET", "/v1/volumes/cam/recordings", "").1;
    assert_eq!(
        (&listed[0]["number"], &listed[0]["blocks"]),
        (&1.into(), &0.into()),
        "{listed}"
    );
    let shown = call(&site, "GET", "/v1/volumes/cam/recordings/1", "").1;
    assert_eq!(
        (&shown["is_recorded"], &shown["blocks"]),
        (&true.into(), &0.into()),
        "{shown}"
    );
    assert_eq!(reservations(&site), 1, "the recorder's alone");
    let mut sessions = blocks_of_sessions(&site);
    sessions.sort();
    let watching = ("watches".to_owned(), 0);
    let expected = [
        ("records".to_owned(), 0),
        watching.clone(),
        watching.clone(),
        watching,
    ];
    assert_eq!(sessions, expected, "nothing was written or read");
    // Players get BYE and keep their connections when the stream ends.
    camera.ask("TEARDOWN", "cam", "", "").is(200);
    for player in &mut players {
        let reports = player.packets_on(1, 2);
        assert!(
            reports
                .last()
                .is_some_and(|of| of[9] == 203 || of.windows(2).any(|of| of == [0x81, 203]))
        );
        assert_eq!(player.ask("OPTIONS", "cam", "", "").status, 200);
    }
    serve.terminate();
}

/// PAUSE and an earlier time take a reservation, and now gives it back.
#[test]
fn pause_and_seek_need_the_disks() {
    let (site, serve, address) = serving("");
    let mut camera = publisher(address, TCP);
    let packet = |number: u16| rtp(number, u32::from(number) * 20, 7, &[number as u8; 1_200]);
    camera.packet(0, &packet(1));
    until("it has a key frame", || {
        let mut client = Client::connect(address);
        client.ask("DESCRIBE", "cam/live", "", "").status == 200
    });
    let mut player = playing(address, "cam/live");
    player.packets_on(0, 1);
    // Nothing is on the disks: it is refused, and live play goes on.
    let said = player.ask("PAUSE", "cam/live", "", "").is(457);
    assert!(said.body.contains("nothing on the disks yet"), "{said:?}");
    (2..200).for_each(|number| camera.packet(0, &packet(number)));
    let last = player.packets_on(0, 199).pop();
    assert!(last.is_some_and(|last| last[12..] == [199; 1_200]));
    until("blocks are on the disks", || {
        let recorders = blocks_of_sessions(&site);
        recorders
            .iter()
            .any(|(does, blocks)| does == "records" && *blocks > 1)
    });
    assert_eq!(reservations(&site), 1);
    player.ask("PAUSE", "cam/live", "", "").is(200);
    assert_eq!(reservations(&site), 2);
    player.packets.clear();
    // The paused time is not on the disks yet: it goes on at the last packet that is.
    player.ask("PLAY", "cam/live", "", "").is(200);
    assert!(!player.packets_on(0, 1).is_empty());
    player.packets.clear();
    player
        .ask("PLAY", "cam/live", "Range: npt=now-\r\n", "")
        .is(200);
    until("the reservation is given back", || reservations(&site) == 1);
    player.packets.clear();
    camera.packet(0, &packet(200));
    let mut last = Vec::new();
    while last[..] != [200; 1_200] {
        let packets = player.next_packets();
        assert!(!packets.is_empty(), "the connection was closed");
        last = packets.last().expect("some").1[12..].to_vec();
    }
    // From its beginning.
    player
        .ask("PLAY", "cam/live", "Range: npt=0.001-\r\n", "")
        .is(200);
    assert_eq!(reservations(&site), 2);
    player.packets.clear();
    assert_eq!(player.packets_on(0, 1)[0][12..], [1; 1_200]);
    drop((player, camera));
    serve.terminate();
}

/// A publisher may send a stream that is not recorded. It needs no volume.
#[test]
fn stream_may_be_live_only() {
    let (site, serve, address) = serving("");
    let mut camera = Client::connect(address);
    camera
        .ask("ANNOUNCE", "door/live", SDP_TYPE, &sdp(800))
        .is(200);
    camera.ask("SETUP", "door/live/one", TCP, "").is(200);
    camera.ask("RECORD", "door/live", "", "").is(200);
    camera.packet(0, &rtp(1, 1, 7, b"first"));
    until("it has a key frame", || {
        let mut client = Client::connect(address);
        client.ask("DESCRIBE", "door", "", "").status == 200
    });
    let mut player = playing(address, "door");
    assert_eq!(bodies(&player.packets_on(0, 1)), [b"first"]);
    // Far more than a block.
    for number in 2..500_u16 {
        camera.packet(0, &rtp(number, number.into(), 7, &[number as u8; 1_300]));
    }
    let packets = player.packets_on(0, 499);
    assert!(
        packets
            .iter()
            .skip(1)
            .zip(2..)
            .all(|(packet, number): (_, u16)| packet[12..] == [number as u8; 1_300])
    );
    assert_eq!(reservations(&site), 0);
    player.ask("PAUSE", "door", "", "").is(200);
    player.ask("PLAY", "door", "", "").is(200);
    let said = player.ask("PLAY", "door", "Range: npt=5-\r\n", "").is(457);
    assert!(said.body.contains("live only"), "{said:?}");
    // Another one of the name is refused while it lasts.
    let mut other = Client::connect(address);
    other
        .ask("ANNOUNCE", "door/live", SDP_TYPE, &sdp(800))
        .is(200);
    let said = other.ask("SETUP", "door/live/one", TCP, "").is(403);
    assert!(said.body.contains("has a source already"), "{said:?}");
    for name in ["", "..", "a%2Fb"] {
        let mut bad = Client::connect(address);
        let said = bad.ask("ANNOUNCE", &format!("{name}/live"), SDP_TYPE, &sdp(800));
        assert!(said.status == 400 || said.status == 404, "{name}: {said:?}");
    }
    camera.ask("TEARDOWN", "door/live", "", "").is(200);
    let said = Client::connect(address).ask("DESCRIBE", "door/live", "", "");
    assert_eq!(said.status, 404, "{said:?}");
    serve.terminate();
}

/// The URIs of the parts that a playlist lists, and the one that comes next.
fn parts_of(text: &str) -> (Vec<String>, String) {
    let uri = |line: &str| {
        line.split("URI=\"")
            .nth(1)?
            .split('"')
            .next()
            .map(str::to_owned)
    };
    let of = |tag: &str| {
        text.lines()
            .filter(|line| line.starts_with(tag))
            .filter_map(uri)
            .collect::<Vec<_>>()
    };
    (
        of("#EXT-X-PART:"),
        of("#EXT-X-PRELOAD-HINT").pop().expect("the next part"),
    )
}

/// A browser gets a live stream in parts, the next one as soon as it is there, and decodes all of them.
#[test]
fn live_stream_is_served_in_parts() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"\n[http]\nlisten = \"0\"");
    let browsers = http(&serve);
    let path = |name: &str| format!("/media/cam/live/low/{name}");
    assert_eq!(get(browsers, &path("media.m3u8"), "").0, 404);
    let clip = made(&site, 20, 400);
    let camera = Process::spawn(&mut publish(
        &clip,
        "tcp",
        &format!("rtsp://{address}/cam"),
        true,
    ));
    until("it has a key frame", || {
        let mut client = Client::connect(address);
        client.ask("DESCRIBE", "cam/live", "", "").status == 200
    });
    let text = |name: &str| {
        let (status, head, body) = get(browsers, &path(name), "");
        assert_eq!(status, 200, "{name}: {head}");
        String::from_utf8(body).expect("text")
    };
    assert!(text("index.m3u8").contains("CODECS=\"avc1."));
    let mut file = get(browsers, &path("init.mp4"), "").2;
    let (listed, mut next) = parts_of(&text("media.m3u8"));
    let part = |name: &str| {
        let (status, head, body) = get(browsers, &path(name), "");
        assert_eq!(status, 200, "{name}: {head}");
        body
    };
    listed.iter().for_each(|name| file.extend(part(name)));
    // Each part is requested before it exists, and the playlist that has it as well.
    for _ in 0..12 {
        let (sequence, rest) = next.split_once('.').expect("two numbers");
        let number = rest.trim_end_matches(".m4s");
        let (status, _, body) = get(browsers, &path(&next), "");
        // A segment may end before the part.
        if status == 200 {
            file.extend(body);
        }
        let query = format!("media.m3u8?_HLS_msn={sequence}&_HLS_part={number}");
        let (listed, following) = parts_of(&text(&query));
        assert!(
            listed.contains(&next) || !following.starts_with(sequence),
            "{next}: {listed:?}"
        );
        next = following;
    }
    let to = site.path("parts.mp4");
    std::fs::write(&to, &file).expect("it can be written");
    let got = frames(&["-i", to.to_str().expect("text")]);
    let wanted = frames(&["-i", &clip]);
    assert!(got.len() > 60, "{} frames", got.len());
    let from = wanted.windows(got.len()).position(|of| of == got);
    assert!(
        from.is_some(),
        "the frames are those of the clip, one after another"
    );
    // Requests that make no sense.
    let newest: u64 = next
        .split('.')
        .next()
        .and_then(|of| of.parse().ok())
        .expect("a number");
    for (name, status) in [
        (format!("media.m3u8?_HLS_msn={}", newest + 9), 400),
        ("media.m3u8?_HLS_part=1".to_owned(), 400),
        ("media.m3u8?_HLS_msn=x".to_owned(), 400),
        (format!("{newest}.999.m4s"), 404),
        (format!("{}.0.m4s", newest + 9), 404),
        (format!("{}.m4s", newest + 9), 404),
        ("0.0.m4s".to_owned(), 404),
        ("x.m4s".to_owned(), 404),
    ] {
        assert_eq!(get(browsers, &path(&name), "").0, status, "{name}");
    }
    drop(camera);
    until("the stream has ended", || {
        get(browsers, &path("media.m3u8"), "").0 == 404
    });
    until("nothing is reserved", || reservations(&site) == 0);
    serve.terminate();
}

/// The state of a source.
fn source_state(site: &Site, name: &str) -> String {
    let source = call(site, "GET", &format!("/v1/sources/{name}"), "").1;
    source["state"].as_str().unwrap_or_default().to_owned()
}

/// A camera that is pulled on demand is called when somebody wants its stream, and left alone afterwards.
#[test]
fn camera_is_pulled_only_while_it_is_watched() {
    let (site, serve, address) = serving("");
    // A stream of this server is the camera.
    let mut camera = Client::connect(address);
    camera
        .ask("ANNOUNCE", "door/live", SDP_TYPE, &sdp(800))
        .is(200);
    camera.ask("SETUP", "door/live/one", TCP, "").is(200);
    camera.ask("RECORD", "door/live", "", "").is(200);
    camera.packet(0, &rtp(1, 1, 7, b"first"));
    let url = format!("rtsp://{address}/door/live");
    site.run(&["source", "add", "gate", &url])
        .fails(2, &["--volume"]);
    site.run(&["source", "add", "gate", &url, "--on-demand"])
        .done();
    until("it is idle", || source_state(&site, "gate") == "idle");
    let watchers = || {
        let sessions = call(&site, "GET", "/v1/sessions", "").1;
        let sessions = sessions.as_array().expect("a list").iter();
        sessions
            .filter(|of| of["volume"] == "door" && of["does"] == "watches")
            .count()
    };
    assert_eq!(watchers(), 0, "nobody pulls it");
    let mut player = playing(address, "gate");
    assert_eq!(bodies(&player.packets_on(0, 1)), [b"first"]);
    camera.packet(0, &rtp(2, 2, 7, b"second"));
    assert_eq!(player.packets_on(0, 2)[1][12..], *b"second");
    assert_eq!(
        (source_state(&site, "gate").as_str(), watchers()),
        ("recording", 1)
    );
    drop(player);
    until("the camera is left alone", || watchers() == 0);
    until("it is idle again", || source_state(&site, "gate") == "idle");
    // One that is always pulled.
    site.run(&["source", "remove", "gate"]).done();
    site.run(&["source", "add", "gate", &url, "--live-only"])
        .done();
    until("it can be watched", || {
        let mut client = Client::connect(address);
        client.ask("DESCRIBE", "gate/live", "", "").status == 200
    });
    assert_eq!(reservations(&site), 0);
    drop(camera);
    serve.terminate();
}
