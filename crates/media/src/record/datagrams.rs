//! What comes by UDP, and what the kernel has dropped of it.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;

use engine::clock;
use rustix::io::Errno;
use sched::units::Nanos;

use super::{RecordError, RtpRecorder};
use crate::archive::block::Kind;
use crate::record::missing::{Range, Why};
use crate::rtp::datagram;
use crate::rtp::packet::HEADER_BYTES;

/// So many errors of a socket are passed over at a time.
const TOLD_MAX: usize = 4;

/// More packets than that do not lie in a socket: each takes the kernel 512 bytes at least, of 8 MiB.
const LEFT_MAX: usize = 16_384;

/// Whether it is no error of a socket's, but of what was sent by it: a peer whose port is closed, which may open it, or whose
/// firewall lets no reports in, which says nothing of its packets (ICMP, RFC 1122, section 3.2.2.1).
fn is_told_of_peer(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::PROTO
            | Errno::ACCESS
            | Errno::PERM
            | Errno::MSGSIZE
    )
}

/// What is known of the packets that a socket has dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropped {
    /// All of them, when the packet that was received last came.
    until: u32,
    /// Those of them that came behind the last packet by its number.
    pub(super) recent: u32,
}

impl Dropped {
    /// What is known when a packet is received that came when that many had been dropped.
    fn after(before: Option<Self>, until: u32) -> Self {
        // Before the first one nothing is known to be missing.
        let recent = before.map_or(0, |of| {
            of.recent.saturating_add(until.wrapping_sub(of.until))
        });
        Self { until, recent }
    }
}

/// A socket that nothing more is to be received from but what lies there.
#[derive(Debug)]
pub struct Left<'a> {
    socket: &'a UdpSocket,
    track: usize,
    /// How many it has dropped until now, if that is known.
    dropped: Option<u32>,
}

