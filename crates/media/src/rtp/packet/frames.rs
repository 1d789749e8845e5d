//! Finds the beginnings of frames, and the key frames, in the packets of a track.
//!
//! Timestamps are not enough. Some cameras send the parameter sets of a picture with the timestamp of the
//! picture before (retina #13), and others send several pictures with one timestamp. So a frame begins with
//!
//! * a new timestamp, after a picture or after missing packets;
//! * a unit that precedes a picture, after a picture (ITU-T H.264, 7.4.1.2.3; ITU-T H.265, 7.4.2.4.4); a
//!   message (SEI) only if the picture before it ended with a marker;
//! * the first slice of a picture, after a picture. In H.264 the picture before must have ended with a
//!   marker: both fields of a frame, and redundant slices, also begin with the first macroblock, and have one
//!   timestamp.
//!
//! If the SPS of H.264 allows fields, a frame may consist of two pictures with one timestamp, each with a
//! marker, and with units that precede a picture between them. Then, within one timestamp, only an SPS and an
//! IDR picture begin a frame.
//!
//! # Deliberately absent
//!
//! Two pictures of H.264 with one timestamp and no marker between them are one frame, unless a unit that
//! precedes a picture lies between them: the position of `frame_num` depends on the SPS. If pictures may be
//! fields, several frames with one timestamp are one frame.

mod piece;

use super::Header;
use super::vp::Format;
use crate::rtp::sps::has_fields;
pub use piece::Piece;
use piece::{Hint, PART, Role};

/// Encoding of a track, as far as it matters for frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coding {
    /// H.264 (RFC 6184).
    Avc,
    /// H.265 (RFC 7798).
    Hevc,
    /// MPEG-4 (RFC 6416).
    Mpeg4,
    /// Motion JPEG (RFC 2435).
    Jpeg,
    /// VP8 or VP9.
    Vp(Format),
    /// AV1.
    Av1,
    /// Another encoding: packets of one timestamp are a frame, and all frames are key frames.
    #[default]
    Other,
}

impl Coding {
    /// The coding with this name, in capitals.
    #[must_use]
    pub fn of(encoding: &str) -> Self {
        match encoding {
            "H264" => Self::Avc,
            "H265" => Self::Hevc,
            "MP4V-ES" => Self::Mpeg4,
            "JPEG" => Self::Jpeg,
            "VP8" => Self::Vp(Format::Vp8),
            "VP9" => Self::Vp(Format::Vp9),
            "AV1" => Self::Av1,
            _ => Self::Other,
        }
    }
}

/// Start code: separates NAL units without lengths, and occurs within none (ITU-T H.264, annex B).
pub const START: &[u8] = &[0, 0, 1];

/// Splits NAL units at start codes: some cameras send parameter sets and the picture after them as one unit.
pub fn apart(mut units: &[u8]) -> impl Iterator<Item = &[u8]> {
    let split = std::iter::from_fn(move || {
        if units.is_empty() {
            return None;
        }
        let at = units.windows(START.len()).position(|of| of == START);
        let (unit, rest) = units.split_at(at.unwrap_or(units.len()));
        units = rest.get(START.len()..).unwrap_or_default();
        // Zeros before a start code belong to it.
        let end = unit.iter().rposition(|byte| *byte != 0);
        Some(&unit[..end.map_or(0, |last| last + 1)])
    });
    split.filter(|unit| !unit.is_empty())
}

/// Returns true if a payload begins with a start code, which some cameras do not remove.
#[must_use]
pub fn has_start_code(payload: &[u8]) -> bool {
    matches!(payload, [0, 0, 1, ..] | [0, 0, 0, 1, ..])
}

/// The NAL units of an aggregation packet, each after its length of two bytes; the last one may be cut off.
fn aggregated(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, behind) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (unit, behind) = behind.split_at(len);
        rest = behind;
        Some(unit)
    })
}

/// Place of a packet in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// The packet begins a frame.
    pub begins: bool,
    /// The packet shows that its frame is a key frame, which is decoded without others.
    pub is_key: bool,
}

