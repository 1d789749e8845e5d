//! H.264 (RFC 6184) and H.265 (RFC 7798): NAL units from packets, and frames from NAL units.
//!
//! What is understood is what those RFCs call single NAL units, aggregation packets of one time (STAP-A, AP) and
//! fragmentation units (FU-A, FU). Interleaved ones, which cameras do not send, are left out and counted.

use super::super::packet::frames::{self, Coding, Frames, Piece};
use super::unit::{Packet, Unit};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// H.264.
    Avc,
    /// H.265.
    Hevc,
}

/// What a NAL unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NalKind {
    /// What is needed to decode a video (H.265).
    Vps,
    /// What is needed to decode a sequence.
    Sps,
    /// What is needed to decode a picture.
    Pps,
    /// Part of a picture that needs no other.
    Key,
    /// Part of another picture.
    Slice,
    /// Anything else.
    Other,
}

impl Codec {
    /// What a NAL unit is.
    #[must_use]
    pub fn kind(self, unit: &[u8]) -> NalKind {
        let Some(first) = unit.first() else {
            return NalKind::Other;
        };
        match (self, first & 0x1f, first >> 1 & 0x3f) {
            (Self::Avc, 7, _) | (Self::Hevc, _, 33) => NalKind::Sps,
            (Self::Avc, 8, _) | (Self::Hevc, _, 34) => NalKind::Pps,
            (Self::Hevc, _, 32) => NalKind::Vps,
            (Self::Avc, 5, _) | (Self::Hevc, _, 16..=21) => NalKind::Key,
            (Self::Avc, 1..=4, _) | (Self::Hevc, _, 0..=15) => NalKind::Slice,
            _ => NalKind::Other,
        }
    }
}

/// Sequence and picture parameters, by what they are; the first ones of a recording are what a file says in its head.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// H.265 only.
    pub vps: Option<Vec<u8>>,
    /// Of the sequence.
    pub sps: Option<Vec<u8>>,
    /// Of pictures.
    pub pps: Vec<Vec<u8>>,
}

/// So many picture parameters are noted.
const PPS_MAX: usize = 8;

impl Parameters {
    /// Notes a NAL unit that is one of them.
    pub fn note(&mut self, codec: Codec, unit: &[u8]) {
        // Zeros behind one are between it and the next one, where there are start codes.
        let end = unit.iter().rposition(|byte| *byte != 0);
        let unit = &unit[..end.map_or(0, |last| last + 1)];
        match codec.kind(unit) {
            NalKind::Vps if self.vps.is_none() => self.vps = Some(unit.to_vec()),
            NalKind::Sps if self.sps.is_none() => self.sps = Some(unit.to_vec()),
            NalKind::Pps if self.pps.len() < PPS_MAX && !self.pps.iter().any(|of| of == unit) => {
                self.pps.push(unit.to_vec());
            }
            _ => {}
        }
    }

    /// Whether that is enough to decode with.
    #[must_use]
    pub fn is_whole(&self, codec: Codec) -> bool {
        self.sps.is_some() && !self.pps.is_empty() && (codec == Codec::Avc || self.vps.is_some())
    }

    /// All of them, as they go before a stream.
    pub fn units(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.vps.iter().chain(&self.sps).chain(&self.pps)
    }
}

/// The largest frame, in bytes; what is more of one is left out.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// When a packet is to be played.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    timestamp: u32,
    media_ns: u64,
    /// Packets are missing before what comes next.
    is_after_loss: bool,
}

/// Puts frames together.
#[derive(Debug)]
pub struct Nals {
    codec: Codec,
    /// What a description says.
    described: Parameters,
    /// What has come.
    seen: Parameters,
    frames: Frames,
    /// Of the packet that is being taken.
    at: At,
    frame: Unit,
    /// Whether part of a picture is in it.
    has_picture: bool,
    /// Whether part of a picture has begun, whose time it has.
    is_timed: bool,
    /// Where in the frame the NAL unit begins whose fragments are coming.
    open: Option<usize>,
    done: Vec<Unit>,
    /// Whether a key frame has begun, before which its parameters come if they come at all.
    has_key: bool,
    /// NAL units that were left out: fragments of them are missing, or they are of no kind that is known.
    pub left_out: u64,
}

