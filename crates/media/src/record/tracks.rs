//! Packets as they arrive: whose they are, when they are to be played, and which are missing before them.

use engine::clock;
use sched::units::Time;

use super::counts::PacketCounts;
use super::missing::LossReason;
use super::track::{STRAGGLERS_WITHIN, Track};
use crate::archive::block::{Entry, Kind};
use crate::rtp::packet::{self, Clocks, HEADER_BYTES, Header, Order, PacketHead};
use crate::rtp::reception::ReceiverReport;
use crate::sdp::Description;

/// The types of RTCP packets, where RTP has its marker and payload type.
const REPORTS: std::ops::RangeInclusive<u8> = 200..=204;

/// Which senders a track is recorded from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SenderPolicy {
    /// The first one, and another one once that has left.
    First,
    /// Any: a camera that is pulled from may restart under another SSRC.
    Any,
}

/// A packet that has arrived, without its body.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'p> {
    pub(super) track: usize,
    pub(super) header: &'p [u8; HEADER_BYTES],
    /// Since the recording began.
    pub(super) arrival_ns: u64,
}

/// The tracks of a recording.
pub(super) struct TrackSet {
    tracks: Vec<Track>,
    clocks: Clocks,
    pub(super) sender_policy: SenderPolicy,
}

impl TrackSet {
    pub(super) fn new(description: &Description) -> Self {
        let tracks = description.tracks();
        Self {
            clocks: Clocks::new(tracks.iter().map(|track| track.clock_rate)),
            tracks: tracks.iter().map(Track::new).collect(),
            sender_policy: SenderPolicy::First,
        }
    }

    pub(super) fn track(&self, track: usize) -> &Track {
        &self.tracks[track]
    }

    pub(super) fn track_mut(&mut self, track: usize) -> &mut Track {
        &mut self.tracks[track]
    }

    /// The receiver report for the sender of a track; `None` if nothing has arrived of it.
    pub(super) fn reception(&mut self, track: usize) -> Option<ReceiverReport> {
        self.tracks.get_mut(track)?.reception.report(clock::now())
    }

    /// As [`RtpRecorder::over_at`](super::RtpRecorder::over_at).
    pub(super) fn over_at(&self) -> Option<Time> {
        let heard = self.tracks.iter().filter(|track| track.ssrc().is_some());
        let left: Option<Vec<Time>> = heard.map(|track| track.sender.left_at).collect();
        let last = left?.into_iter().max()?;
        Some(last.saturating_add(STRAGGLERS_WITHIN))
    }

    /// Another session with the same source begins: numbers and timestamps begin anew.
    pub(super) fn restart(&mut self) {
        self.tracks.iter_mut().for_each(Track::restart);
        self.clocks.restart_all();
    }

    /// No buffer is free for any track.
    pub(super) fn note_starved(&mut self) {
        self.tracks.iter_mut().for_each(Track::note_starved);
    }

    /// True if a packet of a track may begin with these bytes: the version, and the SSRC as far as it is known or
    /// the type of RTCP (RFC 3550, sections 5.1 and 6.4).
    pub(super) fn may_begin(&self, track: usize, kind: Kind, head: &PacketHead) -> bool {
        let [first, second, .., a, b, c, d] = *head;
        let ssrc = self.tracks.get(track).and_then(Track::ssrc);
        let is_possible = match kind {
            Kind::Rtp => ssrc.is_none_or(|ssrc| ssrc == u32::from_be_bytes([a, b, c, d])),
            Kind::Rtcp => (200..=207).contains(&second),
        };
        first >> 6 == 2 && is_possible
    }

    /// Takes in an RTCP packet; returns its entry.
    pub(super) fn report_entry(&mut self, arrival: Arrival<'_>, body: &[u8]) -> Entry {
        let (track, now) = (&mut self.tracks[arrival.track], clock::now());
        let said = packet::said(body);
        if let Some((ssrc, report)) = said.report {
            track.sender.announced.get_or_insert(ssrc);
            track.reception.sender_report(&report, now);
            self.clocks.synchronise(arrival.track, report);
        }
        let ssrc = track.ssrc();
        if ssrc.is_some_and(|ssrc| said.leaving.contains(&ssrc)) {
            track.sender.left_at.get_or_insert(now);
        }
        entry(arrival, Kind::Rtcp)
    }