/// Finds the frames of a track.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames {
    coding: Coding,
    /// Timestamp of the last unit.
    timestamp: Option<u32>,
    /// The frame has a part of a picture.
    has_picture: bool,
    /// The frame has the first slice of a picture.
    has_top: bool,
    /// The frame has an SPS.
    has_sequence: bool,
    /// A picture of the frame has ended with a marker.
    is_marked: bool,
    /// A unit continues in the next packet.
    is_open: bool,
    /// Pictures may be fields.
    has_fields: bool,
}

impl Frames {
    /// A detector before the first packet.
    #[must_use]
    pub fn new(coding: Coding) -> Self {
        Self {
            coding,
            ..Self::default()
        }
    }

    /// The same detector with the SPS of the description, which may be empty.
    #[must_use]
    pub fn described(self, sequence: &[u8]) -> Self {
        let has_fields = self.coding == Coding::Avc && has_fields(sequence);
        Self { has_fields, ..self }
    }

    /// A detector for another session of the same sender.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self {
            has_fields: self.has_fields,
            ..Self::new(self.coding)
        }
    }

    /// Takes in the next packet; `is_after_loss` if packets are missing before it.
    pub fn packet(&mut self, header: &Header, payload: &[u8], is_after_loss: bool) -> Mark {
        let mut mark = Mark::default();
        self.is_open &= !is_after_loss;
        let mut is_after_loss = is_after_loss;
        let coding = self.coding;
        let mut take = |of: &mut Self, piece| {
            let is_behind_gap = std::mem::take(&mut is_after_loss);
            mark.begins |= of.unit(piece, header.timestamp, is_behind_gap);
            mark.is_key |= of.is_key(piece);
        };
        match coding {
            Coding::Avc | Coding::Hevc => self.nal_units(payload, &mut take),
            Coding::Mpeg4 => {
                let (first, behind) = Piece::mpeg4(payload);
                take(self, first);
                behind.into_iter().for_each(|piece| take(self, piece));
            }
            Coding::Jpeg => take(self, Piece::jpeg(payload)),
            Coding::Vp(format) => take(self, Piece::vp(format, payload)),
            Coding::Av1 => take(self, Piece::av1(payload)),
            Coding::Other => take(
                self,
                Piece {
                    hint: Hint::Key,
                    ..PART
                },
            ),
        }
        self.end_packet(header.marker);
        mark
    }

    /// Returns true if a late packet, which begins no frame, shows that the current frame is a key frame.
    #[must_use]
    pub fn is_late_key(&self, header: &Header, payload: &[u8]) -> bool {
        let mut alone = self.anew();
        self.timestamp == Some(header.timestamp) && alone.packet(header, payload, false).is_key
    }

    /// Calls `take` with the NAL units that begin in a packet.
    fn nal_units(&mut self, payload: &[u8], take: &mut impl FnMut(&mut Self, Piece)) {
        let is_avc = self.coding == Coding::Avc;
        if has_start_code(payload) {
            self.is_open = false;
            return apart(payload).for_each(|unit| self.nal_unit(unit, take));
        }
        match payload {
            [first, rest @ ..] if is_avc && first & 0x1f == 24 => {
                self.is_open = false;
                aggregated(rest).for_each(|unit| self.nal_unit(unit, take));
            }
            [first, _, rest @ ..] if !is_avc && first >> 1 & 0x3f == 48 => {
                self.is_open = false;
                aggregated(rest).for_each(|unit| self.nal_unit(unit, take));
            }
            [first, flags, body @ ..] if is_avc && first & 0x1f == 28 => {
                let piece = Piece::avc(*flags, body);
                // Parameter sets and delimiters are too short for fragments, unless a picture follows in the
                // same unit.
                let behind = match flags & 0x1f {
                    7 => Some(Hint::Key),
                    8 | 9 => Some(Hint::None),
                    _ => None,
                };
                self.fragment(*flags, piece, behind, take);
            }
            [first, second, flags, body @ ..] if !is_avc && first >> 1 & 0x3f == 49 => {
                let piece = Piece::hevc([first & 0x81 | (flags & 0x3f) << 1, *second], body);
                let behind = match flags & 0x3f {
                    32 | 33 => Some(Hint::Key),
                    34 | 35 => Some(Hint::None),
                    _ => None,
                };
                self.fragment(*flags, piece, behind, take);
            }
            unit => {
                self.is_open = false;
                self.nal_unit(unit, take);
            }
        }
    }

    /// Takes in a whole unit. One that precedes a picture may contain more units after start codes.
    fn nal_unit(&mut self, unit: &[u8], take: &mut impl FnMut(&mut Self, Piece)) {
        let piece = self.piece(unit);
        if !matches!(piece.role, Role::Before | Role::Message) {
            return take(self, piece);
        }
        for unit in apart(unit) {
            let piece = self.piece(unit);
            take(self, piece);
        }
    }

    fn piece(&self, unit: &[u8]) -> Piece {
        match (self.coding, unit) {
            // Undefined types, and those of interleaved mode, are parts of the frame with their timestamp.
            (Coding::Avc, [first, ..]) if !(1..=23).contains(&(first & 0x1f)) => PART,
            (Coding::Hevc, [first, _, ..]) if first >> 1 & 0x3f > 47 => PART,
            (Coding::Avc, [first, rest @ ..]) => Piece::avc(*first, rest),
            (Coding::Hevc, [first, second, rest @ ..]) => Piece::hevc([*first, *second], rest),
            _ => PART,
        }
    }

    /// Takes in a fragment of a unit. `behind` is set if a picture may follow in the same unit.
    fn fragment(
        &mut self,
        flags: u8,
        piece: Piece,
        behind: Option<Hint>,
        take: &mut impl FnMut(&mut Self, Piece),
    ) {
        let begins = flags & 0x80 != 0;
        if begins {
            take(self, piece);
            if let Some(hint) = behind {
                let role = Role::Top;
                take(self, Piece { role, hint });
            }
        } else if !self.is_open {
            // The beginning of the unit is missing.
            let hint = match piece.hint {
                Hint::Key => Hint::Key,
                _ => Hint::None,
            };
            take(self, Piece { hint, ..PART });
        }
        self.is_open = flags & 0x40 == 0;
    }

    /// Takes in a unit of a packet with this timestamp. Returns true if a frame begins with it.
    pub fn unit(&mut self, piece: Piece, timestamp: u32, is_after_loss: bool) -> bool {
        let begins = match self.timestamp {
            None => true,
            Some(of) if of != timestamp && (self.has_picture || is_after_loss) => true,
            Some(of) if of == timestamp && self.has_fields && !piece.begins_sequence() => false,
            Some(_) => match piece.role {
                Role::Before | Role::First => self.has_picture,
                Role::Message => self.is_marked,
                Role::Top => self.has_top && (self.is_marked || is_after_loss),
                Role::Part | Role::Other => false,
            },
        };
        if begins {
            let is_open = self.is_open;
            *self = Self {
                is_open,
                ..self.anew()
            };
        }
        self.timestamp = Some(timestamp);
        self.has_picture |= piece.is_picture();
        self.has_top |= piece.role == Role::Top;
        if let Hint::Sequence { has_fields } = piece.hint {
            (self.has_sequence, self.has_fields) = (true, has_fields);
        }
        begins
    }

    /// Returns true if this unit shows that the current frame is a key frame.
    #[must_use]
    pub fn is_key(&self, piece: Piece) -> bool {
        match piece.hint {
            Hint::Key => true,
            Hint::Intra => self.has_sequence,
            Hint::None | Hint::Sequence { .. } => false,
        }
    }

    /// Ends a packet; the marker ends a picture.
    pub fn end_packet(&mut self, has_marker: bool) {
        self.is_marked |= has_marker && self.has_picture;
    }
}
