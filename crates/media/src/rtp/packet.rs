//! RTP packets as they come: whose they are, which are missing, where frames begin, and when they are to be played.
//!
//! The fixed header of a packet (RFC 3550, section 5.1) is received apart from what follows it, so that bodies lie back
//! to back in a block. What is here is given the two parts; nothing is copied.

mod clock;
pub mod frames;
mod sequence;

pub use clock::{Clocks, Report};
pub use frames::{Coding, Frames, Mark};
pub use sequence::{Order, Sequence};

/// How long the fixed header is.
pub const HEADER_BYTES: usize = 12;

/// What a packet begins with: of RTP who sends it (RFC 3550, section 5.1), of RTCP as well (section 6.4).
pub type Head = [u8; 12];

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

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn header(sequence: u16, timestamp: u32, ssrc: u32) -> Header {
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

    /// What each packet of one time is noted as, without a mark and with nothing missing.
    fn marks(encoding: &str, payloads: &[&[u8]]) -> Vec<(bool, bool)> {
        let mut frames = Frames::new(Coding::of(encoding));
        let marks = payloads
            .iter()
            .map(|payload| frames.packet(&header(0, 5, 1), payload, false));
        marks.map(|mark| (mark.begins, mark.is_key)).collect()
    }

    #[test]
    fn frames_that_stand_alone_are_known_by_their_encoding() {
        for (encoding, payload, expected) in [
            ("H264", &[0x65, 1][..], true),
            // What the picture is comes behind it.
            ("H264", &[0x67, 1], false),
            ("H264", &[0x41, 1], false),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 1, 0x65], true),
            // An I slice behind parameters, and without them; a P slice behind them.
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 0x88], true),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 0xb0], true),
            ("H264", &[0x41, 0x88], false),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 0x9a], false),
            // Behind a delimiter, and in one that is cut off.
            ("H264", &[0x78, 0, 2, 0x09, 1, 0, 1, 0x65], true),
            ("H264", &[0x78, 0, 2, 0x09, 1, 0, 9, 0x65], true),
            ("H264", &[0x78, 0, 2, 0x09, 0x65, 0, 1, 0x41], false),
            ("H264", &[0x78, 0, 0, 0, 4, 0x06, 1], false),
            ("H264", &[0x78, 0], false),
            ("H264", &[0x7c, 0x85], true),
            // With the picture behind them in one unit.
            ("H264", &[0x7c, 0x87], true),
            ("H264", &[0x67, 1, 0, 0, 1, 0x65, 0x88], true),
            ("H264", &[0x7c, 0x81], false),
            ("H264", &[0x7c], false),
            ("H264", &[], false),
            // From there on pictures are right, or soon; and a message of another kind.
            ("H264", &[0x06, 5, 1, 0, 6, 1, 0x84, 0x80], true),
            ("H264", &[0x06, 5, 2, 6, 1, 0x80], false),
            ("H265", &[0x26, 1, 0], true),
            ("H265", &[0x40, 1, 0], false),
            ("H265", &[0x02, 1, 0], false),
            ("H265", &[0x62, 1, 0x93], true),
            ("H265", &[0x62, 1, 0xa0], true),
            ("H265", &[0x62, 1, 0x81], false),
            ("H265", &[0x60, 1, 0, 4, 0x40], false),
            ("H265", &[0x60, 1, 0, 2, 0x46, 1, 0, 2, 0x26, 1], true),
            ("H265", &[0x60, 1, 0, 2, 0x46, 1, 0, 2, 0x02, 1], false),
            ("H265", &[0x60], false),
            ("H265", &[0x62, 1], false),
            ("MP4V-ES", &[0, 0, 1, 0xb6, 0x10], true),
            ("MP4V-ES", &[0, 0, 1, 0xb6, 0x50], false),
            ("MP4V-ES", &[0, 0, 1, 0xb0, 1], false),
            ("MP4V-ES", &[0, 0, 1, 0xb0, 1, 0, 0, 1, 0xb6, 0x10], true),
            ("MP4V-ES", &[0, 0, 1, 0xb0, 1, 0, 0, 1, 0xb6, 0x50], false),
            ("MP4V-ES", &[9, 9, 9, 9], false),
            ("JPEG", &[1], true),
            ("OPUS", &[], true),
        ] {
            let mark = marks(encoding, &[payload])[0];
            assert_eq!(mark.1, expected, "{encoding} {payload:x?}");
        }
    }

    #[test]
    fn packets_of_one_time_may_be_of_several_frames() {
        let (none, begins, key, begins_key) =
            ((false, false), (true, false), (false, true), (true, true));
        // A picture, parameters, the next picture.
        let parameters: [&[u8]; 3] = [&[0x41, 0x9a], &[0x67, 1], &[0x65, 0x88]];
        assert_eq!(marks("H264", &parameters), [begins, begins, key]);
        let fields: [&[u8]; 2] = [&[0x65, 0x88], &[0x41, 0x9a]];
        assert_eq!(marks("H264", &fields), [begins_key, none]);
        let images: [&[u8]; 3] = [&[0, 0, 0, 0, 1], &[0, 0, 0, 9, 1], &[0, 0, 0, 0, 1]];
        assert_eq!(marks("JPEG", &images), [begins_key, key, begins_key]);
        let sound: [&[u8]; 2] = [&[1], &[2]];
        assert_eq!(marks("OPUS", &sound), [begins_key, key]);
    }

    /// Where a picture may be a field, what goes before the second one of a frame begins none.
    #[test]
    fn marked_fields_of_one_time_are_one_frame() {
        let sps = |last| [0x67, 0x4d, 0x40, 0x1e, 0xda, 0x11, last];
        let (of_fields, of_frames) = (sps(0x92), sps(0xe4));
        let delimiter: &[u8] = &[0x09, 0x30];
        let recovery: &[u8] = &[0x06, 6, 1, 0x84, 0x80];
        let (pps, slice): (&[u8], &[u8]) = (&[0x68, 0xce], &[0x41, 0x9a]);
        let begins = |mut frames: Frames, payloads: &[&[u8]]| {
            let begins = payloads.iter().map(|payload| {
                let marker = *payload == slice;
                let header = Header {
                    marker,
                    ..header(0, 5, 1)
                };
                frames.packet(&header, payload, false).begins
            });
            begins.map(u8::from).collect::<Vec<_>>()
        };
        let new = || Frames::new(Coding::Avc);
        let two = [delimiter, recovery, slice, delimiter, pps, slice];
        assert_eq!(begins(new(), &two), [1, 0, 0, 1, 0, 0]);
        assert_eq!(
            begins(new().described(&of_fields), &two),
            [1, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            begins(new().described(&of_frames), &two),
            [1, 0, 0, 1, 0, 0]
        );
        // Also behind a frame, and as parameters among the packets say.
        let after = new().described(&of_fields).anew();
        assert_eq!(begins(after, &[slice, recovery, slice]), [1, 0, 0]);
        let said = [&of_fields[..], slice, delimiter, slice, &of_frames, slice];
        assert_eq!(begins(new(), &said), [1, 0, 0, 0, 1, 0]);
        let anew = [slice, &[0x65, 0x88], slice];
        assert_eq!(begins(new().described(&of_fields), &anew), [1, 1, 0]);
    }

    #[test]
    fn a_frame_begins_where_the_timestamp_changes() {
        for encoding in ["", "H264"] {
            let mut frames = Frames::new(Coding::of(encoding));
            let begins = [5, 5, 5, 9, 9, 4].map(|timestamp| {
                let mark = frames.packet(&header(0, timestamp, 0), &[0x41, 1], false);
                mark.begins
            });
            assert_eq!(begins, [true, false, false, true, false, true]);
        }
    }
}
