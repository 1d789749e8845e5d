//! Cameras that record to two volumes at one time, and a player of both.

use std::net::SocketAddr;
use std::ops::Range;

use super::{Client, SDP_TYPE, SECOND, TCP, rtp, serving};
use crate::site::{ReadyServer, Site, call};
use crate::until;

pub const CLOCK: u32 = 90_000;
pub const SECOND_NS: u64 = 1_000_000_000;
pub const FRAMES_PER_SECOND: u32 = 25;
/// From one key frame to the next.
pub const GOP: u32 = 10;

/// A picture in H.264, as far as its first bytes go.
pub const DESCRIPTION: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\nb=AS:400\r\na=rtpmap:96 H264/90000\r\na=control:one\r\n";

/// A camera with timestamps of its own.
pub struct Camera {
    pub client: Client,
    pub volume: &'static str,
    pub base: u32,
    /// From one key frame to the next.
    pub gop: u32,
}

impl Camera {
    pub fn records(address: SocketAddr, volume: &'static str, base: u32) -> Self {
        Self::records_as(address, volume, base, DESCRIPTION)
    }

    pub fn records_as(
        address: SocketAddr,
        volume: &'static str,
        base: u32,
        as_it_is: &str,
    ) -> Self {
        let mut client = Client::connect(address);
        client.ask("ANNOUNCE", volume, SDP_TYPE, as_it_is).is(200);
        client
            .ask("SETUP", &format!("{volume}/one"), TCP, "")
            .is(200);
        client.ask("RECORD", volume, "", "").is(200);
        Self {
            client,
            volume,
            base,
            gop: GOP,
        }
    }

    pub fn publish(&mut self, frames: Range<u32>) {
        for frame in frames {
            let mut body = vec![
                if frame.is_multiple_of(self.gop) {
                    0x65
                } else {
                    0x41
                },
                0x80,
            ];
            body.extend(frame.to_be_bytes());
            body.resize(1_200, frame as u8);
            let timestamp = self.base.wrapping_add(frame * (CLOCK / FRAMES_PER_SECOND));
            self.client
                .packet(0, &rtp(frame as u16, timestamp, self.base, &body));
        }
    }

    pub fn ends(mut self, site: &Site) {
        let volume = self.volume;
        self.client.ask("TEARDOWN", volume, "", "").is(200);
        until("the recording is closed", || newest(site, volume).1);
    }
}

/// When the first packet of the newest recording of a volume came, and whether it has ended.
pub fn newest(site: &Site, volume: &str) -> (u64, bool) {
    let said = call(site, "GET", &format!("/v1/volumes/{volume}/recordings"), "").1;
    let Some(last) = said.as_array().and_then(|all| all.last()) else {
        return (0, false);
    };
    (begun_with(site, volume, last), last["is_recorded"] == false)
}

/// When the first packet of a recording came, which is a moment after it has begun.
fn begun_with(site: &Site, volume: &str, listed: &serde_json::Value) -> u64 {
    let path = format!("/v1/volumes/{volume}/recordings/{}", listed["number"]);
    let of = call(site, "GET", &path, "").1;
    let number = |name: &str| of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"));
    number("begun_unix_ns") + number("begins_ns")
}

/// A server with the volumes `cam` and `other`.
pub fn site() -> (Site, ReadyServer, SocketAddr) {
    let (site, serve, address) = serving("");
    site.run(&["volume", "create", "other", "--size", "30MiB"])
        .done();
    (site, serve, address)
}

/// Eight seconds in `cam`, and in `other` the same and more, which began a moment later.
pub fn recorded() -> (Site, ReadyServer, SocketAddr) {
    let (site, serve, address) = site();
    record(&site, address);
    (site, serve, address)
}

pub fn record(site: &Site, address: SocketAddr) {
    let mut master = Camera::records(address, "cam", 4_294_900_000);
    master.publish(0..70);
    until("it has begun", || newest(site, "cam").0 > 0);
    let mut other = Camera::records(address, "other", 1_000);
    other.publish(0..300);
    master.publish(70..200);
    master.ends(site);
    other.ends(site);
    assert!(newest(site, "other").0 > newest(site, "cam").0);
}

