//! RTP packets as they come: whose they are, which are missing, where frames begin, and when they are to be played.
//!
//! The fixed header of a packet (RFC 3550, section 5.1) is received apart from what follows it, so that bodies lie back
//! to back in a block. What is here is given the two parts; nothing is copied.

/// How long the fixed header is.
pub const HEADER_BYTES: usize = 12;

/// What a fixed header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The last packet of a frame, for video.
    pub marker: bool,
    /// Which of the description's formats.
    pub payload_type: u8,
    /// Counts packets.
    pub sequence: u16,
    /// Counts time, in the units of the track.
    pub timestamp: u32,
    /// Whose packets.
    pub ssrc: u32,
    contributors: usize,
    has_extension: bool,
    is_padded: bool,
}

impl Header {
    /// Of the first bytes of a packet; `None`: it is no RTP.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let [first, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *bytes;
        if first >> 6 != 2 {
            return None;
        }
        Some(Self {
            marker: second & 0x80 != 0,
            payload_type: second & 0x7f,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([c0, c1, c2, c3]),
            contributors: usize::from(first & 0x0f),
            has_extension: first & 0x10 != 0,
            is_padded: first & 0x20 != 0,
        })
    }

    /// A payload without the padding at its end.
    #[must_use]
    pub fn unpadded<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        match payload.last() {
            Some(padding) if self.is_padded => {
                let end = payload.len().saturating_sub(usize::from(*padding));
                &payload[..end]
            }
            _ => payload,
        }
    }

    /// What of the body is payload; padding is left at its end. `None`: it is shorter than its header says.
    #[must_use]
    pub fn payload<'a>(&self, body: &'a [u8]) -> Option<&'a [u8]> {
        let body = body.get(4 * self.contributors..)?;
        if !self.has_extension {
            return Some(body);
        }
        let words = u16::from_be_bytes([*body.get(2)?, *body.get(3)?]);
        body.get(4 + 4 * usize::from(words)..)
    }
}

/// What a compound of RTCP says that changes something here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// Of the first packet, if it is a sender report: whose, and what.
    pub report: Option<(u32, Report)>,
    /// Who says that they leave.
    pub leaving: Vec<u32>,
}

/// What a compound says; what is none says nothing.
#[must_use]
pub fn said(compound: &[u8]) -> Said {
    let mut said = Said::default();
    let packets = rtcp_types::Compound::parse(compound).into_iter().flatten();
    for (number, packet) in packets.map_while(Result::ok).enumerate() {
        match packet {
            rtcp_types::Packet::Sr(report) if number == 0 => {
                let what = Report {
                    ntp: report.ntp_timestamp(),
                    timestamp: report.rtp_timestamp(),
                };
                said.report = Some((report.ssrc(), what));
            }
            rtcp_types::Packet::Bye(bye) => said.leaving.extend(bye.ssrcs()),
            _ => {}
        }
    }
    said
}

/// Whether a packet with this payload has to do with a frame that can be decoded without any before it: a part of the
/// frame itself, or the parameters that come with it. Every frame of an encoding that is not known counts as one.
#[must_use]
pub fn is_key(encoding: &str, payload: &[u8]) -> bool {
    match encoding {
        "H264" => is_key_h264(payload),
        "H265" => is_key_h265(payload),
        "MP4V-ES" => is_key_mpeg4(payload),
        _ => true,
    }
}

/// RFC 6184: a NAL unit, several in one packet (24), or a fragment of one (28).
fn is_key_h264(payload: &[u8]) -> bool {
    let of = |byte: u8| matches!(byte & 0x1f, 5 | 7);
    match payload.first().map(|first| first & 0x1f) {
        Some(24) => payload.get(3).copied().is_some_and(of),
        Some(28) => payload.get(1).is_some_and(|second| second & 0x1f == 5),
        Some(_) => payload.first().copied().is_some_and(of),
        None => false,
    }
}

/// RFC 7798: likewise, with 48 and 49.
fn is_key_h265(payload: &[u8]) -> bool {
    let of = |kind: u8| matches!(kind, 16..=21 | 32..=34);
    match payload.first().map(|first| first >> 1 & 0x3f) {
        Some(48) => payload.get(4).is_some_and(|byte| of(byte >> 1 & 0x3f)),
        Some(49) => payload.get(2).is_some_and(|byte| of(byte & 0x3f)),
        Some(kind) => of(kind),
        None => false,
    }
}

