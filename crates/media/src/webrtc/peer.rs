//! A peer: its protocols, and the packets that wait to be sent to it.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use str0m::net::{Receive, Transmit};
use str0m::{Event, Input, Output, Rtc, RtcError};

use super::publishing::Publishing;
use super::turns::Place;
use super::watching::Watching;

/// A session ends when its peer has sent nothing for this long. Browsers check the path every few seconds (RFC 7675).
const SILENT_FOR: Duration = Duration::from_secs(15);

/// Bytes that are sent to a peer at a time. A longer burst overflows the buffer of its socket.
const BURST_BYTES: usize = 48 << 10;

/// Bytes that are sent to a peer in a millisecond: 128 Mbit/s.
const MILLISECOND_BYTES: usize = 16 << 10;

/// A player gets no more packets while this many bytes wait to be sent.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// Packets are dropped while this many bytes wait to be sent.
const QUEUE_BYTES_MAX: usize = 2 * WAITING_BYTES_MAX;

/// A peer is connected within this time, or its session ends.
const CONNECTED_WITHIN: Duration = Duration::from_secs(8);

/// The use of a session.
#[derive(Debug)]
pub(super) enum Role {
    /// It plays.
    Watches(Watching),
    /// It publishes.
    Publishes(Publishing),
}

/// The end of a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerEnd {
    #[error("it has left")]
    Left,
    #[error("nothing has been received from it for {} s", SILENT_FOR.as_secs())]
    Silent,
    #[error("it has not connected within {} s", CONNECTED_WITHIN.as_secs())]
    Unconnected,
    #[error("its stream has ended")]
    StreamEnded,
    #[error("it was ended")]
    Ended,
    #[error("pictures are shown in another order than they are sent (B frames)")]
    Reordered,
    #[error(transparent)]
    Rtc(#[from] RtcError),
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) place: Place,
    rtc: Rtc,
    pub(super) role: Role,
    is_connected: bool,
    /// The time at which the protocols want to be called.
    timeout: Instant,
    begun: Instant,
    heard: Instant,
    waiting: VecDeque<Transmit>,
    waiting_bytes: usize,
    /// Bytes that may be sent now, and when that was counted.
    allowance: (usize, Instant),
    /// Packets are there that were not taken.
    has_more: bool,
}

impl Peer {
    pub(super) fn new(place: Place, rtc: Rtc, role: Role) -> Self {
        let now = Instant::now();
        Self {
            place,
            rtc,
            role,
            is_connected: false,
            timeout: now,
            begun: now,
            heard: now,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            allowance: (BURST_BYTES, now),
            has_more: false,
        }
    }

    /// Readable when there are packets of its stream.
    pub(super) fn packets(&self) -> Option<BorrowedFd<'_>> {
        match &self.role {
            // Packets before the connection wait in the stream.
            Role::Watches(watching) => self.is_connected.then(|| watching.event()),
            Role::Publishes(publishing) => Some(publishing.event()),
        }
    }

    /// Readable when it was ended from outside.
    pub(super) fn ends(&self) -> Option<BorrowedFd<'_>> {
        match &self.role {
            Role::Watches(watching) => Some(watching.ends()),
            Role::Publishes(_) => None,
        }
    }

    /// The time of its next turn without any event.
    pub(super) fn due(&self) -> Instant {
        let mut due = self.timeout.min(self.heard + SILENT_FOR);
        if !self.is_connected {
            due = due.min(self.begun + CONNECTED_WITHIN);
        }
        if !self.waiting.is_empty() || self.has_more {
            due = due.min(self.allowance.1 + Duration::from_millis(1));
        }
        if let Role::Publishes(publishing) = &self.role {
            due = due.min(publishing.due());
        }
        due
    }

    /// True if a packet is for this peer.
    pub(super) fn accepts(&self, input: &Input<'_>) -> bool {
        self.rtc.accepts(input)
    }

    /// Takes a packet.
    pub(super) fn receive(&mut self, now: Instant, packet: Receive<'_>) -> Result<(), PeerEnd> {
        self.heard = now;
        self.rtc.handle_input(Input::Receive(now, packet))?;
        self.drain()
    }

    /// Does what is due.
    pub(super) fn turn(&mut self, now: Instant) -> Result<(), PeerEnd> {
        if now >= self.heard + SILENT_FOR {
            return Err(PeerEnd::Silent);
        }
        if !self.is_connected && now >= self.begun + CONNECTED_WITHIN {
            return Err(PeerEnd::Unconnected);
        }
        if now >= self.timeout {
            self.rtc.handle_input(Input::Timeout(now))?;
            self.drain()?;
        }
        match &mut self.role {
            Role::Watches(_) if self.is_connected => self.feed(now)?,
            Role::Watches(_) => {}
            Role::Publishes(publishing) => {
                publishing.turn(&mut self.rtc, now, self.is_connected)?;
                self.drain()?;
            }
        }
        match self.rtc.is_alive() {
            true => Ok(()),
            false => Err(PeerEnd::Left),
        }
    }

    /// Sends packets of the stream.
    fn feed(&mut self, now: Instant) -> Result<(), PeerEnd> {
        self.has_more = true;
        while self.has_more && self.waiting_bytes < WAITING_BYTES_MAX {
            let Role::Watches(watching) = &mut self.role else {
                return Ok(());
            };
            self.has_more = watching.write(&mut self.rtc)?;
            self.drain()?;
            // The protocols send what was written with the next input.
            self.rtc.handle_input(Input::Timeout(now))?;
            self.drain()?;
        }
        Ok(())
    }

    /// Takes what the protocols have to say.
    fn drain(&mut self) -> Result<(), PeerEnd> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => {
                    self.timeout = at;
                    return Ok(());
                }
                // As a network does with packets that it cannot take.
                Output::Transmit(_) if self.waiting_bytes > QUEUE_BYTES_MAX => {}
                Output::Transmit(packet) => {
                    self.waiting_bytes += packet.contents.len();
                    self.waiting.push_back(packet);
                }
                Output::Event(Event::Connected) => self.is_connected = true,
                Output::Event(Event::Closed) => return Err(PeerEnd::Left),
                Output::Event(Event::RtpPacket(packet)) => {
                    if let Role::Publishes(publishing) = &mut self.role {
                        publishing.take(&packet);
                    }
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Gives packets to `send`, as many as the peer may get now; `send` returns false if its path takes none now.
    pub(super) fn flush(&mut self, now: Instant, send: &mut impl FnMut(&Transmit) -> bool) {
        let (left, counted) = &mut self.allowance;
        let since = now.saturating_duration_since(*counted);
        let gained = since.as_micros() as usize * MILLISECOND_BYTES / 1_000;
        if gained > 0 {
            (*left, *counted) = ((*left + gained).min(BURST_BYTES), now);
        }
        while let Some(packet) = self.waiting.front() {
            let bytes = packet.contents.len();
            if *left < bytes || !send(packet) {
                return;
            }
            *left -= bytes;
            self.waiting_bytes -= bytes;
            self.waiting.pop_front();
        }
    }

    /// Says goodbye, as far as that is possible.
    pub(super) fn close(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
        if self.rtc.close().is_ok() {
            // Its packets wait to be sent; nothing else matters any more.
            let _ = self.drain();
        }
    }
}