impl Nals {
    /// Nothing has come yet; `parameters` are what a description says.
    #[must_use]
    pub fn new(codec: Codec, parameters: Parameters) -> Self {
        let coding = match codec {
            Codec::Avc => Coding::Avc,
            Codec::Hevc => Coding::Hevc,
        };
        Self {
            codec,
            described: parameters,
            seen: Parameters::default(),
            frames: Frames::new(coding),
            at: At::default(),
            frame: Unit::default(),
            has_picture: false,
            is_timed: false,
            open: None,
            done: Vec::new(),
            has_key: false,
            left_out: 0,
        }
    }

    /// Which codec's they are.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether a key frame has begun, or the parameters that come before it have come.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_key || self.seen.is_whole(self.codec)
    }

    /// The parameters that it is decoded with at first: those that came, and what was described where none came.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let (described, mut parameters) = (&self.described, self.seen.clone());
        if parameters.vps.is_none() {
            parameters.vps.clone_from(&described.vps);
        }
        if parameters.sps.is_none() {
            parameters.sps.clone_from(&described.sps);
        }
        if parameters.pps.is_empty() {
            parameters.pps.clone_from(&described.pps);
        }
        parameters
    }

    /// What was described of them.
    #[must_use]
    pub fn described(&self) -> &Parameters {
        &self.described
    }

    /// Takes the next packet, and gives the frames that are whole now.
    pub fn push(&mut self, packet: &Packet<'_>, out: &mut Vec<Unit>) {
        self.at = At {
            timestamp: packet.header.timestamp,
            media_ns: packet.media_ns,
            is_after_loss: packet.is_after_loss,
        };
        if packet.is_after_loss {
            self.drop_open();
        }
        match self.codec {
            _ if frames::has_start_code(packet.payload) => {
                frames::apart(packet.payload).for_each(|unit| self.whole(unit));
            }
            Codec::Avc => self.push_avc(packet.payload),
            Codec::Hevc => self.push_hevc(packet.payload),
        }
        self.frames.end_packet(packet.header.marker);
        out.append(&mut self.done);
    }

    /// Gives the frame that has come so far: there are no more packets.
    pub fn finish(&mut self) -> Option<Unit> {
        self.end_frame();
        self.done.pop()
    }

    /// What has no picture in it goes with the frame that comes next.
    fn end_frame(&mut self) {
        self.drop_open();
        self.is_timed = false;
        if !std::mem::take(&mut self.has_picture) {
            return;
        }
        self.done.push(std::mem::take(&mut self.frame));
    }

    fn drop_open(&mut self) {
        if let Some(begin) = self.open.take() {
            self.frame.data.truncate(begin);
            self.left_out += 1;
        }
    }

    /// What a NAL unit is, which has these bytes at its beginning.
    fn piece(&self, head: &[u8], body: &[u8]) -> Option<Piece> {
        match (self.codec, head) {
            (Codec::Avc, [first]) => Some(Piece::avc(*first, body)),
            (Codec::Hevc, [first, second]) => Some(Piece::hevc([*first, *second], body)),
            _ => None,
        }
    }

    /// The same of one that lies in one piece.
    fn piece_of(&self, unit: &[u8]) -> Option<Piece> {
        let head_bytes = match self.codec {
            Codec::Avc => 1,
            Codec::Hevc => 2,
        };
        let (head, body) = unit.split_at_checked(head_bytes)?;
        self.piece(head, body)
    }

    /// A NAL unit begins, and a frame with it perhaps.
    fn starts(&mut self, piece: Option<Piece>) {
        let Some(piece) = piece else {
            return;
        };
        let At {
            timestamp,
            media_ns,
            ..
        } = self.at;
        let is_after_loss = std::mem::take(&mut self.at.is_after_loss);
        if self.frames.unit(piece, timestamp, is_after_loss) {
            self.end_frame();
        }
        // Parameters may have the time of the picture before.
        if !self.is_timed {
            (self.frame.timestamp, self.frame.media_ns) = (timestamp, media_ns);
        }
        self.is_timed |= piece.is_picture();
        self.has_key |= piece.is_picture() && self.frames.is_key(piece);
    }

    fn whole(&mut self, unit: &[u8]) {
        self.drop_open();
        if unit.is_empty() {
            self.left_out += 1;
            return;
        }
        self.starts(self.piece_of(unit));
        if self.frame.data.len() + unit.len() + 4 > FRAME_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.begin(unit);
        self.close();
    }

    fn begin(&mut self, head: &[u8]) {
        self.open = Some(self.frame.data.len());
        self.frame.data.extend_from_slice(&[0; 4]);
        self.frame.data.extend_from_slice(head);
    }

    fn close(&mut self) {
        let Some(begin) = self.open.take() else {
            return;
        };
        let unit = &self.frame.data[begin + 4..];
        let kind = self.codec.kind(unit);
        let is_picture = matches!(kind, NalKind::Key | NalKind::Slice);
        // None has these bytes in it, but where several were sent as one.
        if !is_picture
            && unit
                .windows(frames::START.len())
                .any(|of| of == frames::START)
        {
            let units = self.frame.data.split_off(begin + 4);
            self.frame.data.truncate(begin);
            frames::apart(&units).for_each(|unit| self.whole(unit));
            return;
        }
        let (head, unit) = self.frame.data.split_at_mut(begin + 4);
        head[begin..].copy_from_slice(&(unit.len() as u32).to_be_bytes());
        self.has_picture |= is_picture;
        self.seen.note(self.codec, unit);
        // As players are told by the index, so that files are cut where playing can begin.
        let piece = self.piece_of(&self.frame.data[begin + 4..]);
        self.frame.is_key |= piece.is_some_and(|piece| self.frames.is_key(piece));
    }

    fn aggregated(&mut self, mut units: &[u8]) {
        while let Some((length, rest)) = units.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((unit, rest)) = rest.split_at_checked(length) else {
                self.left_out += 1;
                return;
            };
            self.whole(unit);
            units = rest;
        }
    }

    fn fragment(&mut self, flags: u8, head: &[u8], body: &[u8]) {
        let (begins, ends) = (flags & 0x80 != 0, flags & 0x40 != 0);
        if begins {
            self.drop_open();
            self.starts(self.piece(head, body));
            self.begin(head);
        }
        let is_too_long = self.frame.data.len() + body.len() > FRAME_BYTES_MAX;
        if self.open.is_none() || is_too_long {
            // Its beginning is missing: that was counted, or is before what was asked for.
            self.drop_open();
            return;
        }
        self.frame.data.extend_from_slice(body);
        if ends {
            self.close();
        }
    }

    fn push_avc(&mut self, payload: &[u8]) {
        match payload {
            [first, rest @ ..] if first & 0x1f == 24 => self.aggregated(rest),
            [first, second, body @ ..] if first & 0x1f == 28 => {
                self.fragment(*second, &[first & 0xe0 | second & 0x1f], body);
            }
            [first, ..] if (1..=23).contains(&(first & 0x1f)) => self.whole(payload),
            _ => self.left_out += 1,
        }
    }

    fn push_hevc(&mut self, payload: &[u8]) {
        match payload {
            [first, _, rest @ ..] if first >> 1 & 0x3f == 48 => self.aggregated(rest),
            [first, second, third, body @ ..] if first >> 1 & 0x3f == 49 => {
                let head = [first & 0x81 | (third & 0x3f) << 1, *second];
                self.fragment(*third, &head, body);
            }
            [first, _, ..] if first >> 1 & 0x3f < 48 => self.whole(payload),
            _ => self.left_out += 1,
        }
    }
}