    /// Takes in an RTP packet; returns its entry, or `None` if it is not to be recorded.
    pub(super) fn packet_entry(
        &mut self,
        counts: &mut PacketCounts,
        arrival: Arrival<'_>,
        body: &[u8],
    ) -> Option<Entry> {
        let Arrival {
            track: number,
            header,
            arrival_ns,
        } = arrival;
        // Some senders mix RTCP packets into the RTP channel; no RTP packet has these types (RFC 3551, section 6).
        if REPORTS.contains(&header[1]) {
            counts.tally.strangers += 1;
            return None;
        }
        let parsed = Header::parse(header).and_then(|parsed| {
            let payload = parsed.payload(body)?;
            Some((parsed, parsed.unpadded(payload)))
        });
        let Some((parsed, payload)) = parsed else {
            counts.tally.strangers += 1;
            self.drop_packet(counts, arrival, LossReason::Malformed);
            return None;
        };
        let now = clock::now();
        self.follow_sender(number, parsed.ssrc, now);
        let order = self.order(counts, number, &parsed, arrival_ns);
        match order {
            Order::Next { .. } | Order::Anew { .. } | Order::Stray => {}
            Order::Late => counts.note_late(number, parsed.sequence),
            Order::Duplicate => {
                counts.tally.duplicates += 1;
                return None;
            }
            Order::Stranger => {
                counts.tally.strangers += 1;
                return None;
            }
        }
        let track = &mut self.tracks[number];
        let lost = track.take_packet(now);
        let mark = track.frames.mark(&parsed, payload, order, lost > 0);
        // A stray does not belong to the clock of the other packets, nor to their jitter.
        let media_ns = if order == Order::Stray {
            let clocks = &self.clocks;
            clocks.media_ns_of_stray(number, parsed.timestamp, arrival_ns)
        } else {
            track.reception.packet(&parsed, now);
            self.clocks.media_ns(number, parsed.timestamp, arrival_ns)
        };
        Some(Entry {
            begins_frame: mark.begins,
            is_key: mark.is_key,
            media_ns,
            lost,
            ..entry(arrival, Kind::Rtp)
        })
    }

    /// Takes a new SSRC for that of the track's sender, if the policy and the sender's state allow it.
    fn follow_sender(&mut self, track: usize, ssrc: u32, now: Time) {
        let of = &mut self.tracks[track];
        let may_change = self.sender_policy == SenderPolicy::Any || of.sender.left_at.is_some();
        if let Some(previous) = of.sequence.ssrc().filter(|of| *of != ssrc)
            && may_change
            && of.sender.may_be_replaced_by(ssrc, now)
        {
            of.replace_sender(ssrc, previous, now);
            self.clocks.restart(track);
        }
    }

    /// A packet has arrived and is not recorded: it is missing if it is one of the track's.
    pub(super) fn drop_packet(
        &mut self,
        counts: &mut PacketCounts,
        arrival: Arrival<'_>,
        why: LossReason,
    ) {
        let Arrival {
            track,
            header,
            arrival_ns,
        } = arrival;
        let ssrc = self.tracks[track].sequence.ssrc();
        // A dropped packet does not decide which SSRC the track has.
        let parsed = Header::parse(header);
        let Some(parsed) = parsed.filter(|parsed| ssrc == Some(parsed.ssrc)) else {
            return;
        };
        let number = parsed.sequence;
        match self.order(counts, track, &parsed, arrival_ns) {
            Order::Next { .. } | Order::Anew { .. } => {
                self.note_dropped(counts, (track, number), arrival_ns, why);
            }
            // It is one of the track's if the next packet follows it.
            Order::Stray => self.tracks[track].dropped_stray = Some((number, why)),
            // It has been noted as missing before, or is not missing.
            Order::Late | Order::Duplicate | Order::Stranger => {}
        }
    }