/// RFC 6416: the headers of a sequence, or a picture that refers to no other.
fn is_key_mpeg4(payload: &[u8]) -> bool {
    match payload {
        [0, 0, 1, 0xb0 | 0xb3 | 0x00..=0x2f, ..] => true,
        [0, 0, 1, 0xb6, next, ..] => next >> 6 == 0,
        _ => false,
    }
}

/// What a packet is, of those of its track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It is next, after so many that have not come.
    Next {
        /// How many.
        lost: u32,
    },
    /// One before it has come already.
    Late,
    /// It has come already.
    Duplicate,
    /// The numbers go on from elsewhere: nobody can say whether any have not come.
    Anew {
        /// The number that would have been next.
        expected: u16,
    },
    /// It is somebody else's.
    Stranger,
}

/// So many packets are lost at a time whatever their timestamps say; more are another beginning if these do not go on
/// (RFC 3550, appendix A.1, `MAX_DROPOUT`).
const LOST_MAX: u16 = 3_000;

/// As many earlier packets are known by their numbers.
const KNOWN: u32 = 64;

/// One that is up to that many before the last one by its number is late, unless its timestamp says that it is not
/// (RFC 3550, appendix A.1, `MAX_MISORDER`, which is 100).
const LATE_MAX: u16 = 3_000;

/// A packet that is later than the last one by this is not late.
const LATER_NS: i128 = 5_000_000_000;

/// More packets are not sent in a millisecond, a tenth of 10 Gbit/s.
const PACKETS_PER_MS_MAX: i128 = 100;

/// The last packet of a track by its number.
#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u16,
    timestamp: u32,
    arrival_ns: u64,
}

/// The numbers of packets of a track.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    clock_rate: u32,
    ssrc: Option<u32>,
    last: Option<Last>,
    /// When any of them has arrived.
    heard_ns: u64,
    /// Which of the last ones have come: bit n is that n before the last.
    seen: u64,
}

impl Sequence {
    /// Of a track with so many units of its timestamps in a second.
    #[must_use]
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate: clock_rate.max(1),
            ssrc: None,
            last: None,
            heard_ns: 0,
            seen: 0,
        }
    }

    /// The same track, of somebody else.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.clock_rate)
    }

    /// Whose packets they are.
    #[must_use]
    pub fn ssrc(&self) -> Option<u32> {
        self.ssrc
    }

    /// Takes in one more, which arrived at a time of the recording; `starved`: what came before it was not received, so its
    /// arrival says nothing.
    pub fn take(&mut self, header: &Header, arrival_ns: u64, starved: bool) -> Order {
        if *self.ssrc.get_or_insert(header.ssrc) != header.ssrc {
            return Order::Stranger;
        }
        let quiet = arrival_ns.saturating_sub(self.heard_ns);
        self.heard_ns = arrival_ns;
        let now = Last {
            sequence: header.sequence,
            timestamp: header.timestamp,
            arrival_ns,
        };
        let Some(last) = self.last else {
            self.last = Some(now);
            self.seen = 1;
            return Order::Next { lost: 0 };
        };
        let ahead = header.sequence.wrapping_sub(last.sequence);
        let behind = last.sequence.wrapping_sub(header.sequence);
        if ahead == 0 {
            return Order::Duplicate;
        }
        if ahead > LOST_MAX && u32::from(behind) < KNOWN {
            let is_known = self.seen >> behind & 1 == 1;
            self.seen |= 1 << behind;
            return if is_known {
                Order::Duplicate
            } else {
                Order::Late
            };
        }
        let units = header.timestamp.wrapping_sub(last.timestamp) as i32;
        let by_clock = i128::from(units) * 1_000_000_000 / i128::from(self.clock_rate);
        let by_arrival = i128::from(arrival_ns) - i128::from(last.arrival_ns);
        let goes_on = starved || (by_clock - by_arrival).abs() <= JUMP_NS;
        // As long an outage as it takes for so many to be sent.
        let lasts = by_clock > 0 && i128::from(ahead) <= by_clock / 1_000_000 * PACKETS_PER_MS_MAX;
        let is_missing = match behind <= LATE_MAX {
            true if goes_on && by_clock < LATER_NS => return Order::Late,
            // Who goes on to be late counts from elsewhere.
            true => goes_on && lasts && (starved || i128::from(quiet) >= LATER_NS),
            false => goes_on && lasts,
        };
        self.last = Some(now);
        if ahead <= LOST_MAX || is_missing {
            self.seen = self.seen.checked_shl(u32::from(ahead)).unwrap_or(0) | 1;
            return Order::Next {
                lost: u32::from(ahead) - 1,
            };
        }
        self.seen = 1;
        Order::Anew {
            expected: last.sequence.wrapping_add(1),
        }
    }
}

