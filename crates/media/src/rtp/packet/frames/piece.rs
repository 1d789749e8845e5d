//! Classifies NAL units and packets by their first bytes.

use crate::rtp::packet::av1;
use crate::rtp::packet::vp::{Format, Part};
use crate::rtp::sps::has_fields;

/// Position of a unit in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It precedes a picture.
    Before,
    /// A message (SEI), which some senders put between the slices of a picture.
    Message,
    /// The first slice of a picture.
    First,
    /// The first slice of a picture, or of its second field.
    Top,
    /// Another part of a picture.
    Part,
    /// Anything else; it belongs to the unit before it.
    Other,
}

/// Information of a unit about its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    None,
    /// The frame is a key frame.
    Key,
    /// The frame is a key frame if it contains an SPS.
    Intra,
    /// The frame contains an SPS; of H.264, with whether pictures may be fields.
    Sequence {
        has_fields: bool,
    },
}

/// A unit, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub(super) role: Role,
    pub(super) hint: Hint,
}

/// A part of a picture of which no more is known.
pub(super) const PART: Piece = Piece {
    role: Role::Part,
    hint: Hint::None,
};

impl Piece {
    /// Returns true if the unit is a part of a picture.
    #[must_use]
    pub fn is_picture(self) -> bool {
        matches!(self.role, Role::First | Role::Top | Role::Part)
    }

    /// Returns true if the unit is an SPS, or the first slice of an IDR picture. A message with a recovery
    /// point is not, because it may lie between fields.
    #[must_use]
    pub fn begins_sequence(self) -> bool {
        match self.hint {
            Hint::Sequence { .. } => true,
            Hint::Key => self.role == Role::Top,
            Hint::None | Hint::Intra => false,
        }
    }

    /// A NAL unit of H.264: its first byte and the rest.
    #[must_use]
    pub fn avc(first: u8, rest: &[u8]) -> Self {
        let kind = first & 0x1f;
        // The code of `first_mb_in_slice` 0 is one bit. `slice_type` follows and is 2 or 7 for an I slice.
        let begins = rest.first().copied().filter(|byte| byte & 0x80 != 0);
        let is_intra = begins.is_some_and(|byte| byte & 0x70 == 0x30 || byte == 0x88);
        let role = match kind {
            1 | 2 | 5 if begins.is_some() => Role::Top,
            1..=5 => Role::Part,
            6 if !recovers(rest) => Role::Message,
            // A prefix (14) precedes each slice, not each picture.
            6..=9 | 15..=18 => Role::Before,
            _ => Role::Other,
        };
        let hint = match kind {
            5 => Hint::Key,
            1 | 2 if is_intra => Hint::Intra,
            6 if recovers(rest) => Hint::Key,
            7 => Hint::Sequence {
                has_fields: has_fields(&[&[0x67], rest].concat()),
            },
            _ => Hint::None,
        };
        Self { role, hint }
    }

    /// A NAL unit of H.265: its first two bytes and the rest.
    #[must_use]
    pub fn hevc(head: [u8; 2], rest: &[u8]) -> Self {
        let kind = head[0] >> 1 & 0x3f;
        let is_of_base = head[0] & 1 == 0 && head[1] >> 3 == 0;
        // `first_slice_segment_in_pic_flag`.
        let begins = rest.first().is_some_and(|byte| byte & 0x80 != 0);
        let role = match kind {
            _ if !is_of_base => Role::Other,
            0..=31 if begins => Role::First,
            0..=31 => Role::Part,
            39 if !recovers(rest) => Role::Message,
            32..=35 | 39 | 41..=44 => Role::Before,
            _ => Role::Other,
        };
        let hint = match kind {
            _ if !is_of_base => Hint::None,
            16..=23 => Hint::Key,
            39 if recovers(rest) => Hint::Key,
            _ => Hint::None,
        };
        Self { role, hint }
    }

    /// The beginning of a packet of MPEG-4, and the picture that may follow headers.
    pub(super) fn mpeg4(payload: &[u8]) -> (Self, Option<Self>) {
        let picture = |next: Option<&u8>| Self {
            role: Role::Top,
            hint: match next.is_some_and(|byte| byte >> 6 == 0) {
                true => Hint::Key,
                false => Hint::None,
            },
        };
        match payload {
            [0, 0, 1, 0xb6, behind @ ..] => (picture(behind.first()), None),
            [0, 0, 1, 0xb0 | 0xb3 | 0xb5 | 0x00..=0x2f, ..] => {
                let begin = [0, 0, 1, 0xb6];
                let at = payload.windows(4).position(|of| of == begin);
                let header = Self {
                    role: Role::Before,
                    hint: Hint::None,
                };
                (header, at.map(|at| picture(payload.get(at + 4))))
            }
            _ => (PART, None),
        }
    }

    /// A packet of VP8 or VP9.
    pub(super) fn vp(format: Format, payload: &[u8]) -> Self {
        let part = Part::parse(format, payload);
        let (begins, is_key) = part.map_or((false, false), |of| (of.begins_frame, of.is_key));
        Self {
            role: if begins { Role::First } else { Role::Part },
            hint: if is_key { Hint::Key } else { Hint::None },
        }
    }

    /// A packet of AV1. The frames of one time are one temporal unit.
    pub(super) fn av1(payload: &[u8]) -> Self {
        let has_key = av1::Payload::parse(payload).is_some_and(|of| of.has_key_frame());
        Self {
            hint: if has_key { Hint::Key } else { Hint::None },
            ..PART
        }
    }

    /// A packet of Motion JPEG, by the fragment offset in its header.
    pub(super) fn jpeg(payload: &[u8]) -> Self {
        Self {
            role: match payload {
                [_, 0, 0, 0, ..] => Role::First,
                _ => Role::Part,
            },
            hint: Hint::Key,
        }
    }
}

/// Messages of a unit that are parsed.
const MESSAGES_MAX: usize = 8;

/// Returns true if the messages of an SEI unit include a recovery point.
fn recovers(mut messages: &[u8]) -> bool {
    let number = |rest: &mut &[u8]| {
        let mut sum = 0_usize;
        loop {
            let (byte, behind) = rest.split_first()?;
            *rest = behind;
            sum += usize::from(*byte);
            if *byte != 0xff {
                return Some(sum);
            }
        }
    };
    for _ in 0..MESSAGES_MAX {
        let (Some(kind), Some(length)) = (number(&mut messages), number(&mut messages)) else {
            return false;
        };
        if kind == 6 {
            return length > 0;
        }
        let Some(behind) = messages.get(length..) else {
            return false;
        };
        messages = behind;
    }
    false
}
