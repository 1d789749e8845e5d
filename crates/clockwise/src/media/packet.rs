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

/// Where a packet's timestamp puts it, of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Later, by about the time that has gone by.
    Ahead,
    /// A little earlier.
    Behind,
    /// It says nothing: it is far away, or the same.
    Unknown,
}

/// So many packets are lost at a time whatever their timestamps say; more are another beginning if these do not go on
/// (RFC 3550, appendix A.1, `MAX_DROPOUT`).
const LOST_MAX: u16 = 3_000;

/// As many earlier packets are known by their numbers.
const KNOWN: u32 = 64;

/// The numbers of packets of a track.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence {
    ssrc: Option<u32>,
    last: Option<u16>,
    /// Which of the last ones have come: bit n is that n before the last.
    seen: u64,
}

impl Sequence {
    /// Whose packets they are.
    #[must_use]
    pub fn ssrc(&self) -> Option<u32> {
        self.ssrc
    }

    /// Takes in one more, which is there by its timestamp.
    pub fn take(&mut self, header: &Header, place: Place) -> Order {
        if *self.ssrc.get_or_insert(header.ssrc) != header.ssrc {
            return Order::Stranger;
        }
        let Some(last) = self.last else {
            self.last = Some(header.sequence);
            self.seen = 1;
            return Order::Next { lost: 0 };
        };
        let ahead = header.sequence.wrapping_sub(last);
        let behind = u32::from(last.wrapping_sub(header.sequence));
        if ahead == 0 {
            return Order::Duplicate;
        }
        let is_near = behind < KNOWN;
        if ahead <= LOST_MAX || (place == Place::Ahead && !is_near) {
            self.last = Some(header.sequence);
            self.seen = self.seen.checked_shl(u32::from(ahead)).unwrap_or(0) | 1;
            return Order::Next {
                lost: u32::from(ahead) - 1,
            };
        }
        if is_near {
            let is_known = self.seen >> behind & 1 == 1;
            self.seen |= 1 << behind;
            return if is_known {
                Order::Duplicate
            } else {
                Order::Late
            };
        }
        if place == Place::Behind && behind <= u32::from(LOST_MAX) {
            return Order::Late;
        }
        self.last = Some(header.sequence);
        self.seen = 1;
        Order::Anew {
            expected: last.wrapping_add(1),
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

    /// Where a packet is that arrived now, of the one before it.
    fn place(&self, timestamp: u32, arrival_ns: u64) -> Place {
        let Some((last, _, arrived)) = self.last.filter(|_| !self.is_restarted) else {
            return Place::Unknown;
        };
        let by_clock = self.ns(i64::from(timestamp.wrapping_sub(last) as i32));
        let by_arrival = i128::from(arrival_ns) - i128::from(arrived);
        match (by_clock - by_arrival).abs() <= JUMP_NS {
            true if by_clock > 0 => Place::Ahead,
            true if by_clock < 0 => Place::Behind,
            _ => Place::Unknown,
        }
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

    /// Where a packet of a track is that arrived now, of the one before it.
    #[must_use]
    pub fn place(&self, track: usize, timestamp: u32, arrival_ns: u64) -> Place {
        let clock = self.tracks.get(track);
        clock.map_or(Place::Unknown, |clock| clock.place(timestamp, arrival_ns))
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
        let mut of = Sequence::default();
        let mut take = |sequence| of.take(&header(sequence, 0, 7), Place::Unknown);
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
        let mut take = |sequence, ssrc, place| of.take(&header(sequence, 0, ssrc), place);
        assert_eq!(take(33_002, 8, Place::Ahead), Order::Stranger);
        assert_eq!(take(33_002, 7, Place::Unknown), next(0));
        // Time goes on as the numbers do.
        assert_eq!(take(41_003, 7, Place::Ahead), next(8_000));
        assert_eq!(take(40_000, 7, Place::Behind), Order::Late);
        assert_eq!(take(41_004, 7, Place::Ahead), next(0));
        // Pictures are not sent in the order that they are shown in.
        assert_eq!(take(40_995, 7, Place::Ahead), Order::Late);
        assert_eq!(take(41_005, 7, Place::Behind), next(0));
        // More than half of the numbers there are.
        assert_eq!(take(15_469, 7, Place::Ahead), next(39_999));
        let anew = Order::Anew { expected: 15_470 };
        assert_eq!(take(9_000, 7, Place::Behind), anew);
    }

    #[test]
    fn a_timestamp_says_whether_its_packet_is_before_or_behind_another() {
        let second = 1_000_000_000;
        let mut clocks = Clocks::new([1_000].into_iter());
        assert_eq!(clocks.place(0, 0, 0), Place::Unknown);
        clocks.media_ns(0, u32::MAX - 499, second);
        let places = [
            (u32::MAX - 499, second, Place::Unknown),
            (499, 2 * second, Place::Ahead),
            (u32::MAX - 999, second, Place::Behind),
            // An outage of a minute, by a clock that is 8 s off, and by one that is more than 10 s off.
            (51_500, 61 * second, Place::Ahead),
            (49_499, 61 * second, Place::Unknown),
            (20_000, second, Place::Unknown),
        ];
        for (timestamp, arrival_ns, place) in places {
            assert_eq!(clocks.place(0, timestamp, arrival_ns), place, "{timestamp}");
        }
        clocks.restart(0);
        assert_eq!(clocks.place(0, 499, 2 * second), Place::Unknown);
        assert_eq!(clocks.place(1, 499, 2 * second), Place::Unknown);
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
