//! Frames that say which they are, recorded and played over RTSP.

use std::net::SocketAddr;

use serde_json::Value;

use super::Client;
use super::RtspResponse;
use super::SDP_TYPE;
use super::TCP;
use super::rtp;
use super::serving;
use crate::site::{ReadyServer, Site, call};
use crate::until;

/// Units of a picture's timestamps in a second.
pub const CLOCK: u64 = 90_000;
pub const FRAMES_PER_SECOND: u64 = 25;
/// From one key frame to the next.
pub const GOP: u64 = 10;
pub const PARTS: u64 = 10;
pub const TIMESTAMP: u64 = 4_000_000_000;
pub const SEQUENCE: u64 = 65_000;

/// A picture in H.264 as far as its first bytes go, at 350 kB/s, of which twice that may be recorded.
pub fn description() -> String {
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
     b=AS:5000\r\na=rtpmap:96 H264/90000\r\na=control:one\r\n"
        .to_owned()
}

/// A part of a frame; what frame and part it is, is in it.
pub fn part(frame: u64, part: u64) -> Vec<u8> {
    let mut body = vec![if frame.is_multiple_of(GOP) {
        0x65
    } else {
        0x41
    }];
    body.extend((frame as u32).to_be_bytes());
    body.push(part as u8);
    body.resize(1_400, frame as u8);
    let timestamp = TIMESTAMP + frame * CLOCK / FRAMES_PER_SECOND;
    let sequence = SEQUENCE + frame * PARTS + part;
    rtp(sequence as u16, timestamp as u32, 5, &body)
}

/// A packet's number, timestamp, frame and part.
pub fn seen(packet: &[u8]) -> (u16, u32, u64, u8) {
    let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().expect("four"));
    let sequence = u16::from_be_bytes([packet[2], packet[3]]);
    (sequence, number(4), u64::from(number(13)), packet[17])
}

pub fn publisher(address: SocketAddr) -> Client {
    describes(address, &description())
}

/// As [`publisher`], with parameters that a decoder needs, which are not those of these frames.
pub fn decodable(address: SocketAddr) -> Client {
    let known = "a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LACtoR7ARAAAADAEAAAAMCg8SJqA==,aM4BNyA=\r\n";
    let rtpmap = "a=rtpmap:96 H264/90000\r\n";
    describes(
        address,
        &description().replace(rtpmap, &[rtpmap, known].concat()),
    )
}

fn describes(address: SocketAddr, description: &str) -> Client {
    let mut client = Client::connect(address);
    client.ask("ANNOUNCE", "cam", SDP_TYPE, description).is(200);
    set_up(&mut client, "cam/one");
    client.ask("RECORD", "cam", "", "").is(200);
    client
}

/// Those before have their shares until their last deadlines.
fn set_up(client: &mut Client, path: &str) {
    until("there is room for another one", || {
        let said = client.ask("SETUP", path, TCP, "");
        if said.status == 453
            && said
                .body
                .contains("is still held by reservations that have ended")
        {
            return false;
        }
        said.is(200);
        true
    });
}

pub fn publish(client: &mut Client, frames: std::ops::Range<u64>) {
    for frame in frames {
        (0..PARTS).for_each(|number| client.packet(0, &part(frame, number)));
    }
}

/// A recording of so many frames, which has ended.
pub fn recorded(frames: u64) -> (Site, ReadyServer, SocketAddr) {
    let (site, serve, address) = serving("");
    let mut client = publisher(address);
    publish(&mut client, 0..frames);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the recording is closed", || {
        recordings(&site)[0]["is_recorded"] == false
    });
    (site, serve, address)
}

pub fn recordings(site: &Site) -> Value {
    call(site, "GET", "/v1/volumes/cam/recordings", "").1
}

pub fn player(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    set_up(&mut client, "cam/track0");
    client
}

/// When the first packet of the recording is, in its milliseconds: it came a moment after RECORD.
pub fn begins_ms(client: &mut Client) -> u64 {
    let said = client.ask("PLAY", "cam", "Range: npt=0-\r\n", "").is(200);
    client.ask("PAUSE", "cam", "", "").is(200);
    let range = said.header("Range").unwrap_or_default();
    let seconds = range.trim_start_matches("npt=").trim_end_matches('-');
    seconds
        .replace('.', "")
        .parse()
        .expect("seconds with three places")
}

/// True if a compound packet contains a BYE.
pub fn says_goodbye(compound: &[u8]) -> bool {
    let mut rest = compound;
    while let [_, kind, high, low, ..] = *rest {
        if kind == 203 {
            return true;
        }
        let words = usize::from(u16::from_be_bytes([high, low])) + 1;
        rest = rest.get(4 * words..).unwrap_or_default();
    }
    false
}

/// Packets of a PLAY with these headers, up to the BYE.
pub fn played(address: SocketAddr, headers: &str) -> (Vec<(u16, u32, u64, u8)>, RtspResponse) {
    played_by(player(address), headers)
}

pub fn played_by(mut client: Client, headers: &str) -> (Vec<(u16, u32, u64, u8)>, RtspResponse) {
    played_on(&mut client, 0, headers)
}

/// As [`played`], for the track whose packets come on a channel.
pub fn played_on(
    client: &mut Client,
    channel: u8,
    headers: &str,
) -> (Vec<(u16, u32, u64, u8)>, RtspResponse) {
    let said = client.ask("PLAY", "cam", headers, "").is(200);
    let packets = up_to_the_farewell(client, channel);
    client.ask("TEARDOWN", "cam", "", "").is(200);
    (packets, said)
}

/// Packets on a channel up to the BYE.
pub fn up_to_the_farewell(client: &mut Client, channel: u8) -> Vec<(u16, u32, u64, u8)> {
    // A report at the beginning, and that this was all.
    loop {
        let reports = client.packets_on(channel + 1, 1);
        if reports.iter().any(|report| says_goodbye(report)) {
            break;
        }
        let count = reports.len() + 1;
        client.packets_on(channel + 1, count);
    }
    let packets = client.packets_on(channel, 0);
    packets.iter().map(|packet| seen(packet)).collect()
}

/// The number and the time of the first packet, as the answer says.
pub fn told(said: &RtspResponse) -> (u16, u32) {
    let told = said.header("RTP-Info").unwrap_or_default();
    let (_, numbers) = told.split_once("seq=").expect("a number");
    let (sequence, timestamp) = numbers.split_once(";rtptime=").expect("a time");
    let sequence = sequence.parse().expect("a number");
    (sequence, timestamp.parse().expect("a time"))
}
