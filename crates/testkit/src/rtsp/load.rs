//! Many cameras and players in two threads, for measurements on the machine of the server.
//!
//! A camera sends pictures of equal size in H.264, as far as their first bytes go. Each packet carries its number and
//! the time of its sending. So a player knows the delay of each packet and the packets that are missing, whatever
//! numbers the server gives them.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::udp::Pair;
use super::{Client, RtspResponse, SDP_TYPE, TCP};

pub const FRAMES_PER_SECOND: u64 = 25;
/// Pictures from one key frame to the next.
const GOP: u64 = 50;
const CLOCK: u64 = 90_000;
/// Bytes of the largest body of a packet.
const BODY_BYTES: usize = 1_200;
/// Header of RTP, two bytes of H.264, and one that begins a slice.
const NUMBER_AT: usize = 12 + 3;
const SENT_AT: usize = NUMBER_AT + 8;
const BODY_BYTES_MIN: usize = SENT_AT + 8 - 12;
/// A session without a sign of life is ended by the server after a minute.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(20);

/// The times that packets carry count from here.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(Instant);

impl Epoch {
    pub fn now() -> Self {
        Self(Instant::now())
    }

    pub fn ns(self, at: Instant) -> u64 {
        at.duration_since(self.0).as_nanos() as u64
    }

    fn at(self, ns: u64) -> Instant {
        self.0 + Duration::from_nanos(ns)
    }
}

fn description(kbit: u64) -> String {
    format!(
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
         m=video 0 RTP/AVP 96\r\nb=AS:{kbit}\r\na=rtpmap:96 H264/90000\r\n\
         a=fmtp:96 packetization-mode=1\r\na=control:one\r\n"
    )
}

/// A camera that publishes to a path.
pub struct Camera {
    client: Client,
    path: String,
    frame_bytes: usize,
    frame: u64,
    /// Packets that were sent.
    pub packets: u64,
}

impl Camera {
    /// Begins to publish. `promised_kbit` is the rate in the description, `kbit` that of the pictures.
    pub fn publishes(address: SocketAddr, path: &str, kbit: u64, promised_kbit: u64) -> Self {
        let mut client = Client::connect(address);
        let description = description(promised_kbit);
        client.ask("ANNOUNCE", path, SDP_TYPE, &description).is(200);
        client.ask("SETUP", &format!("{path}/one"), TCP, "").is(200);
        client.ask("RECORD", path, "", "").is(200);
        Self {
            client,
            path: path.to_owned(),
            frame_bytes: (kbit * 1_000 / 8 / FRAMES_PER_SECOND) as usize,
            frame: 0,
            packets: 0,
        }
    }

    /// Sends the next picture at once. Blocks while the server does not take it.
    pub fn sends_picture(&mut self, epoch: Epoch) {
        let packets = self.frame_bytes.div_ceil(BODY_BYTES).max(1);
        let len = (self.frame_bytes / packets).max(BODY_BYTES_MIN);
        let kind = if self.frame.is_multiple_of(GOP) { 5 } else { 1 };
        let timestamp = (self.frame * CLOCK / FRAMES_PER_SECOND) as u32;
        let mut bytes = Vec::with_capacity(packets * (len + 16));
        for packet in 0..packets {
            let (is_first, is_last) = (packet == 0, packet + 1 == packets);
            bytes.extend([b'$', 0]);
            bytes.extend((12 + len as u16).to_be_bytes());
            let begin = bytes.len();
            bytes.extend([0x80, 96 | u8::from(is_last) << 7]);
            bytes.extend((self.packets as u16).to_be_bytes());
            bytes.extend(timestamp.to_be_bytes());
            bytes.extend(7_u32.to_be_bytes());
            // A picture in one packet is a NAL unit, and a longer one is fragments of it (FU-A, RFC 6184).
            let ends = u8::from(is_first) << 7 | u8::from(is_last) << 6;
            bytes.extend(match packets {
                1 => [0x60 | kind, 0x80, 0x5a],
                _ => [0x60 | 28, ends | kind, 0x80],
            });
            bytes.extend(self.packets.to_be_bytes());
            bytes.extend(epoch.ns(Instant::now()).to_be_bytes());
            bytes.resize(begin + 12 + len, 0x5a);
            self.packets += 1;
        }
        self.client.send(&bytes);
        self.frame += 1;
    }

    pub fn ends(mut self) {
        let path = self.path.clone();
        self.client.ask("TEARDOWN", &path, "", "").is(200);
    }
}

/// Stops cameras and players also when the test fails.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Publishes by all cameras in real time, one after another within the time of a picture, until it is stopped.
pub fn publish(cameras: &mut [Camera], epoch: Epoch, stop: &AtomicBool) {
    let picture_ns = 1_000_000_000 / FRAMES_PER_SECOND;
    let step_ns = picture_ns / cameras.len().max(1) as u64;
    let mut due_ns = epoch.ns(Instant::now());
    while !stop.load(Ordering::Relaxed) {
        for (number, camera) in cameras.iter_mut().enumerate() {
            let due = epoch.at(due_ns + number as u64 * step_ns);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            camera.sends_picture(epoch);
        }
        due_ns += picture_ns;
    }
}

