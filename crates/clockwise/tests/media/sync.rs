//! Sound and picture that `ffmpeg` has published together come together, by what sender reports say and by
//! when they come.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use testkit::process::WITHIN;
use testkit::rtsp::udp::Pair;
use testkit::rtsp::{Client, SECOND, TCP, serving};
use testkit::site::{Site, outcome};
use testkit::skip::{have, tool};
use testkit::until;

/// Difference between sound and picture that nobody notices (EBU R37 allows 40 ms before and 60 ms behind,
/// ITU-R BT.1359 more).
const APART_US_MAX: i64 = 80_000;

const SECONDS: u64 = 12;
const PICTURE_CLOCK: i64 = 90_000;
const SOUND_CLOCK: i64 = 8_000;

/// A track as it came.
#[derive(Default)]
struct ReceivedTrack {
    clock: i64,
    /// When each packet came, and its timestamp.
    packets: Vec<(i64, u32)>,
    /// Bytes of each without its header.
    octets: Vec<u32>,
    /// Times of the sender, in microseconds, and the timestamps that are then.
    reports: Vec<(i64, u32)>,
    /// Packets and bytes of them that had been sent by each.
    sent: Vec<(u32, u32)>,
    has_ended: bool,
}

impl ReceivedTrack {
    fn take(&mut self, now: i64, packet: &[u8]) {
        let timestamp = u32::from_be_bytes(packet[4..8].try_into().expect("four"));
        self.packets.push((now, timestamp));
        self.octets.push(packet.len() as u32 - 12);
    }

    /// Each report says how much had been sent before the packet that it is of.
    fn counts_are_right(&self) {
        for ((_, timestamp), (packets, octets)) in self.reports.iter().zip(&self.sent) {
            let next = *packets as usize;
            assert_eq!(self.packets[next].1, *timestamp, "after {packets} packets");
            assert_eq!(self.octets[..next].iter().sum::<u32>(), *octets);
        }
    }

    fn report(&mut self, compound: &[u8]) {
        let mut rest = compound;
        while let [_, kind, high, low, ..] = *rest {
            if kind == 200 {
                let ntp = u64::from_be_bytes(rest[8..16].try_into().expect("eight"));
                let us = (u128::from(ntp) * 1_000_000) >> 32;
                let timestamp = u32::from_be_bytes(rest[16..20].try_into().expect("four"));
                self.reports.push((us as i64, timestamp));
                let count =
                    |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("four"));
                self.sent.push((count(20), count(24)));
            }
            self.has_ended |= kind == 203;
            let words = usize::from(u16::from_be_bytes([high, low])) + 1;
            rest = rest.get(4 * words..).unwrap_or_default();
        }
    }

    /// When a timestamp is by the sender's time, in microseconds.
    fn time_us(&self, report: (i64, u32), timestamp: u32) -> i64 {
        let (at, said) = report;
        at + i64::from(timestamp.wrapping_sub(said) as i32) * 1_000_000 / self.clock
    }

    /// Delay of the earliest packet of each second against the sender's time, for seconds with many packets.
    fn late_us(&self) -> BTreeMap<i64, i64> {
        let mut seconds: BTreeMap<i64, (usize, i64)> = BTreeMap::new();
        for (came, timestamp) in &self.packets {
            let at = self.time_us(self.reports[0], *timestamp);
            let late = came - at;
            let (count, least) = seconds.entry(at / 1_000_000).or_insert((0, late));
            *count += 1;
            *least = late.min(*least);
        }
        let many = seconds.into_iter().filter(|(_, (count, _))| *count >= 20);
        many.map(|(second, (_, late))| (second, late)).collect()
    }
}

fn nothing() -> [ReceivedTrack; 2] {
    [PICTURE_CLOCK, SOUND_CLOCK].map(|clock| ReceivedTrack {
        clock,
        ..ReceivedTrack::default()
    })
}

/// A player's frames of the newest recording by UDP.
fn played_by_udp(address: SocketAddr) -> [ReceivedTrack; 2] {
    let mut player = Client::connect(address);
    let pairs = ["cam/track0", "cam/track1"].map(|track| {
        let pair = Pair::new();
        let said = player.ask("SETUP", track, &pair.transport(), "").is(200);
        pair.agreed(address, &said);
        pair
    });
    player.ask("PLAY", "cam", "Range: npt=0-\r\n", "").is(200);
    let mut tracks = nothing();
    let begun = Instant::now();
    let mut bytes = [0; 65_536];
    let wait = WITHIN.try_into().expect("a time");
    while !tracks.iter().all(|of| of.has_ended) {
        let sockets = pairs.iter().flat_map(Pair::sockets);
        let mut fds: Vec<PollFd<'_>> = sockets
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        let ready = poll(&mut fds, Some(&wait)).expect("it is waited for");
        assert!(ready > 0, "it ends without a farewell");
        let now = begun.elapsed().as_micros() as i64;
        // A farewell is not read before what came before it.
        let is_any = fds.iter().step_by(2).any(|fd| !fd.revents().is_empty());
        for (number, fd) in fds.iter().enumerate() {
            if fd.revents().is_empty() || is_any && number % 2 == 1 {
                continue;
            }
            let (of, kind) = (&mut tracks[number / 2], number % 2);
            let count = pairs[number / 2].sockets()[kind].recv(&mut bytes);
            let packet = &bytes[..count.expect("a packet")];
            match kind {
                0 => of.take(now, packet),
                _ => of.report(packet),
            }
        }
    }
    tracks
}

