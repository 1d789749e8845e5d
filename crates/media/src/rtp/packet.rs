//! RTP packets: header, sequence numbers, frames and media time.
//!
//! The fixed header of a packet (RFC 3550, section 5.1) is received apart from the rest, the body, so that
//! bodies lie back to back in a block. Functions here take the two parts and copy nothing.

pub mod av1;
mod clock;
pub mod frames;
mod sequence;
pub mod vp;

pub use clock::{Clocks, Report};
pub use frames::{Coding, Frames, Mark};
pub use sequence::{Order, Sequence};

/// Length of the fixed header in bytes.
pub const HEADER_BYTES: usize = 12;

/// The first bytes of a packet, up to the SSRC of the sender: of RTP (RFC 3550, section 5.1) or of RTCP
/// (section 6.4).
pub type PacketHead = [u8; 12];

/// The fixed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The last packet of a frame, for video.
    pub marker: bool,
    /// Number of the format in the description.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Time in units of the track's clock rate.
    pub timestamp: u32,
    /// The sender's identifier (synchronisation source).
    pub ssrc: u32,
    contributors: usize,
    has_extension: bool,
    is_padded: bool,
}

impl Header {
    /// Parses the first bytes of a packet; `None` if the version is not that of RTP.
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

    /// The payload of a body, with padding at its end; `None` if the body is shorter than the header says.
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

/// The parts of an RTCP compound packet that matter here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RtcpContents {
    /// SSRC and clocks of the first packet, if that is a sender report.
    pub report: Option<(u32, Report)>,
    /// SSRCs of senders that leave (BYE).
    pub leaving: Vec<u32>,
}

/// Parses an RTCP compound packet; anything else gives the default.
#[must_use]
pub fn said(compound: &[u8]) -> RtcpContents {
    let mut said = RtcpContents::default();
    let packets = rtcp_types::Compound::parse(compound).into_iter().flatten();
    for (number, packet) in packets.map_while(Result::ok).enumerate() {
        match packet {
            rtcp_types::Packet::Sr(report) if number == 0 => {
                let clocks = Report {
                    ntp: report.ntp_timestamp(),
                    timestamp: report.rtp_timestamp(),
                };
                said.report = Some((report.ssrc(), clocks));
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

    /// Compares with a library that parses whole packets.
    #[test]
    fn header_and_payload_are_parsed_apart() {
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

    /// Parses packets of one timestamp without markers: whether each begins a frame, and is of a key frame.
    fn marks(encoding: &str, payloads: &[&[u8]]) -> Vec<(bool, bool)> {
        let mut frames = Frames::new(Coding::of(encoding));
        let marks = payloads
            .iter()
            .map(|payload| frames.packet(&header(0, 5, 1), payload, false));
        marks.map(|mark| (mark.begins, mark.is_key)).collect()
    }

    #[test]
    fn key_frames_are_known_by_their_encoding() {
        for (encoding, payload, expected) in [
            ("H264", &[0x65, 1][..], true),
            // Parameters alone are no key frame.
            ("H264", &[0x67, 1], false),
            ("H264", &[0x41, 1], false),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 1, 0x65], true),
            // An I slice behind parameters, and without them; a P slice behind them.
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 0x88], true),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 0xb0], true),
            ("H264", &[0x41, 0x88], false),
            ("H264", &[0x78, 0, 2, 0x67, 1, 0, 2, 0x41, 0x9a], false),
            // After a delimiter, and in an aggregate that is cut off.
            ("H264", &[0x78, 0, 2, 0x09, 1, 0, 1, 0x65], true),
            ("H264", &[0x78, 0, 2, 0x09, 1, 0, 9, 0x65], true),
            ("H264", &[0x78, 0, 2, 0x09, 0x65, 0, 1, 0x41], false),
            ("H264", &[0x78, 0, 0, 0, 4, 0x06, 1], false),
            ("H264", &[0x78, 0], false),
            ("H264", &[0x7c, 0x85], true),
            // Parameters and a picture in one unit.
            ("H264", &[0x7c, 0x87], true),
            ("H264", &[0x67, 1, 0, 0, 1, 0x65, 0x88], true),
            ("H264", &[0x7c, 0x81], false),
            ("H264", &[0x7c], false),
            ("H264", &[], false),
            // A recovery point, and a message of another kind.
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
            ("AV1", &[0x28, 2, 0x08, 0, 0x30, 0x10], true),
            ("AV1", &[0x10, 0x30, 0x30], false),
            ("AV1", &[], false),
            ("JPEG", &[1], true),
            ("OPUS", &[], true),
        ] {
            let mark = marks(encoding, &[payload])[0];
            assert_eq!(mark.1, expected, "{encoding} {payload:x?}");
        }
    }

    #[test]
    fn packets_of_one_timestamp_may_be_several_frames() {
        let (none, begins, key, begins_key) =
            ((false, false), (true, false), (false, true), (true, true));
        // A picture, parameters, the next picture.
        let parameters: [&[u8]; 3] = [&[0x41, 0x9a], &[0x67, 1], &[0x65, 0x88]];
        assert_eq!(marks("H264", &parameters), [begins, begins, key]);
        let fields: [&[u8]; 2] = [&[0x65, 0x88], &[0x41, 0x9a]];
        assert_eq!(marks("H264", &fields), [begins_key, none]);
        let images: [&[u8]; 3] = [&[0, 0, 0, 0, 1], &[0, 0, 0, 9, 1], &[0, 0, 0, 0, 1]];
        assert_eq!(marks("JPEG", &images), [begins_key, key, begins_key]);
        // The next fragment of a frame, and the second layer, which some senders put into a packet of its own.
        let layers: [&[u8]; 3] = [&[0x58, 0x30, 0x10], &[0x90, 1], &[0x10, 0x30, 0x30]];
        assert_eq!(marks("AV1", &layers), [begins_key, none, none]);
        let sound: [&[u8]; 2] = [&[1], &[2]];
        assert_eq!(marks("OPUS", &sound), [begins_key, key]);
    }

    /// Units before the second field of a frame begin no frame.
    #[test]
    fn marked_fields_of_one_timestamp_are_one_frame() {
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
        // Also after a frame, and by parameters among the packets.
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