/// A delay of a packet: when it was received, and for how long it was under way, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    pub received_ns: u64,
    pub delay_ns: u64,
}

/// A player of the first track of a path.
pub struct Player {
    client: Client,
    udp: Option<Pair>,
    path: String,
    is_live: bool,
    next: Option<u64>,
    kept_alive: Instant,
    pub packets: u64,
    /// Packets of the camera between those received that did not come.
    pub missing: u64,
    /// Of live packets.
    pub delays: Vec<Delay>,
}

impl Player {
    /// Connects a session that does not play yet. The error is the server's refusal.
    pub fn connect(
        address: SocketAddr,
        path: &str,
        is_live: bool,
        is_udp: bool,
    ) -> Result<Self, RtspResponse> {
        let mut client = Client::connect(address);
        let udp = is_udp.then(Pair::new);
        let transport = udp.as_ref().map_or(TCP.to_owned(), Pair::transport);
        let said = client.ask("SETUP", &format!("{path}/track0"), &transport, "");
        if said.status != 200 {
            return Err(said);
        }
        if let Some(pair) = &udp {
            pair.agreed(address, &said);
            for socket in pair.sockets() {
                socket.set_nonblocking(true).expect("a socket");
            }
        }
        Ok(Self {
            client,
            udp,
            path: path.to_owned(),
            is_live,
            next: None,
            kept_alive: Instant::now(),
            packets: 0,
            missing: 0,
            delays: Vec::new(),
        })
    }

    /// Begins to play.
    pub fn plays(&mut self) {
        let path = self.path.clone();
        self.client.ask("PLAY", &path, "", "").is(200);
    }

    pub fn ends(mut self) {
        let path = self.path.clone();
        self.client.ask("TEARDOWN", &path, "", "").is(200);
    }

    fn keep_alive(&mut self) {
        if self.kept_alive.elapsed() > KEEP_ALIVE_EVERY {
            let path = self.path.clone();
            self.client.keep_alive(&path);
            self.kept_alive = Instant::now();
        }
    }

    /// Takes what has come in the connection. Returns false if the server has closed it.
    fn take_connection(&mut self, epoch: Epoch) -> bool {
        let is_open = self.client.read();
        let now_ns = epoch.ns(Instant::now());
        let bytes = std::mem::take(&mut self.client.bytes);
        let mut rest = &bytes[..];
        loop {
            if let [b'$', channel, high, low, more @ ..] = rest {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                let Some(packet) = more.get(..len) else { break };
                if *channel == 0 {
                    self.count(packet, now_ns);
                }
                rest = &more[len..];
            } else if rest.is_empty() || rest[0] == b'$' {
                break;
            } else {
                // An answer to a keep-alive.
                self.client.bytes = rest.to_vec();
                let is_whole = self.client.take_answer().is_some();
                let left = std::mem::take(&mut self.client.bytes);
                rest = &rest[rest.len() - left.len()..];
                if !is_whole {
                    break;
                }
            }
        }
        self.client.bytes = rest.to_vec();
        is_open
    }

    fn take_datagrams(&mut self, epoch: Epoch) {
        let mut bytes = [0; 2_048];
        let received = |udp: &Option<Pair>, bytes: &mut [u8]| -> Option<usize> {
            let socket: &UdpSocket = udp.as_ref()?.sockets()[0];
            socket.recv(bytes).ok()
        };
        while let Some(len) = received(&self.udp, &mut bytes) {
            self.count(&bytes[..len], epoch.ns(Instant::now()));
        }
    }

    fn count(&mut self, packet: &[u8], now_ns: u64) {
        let number = |at: usize| {
            let bytes = packet.get(at..at + 8).expect("a packet of a camera");
            u64::from_be_bytes(bytes.try_into().expect("eight"))
        };
        let this = number(NUMBER_AT);
        if let Some(next) = self.next {
            assert!(this >= next, "{}: packet {this} after {next}", self.path);
            self.missing += this - next;
        }
        self.next = Some(this + 1);
        self.packets += 1;
        if self.is_live {
            let delay_ns = now_ns.saturating_sub(number(SENT_AT));
            self.delays.push(Delay {
                received_ns: now_ns,
                delay_ns,
            });
        }
    }
}

/// Receives for all players until it is stopped.
///
/// # Panics
/// If the server closes a connection.
pub fn receive(players: &mut [Player], epoch: Epoch, stop: &AtomicBool) {
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    while !stop.load(Ordering::Relaxed) {
        let mut fds = Vec::with_capacity(2 * players.len());
        for player in &*players {
            fds.push(PollFd::new(&player.client.socket, PollFlags::IN));
            if let Some(pair) = &player.udp {
                fds.push(PollFd::new(pair.sockets()[0], PollFlags::IN));
            }
        }
        poll(&mut fds, Some(&wait)).expect("sockets");
        let ready: Vec<bool> = fds.iter().map(|of| !of.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        for player in players.iter_mut() {
            if ready.next() == Some(true) {
                let is_open = player.take_connection(epoch);
                assert!(is_open, "{}: the server has closed it", player.path);
            }
            if player.udp.is_some() && ready.next() == Some(true) {
                player.take_datagrams(epoch);
            }
            player.keep_alive();
        }
    }
}
