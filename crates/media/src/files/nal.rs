//! Frames from packets of H.264 (RFC 6184) and H.265 (RFC 7798).
//!
//! Supported packets are single NAL units, aggregation packets of one time (STAP-A, AP) and fragmentation
//! units (FU-A, FU). Interleaved packets, which cameras do not send, are left out and counted.

use super::unit::{Packet, Unit};
use crate::rtp::packet::frames::{self, Coding, Frames, Piece};
use crate::rtp::parameters::{Codec, NalKind, Parameters};

/// Largest frame, in bytes; NAL units beyond that are left out.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Time of the packet that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct PacketTime {
    timestamp: u32,
    media_ns: u64,
    /// True if packets are missing before the next NAL unit.
    is_after_loss: bool,
}

/// Depacketizer of H.264 and H.265.
#[derive(Debug)]
pub struct Nals {
    codec: Codec,
    /// Parameter sets of the description.
    described: Parameters,
    /// Parameter sets in packets.
    seen: Parameters,
    frames: Frames,
    /// Of the packet that is being read.
    time: PacketTime,
    frame: Unit,
    /// True if the frame has a part of a picture.
    has_picture: bool,
    /// True if a part of a picture has begun; the frame has its time.
    is_timed: bool,
    /// Offset in the frame of the NAL unit whose fragments are being received.
    open: Option<usize>,
    done: Vec<Unit>,
    /// True once a key frame has begun: parameter sets would come before it.
    has_key: bool,
    /// NAL units that were left out, because fragments of them are missing or their kind is not supported.
    pub left_out: u64,
}

impl Nals {
    /// A depacketizer before the first packet, with the parameter sets of the description.
    #[must_use]
    pub fn new(codec: Codec, parameters: Parameters) -> Self {
        let coding = match codec {
            Codec::Avc => Coding::Avc,
            Codec::Hevc => Coding::Hevc,
        };
        let sequence = parameters.sps.as_deref().unwrap_or_default();
        Self {
            codec,
            frames: Frames::new(coding).described(sequence),
            described: parameters,
            seen: Parameters::default(),
            time: PacketTime::default(),
            frame: Unit::default(),
            has_picture: false,
            is_timed: false,
            open: None,
            done: Vec::new(),
            has_key: false,
            left_out: 0,
        }
    }

