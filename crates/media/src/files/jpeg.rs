//! JPEG images from Motion JPEG packets (RFC 2435), with the headers that are omitted from packets.

use std::collections::BTreeMap;

use super::unit::{Packet, Unit};

/// Largest image, in bytes.
const IMAGE_BYTES_MAX: usize = 64 << 20;

/// Quantisation tables for quality 50 (ITU-T T.81, tables K.1 and K.2), in zigzag order.
const LUMINANCE: [u8; 64] = [
    16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37,
    29, 40, 58, 51, 61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81,
    87, 95, 98, 103, 104, 103, 62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99,
];
const CHROMINANCE: [u8; 64] = [
    17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
];

/// Huffman tables (ITU-T T.81, K.3): the number of codes of each length, and their symbols.
const LUMINANCE_DC: ([u8; 16], &[u8]) = (
    [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
);
const CHROMINANCE_DC: ([u8; 16], &[u8]) = (
    [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
);
const LUMINANCE_AC: ([u8; 16], &[u8]) = (
    [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125],
    &[
        0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
        0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52,
        0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25,
        0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45,
        0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64,
        0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83,
        0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
        0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6,
        0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3,
        0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8,
        0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
    ],
);
const CHROMINANCE_AC: ([u8; 16], &[u8]) = (
    [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119],
    &[
        0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
        0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33,
        0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18,
        0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44,
        0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63,
        0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a,
        0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
        0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4,
        0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca,
        0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7,
        0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
    ],
);

/// The quantisation tables for a quality from 1 to 99 (RFC 2435, 4.2).
fn tables_for_quality(quality: u8) -> Tables {
    let quality = u32::from(quality.clamp(1, 99));
    let factor = match quality {
        1..50 => 5_000 / quality,
        _ => 200 - quality * 2,
    };
    let scaled = |base: [u8; 64]| {
        let scaled = base.map(|of| ((u32::from(of) * factor + 50) / 100).clamp(1, 255) as u8);
        scaled.to_vec()
    };
    Tables {
        of: [scaled(LUMINANCE), scaled(CHROMINANCE)],
    }
}

/// The header of an image, from its packets.
#[derive(Clone, Debug)]
struct ImageHeader {
    kind: u8,
    width: u16,
    height: u16,
    restart_interval: Option<u16>,
    tables: Tables,
}

/// Quantisation tables of luminance and of chrominance.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Tables {
    /// 64 values each, of one byte or of two.
    of: [Vec<u8>; 2],
}

impl Tables {
    /// Parses the tables in a packet; bit i of `precision` says if the values of table i have two bytes.
    /// `None` if no table is complete. Some cameras send a third table, for the second chrominance, and some
    /// announce two bytes but send one.
    fn parse(precision: u8, bytes: &[u8]) -> Option<Self> {
        let lengths = [0, 1].map(|number| 64 << (precision >> number & 1));
        let fits = bytes.len() == lengths[0] || bytes.len() >= lengths[0] + lengths[1];
        let [luminance, chrominance] = match fits {
            true => lengths,
            false => [64, 64],
        };
        let (first, rest) = bytes.split_at_checked(luminance)?;
        // A single table is for luminance and chrominance.
        let second = rest.get(..chrominance).unwrap_or(first);
        let of = [first.to_vec(), second.to_vec()];
        Some(Self { of })
    }

    /// True if values of a table have two bytes.
    fn has_wide_values(&self) -> bool {
        self.of.iter().any(|of| of.len() > 64)
    }
}

impl ImageHeader {
    /// Encodes the headers of the image (ITU-T T.81, B.2).
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0xff, 0xd8];
        for (number, table) in (0..).zip(&self.tables.of) {
            let wide = u8::from(table.len() > 64);
            segment(&mut out, 0xdb, &[&[wide << 4 | number], table]);
        }
        let [h1, h0] = self.height.to_be_bytes();
        let [w1, w0] = self.width.to_be_bytes();
        let sampling = if self.kind & 1 == 0 { 0x21 } else { 0x22 };
        let frame = [8, h1, h0, w1, w0, 3, 1, sampling, 0, 2, 0x11, 1, 3, 0x11, 1];
        // The baseline has values of one byte only (B.2.2).
        let marker = if self.tables.has_wide_values() {
            0xc1
        } else {
            0xc0
        };
        segment(&mut out, marker, &[&frame]);
        let codes = [
            (0x00, LUMINANCE_DC),
            (0x10, LUMINANCE_AC),
            (0x01, CHROMINANCE_DC),
            (0x11, CHROMINANCE_AC),
        ];
        for (of, (counts, symbols)) in codes {
            segment(&mut out, 0xc4, &[&[of], &counts, symbols]);
        }
        if let Some(interval) = self.restart_interval {
            segment(&mut out, 0xdd, &[&interval.to_be_bytes()]);
        }
        segment(&mut out, 0xda, &[&[3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]]);
        out
    }
}

fn segment(out: &mut Vec<u8>, marker: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&[0xff, marker]);
    out.extend_from_slice(&(length as u16 + 2).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Depacketizer of Motion JPEG.
#[derive(Debug, Default)]
pub struct Jpeg {
    /// Tables of earlier images by quality; they need not be sent again.
    tables: BTreeMap<u8, Tables>,
    /// Width and height of images that are too large to have them in their packets.
    size: Option<(u16, u16)>,
    /// Width and height in the header of the first complete image.
    pub image_size: Option<(u16, u16)>,
    /// True if the sender sets the marker in the last packet of an image.
    has_marks: bool,
    /// The image that is being received, and the number of its bytes after the headers.
    open: Option<(Unit, usize)>,
    /// Images that were left out, because parts of them are missing or their kind is not supported.
    pub left_out: u64,
}

/// A parsed packet.
struct ImagePart<'a> {
    offset: usize,
    header: ImageHeader,
    data: &'a [u8],
}