/// Where frames begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames {
    timestamp: Option<u32>,
}

impl Frames {
    /// Whether one begins with this packet.
    pub fn begins(&mut self, header: &Header) -> bool {
        let begins = self.timestamp != Some(header.timestamp);
        self.timestamp = Some(header.timestamp);
        begins
    }
}

/// A clock that differs by more from one packet to the next than the packets' arrivals do has been set.
const JUMP_NS: i128 = 10_000_000_000;

/// A track's time: from its timestamps, which begin anywhere and wrap, to that of the recording.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    rate: u32,
    /// The last timestamp, how many units after the first it was, and when it arrived.
    last: Option<(u32, i64, u64)>,
    /// When the first is to be played, in nanoseconds of the recording.
    base_ns: i128,
    is_synchronised: bool,
    /// What was said of it before any packet came.
    early: Option<Report>,
    /// The next timestamp has nothing to do with the last.
    is_restarted: bool,
}

impl Clock {
    /// Of a track with so many units in a second.
    #[must_use]
    pub fn new(rate: u32) -> Self {
        Self {
            rate: rate.max(1),
            last: None,
            base_ns: 0,
            is_synchronised: false,
            early: None,
            is_restarted: false,
        }
    }

    /// What comes next counts from elsewhere: time goes on as it does for who receives it.
    pub fn restart(&mut self) {
        self.is_restarted = true;
        self.is_synchronised = false;
        self.early = None;
    }

    fn ns(&self, units: i64) -> i128 {
        i128::from(units) * 1_000_000_000 / i128::from(self.rate)
    }

    fn units(&self, timestamp: u32) -> Option<i64> {
        let (last, units, _) = self.last?;
        Some(units + i64::from(timestamp.wrapping_sub(last) as i32))
    }

    /// When a packet is to be played that arrived now, in nanoseconds of the recording.
    pub fn media_ns(&mut self, timestamp: u32, arrival_ns: u64) -> u64 {
        let Some((_, before, arrived)) = self.last else {
            self.base_ns = i128::from(arrival_ns);
            self.last = Some((timestamp, 0, arrival_ns));
            return arrival_ns;
        };
        let units = self.units(timestamp).unwrap_or_default();
        let by_clock = self.ns(units) - self.ns(before);
        let by_arrival = i128::from(arrival_ns) - i128::from(arrived);
        let is_restarted = std::mem::take(&mut self.is_restarted);
        if is_restarted || (by_clock - by_arrival).abs() > JUMP_NS {
            // As if it had gone on.
            self.base_ns += by_arrival - by_clock;
        }
        self.last = Some((timestamp, units, arrival_ns));
        u64::try_from(self.base_ns + self.ns(units)).unwrap_or(0)
    }

    /// When a packet of this timestamp would be played.
    fn at(&self, timestamp: u32) -> Option<i128> {
        Some(self.base_ns + self.ns(self.units(timestamp)?))
    }
}

/// What a sender report says: this timestamp is that time of the sender's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Seconds since 1900 and their fraction, as NTP has it.
    pub ntp: u64,
    /// The track's timestamp then.
    pub timestamp: u32,
}

impl Report {
    fn ntp_ns(self) -> i128 {
        (i128::from(self.ntp) * 1_000_000_000) >> 32
    }
}

/// The clocks of a presentation's tracks, brought together by its sender's reports.
#[derive(Clone, Debug)]
pub struct Clocks {
    tracks: Vec<Clock>,
    /// A sender's time, and that of the recording.
    anchor: Option<(i128, i128)>,
}

impl Clocks {
    /// Of tracks with these rates.
    #[must_use]
    pub fn new(rates: impl Iterator<Item = u32>) -> Self {
        Self {
            tracks: rates.map(Clock::new).collect(),
            anchor: None,
        }
    }