/// NAL units behind start codes instead of lengths (ITU-T H.264, annex B), in place.
pub fn to_annex_b(data: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = data.get_mut(at..at + 4) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        head.copy_from_slice(&[0, 0, 0, 1]);
        at += 4 + length as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packet::Header;
    use super::*;

    fn header(timestamp: u8, has_marker: bool) -> Header {
        let kind = if has_marker { 96 | 0x80 } else { 96 };
        Header::parse(&[0x80, kind, 0, 0, 0, 0, 0, timestamp, 0, 0, 0, 1]).unwrap()
    }

    fn push(nals: &mut Nals, timestamp: u8, payload: &[u8], is_after_loss: bool) -> Option<Unit> {
        let packet = Packet {
            header: header(timestamp, false),
            payload,
            media_ns: u64::from(timestamp) * 1_000,
            is_after_loss,
        };
        let mut units = Vec::new();
        nals.push(&packet, &mut units);
        assert!(units.len() < 2);
        units.pop()
    }

    /// The frames of packets of a timestamp and a payload, which has the mark or not: their times, how many NAL units they
    /// have, and whether they can be decoded alone.
    fn frames(codec: Codec, packets: &[(u8, bool, &[u8])]) -> Vec<(u32, usize, bool)> {
        let mut nals = Nals::new(codec, Parameters::default());
        let mut units = Vec::new();
        for (timestamp, has_marker, payload) in packets {
            let packet = Packet {
                header: header(*timestamp, *has_marker),
                payload,
                media_ns: u64::from(*timestamp) * 1_000,
                is_after_loss: false,
            };
            nals.push(&packet, &mut units);
        }
        units.extend(nals.finish());
        let count = |unit: &Unit| {
            let (mut at, mut count) = (0, 0);
            while let Some(length) = unit.data.get(at..at + 4) {
                at += 4 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
                count += 1;
            }
            count
        };
        let frames = units.iter();
        frames
            .map(|unit| {
                assert_eq!(unit.media_ns, u64::from(unit.timestamp) * 1_000);
                (unit.timestamp, count(unit), unit.is_key)
            })
            .collect()
    }

    /// As Reolink's cameras send them: with the time of the picture before, and a mark on the SPS.
    #[test]
    fn parameters_are_of_the_picture_behind_them_whatever_their_time() {
        let packets: [(u8, bool, &[u8]); 7] = [
            (1, true, &[0x65, 0x88, 1]),
            (2, true, &[0x41, 0x9a, 2]),
            (2, true, &[0x67, 1, 2]),
            (2, false, &[0x68, 3]),
            (3, false, &[0x65, 0x88, 4]),
            (3, true, &[0x65, 0x20, 5]),
            (4, true, &[0x41, 0x9a, 6]),
        ];
        let expected = [(1, 1, true), (2, 1, false), (3, 4, true), (4, 1, false)];
        assert_eq!(frames(Codec::Avc, &packets), expected);
        let packets: [(u8, bool, &[u8]); 6] = [
            (1, true, &[0x26, 1, 0xa0]),
            (2, true, &[0x02, 1, 0xd0]),
            (2, true, &[0x40, 1, 1]),
            (2, false, &[0x42, 1, 2]),
            (2, false, &[0x44, 1, 3]),
            (3, true, &[0x26, 1, 0xa0]),
        ];
        let expected = [(1, 1, true), (2, 1, false), (3, 4, true)];
        assert_eq!(frames(Codec::Hevc, &packets), expected);
    }

    #[test]
    fn pictures_of_one_time_are_told_apart() {
        // Each ends with a mark; the first one has two slices, each of which has it.
        let packets: [(u8, bool, &[u8]); 5] = [
            (1, true, &[0x65, 0x88, 1]),
            (1, true, &[0x65, 0x20, 2]),
            (1, true, &[0x41, 0x9a, 3]),
            (1, false, &[0x7c, 0x81, 0x9a]),
            (1, true, &[0x7c, 0x41, 4]),
        ];
        let expected = [(1, 2, true), (1, 1, false), (1, 1, false)];
        assert_eq!(frames(Codec::Avc, &packets), expected);
        // Without a mark these are the fields of a frame, or slices that say the same again; with a delimiter they are not.
        let packets: [(u8, bool, &[u8]); 4] = [
            (1, false, &[0x65, 0x88, 1]),
            (1, false, &[0x41, 0x9a, 2]),
            (1, false, &[0x09, 0x10]),
            (1, true, &[0x41, 0x9a, 3]),
        ];
        assert_eq!(frames(Codec::Avc, &packets), [(1, 2, true), (1, 2, false)]);
        // In H.265 a picture begins once.
        let packets: [(u8, bool, &[u8]); 3] = [
            (1, false, &[0x26, 1, 0xa0]),
            (1, false, &[0x02, 1, 0x50]),
            (1, true, &[0x02, 1, 0xd0]),
        ];
        assert_eq!(frames(Codec::Hevc, &packets), [(1, 2, true), (1, 1, false)]);
    }

    /// Some send them before each picture.
    #[test]
    fn parameters_alone_make_no_key_frame() {
        let packets: [(u8, bool, &[u8]); 6] = [
            // An I slice that is no IDR, and a P slice.
            (1, false, &[0x67, 1]),
            (1, true, &[0x41, 0x88, 1]),
            (2, false, &[0x67, 1]),
            (2, true, &[0x41, 0x9a, 2]),
            // One from which on pictures become right.
            (3, false, &[0x06, 6, 1, 0x84, 0x80]),
            (3, true, &[0x41, 0x9a, 3]),
        ];
        let expected = [(1, 2, true), (2, 2, false), (3, 2, true)];
        assert_eq!(frames(Codec::Avc, &packets), expected);
    }

    /// Fragments follow each other by their numbers, and what is said of a picture may lie between its parts.
    #[test]
    fn a_picture_in_pieces_is_one() {
        let packets: [(u8, bool, &[u8]); 6] = [
            (1, false, &[0x7c, 0x85, 0x88]),
            (2, false, &[0x7c, 0x05, 7]),
            (1, false, &[0x7c, 0x45, 8]),
            (1, false, &[0x06, 5, 1, 9, 0x80]),
            (1, true, &[0x65, 0x20, 5]),
            (3, true, &[0, 0, 0, 1, 0x41, 0x9a, 0, 0, 1, 0x41, 0x20]),
        ];
        let expected = [(1, 3, true), (3, 2, false)];
        assert_eq!(frames(Codec::Avc, &packets), expected);
    }

    #[test]
    fn h264_of_all_kinds_of_packets() {
        let mut nals = Nals::new(Codec::Avc, Parameters::default());
        // SPS and PPS in one packet, a key frame in three fragments, another slice of it.
        let parameters = [0x78, 0, 3, 0x67, 1, 2, 0, 2, 0x68, 3];
        assert_eq!(push(&mut nals, 1, &parameters, false), None);
        for (flags, body) in [(0x85, 10), (0x05, 11), (0x45, 12)] {
            assert_eq!(push(&mut nals, 1, &[0x7c, flags, body], false), None);
        }
        push(&mut nals, 1, &[0x65, 20, 21], false);
        let frame = push(&mut nals, 2, &[0x41, 30], false).unwrap();
        let expected = [
            &[0, 0, 0, 3, 0x67, 1, 2][..],
            &[0, 0, 0, 2, 0x68, 3],
            &[0, 0, 0, 4, 0x65, 10, 11, 12],
            &[0, 0, 0, 3, 0x65, 20, 21],
        ];
        assert_eq!(frame.data, expected.concat());
        assert!(frame.is_key);
        assert_eq!((frame.timestamp, frame.media_ns), (1, 1_000));
        assert!(nals.parameters().is_whole(Codec::Avc));
        let mut raw = frame.data.clone();
        to_annex_b(&mut raw);
        assert!(raw.starts_with(&[0, 0, 0, 1, 0x67]) && raw.ends_with(&[0, 0, 0, 1, 0x65, 20, 21]));
        let last = nals.finish().unwrap();
        assert_eq!(last.data, [0, 0, 0, 2, 0x41, 30]);
        assert!(!last.is_key);
        assert_eq!((nals.finish(), nals.left_out), (None, 0));
    }

    /// As V380 and other cameras send their key frames.
    #[test]
    fn parameters_and_the_picture_behind_them_may_come_as_one_unit() {
        let mut nals = Nals::new(Codec::Avc, Parameters::default());
        push(
            &mut nals,
            1,
            &[0x7c, 0x87, 1, 2, 0, 0, 0, 1, 0x68, 3, 0],
            false,
        );
        push(&mut nals, 1, &[0x7c, 0x07, 0, 1, 0x65, 4, 0, 0], false);
        push(&mut nals, 1, &[0x7c, 0x47, 3, 0, 0, 3, 5], false);
        let frame = push(&mut nals, 2, &[0x41, 30], false).unwrap();
        let expected = [
            &[0, 0, 0, 3, 0x67, 1, 2][..],
            &[0, 0, 0, 2, 0x68, 3],
            &[0, 0, 0, 9, 0x65, 4, 0, 0, 3, 0, 0, 3, 5],
        ];
        assert_eq!(frame.data, expected.concat());
        assert!(frame.is_key && nals.parameters().is_whole(Codec::Avc));
        assert_eq!(nals.left_out, 0);
    }

    #[test]
    fn h265_of_all_kinds_of_packets() {
        let mut nals = Nals::new(Codec::Hevc, Parameters::default());
        let parameters = [
            0x60, 1, 0, 3, 0x40, 1, 7, 0, 3, 0x42, 1, 8, 0, 3, 0x44, 1, 9,
        ];
        push(&mut nals, 1, &parameters, false);
        for (flags, body) in [(0x93, 10), (0x13, 11), (0x53, 12)] {
            push(&mut nals, 1, &[0x62, 1, flags, body], false);
        }
        let frame = push(&mut nals, 2, &[0x02, 1, 30], false).unwrap();
        assert!(
            frame.data.ends_with(&[0, 0, 0, 5, 0x26, 1, 10, 11, 12]),
            "{frame:?}"
        );
        assert!(frame.is_key && nals.parameters().is_whole(Codec::Hevc));
        assert!(!nals.finish().unwrap().is_key);
    }

    #[test]
    fn of_what_is_missing_nothing_is_made_up() {
        let mut nals = Nals::new(Codec::Avc, Parameters::default());
        push(&mut nals, 1, &[0x41, 1], false);
        push(&mut nals, 1, &[0x7c, 0x81, 10], false);
        // The fragment between is missing, so is the unit.
        push(&mut nals, 1, &[0x7c, 0x41, 12], true);
        push(&mut nals, 1, &[0x41, 2], false);
        // A packet that is cut short, an interleaved one, an empty one.
        push(&mut nals, 1, &[0x78, 0, 9, 1], false);
        push(&mut nals, 1, &[0x79, 0, 0, 1], false);
        push(&mut nals, 1, &[], false);
        let frame = nals.finish().unwrap();
        assert_eq!(frame.data, [0, 0, 0, 2, 0x41, 1, 0, 0, 0, 2, 0x41, 2]);
        assert_eq!(nals.left_out, 4);
    }

    #[test]
    fn parameters_that_come_alone_go_with_the_next_frame() {
        let mut nals = Nals::new(Codec::Avc, Parameters::default());
        push(&mut nals, 1, &[0x67, 1], false);
        assert_eq!(push(&mut nals, 2, &[0x65, 2], false), None);
        let frame = nals.finish().unwrap();
        assert_eq!(frame.data, [0, 0, 0, 2, 0x67, 1, 0, 0, 0, 2, 0x65, 2]);
        assert_eq!((frame.timestamp, frame.is_key), (2, true));
    }
}
