//! H.264 (RFC 6184) and H.265 (RFC 7798): NAL units from packets, and frames from NAL units.
//!
//! What is understood is what those RFCs call single NAL units, aggregation packets of one time (STAP-A, AP) and
//! fragmentation units (FU-A, FU). Interleaved ones, which cameras do not send, are left out and counted.

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

/// Puts frames together.
#[derive(Debug)]
pub struct Nals {
    codec: Codec,
    /// What was seen so far.
    pub parameters: Parameters,
    frame: Unit,
    /// Whether part of a picture is in it.
    has_picture: bool,
    is_begun: bool,
    /// Where in the frame the NAL unit begins whose fragments are coming.
    open: Option<usize>,
    /// NAL units that were left out: fragments of them are missing, or they are of no kind that is known.
    pub left_out: u64,
}

impl Nals {
    /// Nothing has come yet; `parameters` are what a description says.
    #[must_use]
    pub fn new(codec: Codec, parameters: Parameters) -> Self {
        Self {
            codec,
            parameters,
            frame: Unit::default(),
            has_picture: false,
            is_begun: false,
            open: None,
            left_out: 0,
        }
    }

    /// Which codec's they are.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Takes the next packet, and gives the frame before if this one is of another.
    pub fn push(&mut self, packet: &Packet<'_>) -> Option<Unit> {
        let mut done = None;
        if self.is_begun && self.frame.timestamp != packet.header.timestamp {
            done = self.end_frame();
        }
        if !self.is_begun {
            self.is_begun = true;
            self.frame.timestamp = packet.header.timestamp;
            self.frame.media_ns = packet.media_ns;
        }
        if packet.is_after_loss {
            self.drop_open();
        }
        match self.codec {
            Codec::Avc => self.push_avc(packet.payload),
            Codec::Hevc => self.push_hevc(packet.payload),
        }
        done
    }

    /// Gives the frame that has come so far: there are no more packets.
    pub fn finish(&mut self) -> Option<Unit> {
        self.end_frame()
    }

    /// What has no picture in it goes with the frame that comes next.
    fn end_frame(&mut self) -> Option<Unit> {
        self.drop_open();
        self.is_begun = false;
        if !self.has_picture {
            return None;
        }
        self.has_picture = false;
        Some(std::mem::take(&mut self.frame))
    }

    fn drop_open(&mut self) {
        if let Some(begin) = self.open.take() {
            self.frame.data.truncate(begin);
            self.left_out += 1;
        }
    }

    fn whole(&mut self, unit: &[u8]) {
        self.drop_open();
        if unit.is_empty() || self.frame.data.len() + unit.len() + 4 > FRAME_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.begin(&[]);
        self.frame.data.extend_from_slice(unit);
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
        let is_parameters = matches!(
            self.codec.kind(unit),
            NalKind::Vps | NalKind::Sps | NalKind::Pps
        );
        if is_parameters && unit.windows(START.len()).any(|of| of == START) {
            let units = self.frame.data.split_off(begin + 4);
            self.frame.data.truncate(begin);
            apart(&units).for_each(|unit| self.whole(unit));
            return;
        }
        let (head, unit) = self.frame.data.split_at_mut(begin + 4);
        head[begin..].copy_from_slice(&(unit.len() as u32).to_be_bytes());
        let kind = self.codec.kind(unit);
        self.has_picture |= matches!(kind, NalKind::Key | NalKind::Slice);
        // As players are told by the index, so that files are cut where playing can begin.
        let begins = matches!(kind, NalKind::Key | NalKind::Sps | NalKind::Vps);
        self.frame.is_key |= begins;
        self.parameters.note(self.codec, unit);
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

/// What is between NAL units where there are no lengths, and in none of them (ITU-T H.264, annex B).
const START: &[u8] = &[0, 0, 1];

/// NAL units that have such between them: some cameras send parameters and the picture behind them as one.
fn apart(mut units: &[u8]) -> impl Iterator<Item = &[u8]> {
    let split = std::iter::from_fn(move || {
        if units.is_empty() {
            return None;
        }
        let at = units.windows(START.len()).position(|of| of == START);
        let (unit, rest) = units.split_at(at.unwrap_or(units.len()));
        units = rest.get(START.len()..).unwrap_or_default();
        // A start code may begin with one more.
        let end = unit.iter().rposition(|byte| *byte != 0);
        Some(&unit[..end.map_or(0, |last| last + 1)])
    });
    split.filter(|unit| !unit.is_empty())
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

    fn header(timestamp: u8) -> Header {
        Header::parse(&[0x80, 96, 0, 0, 0, 0, 0, timestamp, 0, 0, 0, 1]).unwrap()
    }

    fn push(nals: &mut Nals, timestamp: u8, payload: &[u8], is_after_loss: bool) -> Option<Unit> {
        nals.push(&Packet {
            header: header(timestamp),
            payload,
            media_ns: u64::from(timestamp) * 1_000,
            is_after_loss,
        })
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
        assert!(nals.parameters.is_whole(Codec::Avc));
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
        assert!(frame.is_key && nals.parameters.is_whole(Codec::Avc));
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
        assert!(frame.is_key && nals.parameters.is_whole(Codec::Hevc));
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