    /// The codec of the NAL units.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// True if a key frame has begun, or all parameter sets have come.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_key || self.seen.is_whole(self.codec)
    }

    /// The parameter sets to begin decoding with: the latest from packets, and described ones where packets
    /// have none.
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

    /// The parameter sets of the description.
    #[must_use]
    pub fn described(&self) -> &Parameters {
        &self.described
    }

    /// Takes the next packet, and adds the completed frames to `out`.
    pub fn push(&mut self, packet: &Packet<'_>, out: &mut Vec<Unit>) {
        self.time = PacketTime {
            timestamp: packet.header.timestamp,
            media_ns: packet.media_ns,
            is_after_loss: packet.is_after_loss,
        };
        if packet.is_after_loss {
            self.drop_open();
        }
        match self.codec {
            _ if frames::has_start_code(packet.payload) => {
                frames::apart(packet.payload).for_each(|unit| self.push_unit(unit));
            }
            Codec::Avc => self.push_avc(packet.payload),
            Codec::Hevc => self.push_hevc(packet.payload),
        }
        self.frames.end_packet(packet.header.marker);
        out.append(&mut self.done);
    }

    /// Ends the track, and returns the last frame.
    pub fn finish(&mut self) -> Option<Unit> {
        self.end_frame();
        self.done.pop()
    }

    /// Ends the frame, unless it has no picture: then its NAL units belong to the next one.
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

    /// Classifies a NAL unit by its header and the start of its body.
    fn piece(&self, head: &[u8], body: &[u8]) -> Option<Piece> {
        match (self.codec, head) {
            (Codec::Avc, [first]) => Some(Piece::avc(*first, body)),
            (Codec::Hevc, [first, second]) => Some(Piece::hevc([*first, *second], body)),
            _ => None,
        }
    }

    /// As [`piece`](Self::piece), for a whole NAL unit.
    fn piece_of_unit(&self, unit: &[u8]) -> Option<Piece> {
        let header_bytes = match self.codec {
            Codec::Avc => 1,
            Codec::Hevc => 2,
        };
        let (head, body) = unit.split_at_checked(header_bytes)?;
        self.piece(head, body)
    }

    /// Ends the frame if the next NAL unit begins another one.
    fn begin_unit(&mut self, piece: Option<Piece>) {
        let Some(piece) = piece else {
            return;
        };
        let PacketTime {
            timestamp,
            media_ns,
            ..
        } = self.time;
        let is_after_loss = std::mem::take(&mut self.time.is_after_loss);
        if self.frames.unit(piece, timestamp, is_after_loss) {
            self.end_frame();
        }
        // Parameter sets may have the time of the previous picture.
        if !self.is_timed {
            (self.frame.timestamp, self.frame.media_ns) = (timestamp, media_ns);
        }
        self.is_timed |= piece.is_picture();
        self.has_key |= piece.is_picture() && self.frames.is_key(piece);
    }

    fn push_unit(&mut self, unit: &[u8]) {
        self.drop_open();
        if unit.is_empty() {
            self.left_out += 1;
            return;
        }
        self.begin_unit(self.piece_of_unit(unit));
        if self.frame.data.len() + unit.len() + 4 > FRAME_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.open_unit(unit);
        self.close_unit();
    }

    fn open_unit(&mut self, head: &[u8]) {
        self.open = Some(self.frame.data.len());
        self.frame.data.extend_from_slice(&[0; 4]);
        self.frame.data.extend_from_slice(head);
    }

    fn close_unit(&mut self) {
        let Some(begin) = self.open.take() else {
            return;
        };
        let unit = &self.frame.data[begin + 4..];
        let kind = self.codec.kind(unit);
        let is_picture = matches!(kind, NalKind::Key | NalKind::Slice);
        // A NAL unit cannot contain a start code; some cameras send several units as one.
        if !is_picture
            && unit
                .windows(frames::START.len())
                .any(|of| of == frames::START)
        {
            let units = self.frame.data.split_off(begin + 4);
            self.frame.data.truncate(begin);
            frames::apart(&units).for_each(|unit| self.push_unit(unit));
            return;
        }
        let (head, unit) = self.frame.data.split_at_mut(begin + 4);
        head[begin..].copy_from_slice(&(unit.len() as u32).to_be_bytes());
        self.has_picture |= is_picture;
        self.seen.note(self.codec, unit);
        // The same rule as for the index, so that files are cut where playing can begin.
        let piece = self.piece_of_unit(&self.frame.data[begin + 4..]);
        self.frame.is_key |= piece.is_some_and(|piece| self.frames.is_key(piece));
    }

    fn push_aggregate(&mut self, mut units: &[u8]) {
        while let Some((length, rest)) = units.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some((unit, rest)) = rest.split_at_checked(length) else {
                self.left_out += 1;
                return;
            };
            self.push_unit(unit);
            units = rest;
        }
    }

    fn push_fragment(&mut self, flags: u8, head: &[u8], body: &[u8]) {
        let (is_start, is_end) = (flags & 0x80 != 0, flags & 0x40 != 0);
        if is_start {
            self.drop_open();
            self.begin_unit(self.piece(head, body));
            self.open_unit(head);
        }
        let is_too_long = self.frame.data.len() + body.len() > FRAME_BYTES_MAX;
        if self.open.is_none() || is_too_long {
            // The start is missing: it was counted, or precedes the time span.
            self.drop_open();
            return;
        }
        self.frame.data.extend_from_slice(body);
        if is_end {
            self.close_unit();
        }
    }

    fn push_avc(&mut self, payload: &[u8]) {
        match payload {
            [first, rest @ ..] if first & 0x1f == 24 => self.push_aggregate(rest),
            [first, second, body @ ..] if first & 0x1f == 28 => {
                self.push_fragment(*second, &[first & 0xe0 | second & 0x1f], body);
            }
            [first, ..] if (1..=23).contains(&(first & 0x1f)) => self.push_unit(payload),
            _ => self.left_out += 1,
        }
    }

    fn push_hevc(&mut self, payload: &[u8]) {
        match payload {
            [first, _, rest @ ..] if first >> 1 & 0x3f == 48 => self.push_aggregate(rest),
            [first, second, third, body @ ..] if first >> 1 & 0x3f == 49 => {
                let head = [first & 0x81 | (third & 0x3f) << 1, *second];
                self.push_fragment(*third, &head, body);
            }
            [first, _, ..] if first >> 1 & 0x3f < 48 => self.push_unit(payload),
            _ => self.left_out += 1,
        }
    }
}

/// Replaces the lengths before NAL units by start codes (ITU-T H.264, annex B), in place.
pub fn to_annex_b(data: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = data.get_mut(at..at + 4) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        head.copy_from_slice(&[0, 0, 0, 1]);
        at += 4 + length as usize;
    }
}

#[cfg(test)]
mod tests;
