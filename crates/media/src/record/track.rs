//! A track that is recorded: its sender, its frames, and what is missing of it.

use sched::units::{Nanos, Time};

use super::datagrams::SocketDrops;
use super::missing::LossReason;
use crate::rtp::packet::{Frames, Header, Mark, Order, Sequence};
use crate::rtp::parameters::frames_of;
use crate::rtp::reception::Reception;
use crate::sdp;

/// Packets of a sender that has been replaced, or has said that it leaves, count as late for this long: UDP
/// reorders them, and an encoder that restarts says that it leaves as well.
pub(super) const STRAGGLERS_WITHIN: Nanos = Nanos::from_millis(500);

/// The wait of a track for a free buffer. Over a connection the peer is held up meanwhile. By UDP, packets wait in
/// the socket, and packets that the socket drops behind them are missing for want of a buffer as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferWait {
    /// A buffer has been free since the last packet.
    No,
    /// No buffer was free, and packets that waited for one may still be in the socket.
    Waiting,
    /// No buffer was free; all packets that waited in the socket have been received.
    Drained,
}

/// The sender of a track (RFC 3550).
pub(super) struct Sender {
    /// The SSRC of the sender reports, before the first RTP packet has arrived.
    pub(super) announced: Option<u32>,
    /// The SSRC before the current one, and until when its packets are late ones of the track.
    previous: Option<(u32, Time)>,
    /// An SSRC that was replaced by one that had been the sender before: two senders take turns. Its packets are not
    /// taken as long as those of the other arrive.
    barred: Option<u32>,
    /// Arrival of the last packet.
    last_packet_at: Time,
    /// When it said that it leaves (BYE).
    pub(super) left_at: Option<Time>,
}

impl Sender {
    fn new() -> Self {
        Self {
            announced: None,
            previous: None,
            barred: None,
            last_packet_at: Time::ZERO,
            left_at: None,
        }
    }

    /// True if a packet with another SSRC than that of the track may begin a new sender.
    pub(super) fn may_be_replaced_by(&self, ssrc: u32, now: Time) -> bool {
        let is_late = self
            .previous
            .is_some_and(|(of, until)| of == ssrc && now < until);
        let goes_on = now < self.last_packet_at.saturating_add(STRAGGLERS_WITHIN);
        let is_barred = goes_on && self.barred == Some(ssrc);
        !(is_late || is_barred)
    }

    fn note_packet(&mut self, now: Time) {
        self.last_packet_at = now;
        // A sender that goes on under its SSRC has not left.
        self.left_at = self
            .left_at
            .filter(|at| now < at.saturating_add(STRAGGLERS_WITHIN));
    }

    fn restart(&mut self) {
        (self.previous, self.barred) = (None, None);
        (self.announced, self.left_at) = (None, None);
    }
}

/// Finds the beginnings of frames and the key frames.
pub(super) struct FrameMarker {
    /// The payload type of the description.
    payload_type: Option<u8>,
    /// A packet of that type has arrived: packets of other types belong to no frame.
    has_seen_type: bool,
    frames: Frames,
}

impl FrameMarker {
    /// The marks of a packet. A late packet begins no frame: it belongs to one that other packets have begun.
    pub(super) fn mark(
        &mut self,
        header: &Header,
        payload: &[u8],
        order: Order,
        is_after_loss: bool,
    ) -> Mark {
        let is_of_type = self.payload_type.is_none_or(|of| of == header.payload_type);
        self.has_seen_type |= is_of_type;
        if self.has_seen_type && !is_of_type {
            return Mark::default();
        }
        if order == Order::Late {
            return Mark {
                begins: false,
                is_key: self.frames.is_late_key(header, payload),
            };
        }
        let is_elsewhere = matches!(order, Order::Anew { .. } | Order::Stray);
        self.frames
            .packet(header, payload, is_after_loss || is_elsewhere)
    }
}

