//! Packets by UDP, and those that the kernel has dropped.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::ops::Range;

use rustix::io::Errno;

use super::{RecordError, RtpRecorder};
use crate::archive::block::Kind;
use crate::record::missing::LossReason;
use crate::rtp::datagram;
use crate::rtp::packet::HEADER_BYTES;

/// Errors of a socket that are passed over at a time.
const PEER_ERRORS_MAX: usize = 4;

/// No more packets than this are in a socket: each takes at least 512 of its 8 MiB.
const QUEUED_MAX: usize = 16_384;

/// True if an error is not of the socket but a report about an earlier packet to the peer (ICMP, section 3.2.2.1 of
/// RFC 1122): the peer has closed its port and may open it again, or a firewall rejects receiver reports. Packets
/// from the peer may arrive all the same.
fn is_of_peer(error: Errno) -> bool {
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

/// Packets that a socket has dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketDrops {
    /// All of them up to the arrival of the packet that was received last. Wraps.
    total: u32,
    /// Those since the last packet by its number.
    pub(super) recent: u32,
}

impl SocketDrops {
    /// After a packet was received that arrived when the socket had dropped `total`.
    fn after(before: Option<Self>, total: u32) -> Self {
        // Packets before the first one are not known to be missing.
        let recent = before.map_or(0, |of| {
            of.recent.saturating_add(total.wrapping_sub(of.total))
        });
        Self { total, recent }
    }
}

/// A socket at the end of a recording: only what is queued in it is still received.
#[derive(Debug)]
pub struct EndedSocket<'a> {
    socket: &'a UdpSocket,
    track: usize,
    /// Packets that it had dropped by the end, if that is known.
    dropped: Option<u32>,
}

impl<'a> EndedSocket<'a> {
    /// The sockets of these tracks, which end now.
    #[must_use]
    pub fn now(sockets: &[(usize, &'a UdpSocket)]) -> Vec<Self> {
        let each: Vec<&UdpSocket> = sockets.iter().map(|of| of.1).collect();
        let (dropped, error) = match datagram::dropped(&each) {
            Ok(dropped) => (dropped, io::ErrorKind::NotFound.into()),
            Err(error) => (vec![None; each.len()], error),
        };
        if dropped.contains(&None) {
            tracing::warn!("the number of packets that sockets have dropped is unknown: {error}");
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
    /// Receives a packet by UDP; returns false if there was none. There has to be [room](Self::has_room).
    ///
    /// # Errors
    /// When the socket fails.
    pub fn receive(
        &mut self,
        socket: &UdpSocket,
        track: usize,
        kind: Kind,
    ) -> Result<bool, RecordError> {
        let Some((room, [block, overflow])) = self.buffers.room() else {
            return Ok(false);
        };
        let mut header = [0; HEADER_BYTES];
        let mut parts = [IoSliceMut::new(&mut header), block, overflow];
        let parts = match kind {
            Kind::Rtp => &mut parts[..],
            Kind::Rtcp => &mut parts[1..],
        };
        let mut received = datagram::receive(socket, parts);
        // The kernel reports an error of the peer before the packets that have arrived, and once.
        for _ in 0..PEER_ERRORS_MAX {
            if !received.is_err_and(is_of_peer) {
                break;
            }
            received = datagram::receive(socket, parts);
        }
        let (count, dropped) = match received {
            Ok(received) => received,
            Err(Errno::AGAIN) => {
                if kind == Kind::Rtp {
                    self.tracks.track_mut(track).note_drained();
                }
                return Ok(false);
            }
            Err(error) if is_of_peer(error) => return Ok(false),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let len = match kind {
            Kind::Rtp => {
                let of = self.tracks.track_mut(track);
                of.socket = Some(SocketDrops::after(of.socket, dropped));
                let Some(len) = count.checked_sub(HEADER_BYTES) else {
                    self.counts.tally.strangers += 1;
                    return Ok(true);
                };
                len
            }
            Kind::Rtcp => count,
        };
        if len > self.body_bytes_max() {
            self.note_too_long(track, (kind == Kind::Rtp).then_some(&header));
            return Ok(true);
        }
        if len > room.len() {
            self.move_to_next_block(room, len);
        }
        self.packet(track, kind, &header, len);
        Ok(true)
    }

    /// A body of `len` bytes was longer than the room that was left: it is moved to the beginning of the next
    /// block. Without a free buffer it is lost.
    fn move_to_next_block(&mut self, room: Range<usize>, len: usize) {
        if self.make_room(len) && self.buffers.move_body(room, len) {
            self.counts.tally.copied_bytes += len as u64;
        }
    }

    /// Notes the packets that are missing at the end of a recording, when nothing more is received from a socket:
    /// those that the socket had dropped by the end behind the last packet, and, unless `is_all` was received,
    /// those that are still queued and had waited for a buffer or arrived before the last drop. Packets that
    /// arrived later may have been sent after the end.
    pub fn leave(&mut self, left: &EndedSocket<'_>, is_all: bool) {
        let EndedSocket {
            socket,
            track,
            dropped,
        } = *left;
        if !is_all && self.tracks.track(track).is_starved() {
            self.drop_queued(socket, track, LossReason::NoBuffer, |_| true);
        } else if let (false, Some(dropped)) = (is_all, dropped) {
            let is_before = |total: u32| (total.wrapping_sub(dropped) as i32) < 0;
            self.drop_queued(socket, track, LossReason::Ended, is_before);
        }
        if let Some(dropped) = dropped {
            self.note_dropped_behind_last(track, dropped);
        }
    }

    /// Takes packets out of a socket and notes them as missing, as long as `is_missing` is true for the number of
    /// packets that had been dropped when they arrived.
    fn drop_queued(
        &mut self,
        socket: &UdpSocket,
        track: usize,
        why: LossReason,
        is_missing: impl Fn(u32) -> bool,
    ) {
        for _ in 0..QUEUED_MAX {
            let mut header = [0; HEADER_BYTES];
            let scratch = self.buffers.scratch();
            let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(scratch)];
            match datagram::receive(socket, &mut parts) {
                Ok((count, dropped)) if is_missing(dropped) => {
                    let of = self.tracks.track_mut(track);
                    of.socket = Some(SocketDrops::after(of.socket, dropped));
                    if count >= HEADER_BYTES {
                        self.drop_packet(track, &header, why);
                    }
                }
                Err(error) if is_of_peer(error) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }

    /// Notes the packets behind the last one as missing, by the number that the track's socket had dropped at the end.
    fn note_dropped_behind_last(&mut self, track: usize, dropped: u32) {
        let of = self.tracks.track(track);
        let (Some(at_last), Some(last)) = (of.socket, of.sequence.last()) else {
            return;
        };
        // Negative if the last packet arrived after the end.
        let since_last = dropped.wrapping_sub(at_last.total) as i32;
        let behind = at_last.recent.saturating_add(since_last.max(0) as u32);
        if behind == 0 {
            return;
        }
        let counts = &mut self.counts;
        let why = self.tracks.reason_not_received(counts, track, behind);
        let of = self.tracks.track_mut(track);
        of.pending_lost = of.pending_lost.saturating_add(behind);
        of.socket = None;
        let range = (
            track,
            last.wrapping_add(1),
            last.wrapping_add(behind as u16),
        );
        let now_ns = counts.now_ns();
        counts.note_lost(behind, range, now_ns, why);
    }
}
