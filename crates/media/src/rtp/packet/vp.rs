//! Packets of VP8 (RFC 7741, section 4) and VP9 (RFC 9628, section 4), and the heads of their key frames.

/// A format of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// VP8.
    Vp8,
    /// VP9.
    Vp9,
}

/// What a packet has of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part<'a> {
    /// True if it has the first byte of a frame.
    pub begins_frame: bool,
    /// True if it has the first byte of a key frame.
    pub is_key: bool,
    /// The bytes of the frame.
    pub data: &'a [u8],
}

fn split<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

/// Skips a picture number of one byte or two.
fn skip_number(rest: &mut &[u8]) -> Option<()> {
    let [first] = split(rest)?;
    if first & 0x80 > 0 {
        split::<1>(rest)?;
    }
    Some(())
}

impl<'a> Part<'a> {
    /// Parses a payload; `None` if its descriptor is incomplete.
    #[must_use]
    pub fn parse(format: Format, payload: &'a [u8]) -> Option<Self> {
        match format {
            Format::Vp8 => Self::vp8(payload),
            Format::Vp9 => Self::vp9(payload),
        }
    }

    fn vp8(payload: &'a [u8]) -> Option<Self> {
        let mut rest = payload;
        let [first] = split(&mut rest)?;
        if first & 0x80 > 0 {
            let [extensions] = split(&mut rest)?;
            if extensions & 0x80 > 0 {
                skip_number(&mut rest)?;
            }
            if extensions & 0x40 > 0 {
                split::<1>(&mut rest)?;
            }
            if extensions & 0x30 > 0 {
                split::<1>(&mut rest)?;
            }
        }
        let begins_frame = first & 0x10 > 0 && first & 0x07 == 0;
        let is_inter = rest.first()? & 1 > 0;
        Some(Self {
            begins_frame,
            is_key: begins_frame && !is_inter,
            data: rest,
        })
    }

    fn vp9(payload: &'a [u8]) -> Option<Self> {
        let mut rest = payload;
        let [first] = split(&mut rest)?;
        let has = |bit: u8| first & bit > 0;
        let (has_number, is_inter, has_layers, is_flexible) =
            (has(0x80), has(0x40), has(0x20), has(0x10));
        if has_number {
            skip_number(&mut rest)?;
        }
        let mut layer = 0;
        if has_layers {
            let [layers] = split(&mut rest)?;
            layer = layers >> 1 & 7;
            if !is_flexible {
                split::<1>(&mut rest)?;
            }
        }
        if is_flexible && is_inter {
            // At most three reference pictures.
            for _ in 0..3 {
                let [reference] = split(&mut rest)?;
                if reference & 1 == 0 {
                    break;
                }
            }
        }
        if has(0x02) {
            skip_structure(&mut rest)?;
        }
        let begins_frame = has(0x08) && layer == 0;
        Some(Self {
            begins_frame,
            is_key: begins_frame && !is_inter,
            data: rest,
        })
    }
}

/// Skips the scalability structure of VP9 (RFC 9628, 4.2.1).
fn skip_structure(rest: &mut &[u8]) -> Option<()> {
    let [structure] = split(rest)?;
    if structure & 0x10 > 0 {
        for _ in 0..=structure >> 5 {
            split::<4>(rest)?;
        }
    }
    if structure & 0x08 > 0 {
        let [pictures] = split(rest)?;
        for _ in 0..pictures {
            let [picture] = split(rest)?;
            for _ in 0..picture >> 2 & 3 {
                split::<1>(rest)?;
            }
        }
    }
    Some(())
}

/// Profile, and width and height, in the head of a key frame; `None` if it is invalid.
#[must_use]
pub fn size(format: Format, frame: &[u8]) -> Option<(u8, (u16, u16))> {
    match (format, frame) {
        (Format::Vp8, [tag, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..]) => {
            let of = |low: &u8, high: &u8| u16::from_le_bytes([*low, *high]) & 0x3fff;
            Some((tag >> 1 & 7, (of(w0, w1), of(h0, h1))))
        }
        (Format::Vp9, _) => vp9_size(frame),
        _ => None,
    }
}

/// As [`size`], for the uncompressed header of VP9 (bitstream specification, 6.2).
fn vp9_size(frame: &[u8]) -> Option<(u8, (u16, u16))> {
    let mut at = 0;
    let mut take = |count: u32| {
        let mut value = 0_u32;
        for _ in 0..count {
            let byte = frame.get(at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - at % 8) & 1);
            at += 1;
        }
        Some(value)
    };
    if take(2)? != 2 {
        return None;
    }
    let profile = take(1)? | take(1)? << 1;
    if profile == 3 {
        take(1)?;
    }
    // An existing frame is shown, or this is no key frame.
    if take(1)? == 1 || take(1)? == 1 {
        return None;
    }
    take(2)?;
    if take(24)? != 0x49_8342 {
        return None;
    }
    if profile >= 2 {
        take(1)?;
    }
    const RGB: u32 = 7;
    if take(3)? != RGB {
        take(1)?;
        if profile & 1 == 1 {
            take(3)?;
        }
    } else if profile & 1 == 1 {
        take(1)?;
    }
    let (width, height) = (take(16)? + 1, take(16)? + 1);
    Some((
        profile as u8,
        (u16::try_from(width).ok()?, u16::try_from(height).ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_parsed_and_truncated_ones_refused() {
        // VP8: a picture number of two bytes, the layer, and the key index; then a key frame.
        let vp8 = [0x90, 0xf0, 0x81, 0x02, 0x03, 0x04, 0x10, 0x02];
        // VP9: number, layers, a structure with a size and a group of one picture with one reference.
        let vp9 = [
            0xaa, 0x81, 0x02, 0x10, 0x05, 0x18, 0, 64, 0, 48, 1, 0x04, 9, 0x82, 0x49,
        ];
        for (format, payload, head) in [(Format::Vp8, &vp8[..], 6), (Format::Vp9, &vp9[..], 13)] {
            let part = Part::parse(format, payload).unwrap();
            assert!(part.begins_frame && part.is_key, "{part:?}");
            assert_eq!(part.data, &payload[head..]);
            for length in 0..head {
                assert_eq!(Part::parse(format, &payload[..length]), None, "{length}");
            }
        }
        let inter = Part::parse(Format::Vp8, &[0x10, 0x11]).unwrap();
        assert!(inter.begins_frame && !inter.is_key);
        let later = Part::parse(Format::Vp8, &[0x00, 0x10]).unwrap();
        assert!(!later.begins_frame);
    }

    #[test]
    fn sizes_are_those_of_key_frames() {
        let vp8 = [0x10, 2, 0, 0x9d, 1, 0x2a, 64, 0, 48, 0];
        assert_eq!(size(Format::Vp8, &vp8), Some((0, (64, 48))));
        let vp9 = [0x82, 0x49, 0x83, 0x42, 0x20, 0x03, 0xf0, 0x02, 0xf0];
        assert_eq!(size(Format::Vp9, &vp9), Some((0, (64, 48))));
        assert_eq!(size(Format::Vp9, &vp9[..8]), None);
        assert_eq!(size(Format::Vp8, &vp8[..9]), None);
    }
}
