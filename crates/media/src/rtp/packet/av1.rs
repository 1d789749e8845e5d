//! Packets of AV1 ("RTP Payload Format For AV1" of the Alliance for Open Media), and the heads of their open bitstream
//! units (OBUs).
//!
//! A payload is an aggregation header of one byte and *elements*. An element is an OBU or a fragment of one.

/// Kinds of OBUs (AV1 bitstream specification, 6.2.2).
pub mod kind {
    /// Decoder parameters.
    pub const SEQUENCE: u8 = 1;
    /// The beginning of a temporal unit. Packets should not have it.
    pub const DELIMITER: u8 = 2;
    /// The header of a frame.
    pub const FRAME_HEADER: u8 = 3;
    /// Data that describes the stream.
    pub const METADATA: u8 = 5;
    /// The header of a frame, and tiles.
    pub const FRAME: u8 = 6;
    /// Tiles of large scale tile decoding.
    pub const TILE_LIST: u8 = 8;
    /// Padding.
    pub const PADDING: u8 = 15;
}

/// Reads an unsigned number of up to eight bytes with seven bits each, the lowest first (leb128).
fn leb128(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_u64;
    for place in 0..8 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return usize::try_from(value).ok();
        }
    }
    None
}

/// Appends a number as [`leb128`] reads it.
pub fn push_leb128(mut value: usize, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(0x80 | value as u8 & 0x7f);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The payload of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload<'a> {
    /// The first element continues the last one of the packet before.
    pub continues: bool,
    /// The last element continues in the next packet.
    pub is_open: bool,
    /// The packet is the first one of a coded video sequence, which begins with a key frame.
    pub begins_sequence: bool,
    /// Number of elements, of which the last one has no length before it; 0: each element has its length.
    count: u8,
    rest: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Parses the aggregation header; `None` if there is none.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (header, rest) = payload.split_first()?;
        Some(Self {
            continues: header & 0x80 > 0,
            is_open: header & 0x40 > 0,
            begins_sequence: header & 0x08 > 0,
            count: header >> 4 & 3,
            rest,
        })
    }

    /// The elements. The last one is `Err` if a length is invalid, with the bytes that are there.
    pub fn elements(&self) -> impl Iterator<Item = Result<&'a [u8], &'a [u8]>> + use<'a> {
        let (mut rest, mut left) = (self.rest, self.count);
        let (is_counted, mut is_over) = (left > 0, false);
        std::iter::from_fn(move || {
            if is_over || !is_counted && rest.is_empty() {
                return None;
            }
            left = left.saturating_sub(1);
            if is_counted && left == 0 {
                is_over = true;
                return Some(Ok(rest));
            }
            let length = leb128(&mut rest);
            let Some((element, behind)) = length.and_then(|of| rest.split_at_checked(of)) else {
                is_over = true;
                return Some(Err(rest));
            };
            rest = behind;
            Some(Ok(element))
        })
    }

    /// The first element, if its first byte is that of an OBU.
    #[must_use]
    pub fn first(&self) -> Option<Obu<'a>> {
        if self.continues {
            return None;
        }
        let (Ok(element) | Err(element)) = self.elements().next()?;
        Obu::parse(element)
    }

    /// Returns true if a key frame begins in the packet.
    #[must_use]
    pub fn has_key_frame(&self) -> bool {
        let obus = self.elements().skip(usize::from(self.continues));
        let mut obus = obus.filter_map(|of| Obu::parse(of.unwrap_or_else(|cut_off| cut_off)));
        // Frames of higher layers follow the first one.
        obus.find_map(|of| of.is_key_frame()).unwrap_or(false)
    }
}

/// An OBU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Obu<'a> {
    /// Its kind.
    pub kind: u8,
    /// Byte of temporal and spatial layer.
    pub layers: Option<u8>,
    /// Length of the data as the OBU says it. In packets it usually does not.
    length: Option<usize>,
    /// The data as far as it is there.
    pub data: &'a [u8],
}

impl<'a> Obu<'a> {
    /// Parses the head of an OBU, which may be cut off after it; `None` if the head is not valid.
    #[must_use]
    pub fn parse(element: &'a [u8]) -> Option<Self> {
        let (header, mut data) = element.split_first()?;
        let layers = match header & 0x04 {
            0 => None,
            _ => {
                let (layers, behind) = data.split_first()?;
                data = behind;
                Some(*layers)
            }
        };
        let length = match header & 0x02 {
            0 => None,
            _ => Some(leb128(&mut data)?),
        };
        if let Some(length) = length {
            data = &data[..data.len().min(length)];
        }
        (header & 0x80 == 0).then_some(Self {
            kind: header >> 3 & 0x0f,
            layers,
            length,
            data,
        })
    }

