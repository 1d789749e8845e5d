//! H.264 (RFC 6184) and H.265 (RFC 7798): NAL units from packets, and frames from NAL units.
//!
//! What is understood is what those RFCs call single NAL units, aggregation packets of one time (STAP-A, AP) and
//! fragmentation units (FU-A, FU). Interleaved ones, which cameras do not send, are left out and counted.

use super::unit::{Packet, Unit};
use crate::rtp::packet::frames::{self, Coding, Frames, Piece};
use crate::rtp::parameters::{Codec, NalKind, Parameters};

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
        let sequence = parameters.sps.as_deref().unwrap_or_default();
        Self {
            codec,
            frames: Frames::new(coding).described(sequence),
            described: parameters,
            seen: Parameters::default(),
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
mod tests;