    /// A packet that has its entry is not recorded, because no buffer is free for the block that it would begin.
    pub(super) fn drop_entry(&mut self, counts: &mut PacketCounts, entry: &Entry) {
        let track = usize::from(entry.track);
        let pending = &mut self.tracks[track].pending_lost;
        *pending = pending.saturating_add(entry.lost);
        if let (Kind::Rtp, Some(parsed)) = (entry.kind, Header::parse(&entry.header)) {
            let packet = (track, parsed.sequence);
            self.note_dropped(counts, packet, entry.arrival_ns, LossReason::NoBuffer);
        }
    }

    fn note_dropped(
        &mut self,
        counts: &mut PacketCounts,
        (track, number): (usize, u16),
        arrival_ns: u64,
        why: LossReason,
    ) {
        let of = &mut self.tracks[track];
        of.pending_lost = of.pending_lost.saturating_add(1);
        match why {
            LossReason::NoBuffer => counts.tally.lost_without_buffer += 1,
            _ => of.pending_unfit = of.pending_unfit.saturating_add(1),
        }
        counts.note_lost(1, (track, number, number), arrival_ns, why);
    }

    /// The order of a packet among those of its track. Notes the packets that are missing before it.
    fn order(
        &mut self,
        counts: &mut PacketCounts,
        track: usize,
        header: &Header,
        arrival_ns: u64,
    ) -> Order {
        let of = &mut self.tracks[track];
        // The arrival of a packet that has waited is not the time at which it was sent.
        let has_waited = of.is_starved() || of.has_dropped_before(header.sequence);
        let order = of.sequence.take(header, arrival_ns, has_waited);
        let dropped_stray = match order {
            Order::Stranger => None,
            _ => of.dropped_stray.take(),
        };
        match order {
            Order::Next { lost } => {
                of.pending_lost = of.pending_lost.saturating_add(lost);
                if lost > 0 {
                    let dropped = of.socket.map_or(lost, |of| of.recent.min(lost));
                    let why = self.reason_not_received(counts, track, dropped);
                    let next = header.sequence;
                    let range = (track, next.wrapping_sub(lost as u16), next.wrapping_sub(1));
                    counts.note_lost(lost, range, arrival_ns, why);
                }
            }
            Order::Anew { expected, first } => {
                // The receiver reports begin anew as well.
                of.reception.restart();
                let range = (track, expected, first.wrapping_sub(1));
                counts.note_range(range, arrival_ns, LossReason::Anew);
                if let Some((number, why)) = dropped_stray {
                    self.note_dropped(counts, (track, number), arrival_ns, why);
                }
            }
            Order::Late | Order::Duplicate | Order::Stray | Order::Stranger => {}
        }
        self.tracks[track].note_order(order);
        order
    }

    /// The reason why packets are missing. `dropped` of them were dropped by the socket, or over a connection
    /// perhaps not sent because nothing was received.
    pub(super) fn reason_not_received(
        &self,
        counts: &mut PacketCounts,
        track: usize,
        dropped: u32,
    ) -> LossReason {
        let of = &self.tracks[track];
        match (of.is_starved(), of.socket.is_some()) {
            _ if dropped == 0 => LossReason::Never,
            (true, _) => {
                counts.tally.lost_without_buffer += u64::from(dropped);
                LossReason::NoBuffer
            }
            (false, true) => LossReason::SocketFull,
            (false, false) => LossReason::Never,
        }
    }

    /// The packets that are missing by the entry of a recorded packet and that a higher rate would have recorded.
    pub(super) fn take_fit_losses(&mut self, track: usize, lost: u32) -> u32 {
        let unfit = std::mem::take(&mut self.tracks[track].pending_unfit);
        lost.saturating_sub(unfit)
    }
}

/// An entry with the arrival of a packet alone.
fn entry(arrival: Arrival<'_>, kind: Kind) -> Entry {
    Entry {
        track: arrival.track as u8,
        kind,
        begins_frame: false,
        is_key: false,
        arrival_ns: arrival.arrival_ns,
        media_ns: arrival.arrival_ns,
        header: *arrival.header,
        lost: 0,
    }
}