    /// Returns true if the OBU is not shorter than it says.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.length.is_none_or(|length| length == self.data.len())
    }

    /// Whether the frame that the OBU begins is a key frame that is shown; `None` if it begins no frame.
    #[must_use]
    pub fn is_key_frame(&self) -> Option<bool> {
        match (self.kind, self.data) {
            // `show_existing_frame` 0, `frame_type` 0, `show_frame` 1.
            (kind::FRAME | kind::FRAME_HEADER, [first, ..]) => Some(first & 0xf0 == 0x10),
            // With `reduced_still_picture_header` each frame is a key frame, and its header begins otherwise.
            (kind::SEQUENCE, [first, ..]) if first & 0x08 > 0 => Some(true),
            _ => None,
        }
    }

    /// Appends the OBU with its length (AV1 bitstream specification, 5.2).
    pub fn push(&self, out: &mut Vec<u8>) {
        out.push(self.kind << 3 | u8::from(self.layers.is_some()) << 2 | 0x02);
        out.extend(self.layers);
        push_leb128(self.data.len(), out);
        out.extend_from_slice(self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(payload: &[u8]) -> Vec<Result<&[u8], &[u8]>> {
        Payload::parse(payload).unwrap().elements().collect()
    }

    #[test]
    fn elements_are_found_with_and_without_a_count() {
        let (one, two): (&[u8], &[u8]) = (&[7], &[8, 9]);
        assert_eq!(elements(&[0x00, 1, 7, 2, 8, 9]), [Ok(one), Ok(two)]);
        assert_eq!(elements(&[0x20, 1, 7, 8, 9]), [Ok(one), Ok(two)]);
        assert_eq!(elements(&[0x10, 8, 9]), [Ok(two)]);
        assert_eq!(elements(&[0x20, 0x81, 0x00, 7, 8, 9]), [Ok(one), Ok(two)]);
        // Lengths that are too long, or cut off.
        assert_eq!(elements(&[0x00, 1, 7, 3, 8, 9]), [Ok(one), Err(two)]);
        assert_eq!(elements(&[0x00, 0x80]), [Err(&[][..])]);
        assert_eq!(elements(&[0x30, 1, 7]), [Ok(one), Err(&[][..])]);
        let endless = [0x00, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
        assert_eq!(elements(&endless), [Err(&[0x01][..])]);
        assert_eq!(elements(&[0x00]), []);
        assert_eq!(Payload::parse(&[]), None);
    }

    #[test]
    fn key_frames_are_known_by_their_first_byte() {
        let has_key = |payload: &[u8]| Payload::parse(payload).unwrap().has_key_frame();
        // A sequence header and a frame; the same with lengths in the OBUs.
        assert!(has_key(&[0x28, 2, 0x08, 0x00, 0x30, 0x10]));
        assert!(has_key(&[0x28, 3, 0x0a, 0x01, 0x00, 0x32, 0x01, 0x10]));
        // A frame that is not shown, one that depends on others, and one that is shown again.
        for first in [0x00, 0x30, 0x90] {
            assert!(!has_key(&[0x20, 2, 0x08, 0x00, 0x30, first]));
        }
        // The continuation of a frame, and tiles.
        assert!(!has_key(&[0x90, 0x30, 0x10]));
        assert!(!has_key(&[0x10, 0x20, 0x10]));
        // A still picture.
        assert!(has_key(&[0x20, 2, 0x08, 0x18, 0x30, 0x00]));
        // The first frame of two layers counts.
        assert!(has_key(&[0x20, 3, 0x34, 0x00, 0x10, 0x34, 0x08, 0x30]));
    }

    #[test]
    fn an_obu_is_written_with_its_length() {
        for bytes in [&[0x30, 1, 2][..], &[0x32, 2, 1, 2]] {
            let mut out = Vec::new();
            Obu::parse(bytes).unwrap().push(&mut out);
            assert_eq!(out, [0x32, 2, 1, 2]);
        }
        let long = [&[0x34, 0x08][..], &[5; 300]].concat();
        let mut out = Vec::new();
        Obu::parse(&long).unwrap().push(&mut out);
        assert_eq!(out[..4], [0x36, 0x08, 0xac, 0x02]);
        let again = Obu::parse(&out).unwrap();
        assert!(again.is_whole());
        assert_eq!(
            (again.kind, again.layers, again.data),
            (6, Some(8), &[5; 300][..])
        );
        assert!(!Obu::parse(&out[..200]).unwrap().is_whole());
        assert_eq!(Obu::parse(&[0xb0, 1]), None);
        assert_eq!(Obu::parse(&[0x34]), None);
    }
}