pub fn player(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    let said = client.ask("DESCRIBE", "cam+other", "", "").is(200);
    assert_eq!(said.body.matches("m=video").count(), 2, "{}", said.body);
    client.ask("SETUP", "cam+other/track0", TCP, "").is(200);
    client.ask("SETUP", "cam+other/track1", SECOND, "").is(200);
    client
}

/// A track as it came.
#[derive(Default)]
pub struct ReceivedTrack {
    /// Frames, and their timestamps.
    pub frames: Vec<(u32, u32)>,
    /// Numbers of their packets, and SSRCs.
    pub numbers: Vec<(u16, u32)>,
    /// Times of the sender in nanoseconds, and the timestamps that are then.
    pub reports: Vec<(i128, u32)>,
    /// Whose these are.
    pub sources: Vec<u32>,
    pub has_ended: bool,
}

impl ReceivedTrack {
    /// When a frame is by the sender's clock.
    pub fn at_ns(&self, number: usize) -> i128 {
        let (at, said) = *self.reports.first().expect("a report");
        let apart = self.frames[number].1.wrapping_sub(said) as i32;
        at + i128::from(apart) * 1_000_000_000 / i128::from(CLOCK)
    }

    pub fn take(&mut self, packet: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().expect("four"));
        self.frames.push((number(14), number(4)));
        let sequence = u16::from_be_bytes([packet[2], packet[3]]);
        self.numbers.push((sequence, number(8)));
    }

    pub fn report(&mut self, compound: &[u8]) {
        let mut rest = compound;
        while let [_, kind, high, low, ..] = *rest {
            if kind == 200 {
                let ntp = u64::from_be_bytes(rest[8..16].try_into().expect("eight"));
                let timestamp = u32::from_be_bytes(rest[16..20].try_into().expect("four"));
                let ns = (u128::from(ntp) * 1_000_000_000) >> 32;
                self.reports.push((ns as i128, timestamp));
                let source = rest[4..8].try_into().expect("four");
                self.sources.push(u32::from_be_bytes(source));
            }
            self.has_ended |= kind == 203;
            let words = usize::from(u16::from_be_bytes([high, low])) + 1;
            rest = rest.get(4 * words..).unwrap_or_default();
        }
    }
}

/// As [`comes`], until this many frames of one track have come, or that one has ended.
pub fn comes_on(
    client: &mut Client,
    channel: u8,
    frames: usize,
) -> ([ReceivedTrack; 2], Vec<usize>) {
    let is_it = |tracks: &[ReceivedTrack; 2]| {
        let of = &tracks[usize::from(channel / 2)];
        of.has_ended || of.frames.len() >= frames
    };
    comes_until(client, is_it)
}

/// Frames of both tracks, until this many of each have come or both have ended; and the order in which frames
/// came.
pub fn comes(client: &mut Client, frames: usize) -> ([ReceivedTrack; 2], Vec<usize>) {
    comes_until(client, |tracks| {
        tracks
            .iter()
            .all(|of| of.has_ended || of.frames.len() >= frames)
    })
}

pub fn comes_until(
    client: &mut Client,
    is_it: impl Fn(&[ReceivedTrack; 2]) -> bool,
) -> ([ReceivedTrack; 2], Vec<usize>) {
    let mut tracks = [ReceivedTrack::default(), ReceivedTrack::default()];
    let mut order = Vec::new();
    while !is_it(&tracks) {
        let packets = client.next_packets();
        assert!(!packets.is_empty(), "it ends without a farewell");
        for (channel, packet) in packets {
            let track = usize::from(channel / 2);
            match channel % 2 {
                0 => {
                    tracks[track].take(&packet);
                    order.push(track);
                }
                _ => tracks[track].report(&packet),
            }
        }
    }
    (tracks, order)
}

