//! What is noted of a packet, and of those that are missing before it.

use engine::clock;
use sched::units::{Nanos, Time};

use super::datagrams::Dropped;
use super::{RtpRecorder, STRAGGLERS_WITHIN};
use crate::archive::block::{Entry, Kind};
use crate::record::missing::{Range, Why};
use crate::rtp::packet::{self, Frames, HEADER_BYTES, Header, Mark, Order, Sequence};
use crate::rtp::reception::Reception;

/// A track that is recorded.
pub(super) struct Track {
    /// What its packets are said to have; once one of them has it, others are no part of its frames.
    pub(super) payload_type: Option<u8>,
    pub(super) is_of_type: bool,
    pub(super) sequence: Sequence,
    /// Packets that are missing, and of which no block says so yet: the entry of the next one does. Of those behind the
    /// last one the log tells alone.
    pub(super) dropped: u32,
    /// Those of them that no rate would have recorded.
    pub(super) unfit: u32,
    pub(super) frames: Frames,
    pub(super) reception: Reception,
    /// Whose packets they were before, and until when such are those that were late.
    pub(super) before: Option<(u32, Time)>,
    /// Whose are not taken as long as others come: they came between those of somebody who goes on.
    pub(super) barred: Option<u32>,
    /// When the last one came.
    pub(super) came: Time,
    /// Who has reported of packets that have not come.
    pub(super) announced: Option<u32>,
    /// When its sender said that it leaves.
    pub(super) left: Option<Time>,
    /// There was no free buffer since its last packet; by UDP since the last one that did not wait for long.
    pub(super) starved: bool,
    /// What the last packet was, if it is from elsewhere and not recorded.
    pub(super) stray: Option<(u16, Why)>,
    /// What its socket has dropped; `None`: nothing has come by UDP, where what waits for a buffer lies before the gap that it
    /// has left no room for.
    pub(super) socket: Option<Dropped>,
    /// All that waited meanwhile has been received.
    pub(super) is_drained: bool,
}

/// The types of RTCP, where RTP has its marker and payload type.
const REPORTS: std::ops::RangeInclusive<u8> = 200..=204;

impl Track {
    /// Who sends it, as far as is known.
    pub(super) fn sender(&self) -> Option<u32> {
        self.sequence.ssrc().or(self.announced)
    }

    /// Whether its packets are those of somebody else from now on, who sends one.
    fn is_others(&self, ssrc: u32, now: Time) -> bool {
        let is_late = self
            .before
            .is_some_and(|(of, until)| of == ssrc && now < until);
        let goes_on = now < self.came.saturating_add(STRAGGLERS_WITHIN);
        let is_barred = goes_on && self.barred == Some(ssrc);
        !(is_late || is_barred)
    }

    /// Its packets are those of somebody else from now on.
    fn is_now(&mut self, ssrc: u32, before: u32, now: Time) {
        let is_back = self.before.is_some_and(|(of, _)| of == ssrc);
        self.barred = is_back.then_some(before);
        self.before = Some((before, now.saturating_add(STRAGGLERS_WITHIN)));
        self.left = None;
        self.sequence = self.sequence.anew();
    }

    /// Whether most of what is missing before this number was dropped by its socket.
    fn has_dropped_before(&self, number: u16) -> bool {
        let (Some(of), Some(last)) = (self.socket, self.sequence.last()) else {
            return false;
        };
        let missing = number.wrapping_sub(last).wrapping_sub(1);
        of.recent > 0 && u32::from(missing) <= of.recent.saturating_mul(2)
    }

    /// One of its packets has come: whether a buffer was free before it is of no consequence any more. By UDP that is so for
    /// one behind all that has waited.
    fn goes_on(&mut self, order: Order) {
        if let (Some(of), Order::Next { .. } | Order::Anew { .. }) = (&mut self.socket, order) {
            of.recent = 0;
        }
        self.starved &= match order {
            Order::Next { .. } | Order::Anew { .. } => self.socket.is_some() && !self.is_drained,
            Order::Late | Order::Duplicate => self.socket.is_some(),
            Order::Stray | Order::Stranger => true,
        };
    }
}

