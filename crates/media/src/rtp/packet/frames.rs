//! Where frames begin, and which of them can be decoded without any before it.
//!
//! Timestamps alone do not tell. There are cameras that send the parameters of a picture with the time of the picture before
//! (retina #13), and others that send several pictures with one time. So a frame begins
//!
//! * where the timestamp is another one behind a picture, or behind packets that are missing;
//! * where units that go before a picture come behind one (ITU-T H.264, 7.4.1.2.3; ITU-T H.265, 7.4.2.4.4), which messages
//!   (SEI) do if the sender has marked the end of that picture;
//! * where the first part of a picture comes behind one. In H.264 the sender has to have marked the end of a picture
//!   before: both fields of a frame, and redundant slices, begin with the first macroblock as well, and have one time.
//!
//! Where the parameters of an H.264 sequence say that a picture may be a field, a frame may have two with one time, each of
//! them marked, and what goes before a picture between them. There, within one time, only parameters of a sequence and a
//! picture that all others are decoded from (IDR) begin a frame.
//!
//! # Deliberately absent
//!
//! Two pictures of H.264 with one time and no mark between them are one frame, unless something that goes before a picture is
//! between them: numbers of frames are in no place that is known without the sequence's parameters. Where pictures may be
//! fields, several frames with one time are one.

mod piece;

use super::Header;
use crate::rtp::sps::has_fields;
pub use piece::Piece;
use piece::{PART, Role, Says};

/// How what packets carry is encoded, as far as frames are told apart by it.
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
    /// Anything else: a frame is what has one timestamp, and every one can be decoded alone.
    #[default]
    Other,
}

impl Coding {
    /// Of the name of an encoding, in capitals.
    #[must_use]
    pub fn of(encoding: &str) -> Self {
        match encoding {
            "H264" => Self::Avc,
            "H265" => Self::Hevc,
            "MP4V-ES" => Self::Mpeg4,
            "JPEG" => Self::Jpeg,
            _ => Self::Other,
        }
    }
}

/// What is between NAL units where there are no lengths, and in none of them (ITU-T H.264, annex B).
pub const START: &[u8] = &[0, 0, 1];

/// NAL units that have such between them: some cameras send parameters and the picture behind them as one.
pub fn apart(mut units: &[u8]) -> impl Iterator<Item = &[u8]> {
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

/// Whether a payload begins with a start code, which some cameras leave before their units.
#[must_use]
pub fn has_start_code(payload: &[u8]) -> bool {
    matches!(payload, [0, 0, 1, ..] | [0, 0, 0, 1, ..])
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

/// What is noted of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// A frame begins with it.
    pub begins: bool,
    /// It says that its frame can be decoded without any before it.
    pub is_key: bool,
}

/// Where frames begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames {
    coding: Coding,
    /// Of the unit that began last.
    timestamp: Option<u32>,
    /// What the frame has: part of a picture, what a picture begins with, and the parameters of a sequence.
    has_picture: bool,
    has_top: bool,
    has_sequence: bool,
    /// Its sender has said that a picture is whole.
    is_marked: bool,
    /// A unit goes on in the next packet.
    is_open: bool,
    /// A picture of the sequence may be a field.
    has_fields: bool,
}

impl Frames {
    /// Nothing has come yet.
    #[must_use]
    pub fn new(coding: Coding) -> Self {
        Self {
            coding,
            ..Self::default()
        }
    }

    /// The same of a sequence whose parameters are described.
    #[must_use]
    pub fn described(self, sequence: &[u8]) -> Self {
        let has_fields = self.coding == Coding::Avc && has_fields(sequence);
        Self { has_fields, ..self }
    }

    /// The same of what begins anew.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self {
            has_fields: self.has_fields,
            ..Self::new(self.coding)
        }
    }

    /// Takes the next packet, before which others may be missing.
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
            Coding::Other => take(
                self,
                Piece {
                    says: Says::Key,
                    ..PART
                },
            ),
        }
        self.end_packet(header.marker);
        mark
    }

    /// Whether a packet that comes late, and begins no frame, says that the frame that goes on can be decoded alone.
    #[must_use]
    pub fn is_late_key(&self, header: &Header, payload: &[u8]) -> bool {
        let mut alone = self.anew();
        self.timestamp == Some(header.timestamp) && alone.packet(header, payload, false).is_key
    }

    /// The NAL units that begin in a packet.
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
                // Parameters and a delimiter are never so long, unless a picture is behind them in one unit.
                let behind = match flags & 0x1f {
                    7 => Some(Says::Key),
                    8 | 9 => Some(Says::Nothing),
                    _ => None,
                };
                self.fragment(*flags, piece, behind, take);
            }
            [first, second, flags, body @ ..] if !is_avc && first >> 1 & 0x3f == 49 => {
                let piece = Piece::hevc([first & 0x81 | (flags & 0x3f) << 1, *second], body);
                let behind = match flags & 0x3f {
                    32 | 33 => Some(Says::Key),
                    34 | 35 => Some(Says::Nothing),
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

    /// A whole one, which may have others in it if it is none of a picture.
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
            // Those that are none, and such as lie among others by their times, are parts of what has their time.
            (Coding::Avc, [first, ..]) if !(1..=23).contains(&(first & 0x1f)) => PART,
            (Coding::Hevc, [first, _, ..]) if first >> 1 & 0x3f > 47 => PART,
            (Coding::Avc, [first, rest @ ..]) => Piece::avc(*first, rest),
            (Coding::Hevc, [first, second, rest @ ..]) => Piece::hevc([*first, *second], rest),
            _ => PART,
        }
    }

    /// A fragment of one, which begins with it or goes on; the one of a picture may be behind it in the same unit.
    fn fragment(
        &mut self,
        flags: u8,
        piece: Piece,
        behind: Option<Says>,
        take: &mut impl FnMut(&mut Self, Piece),
    ) {
        let begins = flags & 0x80 != 0;
        if begins {
            take(self, piece);
            if let Some(says) = behind {
                let role = Role::Top;
                take(self, Piece { role, says });
            }
        } else if !self.is_open {
            // What it begins with is missing.
            let says = match piece.says {
                Says::Key => Says::Key,
                _ => Says::Nothing,
            };
            take(self, Piece { says, ..PART });
        }
        self.is_open = flags & 0x40 == 0;
    }

    /// Whether a frame begins with a unit that begins in a packet of that time, before which others may be missing.
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
        if let Says::Sequence { has_fields } = piece.says {
            (self.has_sequence, self.has_fields) = (true, has_fields);
        }
        begins
    }

    /// Whether the frame that goes on can be decoded alone, as this unit of it says.
    #[must_use]
    pub fn is_key(&self, piece: Piece) -> bool {
        match piece.says {
            Says::Key => true,
            Says::Intra => self.has_sequence,
            Says::Nothing | Says::Sequence { .. } => false,
        }
    }

    /// A packet is over, which has the mark of the last one of a picture or not.
    pub fn end_packet(&mut self, has_marker: bool) {
        self.is_marked |= has_marker && self.has_picture;
    }
}