/// Checks that frames of both tracks are as far apart by the sender's clock as in the recording, divided by
/// `speed`.
#[track_caller]
pub fn are_as_they_were(site: &Site, tracks: &[ReceivedTrack; 2], speed: i128) {
    let frame_ns = 1_000_000_000 / i128::from(FRAMES_PER_SECOND);
    let recorded =
        |volume, frame: u32| i128::from(newest(site, volume).0) + i128::from(frame) * frame_ns;
    let [master, other] = tracks;
    let was = recorded("other", other.frames[0].0) - recorded("cam", master.frames[0].0);
    let is = (other.at_ns(0) - master.at_ns(0)) * speed;
    assert!(
        (is - was).abs() < 20_000_000,
        "{is} ns apart, and were {was}"
    );
}

/// The frames of the first `count` packets on a channel.
pub fn frames_on(client: &mut Client, channel: u8, count: usize) -> Vec<u32> {
    let mut came = ReceivedTrack::default();
    let packets = client.packets_on(channel, count);
    packets.iter().for_each(|packet| came.take(packet));
    came.frames.into_iter().map(|(frame, _)| frame).collect()
}

/// When the first packets of the recordings of a volume came, in order.
pub fn begun(site: &Site, volume: &str) -> Vec<u64> {
    let said = call(site, "GET", &format!("/v1/volumes/{volume}/recordings"), "").1;
    let all = said.as_array().expect("recordings").iter();
    all.map(|of| begun_with(site, volume, of)).collect()
}

/// Nobody comes back before so many frames of what began last are over.
pub fn are_over(site: &Site, volume: &str, frames: u32) {
    let length = u64::from(frames) * SECOND_NS / u64::from(FRAMES_PER_SECOND);
    let ended_ns = u128::from(newest(site, volume).0 + length);
    until("they are over", || {
        std::time::UNIX_EPOCH
            .elapsed()
            .expect("it is later")
            .as_nanos()
            > ended_ns
    });
}

/// Checks that the other track's packets have one source, and that its frames are as far from the master's as
/// in its recordings: from the recording that began then, the frames from that one on.
#[track_caller]
pub fn goes_on_in_time(tracks: &[ReceivedTrack; 2], master_begun: u64, others: &[(u64, u32)]) {
    let [master, other] = tracks;
    let frame_ns = i128::from(SECOND_NS) / i128::from(FRAMES_PER_SECOND);
    let first = i128::from(master_begun) + i128::from(master.frames[0].0) * frame_ns;
    for (number, (frame, _)) in other.frames.iter().enumerate() {
        let (begun, from) = others.iter().rfind(|of| of.1 <= *frame).expect("one");
        let was = i128::from(*begun) + i128::from(frame - from) * frame_ns - first;
        let is = other.at_ns(number) - master.at_ns(0);
        assert!(
            (is - was).abs() < 50_000_000,
            "frame {frame}: {is} ns apart, and was {was}"
        );
    }
    let (first, source) = other.numbers[0];
    for (after, (number, ssrc)) in other.numbers.iter().enumerate() {
        assert_eq!((*number, *ssrc), (first.wrapping_add(after as u16), source));
    }
    assert!(other.sources.iter().all(|ssrc| *ssrc == source));
}

/// Sixteen seconds in `cam`, and in `other` frames from 0 (so many), 2,000 and 1,000 on that were made one
/// after another meanwhile; the second ones are something else.
pub fn come_back(frames: u32) -> (Site, ReadyServer, SocketAddr) {
    let (site, serve, address) = site();
    let mut master = Camera::records(address, "cam", 4_294_900_000);
    master.publish(0..400);
    until("it has begun", || newest(&site, "cam").0 > 0);
    let mut first = Camera::records(address, "other", 9);
    first.publish(0..frames);
    first.ends(&site);
    are_over(&site, "other", frames + 10);
    let other = DESCRIPTION.replace("H264", "H265");
    let mut second = Camera::records_as(address, "other", 99, &other);
    second.publish(2_000..2_005);
    second.ends(&site);
    are_over(&site, "other", 10);
    let mut third = Camera::records(address, "other", 999_999);
    third.publish(1_000..1_100);
    third.ends(&site);
    master.ends(&site);
    (site, serve, address)
}
