//! RTP packets as they come: whose they are, which are missing, where frames begin, and when they are to be played.
//!
//! The fixed header of a packet (RFC 3550, section 5.1) is received apart from what follows it, so that bodies lie back
//! to back in a block. What is here is given the two parts; nothing is copied.

mod clock;
mod sequence;

pub use clock::{Clocks, Report};
pub use sequence::{Order, Sequence};

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
    let of = |unit: &[u8]| {
        unit.first()
            .is_some_and(|byte| matches!(byte & 0x1f, 5 | 7))
    };
    match payload {
        [first, units @ ..] if first & 0x1f == 24 => aggregated(units).any(of),
        // Some cameras send parameters and the key frame behind them, with start codes between, as fragments of one unit.
        [first, second, ..] if first & 0x1f == 28 => matches!(second & 0x1f, 5 | 7),
        [first, ..] if first & 0x1f == 28 => false,
        unit => of(unit),
    }
}

/// RFC 7798: likewise, with 48 and 49.
fn is_key_h265(payload: &[u8]) -> bool {
    let is_kind = |kind: u8| matches!(kind, 16..=21 | 32..=34);
    let of = |unit: &[u8]| unit.first().is_some_and(|byte| is_kind(byte >> 1 & 0x3f));
    match payload {
        [first, _, units @ ..] if first >> 1 & 0x3f == 48 => aggregated(units).any(of),
        [first, _, third, ..] if first >> 1 & 0x3f == 49 => is_kind(third & 0x3f),
        unit => of(unit),
    }
}

/// The units of an aggregate, each behind its length; the last one as far as it goes.
fn aggregated(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, behind) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (unit, behind) = behind.split_at(len);
        rest = behind;
        Some(unit)
    })
}

/// RFC 6416: the headers of a sequence, or a picture that refers to no other.
fn is_key_mpeg4(payload: &[u8]) -> bool {
    match payload {
        [0, 0, 1, 0xb0 | 0xb3 | 0x00..=0x2f, ..] => true,
        [0, 0, 1, 0xb6, next, ..] => next >> 6 == 0,
        _ => false,
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

    /// Whether it is of the one that has begun.
    #[must_use]
    pub fn is_of(&self, header: &Header) -> bool {
        self.timestamp == Some(header.timestamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn header(sequence: u16, timestamp: u32, ssrc: u32) -> Header {
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
    fn a_frame_begins_where_the_timestamp_changes() {
        let mut frames = Frames::default();
        let begins = [5, 5, 5, 9, 9, 4].map(|timestamp| frames.begins(&header(0, timestamp, 0)));
        assert_eq!(begins, [true, false, false, true, false, true]);
    }

    #[test]
    fn frames_that_stand_alone_are_known_by_their_encoding() {
        for (encoding, payload, expected) in [
            ("H264", &[0x65, 1][..], true),
            ("H264", &[0x67, 1], true),
            ("H264", &[0x41, 1], false),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 1, 0x65], true),
            // Behind a delimiter, and in one that is cut off.
            ("H264", &[0x78, 0, 2, 0x09, 1, 0, 1, 0x65], true),
            ("H264", &[0x78, 0, 2, 0x09, 1, 0, 9, 0x65], true),
            ("H264", &[0x78, 0, 2, 0x09, 0x65, 0, 1, 0x41], false),
            ("H264", &[0x78, 0, 0, 0, 4, 0x06, 1], false),
            ("H264", &[0x78, 0], false),
            ("H264", &[0x7c, 0x85], true),
            ("H264", &[0x7c, 0x87], true),
            ("H264", &[0x7c, 0x81], false),
            ("H264", &[0x7c], false),
            ("H264", &[], false),
            ("H265", &[0x26, 1, 0], true),
            ("H265", &[0x40, 1, 0], true),
            ("H265", &[0x02, 1, 0], false),
            ("H265", &[0x62, 1, 0x93], true),
            ("H265", &[0x62, 1, 0x81], false),
            ("H265", &[0x60, 1, 0, 4, 0x40], true),
            ("H265", &[0x60, 1, 0, 2, 0x46, 1, 0, 2, 0x26, 1], true),
            ("H265", &[0x60, 1, 0, 2, 0x46, 1, 0, 2, 0x02, 1], false),
            ("H265", &[0x60], false),
            ("H265", &[0x62, 1], false),
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
