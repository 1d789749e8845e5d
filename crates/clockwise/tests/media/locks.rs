//! Locked times outlive retention, restarts and mistakes, and end when they are told to.

use jiff::Timestamp;
use serde_json::Value;
use testkit::rtsp::files::{clip, record, sums};
use testkit::rtsp::peers::SEEN;
use testkit::rtsp::{Client, SDP_TYPE, TCP, sdp, serve, serving};
use testkit::site::Site;
use testkit::skip::have;
use testkit::until;

const ENCODED: [&str; 8] = [
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-g",
    "10",
    "-bf",
    "0",
];

fn utc(unix_ns: u64) -> String {
    Timestamp::from_nanosecond(unix_ns.into())
        .expect("a time")
        .to_string()
}

/// The numbers of the recordings in a volume.
fn numbers(site: &Site, volume: &str) -> Vec<Value> {
    let listed = site.json(&["recording", "list", volume]);
    let all = listed.as_array().expect("a list").iter();
    all.map(|of| of["number"].clone()).collect()
}

#[test]
fn locked_times_outlive_what_deletes_recordings() {
    if !have("ffmpeg") {
        return;
    }
    let (site, server, address) = serving("");
    let clip = clip(&site, "a.mp4", 2, &ENCODED);
    let frames = sums(&clip, &SEEN);
    record(&site, address, &clip, "tcp");
    let listed = site.json(&["recording", "list", "cam"]);
    let number = |name: &str| listed[0][name].as_u64().expect("a number");
    let begun = number("begun_unix_ns");
    let end = begun + number("length_ns") + 100_000_000;
    until("it is over", || {
        Timestamp::now().as_nanosecond() > i128::from(end)
    });
    let range = ["--from", &utc(begun), "--until", &utc(end)];
    let lock = ["recording", "lock", "cam", "--note", "theft at the gate"];
    let made = site.json(&[&lock[..], &range].concat());
    assert_eq!(made["name"], "cam.lock-1", "{made}");
    assert_eq!(made["missing_blocks"], 0, "{made}");
    // An explicit deletion is refused.
    site.run(&["recording", "delete", "cam", "1"])
        .fails(1, &["theft at the gate", "unlock"]);
    // The limit drops it.
    let keep = ["recording", "keep", "cam", "--size", "256KiB", "--force"];
    site.run(&keep).done();
    record(&site, address, &clip, "tcp");
    record(&site, address, &clip, "tcp");
    assert!(!numbers(&site, "cam").contains(&1.into()));
    let to = site.path("locked.mp4").display().to_string();
    let export = [&["recording", "export", "cam", "--to", &to][..], &range].concat();
    site.run(&export).done();
    assert_eq!(sums(&to, &SEEN), frames);
    server.terminate();
    let (server, address) = serve(&site);
    std::fs::remove_file(&to).expect("a file");
    site.run(&export).done();
    assert_eq!(sums(&to, &SEEN), frames);
    assert_eq!(numbers(&site, "cam.lock-1"), [1]);
    let checked = site.json(&["recording", "check", "cam.lock-1", "1"]);
    assert_eq!(checked["damaged"], 0, "{checked}");
    let said = site
        .run(&["recording", "locks", "--zone", "UTC"])
        .done()
        .out;
    assert!(said.contains("theft at the gate"), "{said}");
    is_protected(&site, address);
    site.run(&["recording", "unlock", "cam"])
        .fails(2, &["not a lock", "recording locks"]);
    site.run(&["recording", "unlock", "cam.lock-1"]).done();
    site.run(&export).fails(2, &["nothing was recorded"]);
    assert_eq!(site.json(&["recording", "locks"]), serde_json::json!([]));
    expires(&site);
    server.terminate();
}

/// The copy is neither deleted, changed nor recorded to.
fn is_protected(site: &Site, address: std::net::SocketAddr) {
    let copy = "cam.lock-1";
    for command in [
        &["volume", "delete", copy][..],
        &["recording", "delete", copy, "1"],
        &["recording", "keep", copy, "--for", "1d"],
    ] {
        site.run(command).fails(1, &["theft at the gate", "unlock"]);
    }
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", copy, SDP_TYPE, &sdp(800));
    let refused = client.ask("SETUP", &format!("{copy}/track0"), TCP, "");
    assert_ne!(refused.status, 200, "{}", refused.body);
}

/// A lock with an expiry is deleted then.
fn expires(site: &Site) {
    let second = 1_000_000_000;
    let now = Timestamp::now().as_nanosecond() as u64;
    let listed = site.json(&["recording", "list", "cam"]);
    let begun = listed[0]["begun_unix_ns"].as_u64().expect("a time");
    let range = ["--from", &utc(begun), "--until", &utc(now)];
    let expiry = utc(now + 4 * second);
    let lock = ["recording", "lock", "cam", "--expires", &expiry];
    let made = site.json(&[&lock[..], &range].concat());
    assert_eq!(made["expires_unix_ns"], now + 4 * second, "{made}");
    until("it has expired", || {
        site.json(&["recording", "locks"]) == serde_json::json!([])
    });
    let volumes = site.json(&["volume", "list"]).to_string();
    assert!(!volumes.contains("lock-"), "{volumes}");
}
