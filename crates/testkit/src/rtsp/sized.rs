//! Packets of which it is known how many fill a block, and what is said of the sessions that they are of.

use std::net::SocketAddr;

use serde_json::Value;

use super::{Client, SDP_TYPE, TCP, rtp, sdp};
use crate::site::{Site, call};

pub const BLOCK: u64 = 65_536;
/// Bytes of a packet's body: with these, 53 packets are a block.
pub const BODY: usize = 1_200;
pub const PACKETS_IN_BLOCK: u64 = 53;

/// A publisher of `kbit` kbit/s.
pub fn publisher(address: SocketAddr, kbit: u64) -> Client {
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(kbit)).is(200);
    client.ask("SETUP", "cam/one", TCP, "").is(200);
    client.ask("RECORD", "cam", "", "").is(200);
    client
}

/// Packets for `blocks` blocks, from a number and a time on, with this many milliseconds in each block.
pub fn packets(first: u64, blocks: u64, from_ms: u64, block_ms: u64) -> Vec<Vec<u8>> {
    let numbers = 0..blocks * PACKETS_IN_BLOCK;
    numbers
        .map(|number| {
            let at_ms = from_ms + number * block_ms / PACKETS_IN_BLOCK;
            let sequence = (first + number) as u16;
            rtp(sequence, at_ms as u32, 7, &[sequence as u8; BODY])
        })
        .collect()
}

pub fn sessions(site: &Site) -> Vec<Value> {
    let listed = call(site, "GET", "/v1/sessions", "").1;
    listed.as_array().cloned().unwrap_or_default()
}

pub fn number(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"))
}

/// Checks that this many packets have been recorded, and that the recording is sound.
pub fn whole(site: &Site, packets: usize) {
    let found = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (number(&found, "packets"), number(&found, "lost")),
        (packets as u64, 0),
        "{found}"
    );
    assert_eq!(found["is_sound"], true, "{found}");
}