impl<'a> Left<'a> {
    /// These, of their tracks, end now.
    #[must_use]
    pub fn now(sockets: &[(usize, &'a UdpSocket)]) -> Vec<Self> {
        let each: Vec<&UdpSocket> = sockets.iter().map(|of| of.1).collect();
        let (dropped, error) = match datagram::dropped(&each) {
            Ok(dropped) => (dropped, io::ErrorKind::NotFound.into()),
            Err(error) => (vec![None; each.len()], error),
        };
        if dropped.contains(&None) {
            tracing::warn!("how many packets sockets have dropped is not known: {error}");
        }
        let each = sockets.iter().zip(dropped);
        each.map(|(&(track, socket), dropped)| Self {
            socket,
            track,
            dropped,
        })
        .collect()
    }
}

impl RtpRecorder<'_> {
    /// Receives a packet by UDP; whether there was one. There has to be [room](Self::has_room).
    ///
    /// # Errors
    /// When the socket fails.
    pub fn receive(
        &mut self,
        socket: &UdpSocket,
        track: usize,
        kind: Kind,
    ) -> Result<bool, RecordError> {
        let Some(filling) = self.filling.as_mut().filter(|_| !self.is_receiving) else {
            return Ok(false);
        };
        let room = filling.composer.room();
        let mut header = [0; HEADER_BYTES];
        let overflow = &mut self.overflow;
        let mut parts = [
            IoSliceMut::new(&mut header),
            IoSliceMut::new(&mut filling.buffer[room.clone()]),
            IoSliceMut::new(overflow),
        ];
        let parts = match kind {
            Kind::Rtp => &mut parts[..],
            Kind::Rtcp => &mut parts[1..],
        };
        let mut received = datagram::receive(socket, parts);
        // What was told of comes before what has come, and once.
        for _ in 0..TOLD_MAX {
            if !received.is_err_and(is_told_of_peer) {
                break;
            }
            received = datagram::receive(socket, parts);
        }
        let (count, dropped) = match received {
            Ok(received) => received,
            Err(Errno::AGAIN) => {
                self.tracks[track].is_drained |= kind == Kind::Rtp;
                return Ok(false);
            }
            Err(error) if is_told_of_peer(error) => return Ok(false),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        if kind == Kind::Rtp {
            let of = &mut self.tracks[track];
            of.socket = Some(Dropped::after(of.socket, dropped));
        }
        let len = match kind {
            Kind::Rtp if count < HEADER_BYTES => {
                self.tally.strangers += 1;
                return Ok(true);
            }
            Kind::Rtp => count - HEADER_BYTES,
            Kind::Rtcp => count,
        };
        if len > self.body_bytes_max() {
            self.note_too_long(track, (kind == Kind::Rtp).then_some(&header));
            return Ok(true);
        }
        if len > room.len() {
            self.move_on(room, len);
        }
        self.packet(track, kind, &header, len);
        Ok(true)
    }

    /// A body was longer than the room that was left: it goes to the beginning of the next block.
    fn move_on(&mut self, room: std::ops::Range<usize>, len: usize) {
        // With no buffer free it is lost, as what comes after it is.
        if self.make_room(len)
            && let (Some(full), Some(filling)) = (&self.full, &mut self.filling)
        {
            self.tally.copied_bytes += len as u64;
            let from = filling.composer.room().start;
            let (head, rest) = filling.buffer[from..from + len].split_at_mut(room.len());
            head.copy_from_slice(&full.buffer[room]);
            rest.copy_from_slice(&self.overflow[..rest.len()]);
        }
    }

    /// Nothing more is received from a socket: what it had dropped by the end, behind the last packet, is missing. What lies there
    /// still, as it is not all that was received, is so too where it was waiting for a buffer, or came before the last that was
    /// dropped by then; of what came later nobody knows whether that was after the end.
    pub fn leave(&mut self, left: &Left<'_>, is_all: bool) {
        let Left {
            socket,
            track,
            dropped,
        } = *left;
        if !is_all && self.tracks[track].starved {
            self.drop_waiting(socket, track, Why::NoBuffer, |_| true);
        } else if let (false, Some(dropped)) = (is_all, dropped) {
            let is_before = |until: u32| (until.wrapping_sub(dropped) as i32) < 0;
            self.drop_waiting(socket, track, Why::Ended, is_before);
        }
        if let Some(dropped) = dropped {
            self.note_behind(track, dropped);
        }
    }

    /// What lies in a socket is not received any more, as long as it is missing by how many had been dropped until it came.
    fn drop_waiting(
        &mut self,
        socket: &UdpSocket,
        track: usize,
        why: Why,
        is_missing: impl Fn(u32) -> bool,
    ) {
        for _ in 0..LEFT_MAX {
            let mut header = [0; HEADER_BYTES];
            let overflow = &mut self.overflow;
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(overflow)];
            match datagram::receive(socket, &mut parts) {
                Ok((count, dropped)) if is_missing(dropped) => {
                    let of = &mut self.tracks[track];
                    of.socket = Some(Dropped::after(of.socket, dropped));
                    if count >= HEADER_BYTES {
                        self.drop_packet(track, &header, why);
                    }
                }
                Err(error) if is_told_of_peer(error) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }

    /// A track's socket had dropped so many in all: those behind the last packet are missing.
    fn note_behind(&mut self, track: usize, dropped: u32) {
        let of = &self.tracks[track];
        let (Some(until_last), Some(last)) = (of.socket, of.sequence.last()) else {
            return;
        };
        // When the last one came it may have dropped more, if that was after the end.
        let since_last = dropped.wrapping_sub(until_last.until) as i32;
        let behind = until_last.recent.saturating_add(since_last.max(0) as u32);
        if behind == 0 {
            return;
        }
        let why = self.why_not_received(track, behind);
        let of = &mut self.tracks[track];
        of.dropped = of.dropped.saturating_add(behind);
        of.socket = None;
        self.tally.lost += u64::from(behind);
        let range = Range {
            track,
            first: last.wrapping_add(1),
            last: last.wrapping_add(behind as u16),
            at: Nanos(clock::now().saturating_since(self.begun).get()),
            why,
        };
        self.missing.note(range, clock::now());
    }
}