    /// When a packet of a track is to be played; `arrival_ns` for a track that there is not.
    pub fn media_ns(&mut self, track: usize, timestamp: u32, arrival_ns: u64) -> u64 {
        let Some(clock) = self.tracks.get_mut(track) else {
            return arrival_ns;
        };
        let media_ns = clock.media_ns(timestamp, arrival_ns);
        let Some(report) = clock.early.take() else {
            return media_ns;
        };
        self.synchronise(track, report);
        let moved = self.tracks[track].at(timestamp);
        moved.map_or(media_ns, |at| u64::try_from(at).unwrap_or(0))
    }

    /// A track's timestamps begin anew.
    pub fn restart(&mut self, track: usize) {
        if let Some(clock) = self.tracks.get_mut(track) {
            clock.restart();
        }
    }

    /// All do, and so does their sender's time.
    pub fn restart_all(&mut self) {
        self.tracks.iter_mut().for_each(Clock::restart);
        self.anchor = None;
    }

    /// Moves a track to where its sender says it is, once: until then its packets were played as they arrived. What is
    /// said before any packet has come counts from the first one on.
    pub fn synchronise(&mut self, track: usize, report: Report) {
        let Some(clock) = self.tracks.get_mut(track) else {
            return;
        };
        if clock.last.is_none() || clock.is_restarted {
            clock.early = Some(report);
            return;
        }
        let Some(media) = clock
            .at(report.timestamp)
            .filter(|_| !clock.is_synchronised)
        else {
            return;
        };
        let (ntp, anchor) = *self.anchor.get_or_insert((report.ntp_ns(), media));
        let off = anchor + report.ntp_ns() - ntp - media;
        clock.is_synchronised = true;
        if off.abs() <= JUMP_NS {
            clock.base_ns += off;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sequence: u16, timestamp: u32, ssrc: u32) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = 0x80;
        bytes[1] = 96;
        bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
        bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
        bytes[8..].copy_from_slice(&ssrc.to_be_bytes());
        Header::parse(&bytes).unwrap()
    }