/// A track that is recorded.
pub(super) struct Track {
    pub(super) sequence: Sequence,
    pub(super) reception: Reception,
    pub(super) sender: Sender,
    pub(super) frames: FrameMarker,
    /// Missing packets that no entry counts yet: the entry of the next packet does. Those behind the last packet
    /// are only in the log.
    pub(super) pending_lost: u32,
    /// Packets among them that no rate would have recorded.
    pub(super) pending_unfit: u32,
    /// Number of the last packet if it is a stray that was not recorded, and the reason.
    pub(super) dropped_stray: Option<(u16, LossReason)>,
    /// Packets that its socket has dropped; `None` if nothing has arrived by UDP.
    pub(super) socket: Option<SocketDrops>,
    pub(super) wait: BufferWait,
}

impl Track {
    pub(super) fn new(track: &sdp::Track) -> Self {
        Self {
            sequence: Sequence::new(track.clock_rate),
            reception: Reception::new(track.clock_rate),
            sender: Sender::new(),
            frames: FrameMarker {
                payload_type: track.payload_type,
                has_seen_type: false,
                frames: frames_of(track),
            },
            pending_lost: 0,
            pending_unfit: 0,
            dropped_stray: None,
            socket: None,
            wait: BufferWait::No,
        }
    }

    /// The SSRC of its sender, if it is known.
    pub(super) fn ssrc(&self) -> Option<u32> {
        self.sequence.ssrc().or(self.sender.announced)
    }

    /// Another session with the same source begins.
    pub(super) fn restart(&mut self) {
        self.sequence = self.sequence.anew();
        self.frames.frames = self.frames.frames.anew();
        self.sender.restart();
        self.reception.restart();
        (self.dropped_stray, self.socket) = (None, None);
    }

    /// Its packets have this SSRC from now on instead of `previous`.
    pub(super) fn replace_sender(&mut self, ssrc: u32, previous: u32, now: Time) {
        let sender = &mut self.sender;
        let is_back = sender.previous.is_some_and(|(of, _)| of == ssrc);
        sender.barred = is_back.then_some(previous);
        sender.previous = Some((previous, now.saturating_add(STRAGGLERS_WITHIN)));
        sender.left_at = None;
        self.sequence = self.sequence.anew();
    }

    /// A packet of it has arrived and is recorded; returns the number of packets that are missing before it.
    pub(super) fn take_packet(&mut self, now: Time) -> u32 {
        self.sender.note_packet(now);
        std::mem::take(&mut self.pending_lost)
    }

    /// True if its socket has dropped most of the packets that are missing before this number.
    pub(super) fn has_dropped_before(&self, number: u16) -> bool {
        let (Some(of), Some(last)) = (self.socket, self.sequence.last()) else {
            return false;
        };
        let missing = number.wrapping_sub(last).wrapping_sub(1);
        of.recent > 0 && u32::from(missing) <= of.recent.saturating_mul(2)
    }

    /// No buffer is free.
    pub(super) fn note_starved(&mut self) {
        self.wait = BufferWait::Waiting;
    }

    /// Its socket is empty.
    pub(super) fn note_drained(&mut self) {
        if self.wait == BufferWait::Waiting {
            self.wait = BufferWait::Drained;
        }
    }

    pub(super) fn is_starved(&self) -> bool {
        self.wait != BufferWait::No
    }

    /// One of its packets has arrived. Over a connection that ends the wait for a buffer; by UDP only a packet does
    /// that is behind all those that waited in the socket.
    pub(super) fn note_order(&mut self, order: Order) {
        let is_next = matches!(order, Order::Next { .. } | Order::Anew { .. });
        if let (Some(socket), true) = (&mut self.socket, is_next) {
            socket.recent = 0;
        }
        let ends_wait = match order {
            Order::Next { .. } | Order::Anew { .. } => {
                self.socket.is_none() || self.wait == BufferWait::Drained
            }
            Order::Late | Order::Duplicate => self.socket.is_none(),
            Order::Stray | Order::Stranger => false,
        };
        if ends_wait {
            self.wait = BufferWait::No;
        }
    }
}