/// A player's frames in its connection.
fn played(address: SocketAddr) -> [ReceivedTrack; 2] {
    let mut player = Client::connect(address);
    player.ask("SETUP", "cam/track0", TCP, "").is(200);
    player.ask("SETUP", "cam/track1", SECOND, "").is(200);
    player.ask("PLAY", "cam", "Range: npt=0-\r\n", "").is(200);
    let mut tracks = nothing();
    let begun = Instant::now();
    while !tracks.iter().all(|of| of.has_ended) {
        let packets = player.next_packets();
        assert!(!packets.is_empty(), "it ends without a farewell");
        let now = begun.elapsed().as_micros() as i64;
        for (channel, packet) in packets {
            let of = &mut tracks[usize::from(channel / 2)];
            if channel % 2 == 1 {
                of.report(&packet);
            } else {
                of.take(now, &packet);
            }
        }
    }
    tracks
}

/// Publishes a clip whose picture and sound begin together, by this transport, as it is seen and heard.
fn publish(address: SocketAddr, transport: &str) {
    let video = format!("testsrc2=size=320x240:rate=25:duration={SECONDS}");
    let sound =
        format!("sine=frequency=440:sample_rate=8000:samples_per_frame=320:duration={SECONDS}");
    let mut command = tool("ffmpeg");
    command.args(["-nostdin", "-loglevel", "error"]);
    for input in [&video, &sound] {
        command.args(["-re", "-f", "lavfi", "-i", input]);
    }
    let encoded = "-c:v libx264 -preset ultrafast -tune zerolatency -pix_fmt yuv420p -g 25 -c:a pcm_mulaw -f rtsp";
    command.args(encoded.split(' '));
    let url = format!("rtsp://{address}/cam");
    outcome(command.args(["-rtsp_transport", transport, &url])).done();
}

fn ended(site: &Site) -> usize {
    let list = site.json(&["recording", "list", "cam"]);
    let list = list.as_array().expect("a list");
    list.iter().filter(|of| of["is_recorded"] == false).count()
}

#[test]
#[expect(clippy::print_stderr, reason = "what was measured is told")]
fn sound_and_picture_of_ffmpeg_come_together() {
    if !have("ffmpeg") {
        return;
    }
    let (site, serve, address) = serving("rate = \"400KB/s\"");
    for (number, transport) in ["tcp", "udp"].into_iter().enumerate() {
        publish(address, transport);
        until("the recording is closed", || ended(&site) == number + 1);
        let [picture, sound] = match transport {
            "tcp" => played(address),
            _ => played_by_udp(address),
        };
        picture.counts_are_right();
        sound.counts_are_right();
        let all = SECONDS as usize;
        assert!(picture.packets.len() >= all * 25 && sound.packets.len() >= all * 24);
        // The first of each are of one time. Each report of a track says so with each of the other.
        assert!(picture.reports.len() >= 2 && sound.reports.len() >= 2);
        let mut said_us = Vec::new();
        for of_picture in &picture.reports {
            for of_sound in &sound.reports {
                let shown = picture.time_us(*of_picture, picture.packets[0].1);
                said_us.push(sound.time_us(*of_sound, sound.packets[0].1) - shown);
            }
        }
        // By when they come, net of what makes both late.
        let (shown, heard) = (picture.late_us(), sound.late_us());
        let both = shown
            .iter()
            .filter_map(|(second, late)| Some(heard.get(second)? - late));
        let mut came_us: Vec<i64> = both.collect();
        assert!(came_us.len() >= all - 2, "{} seconds", came_us.len());
        for apart in said_us.iter().chain(&came_us) {
            assert!(
                apart.abs() < APART_US_MAX,
                "{transport}: {said_us:?}, {came_us:?}"
            );
        }
        came_us.sort_by_key(|apart| apart.abs());
        eprintln!(
            "by {transport}: sound is {} us behind the picture by what is said, and comes {} us behind it, {} at most",
            said_us[0],
            came_us[came_us.len() / 2],
            came_us[came_us.len() - 1],
        );
    }
    serve.terminate();
}