    /// Against a library that sees the packet whole.
    #[test]
    fn a_header_and_a_body_are_a_packet() {
        use rtp_types::{RtpPacket, RtpPacketBuilder};
        let payload: &[u8] = b"payload";
        let extension: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];
        let plain = || {
            RtpPacketBuilder::<&[u8], &[u8]>::new()
                .payload_type(97)
                .sequence_number(0xfffe)
                .timestamp(0x8000_0001)
                .ssrc(0xdead_beef)
                .payload(payload)
        };
        let packets = [
            plain(),
            plain().marker_bit(true),
            plain().add_csrc(1).add_csrc(2),
            plain().extension(0xbede, extension).add_csrc(3),
        ];
        for packet in packets.map(|packet| packet.write_vec().unwrap()) {
            let whole = RtpPacket::parse(&packet).unwrap();
            let (first, body) = packet.split_first_chunk().unwrap();
            let header = Header::parse(first).unwrap();
            assert_eq!(header.marker, whole.marker_bit());
            assert_eq!(header.payload_type, whole.payload_type());
            assert_eq!(header.sequence, whole.sequence_number());
            assert_eq!(header.timestamp, whole.timestamp());
            assert_eq!(header.ssrc, whole.ssrc());
            assert_eq!(header.payload(body), Some(whole.payload()));
            for len in 0..body.len() - payload.len() {
                assert_eq!(header.payload(&body[..len]), None);
            }
        }
        assert_eq!(Header::parse(&[0; HEADER_BYTES]), None);
    }

    #[test]
    fn what_is_missing_late_or_there_twice_is_known() {
        let next = |lost| Order::Next { lost };
        let mut of = Sequence::new(1_000);
        // Timestamps that stand still say nothing.
        let mut take_of = |sequence, ssrc| of.take(&header(sequence, 0, ssrc), 0, false);
        assert_eq!(take_of(65_533, 7), next(0));
        assert_eq!(take_of(65_534, 8), Order::Stranger);
        let mut take = |sequence| take_of(sequence, 7);
        assert_eq!(take(65_534), next(0));
        assert_eq!(take(65_535), next(0));
        assert_eq!(take(2), next(2));
        assert_eq!(take(1), Order::Late);
        assert_eq!(take(1), Order::Duplicate);
        assert_eq!(take(2), Order::Duplicate);
        assert_eq!(take(65_535), Order::Duplicate);
        assert_eq!(take(3), next(0));
        assert_eq!(take(30_000), Order::Anew { expected: 4 });
        assert_eq!(take(30_001), next(0));
        assert_eq!(take(33_001), next(2_999));
        assert_eq!(take(32_001), Order::Late);
        assert_eq!(take(33_002), next(0));
    }

    /// How many are missing is a question of time as well.
    #[test]
    fn numbers_that_jump_are_of_packets_that_were_sent_if_there_was_time_for_that() {
        let next = |lost| Order::Next { lost };
        // Of one that is at 10 s by its clock and by its arrival: number, both times in milliseconds, starved.
        let take = |sequence, at_ms: i64, arrival_ms: u64, starved| {
            let begins = u32::MAX - 9_999;
            let timestamp = |ms: i64| begins.wrapping_add(ms as u32);
            let mut of = Sequence::new(1_000);
            of.take(&header(60_000, timestamp(10_000), 7), 10_000_000_000, false);
            let header = header(sequence, timestamp(at_ms), 7);
            of.take(&header, arrival_ms * 1_000_000, starved)
        };
        let anew = Order::Anew { expected: 60_001 };
        let cases = [
            // An outage of a minute, by a clock that is 8 s off, and by one that is 12 s off.
            (30_001, 78_000, 70_000, false, next(35_536)),
            (30_001, 58_000, 70_000, false, anew),
            // Nobody knows how long nothing was received.
            (30_001, 58_000, 10_000, true, next(35_536)),
            (30_001, 9_000, 10_000, true, anew),
            // Numbers that begin anew while time goes on: so many are not sent in a frame's time.
            (7, 10_040, 10_040, false, anew),
            (64_000, 10_040, 10_040, false, next(3_999)),
            // Up to 3,000 it is one that is late, also of a picture that is shown later than those that came.
            (59_900, 9_600, 10_300, false, Order::Late),
            (59_900, 10_000, 10_300, false, Order::Late),
            (57_000, 10_200, 10_300, true, Order::Late),
            (59_900, 400_000, 10_300, false, anew),
            // Or after as long as more than all the numbers take.
            (59_900, 80_000, 80_000, false, next(65_435)),
            (56_999, 9_600, 10_300, false, anew),
        ];
        for case in cases {
            let (sequence, at_ms, arrival_ms, starved, order) = case;
            assert_eq!(
                take(sequence, at_ms, arrival_ms, starved),
                order,
                "{case:?}"
            );
        }
    }

    /// They are late until that cannot be any more.
    #[test]
    fn numbers_that_begin_anew_a_little_further_back_are_no_outage() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence: u16, at_ms: u32| {
            let header = header(sequence, at_ms, 7);
            of.take(&header, u64::from(at_ms) * 1_000_000, false)
        };
        assert_eq!(take(2_000, 20_000), Order::Next { lost: 0 });
        for number in 0..499 {
            let at_ms = 20_010 + u32::from(number) * 10;
            assert_eq!(take(number, at_ms), Order::Late, "{number}");
        }
        assert_eq!(take(499, 25_000), Order::Anew { expected: 2_001 });
        assert_eq!(take(500, 25_010), Order::Next { lost: 0 });
    }

    /// Each of them, and what comes behind them goes on.
    #[test]
    fn a_burst_that_comes_late_is_no_gap() {
        let mut of = Sequence::new(1_000);
        let mut take = |sequence: u16, arrival_ms: u64| {
            let header = header(sequence, u32::from(sequence) * 20, 7);
            of.take(&header, arrival_ms * 1_000_000, false)
        };
        assert_eq!(take(1_000, 20_000), Order::Next { lost: 0 });
        assert_eq!(take(1_101, 22_020), Order::Next { lost: 100 });
        for number in 1_102..1_300 {
            assert_eq!(take(number, 26_000), Order::Next { lost: 0 });
        }
        for number in 1_001..1_101 {
            assert_eq!(take(number, 26_000), Order::Late);
        }
        assert_eq!(take(1_300, 26_000), Order::Next { lost: 0 });
    }

    #[test]
    fn a_frame_begins_where_the_timestamp_changes() {
        let mut frames = Frames::default();
        let begins = [5, 5, 5, 9, 9, 4].map(|timestamp| frames.begins(&header(0, timestamp, 0)));
        assert_eq!(begins, [true, false, false, true, false, true]);
    }

    #[test]
    fn time_goes_on_when_timestamps_wrap_or_are_set() {
        let mut clock = Clock::new(90_000);
        let second = 1_000_000_000;
        assert_eq!(clock.media_ns(u32::MAX - 44_999, 5 * second), 5 * second);
        assert_eq!(clock.media_ns(45_000, 6 * second), 6 * second);
        // A frame that is shown earlier than the one before it.
        assert_eq!(clock.media_ns(0, 6 * second), 5 * second + second / 2);
        // Sent faster than it is to be played.
        assert_eq!(
            clock.media_ns(450_000, 6 * second),
            10 * second + second / 2
        );
        // The sender's clock is set.
        assert_eq!(
            clock.media_ns(4_000_000_000, 7 * second),
            11 * second + second / 2
        );
        assert_eq!(
            clock.media_ns(4_000_090_000, 7 * second),
            12 * second + second / 2
        );
    }

    #[test]
    fn time_goes_on_when_a_source_begins_anew() {
        let second = 1_000_000_000;
        let mut clocks = Clocks::new([1_000, 1_000].into_iter());
        assert_eq!(clocks.media_ns(0, 5_000, second), second);
        assert_eq!(clocks.media_ns(1, 9_000, second), second);
        clocks.restart_all();
        // Numbers that could be of the same clock are not taken for it.
        let report = Report {
            ntp: 1 << 32,
            timestamp: 5_500,
        };
        clocks.synchronise(0, report);
        assert_eq!(clocks.media_ns(0, 5_500, 4 * second), 4 * second);
        assert_eq!(clocks.media_ns(0, 6_500, 4 * second), 5 * second);
        // One track alone.
        clocks.restart(1);
        assert_eq!(clocks.media_ns(1, 0, 6 * second), 6 * second);
        assert_eq!(clocks.media_ns(0, 7_500, 6 * second), 6 * second);
    }

    #[test]
    fn tracks_are_brought_together_by_what_their_sender_says() {
        let second = 1_000_000_000;
        let mut clocks = Clocks::new([90_000, 48_000].into_iter());
        assert_eq!(clocks.media_ns(0, 1_000, 0), 0);
        // Sound that belongs to the picture of 0.2 s arrives at 0.5 s.
        assert_eq!(clocks.media_ns(1, 77_000, second / 2), second / 2);
        let ntp = |tenths: u64| (3_900_000_000 << 32) + (tenths << 32) / 10;
        let report = |tenths, timestamp| Report {
            ntp: ntp(tenths),
            timestamp,
        };
        clocks.synchronise(0, report(0, 1_000));
        clocks.synchronise(1, report(2, 77_000));
        let media = clocks.media_ns(1, 77_000, second / 2);
        assert!(media.abs_diff(second / 5) <= 1, "{media}");
        // Once is enough, and nonsense is not believed.
        clocks.synchronise(1, report(90, 77_000));
        clocks.synchronise(2, report(0, 0));
        assert_eq!(clocks.media_ns(1, 77_000, second / 2), media);
    }

    #[test]
    fn frames_that_stand_alone_are_known_by_their_encoding() {
        for (encoding, payload, expected) in [
            ("H264", &[0x65, 1][..], true),
            ("H264", &[0x67, 1], true),
            ("H264", &[0x41, 1], false),
            ("H264", &[0x78, 0, 4, 0x67, 1], true),
            ("H264", &[0x78, 0, 4, 0x06, 1], false),
            ("H264", &[0x7c, 0x85], true),
            ("H264", &[0x7c, 0x81], false),
            ("H264", &[], false),
            ("H265", &[0x26, 1, 0], true),
            ("H265", &[0x40, 1, 0], true),
            ("H265", &[0x02, 1, 0], false),
            ("H265", &[0x62, 1, 0x93], true),
            ("H265", &[0x62, 1, 0x81], false),
            ("H265", &[0x60, 1, 0, 4, 0x40], true),
            ("H265", &[0x60], false),
            ("MP4V-ES", &[0, 0, 1, 0xb6, 0x10], true),
            ("MP4V-ES", &[0, 0, 1, 0xb6, 0x50], false),
            ("MP4V-ES", &[0, 0, 1, 0xb0, 1], true),
            ("MP4V-ES", &[9, 9, 9, 9], false),
            ("JPEG", &[1], true),
            ("OPUS", &[], true),
        ] {
            assert_eq!(
                is_key(encoding, payload),
                expected,
                "{encoding} {payload:x?}"
            );
        }
    }
}
