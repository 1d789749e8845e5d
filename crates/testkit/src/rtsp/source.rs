//! A source that the server pulls from, and a camera for it.

use std::net::SocketAddr;

use serde_json::Value;

use super::camera::{Camera, CameraConnection};
use super::{Client, TCP, rtp, sdp, serving};
use crate::site::{ReadyServer, Site, call};
use crate::until;

/// A source called `door`, recorded in `cam`.
pub fn add(site: &Site, url: &str, more: &[&str]) -> Value {
    site.json(&[&["source", "add", "door", url, "--volume", "cam"], more].concat())
}

pub fn shown(site: &Site) -> Value {
    site.json(&["source", "show", "door"])
}

/// Waits until a source is so.
#[track_caller]
pub fn is(site: &Site, what: &str, mut is: impl FnMut(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    until(what, || {
        last = shown(site);
        is(&last)
    });
    last
}

/// Waits until so many packets have come.
#[track_caller]
pub fn has(site: &Site, packets: u64) -> Value {
    is(site, "the packets have come", |of| of["packets"] == packets)
}

/// Waits until so many reports have come.
#[track_caller]
pub fn reports(site: &Site, reports: u64) {
    until("the reports have come", || {
        // A program that asks would take too long before what comes next.
        let sessions = call(site, "GET", "/v1/sessions", "").1;
        sessions[0]["reports"] == reports
    });
}

/// Waits until it says why it does not record.
#[track_caller]
pub fn says(site: &Site, state: &str, word: &str) -> Value {
    let what = format!("it is {state} and says {word:?}");
    let says = |of: &Value| of["reason"].as_str().is_some_and(|of| of.contains(word));
    is(site, &what, |of| of["state"] == state && says(of))
}

/// Waits until the last reason why it did not record has this word, whether it is called again or not.
#[track_caller]
pub fn reasons(site: &Site, word: &str) -> String {
    let says = |of: &Value| of["reason"].as_str().is_some_and(|of| of.contains(word));
    let shown = is(site, &format!("it says {word:?}"), says);
    shown["reason"].as_str().unwrap_or_default().to_owned()
}

/// Packets with these numbers, a millisecond apart.
pub fn packets(numbers: std::ops::Range<u16>, ssrc: u32) -> Vec<Vec<u8>> {
    let packet = |number: u16| rtp(number, u32::from(number), ssrc, &[number as u8; 1_000]);
    numbers.map(packet).collect()
}

pub fn send(visit: &mut CameraConnection, packets: &[Vec<u8>]) {
    for packet in packets {
        visit.packet(packet);
    }
}

/// All packets of the newest recording of `cam`.
pub fn played(address: SocketAddr, count: usize) -> Vec<Vec<u8>> {
    let mut client = Client::connect(address);
    client.ask("SETUP", "cam/track0", TCP, "").is(200);
    client.ask("PLAY", "cam", "Range: npt=0-\r\n", "").is(200);
    client.packets_on(0, count)
}

/// Removes the source; the newest recording of `cam` has these packets.
#[track_caller]
pub fn ends(site: &Site, address: SocketAddr, packets: &[Vec<u8>]) {
    site.json(&["source", "remove", "door"]);
    assert!(played(address, packets.len()) == packets);
}

/// All that a camera sends is recorded as it is; the source is removed then.
#[track_caller]
pub fn records(site: &Site, address: SocketAddr, visit: &mut CameraConnection, sent: &[Vec<u8>]) {
    send(visit, sent);
    has(site, sent.len() as u64);
    ends(site, address, sent);
}

/// A server whose configuration says so much more, and a camera that it has called for a source with these options.
pub fn connected(
    more: &str,
    options: &[&str],
) -> (Site, ReadyServer, SocketAddr, Camera, CameraConnection) {
    let (site, server, address) = serving(more);
    let camera = Camera::new();
    add(&site, &camera.url(""), options);
    let visit = camera.visit();
    (site, server, address, camera, visit)
}

/// As [`connected`], with a camera that plays.
pub fn called(transport: &str) -> (Site, ReadyServer, SocketAddr, Camera, CameraConnection) {
    let mut all = connected("", &["--transport", transport]);
    all.4.plays(&sdp(800));
    all
}