impl Jpeg {
    /// A depacketizer before the first packet. `size` is the described width and height, for images that are
    /// too large to have them in their packets.
    #[must_use]
    pub fn new(size: Option<(u16, u16)>) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Takes the next packet, and adds the completed images to `out`.
    pub fn push(&mut self, packet: &Packet<'_>, out: &mut Vec<Unit>) {
        let timestamp = packet.header.timestamp;
        let Some(part) = self.part(packet.payload) else {
            self.drop_open();
            self.left_out += 1;
            return;
        };
        if part.offset == 0 {
            // An image without a marker at its end is complete if no packet is missing.
            if !packet.is_after_loss {
                out.extend(self.finish_image());
            }
            self.drop_open();
            let unit = Unit {
                // Some cameras send images with their headers.
                data: match has_headers(part.data) {
                    true => Vec::new(),
                    false => part.header.encode(),
                },
                timestamp,
                media_ns: packet.media_ns,
                is_key: true,
            };
            self.open = Some((unit, 0));
        }
        let Some((unit, received)) = self.open.as_mut() else {
            return;
        };
        let is_next = unit.timestamp == timestamp && *received == part.offset;
        if !is_next || packet.is_after_loss && part.offset > 0 || *received > IMAGE_BYTES_MAX {
            self.drop_open();
            return;
        }
        unit.data.extend_from_slice(part.data);
        *received += part.data.len();
        if packet.header.marker {
            self.has_marks = true;
            out.extend(self.finish_image());
        }
    }

    /// Ends the track. Returns the last image if the sender sets no markers.
    pub fn finish(&mut self) -> Option<Unit> {
        match self.has_marks {
            true => None,
            false => self.finish_image(),
        }
    }

    fn finish_image(&mut self) -> Option<Unit> {
        let (mut unit, _) = self.open.take()?;
        if !unit.data.ends_with(&END_MARKER) {
            unit.data.extend_from_slice(&END_MARKER);
        }
        if self.image_size.is_none() {
            self.image_size = image_size(&unit.data);
        }
        Some(unit)
    }

    fn drop_open(&mut self) {
        if self.open.take().is_some() {
            self.left_out += 1;
        }
    }

    /// Parses a packet. Only the first packet of an image has tables.
    fn part<'a>(&mut self, payload: &'a [u8]) -> Option<ImagePart<'a>> {
        let (fields, mut data) = payload.split_first_chunk::<8>()?;
        let [_, o2, o1, o0, kind, quality, width, height] = *fields;
        let offset = u32::from_be_bytes([0, o2, o1, o0]) as usize;
        let mut restart_interval = None;
        if (64..128).contains(&kind) {
            let (restart, rest) = data.split_first_chunk::<4>()?;
            restart_interval = Some(u16::from_be_bytes([restart[0], restart[1]]));
            data = rest;
        }
        if kind & 0x3f > 1 || kind >= 128 {
            return None;
        }
        let size = (u16::from(width) * 8, u16::from(height) * 8);
        // A side of more than 2,040 pixels is sent as 0 (3.1.5).
        let (width, height) = match size {
            (0, _) | (_, 0) => self.size.unwrap_or_default(),
            size => size,
        };
        let mut header = ImageHeader {
            kind,
            width,
            height,
            restart_interval,
            tables: Tables::default(),
        };
        if offset == 0 {
            data = self.tables(quality, data, &mut header)?;
            if !has_headers(data) && (width == 0 || height == 0) {
                return None;
            }
        }
        Some(ImagePart {
            offset,
            header,
            data,
        })
    }

    fn tables<'a>(
        &mut self,
        quality: u8,
        data: &'a [u8],
        header: &mut ImageHeader,
    ) -> Option<&'a [u8]> {
        if quality < 128 {
            header.tables = tables_for_quality(quality);
            return Some(data);
        }
        let (fields, rest) = data.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_be_bytes([fields[2], fields[3]]));
        let (tables, rest) = rest.split_at_checked(length)?;
        if has_headers(rest) {
            return Some(rest);
        }
        if !tables.is_empty() {
            let tables = Tables::parse(fields[1], tables)?;
            self.tables.insert(quality, tables);
        }
        header.tables = self.tables.get(&quality)?.clone();
        Some(rest)
    }
}

/// End of image (EOI).
const END_MARKER: [u8; 2] = [0xff, 0xd9];

/// True if an image is sent with its headers.
fn has_headers(data: &[u8]) -> bool {
    data.starts_with(&[0xff, 0xd8, 0xff])
}

/// Width and height in the header of an image (ITU-T T.81, B.2.2).
fn image_size(image: &[u8]) -> Option<(u16, u16)> {
    const SCAN: u8 = 0xda;
    let mut rest = image.get(2..)?;
    loop {
        let [0xff, marker, l1, l0, ..] = *rest else {
            return None;
        };
        match (marker, rest) {
            // Tables of codes have numbers between those of frames.
            (0xc4 | 0xc8 | 0xcc, _) => {}
            (0xc0..=0xcf, [_, _, _, _, _, h1, h0, w1, w0, ..]) => {
                let (height, width) = (
                    u16::from_be_bytes([*h1, *h0]),
                    u16::from_be_bytes([*w1, *w0]),
                );
                return Some((width, height));
            }
            (SCAN, _) => return None,
            _ => {}
        }
        rest = rest.get(2 + usize::from(u16::from_be_bytes([l1, l0]))..)?;
    }
}

#[cfg(test)]
mod tests;
