//! The times of recordings and the causes of gaps survive restarts and a kill.

use serde_json::Value;
use testkit::rtsp::camera::Camera;
use testkit::rtsp::source::{add, has, packets, send};
use testkit::rtsp::{TCP, publisher, rtp, sdp, serve_logged, serving_logged};
use testkit::site::{Site, call};
use testkit::until;

/// The recording or the cause of each entry of the timeline of `cam`, of which each begins where the one before ends.
#[track_caller]
fn entries(site: &Site) -> Vec<String> {
    let all = site.json(&["timeline", "cam", "--from", "-1h"]);
    let all = all.as_array().expect("entries");
    let time = |of: &Value, name: &str| of[name].as_u64().expect("a time");
    for pair in all.windows(2) {
        let (end, begin) = (
            time(&pair[0], "ends_unix_ns"),
            time(&pair[1], "begins_unix_ns"),
        );
        assert_eq!(end, begin, "{pair:?}");
    }
    let text = |of: &Value| match of["cause"].as_str() {
        Some(cause) => cause.to_owned(),
        None => format!(
            "{}{}",
            of["recording"],
            if of["is_recorded"] == true { "+" } else { "" }
        ),
    };
    all.iter().map(text).collect()
}

/// Records more than a block, so that it is there before the recording ends.
fn publish(site: &Site, address: std::net::SocketAddr) -> testkit::rtsp::Client {
    let mut client = publisher(address, TCP);
    for number in 0..200_u16 {
        let packet = rtp(number, u32::from(number), 1, &[number as u8; 1_000]);
        client.packet(0, &packet);
    }
    until("a block is durable", || {
        let sessions = call(site, "GET", "/v1/sessions", "").1;
        sessions[0]["durable_bytes"].as_u64() > Some(0)
    });
    client
}

#[test]
fn gaps_have_causes_that_survive_restarts() {
    let (site, server, address) = serving_logged("");
    let camera = Camera::new();
    add(&site, &camera.url(""), &[]);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(0..200, 7));
    has(&site, 200);
    // The camera closes its connection, and goes on in the same recording.
    drop(visit);
    let mut visit = camera.visit();
    visit.plays(&sdp(800));
    send(&mut visit, &packets(200..400, 8));
    has(&site, 400);
    until("the gap is listed", || {
        entries(&site) == ["1", "camera", "1+"]
    });
    site.json(&["source", "remove", "door"]);
    assert_eq!(entries(&site), ["1", "camera", "1", "server"]);
    // A publisher that ends its recording.
    let mut client = publish(&site, address);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    let of_two = ["1", "camera", "1", "server", "2", "camera"];
    until("it has ended", || entries(&site) == of_two);
    assert_eq!(server.terminate().0, Some(0));
    let (server, address) = serve_logged(&site);
    assert_eq!(entries(&site), of_two);
    // A server that stops while something is recorded, and one that is killed.
    let _client = publish(&site, address);
    assert_eq!(server.terminate().0, Some(0));
    let (server, address) = serve_logged(&site);
    let of_three = [&of_two[..], &["3", "server"]].concat();
    until("the end is listed", || entries(&site) == of_three);
    let _client = publish(&site, address);
    server.kill();
    let (server, _) = serve_logged(&site);
    let of_four = [&of_three[..], &["4", "server"]].concat();
    until("the end is listed", || entries(&site) == of_four);
    let said = site.run(&["timeline", "cam", "--zone", "Asia/Tokyo", "--from", "-1h"]);
    let said = said.done().out;
    for words in ["gap: camera", "recording 4", "+09:00"] {
        assert!(said.contains(words), "{said}");
    }
    let long_ago = site.run(&["timeline", "cam", "--day", "1999-12-31", "--zone", "UTC"]);
    assert!(
        long_ago
            .done()
            .out
            .contains("nothing was recorded from 1999-12-31 00:00:00+00:00")
    );
    site.run(&["timeline", "cam", "--day", "2999-12-31"])
        .fails(2, &["--day", "after 2500"]);
    site.run(&["timeline", "cam", "--day", "2299-12-31"])
        .fails(2, &["in the future"]);
    server.terminate();
}