impl RtpRecorder<'_> {
    /// A packet is there whose body, `len` long, is in its place.
    pub fn packet(&mut self, track: usize, kind: Kind, header: &[u8; HEADER_BYTES], len: usize) {
        let arrival_ns = clock::now().saturating_since(self.begun).get();
        let Some(mut entry) = self.entry(track, kind, header, len, arrival_ns) else {
            return;
        };
        // Now something follows it.
        if let Some(full) = self.full.take() {
            self.seal(full, false);
        }
        let Some(filling) = &mut self.filling else {
            if kind == Kind::Rtp {
                self.tracks[track].starved = true;
                self.drop_packet(track, header, Why::NoBuffer);
            }
            return;
        };
        if !filling.composer.takes(entry.arrival_ns, entry.media_ns) {
            // A clock that was set by more than an entry can say.
            entry.media_ns = entry.arrival_ns;
        }
        entry.header = *header;
        filling.composer.push(&mut filling.buffer, len, &entry);
        self.indexer.packet(&entry, len);
        if self.in_block.packets == 0 {
            (self.in_block.arrival_ns, self.in_block.media_ns) = (entry.arrival_ns, entry.media_ns);
        }
        self.in_block.packets += 1;
        if kind == Kind::Rtp {
            let unfit = std::mem::take(&mut self.tracks[track].unfit);
            self.in_block.missing += u64::from(entry.lost.saturating_sub(unfit));
        }
        self.heard = Some(clock::now());
        match kind {
            Kind::Rtp => self.tally.packets += 1,
            Kind::Rtcp => self.tally.reports += 1,
        }
        self.tally.bytes += (len + if kind == Kind::Rtp { HEADER_BYTES } else { 0 }) as u64;
    }

    /// A packet came and is not recorded: it is missing, if it is one of the track's.
    pub(super) fn drop_packet(&mut self, track: usize, header: &[u8; HEADER_BYTES], why: Why) {
        let arrival_ns = clock::now().saturating_since(self.begun).get();
        let of = &self.tracks[track];
        // Who the track's packets are of is not learnt from such.
        let parsed = Header::parse(header);
        let Some(parsed) = parsed.filter(|parsed| of.sequence.ssrc() == Some(parsed.ssrc)) else {
            return;
        };
        let number = parsed.sequence;
        match self.order(track, &parsed, arrival_ns) {
            Order::Next { .. } | Order::Anew { .. } => {
                self.note_dropped(track, number, arrival_ns, why)
            }
            // If the next one goes on from there it is one of the track's.
            Order::Stray => self.tracks[track].stray = Some((number, why)),
            // It is told of as missing already, or is not.
            Order::Late | Order::Duplicate | Order::Stranger => {}
        }
    }

    /// One of the track's packets came and is not recorded.
    fn note_dropped(&mut self, track: usize, number: u16, arrival_ns: u64, why: Why) {
        self.tally.lost += 1;
        if why == Why::NoBuffer {
            self.tally.lost_without_buffer += 1;
        }
        let of = &mut self.tracks[track];
        of.dropped = of.dropped.saturating_add(1);
        if why != Why::NoBuffer {
            of.unfit = of.unfit.saturating_add(1);
        }
        let range = Range {
            track,
            first: number,
            last: number,
            at: Nanos(arrival_ns),
            why,
        };
        self.missing.note(range, clock::now());
    }

    /// What a packet is, of those of its track; what is missing before it is noted.
    fn order(&mut self, track: usize, header: &Header, arrival_ns: u64) -> Order {
        let of = &mut self.tracks[track];
        // Either way it says nothing when it has come: it has waited.
        let waited = of.starved || of.has_dropped_before(header.sequence);
        let order = of.sequence.take(header, arrival_ns, waited);
        let stray = match order {
            Order::Stranger => None,
            _ => of.stray.take(),
        };
        match order {
            Order::Next { lost } => {
                of.dropped = of.dropped.saturating_add(lost);
                self.tally.lost += u64::from(lost);
                self.note_missing(track, header.sequence, lost, arrival_ns);
            }
            Order::Anew { expected, first } => {
                // What receivers are told begins anew as well.
                of.reception.restart();
                let range = Range {
                    track,
                    first: expected,
                    last: first.wrapping_sub(1),
                    at: Nanos(arrival_ns),
                    why: Why::Anew,
                };
                self.missing.note(range, clock::now());
                if let Some((number, why)) = stray {
                    self.note_dropped(track, number, arrival_ns, why);
                }
            }
            Order::Late | Order::Duplicate | Order::Stray | Order::Stranger => {}
        }
        self.tracks[track].goes_on(order);
        order
    }

    /// What is to be noted of a packet; `None`: it is not to be recorded.
    fn entry(
        &mut self,
        track: usize,
        kind: Kind,
        header: &[u8; HEADER_BYTES],
        len: usize,
        arrival_ns: u64,
    ) -> Option<Entry> {
        let mut entry = Entry {
            track: track as u8,
            kind,
            begins_frame: false,
            is_key: false,
            arrival_ns,
            media_ns: arrival_ns,
            header: [0; HEADER_BYTES],
            lost: 0,
        };
        let Some(filling) = &self.filling else {
            return Some(entry);
        };
        let from = filling.composer.room().start;
        let body = &filling.buffer[from..from + len];
        if kind == Kind::Rtcp {
            let (of, now) = (&mut self.tracks[track], clock::now());
            let said = packet::said(body);
            if let Some((ssrc, report)) = said.report {
                of.announced.get_or_insert(ssrc);
                of.reception.sender_report(&report, now);
                self.clocks.synchronise(track, report);
            }
            let sender = of.sender();
            if sender.is_some_and(|sender| said.leaving.contains(&sender)) {
                of.left.get_or_insert(now);
            }
            return Some(entry);
        }
        // What is said of packets comes among them from some; no packet has these types (RFC 3551, section 6).
        if REPORTS.contains(&header[1]) {
            self.tally.strangers += 1;
            return None;
        }
        let parsed = Header::parse(header);
        let Some(parsed) = parsed.filter(|parsed| parsed.payload(body).is_some()) else {
            self.tally.strangers += 1;
            self.drop_packet(track, header, Why::Malformed);
            return None;
        };
        let (of, now) = (&mut self.tracks[track], clock::now());
        let ssrc = of.sequence.ssrc().filter(|ssrc| *ssrc != parsed.ssrc);
        let may_change = self.follows || of.left.is_some();
        if let Some(before) = ssrc
            && may_change
            && of.is_others(parsed.ssrc, now)
        {
            of.is_now(parsed.ssrc, before, now);
            self.clocks.restart(track);
        }
        let order = self.order(track, &parsed, arrival_ns);
        match order {
            Order::Next { .. } | Order::Anew { .. } | Order::Stray => {}
            Order::Late => self.missing.came(track, parsed.sequence),
            Order::Duplicate => {
                self.tally.duplicates += 1;
                return None;
            }
            Order::Stranger => {
                self.tally.strangers += 1;
                return None;
            }
        }
        let of = &mut self.tracks[track];
        of.came = now;
        entry.lost = std::mem::take(&mut of.dropped);
        // Who goes on under its name has not left.
        of.left = of
            .left
            .filter(|at| now < at.saturating_add(STRAGGLERS_WITHIN));
        let mark = self.mark(track, &parsed, len, order, entry.lost);
        (entry.begins_frame, entry.is_key) = (mark.begins, mark.is_key);
        let of = &mut self.tracks[track];
        // What is from elsewhere says nothing of how the others come, nor of their clock.
        entry.media_ns = if order == Order::Stray {
            let clocks = &self.clocks;
            clocks.media_ns_of_stray(track, parsed.timestamp, arrival_ns)
        } else {
            of.reception.packet(&parsed, now);
            self.clocks.media_ns(track, parsed.timestamp, arrival_ns)
        };
        Some(entry)
    }

    /// What a packet whose body is in its place says of its frame. One that comes late is of a frame that others have begun:
    /// it begins none, and is of that which goes on or of none.
    fn mark(&mut self, track: usize, header: &Header, len: usize, order: Order, lost: u32) -> Mark {
        let body = self.filling.as_ref().map(|filling| {
            let from = filling.composer.room().start;
            &filling.buffer[from..from + len]
        });
        let payload = body.and_then(|body| header.payload(body));
        let payload = payload.map_or(&[][..], |payload| header.unpadded(payload));
        let of = &mut self.tracks[track];
        let is_of_type = of.payload_type.is_none_or(|of| of == header.payload_type);
        of.is_of_type |= is_of_type;
        if of.is_of_type && !is_of_type {
            return Mark::default();
        }
        let frames = &mut of.frames;
        if order == Order::Late {
            return Mark {
                begins: false,
                is_key: frames.is_late_key(header, payload),
            };
        }
        let is_elsewhere = matches!(order, Order::Anew { .. } | Order::Stray);
        frames.packet(header, payload, lost > 0 || is_elsewhere)
    }

    /// Notes the packets that are missing before the one with this number.
    fn note_missing(&mut self, track: usize, next: u16, lost: u32, arrival_ns: u64) {
        if lost == 0 {
            return;
        }
        let of_socket = self.tracks[track].socket;
        let dropped = of_socket.map_or(lost, |of| of.recent.min(lost));
        let why = self.why_not_received(track, dropped);
        let range = Range {
            track,
            first: next.wrapping_sub(lost as u16),
            last: next.wrapping_sub(1),
            at: Nanos(arrival_ns),
            why,
        };
        self.missing.note(range, clock::now());
    }

    /// Why packets are missing, so many of which a socket has dropped, or in a connection were perhaps not sent as nothing was
    /// received.
    pub(super) fn why_not_received(&mut self, track: usize, dropped: u32) -> Why {
        let of = &self.tracks[track];
        match (of.starved, of.socket.is_some()) {
            _ if dropped == 0 => Why::Never,
            (true, _) => {
                self.tally.lost_without_buffer += u64::from(dropped);
                Why::NoBuffer
            }
            (false, true) => Why::SocketFull,
            (false, false) => Why::Never,
        }
    }

    /// Says in the log which packets are missing, if it is time for that.
    pub(super) fn tell_missing(&mut self, ends: bool) {
        let Some(told) = self.missing.tell(clock::now(), ends) else {
            return;
        };
        let volume = self.writing.archive().volume().name();
        let recording = self.writing.number();
        tracing::warn!(volume, recording, "packets are missing: {told}");
    }
}
