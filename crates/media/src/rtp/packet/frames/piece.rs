//! What a unit, or a packet, says by its first bytes of the frame that it is in.

use crate::rtp::sps::has_fields;

/// What a unit is in its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It goes before a picture.
    Before,
    /// It says something of a picture, which some say between its parts.
    Message,
    /// The first part of a picture.
    First,
    /// What a picture begins with, or its second field.
    Top,
    /// Another part of a picture.
    Part,
    /// Anything else, which goes with what is before it.
    Other,
}

/// What a unit says of whether its frame can be decoded alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Says {
    Nothing,
    /// It can.
    Key,
    /// It can if the parameters of a sequence are in it.
    Intra,
    /// Those parameters; of H.264, whether a picture may be a field.
    Sequence {
        has_fields: bool,
    },
}

/// What is known of a unit by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub(super) role: Role,
    pub(super) says: Says,
}

/// A part of something of which no more is known.
pub(super) const PART: Piece = Piece {
    role: Role::Part,
    says: Says::Nothing,
};

impl Piece {
    /// Whether it is part of a picture.
    #[must_use]
    pub fn is_picture(self) -> bool {
        matches!(self.role, Role::First | Role::Top | Role::Part)
    }

    /// Whether it is the parameters of an H.264 sequence, or begins a picture that all others are decoded from. Of a message that
    /// says that pictures are right from there on, which is between fields as well, it is not said.
    #[must_use]
    pub fn begins_sequence(self) -> bool {
        match self.says {
            Says::Sequence { .. } => true,
            Says::Key => self.role == Role::Top,
            Says::Nothing | Says::Intra => false,
        }
    }

    /// A NAL unit of H.264: the byte that it begins with, and what is behind that.
    #[must_use]
    pub fn avc(first: u8, rest: &[u8]) -> Self {
        let kind = first & 0x1f;
        // `first_mb_in_slice` is 0, whose code is one bit; `slice_type`, behind it, is 2 or 7 of an I slice.
        let begins = rest.first().copied().filter(|byte| byte & 0x80 != 0);
        let is_intra = begins.is_some_and(|byte| byte & 0x70 == 0x30 || byte == 0x88);
        let role = match kind {
            1 | 2 | 5 if begins.is_some() => Role::Top,
            1..=5 => Role::Part,
            6 if !recovers(rest) => Role::Message,
            // A prefix (14) goes before each slice, not before each picture.
            6..=9 | 15..=18 => Role::Before,
            _ => Role::Other,
        };
        let says = match kind {
            5 => Says::Key,
            1 | 2 if is_intra => Says::Intra,
            6 if recovers(rest) => Says::Key,
            7 => Says::Sequence {
                has_fields: has_fields(&[&[0x67], rest].concat()),
            },
            _ => Says::Nothing,
        };
        Self { role, says }
    }

    /// A NAL unit of H.265: the two bytes that it begins with, and what is behind them.
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
        let says = match kind {
            _ if !is_of_base => Says::Nothing,
            16..=23 => Says::Key,
            39 if recovers(rest) => Says::Key,
            _ => Says::Nothing,
        };
        Self { role, says }
    }

    /// What a packet of MPEG-4 begins with, of which headers may be followed by a picture.
    pub(super) fn mpeg4(payload: &[u8]) -> (Self, Option<Self>) {
        let picture = |next: Option<&u8>| Self {
            role: Role::Top,
            says: match next.is_some_and(|byte| byte >> 6 == 0) {
                true => Says::Key,
                false => Says::Nothing,
            },
        };
        match payload {
            [0, 0, 1, 0xb6, behind @ ..] => (picture(behind.first()), None),
            [0, 0, 1, 0xb0 | 0xb3 | 0xb5 | 0x00..=0x2f, ..] => {
                let begin = [0, 0, 1, 0xb6];
                let at = payload.windows(4).position(|of| of == begin);
                let header = Self {
                    role: Role::Before,
                    says: Says::Nothing,
                };
                (header, at.map(|at| picture(payload.get(at + 4))))
            }
            _ => (PART, None),
        }
    }

    /// A packet of Motion JPEG: where in its image it begins is said in it.
    pub(super) fn jpeg(payload: &[u8]) -> Self {
        Self {
            role: match payload {
                [_, 0, 0, 0, ..] => Role::First,
                _ => Role::Part,
            },
            says: Says::Key,
        }
    }
}

/// So many messages of a unit are looked at.
const MESSAGES_MAX: usize = 8;

/// Whether messages about a picture (SEI) say that pictures are right from there on, or soon (`recovery_point`).
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
