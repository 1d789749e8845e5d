//! Pictures of MPEG-4 Visual from MP4V-ES packets (RFC 6416, section 5).
//!
//! A picture is all packets up to the one with the marker, with the headers before it.

use super::bits::{Bits, hexadecimal};
use super::unit::{Packet, Unit};
use crate::sdp::{Track as TrackDescription, parameter};

/// Largest picture, in bytes.
const PICTURE_BYTES_MAX: usize = 64 << 20;

/// Longest headers that are kept, in bytes.
const HEADERS_BYTES_MAX: usize = 1 << 16;

/// Start codes (ISO/IEC 14496-2, table 6-3).
const SEQUENCE: u8 = 0xb0;
const GROUP: u8 = 0xb3;
const VISUAL_OBJECT: u8 = 0xb5;
const PICTURE: u8 = 0xb6;
const LAYER_MIN: u8 = 0x20;
const LAYER_MAX: u8 = 0x2f;

/// The headers that a decoder needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The headers of sequence, object and layer, as they are sent.
    pub bytes: Vec<u8>,
    /// Profile and level; 1 (simple profile, level 1) if there is no header of a sequence.
    pub profile: u8,
    /// Width and height.
    pub size: (u16, u16),
}

/// Places of start codes, with the byte that follows them.
fn start_codes(data: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let found = data.windows(4).enumerate();
    found.filter_map(|(at, of)| (of[..3] == [0, 0, 1]).then_some((at, of[3])))
}

/// Place of the start code of the first picture.
fn picture_at(data: &[u8]) -> Option<usize> {
    let mut codes = start_codes(data);
    codes.find_map(|(at, code)| (code == PICTURE).then_some(at))
}

impl Headers {
    /// Parses the headers at the beginning of some data; `None` if they have no layer with a size.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let mut of = Self {
            bytes: Vec::new(),
            profile: 1,
            size: (0, 0),
        };
        let mut end = data.len();
        for (at, code) in start_codes(&data[..end.min(HEADERS_BYTES_MAX)]) {
            match code {
                GROUP | PICTURE => {
                    end = at;
                    break;
                }
                SEQUENCE => of.profile = *data.get(at + 4)?,
                LAYER_MIN..=LAYER_MAX => of.size = layer_size(data.get(at + 4..)?)?,
                _ => {}
            }
        }
        of.bytes = data[..end.min(HEADERS_BYTES_MAX)].to_vec();
        (of.size.0 > 0 && of.size.1 > 0).then_some(of)
    }

    /// The headers of a description.
    #[must_use]
    pub fn described(track: &TrackDescription) -> Option<Self> {
        Self::parse(&hexadecimal(parameter(&track.parameters, "config")?))
    }
}

/// Width and height in the header of a layer (ISO/IEC 14496-2, 6.2.3).
fn layer_size(data: &[u8]) -> Option<(u16, u16)> {
    const EXTENDED_ASPECT: u32 = 15;
    const RECTANGLE: u32 = 0;
    let bits = &mut Bits::new(data);
    bits.take(9)?;
    if bits.flag()? {
        bits.take(7)?;
    }
    if bits.take(4)? == EXTENDED_ASPECT {
        bits.take(16)?;
    }
    if bits.flag()? {
        bits.take(3)?;
        if bits.flag()? {
            bits.skip(79)?;
        }
    }
    if bits.take(2)? != RECTANGLE {
        return None;
    }
    bits.take(1)?;
    let ticks_per_second = bits.take(16)?;
    bits.take(1)?;
    if bits.flag()? {
        // The field has as many bits as the largest number below it, at least one.
        let ticks_max = ticks_per_second.checked_sub(1)?;
        bits.take((u32::BITS - ticks_max.leading_zeros()).max(1))?;
    }
    bits.take(1)?;
    let width = bits.take(13)?;
    bits.take(1)?;
    Some((width as u16, bits.take(13)? as u16))
}

/// Depacketizer of MPEG-4 Visual.
#[derive(Debug)]
pub struct Mpeg4 {
    described: Option<Headers>,
    /// The first headers in packets.
    seen: Option<Headers>,
    /// The picture that is being received.
    open: Option<Unit>,
    /// True if the sender sets the marker in the last packet of a picture.
    has_marks: bool,
    /// Pictures that were left out, because parts of them are missing.
    pub left_out: u64,
}

impl Mpeg4 {
    /// A depacketizer before the first packet, with the headers of the description.
    #[must_use]
    pub fn new(described: Option<Headers>) -> Self {
        Self {
            described,
            seen: None,
            open: None,
            has_marks: false,
            left_out: 0,
        }
    }

    /// The headers to begin decoding with: the first ones from packets, or else the described ones.
    #[must_use]
    pub fn headers(&self) -> Option<&Headers> {
        self.seen.as_ref().or(self.described.as_ref())
    }

    /// Takes the next packet, and adds the completed picture to `out`.
    pub fn push(&mut self, packet: &Packet<'_>, out: &mut Vec<Unit>) {
        let timestamp = packet.header.timestamp;
        if packet.is_after_loss {
            self.drop_open();
        }
        let is_other = |of: &mut Unit| of.timestamp != timestamp;
        if let Some(unit) = self.open.take_if(is_other) {
            // The sender sets no markers.
            self.complete(unit, out);
        }
        let begins = match packet.payload {
            [0, 0, 1, SEQUENCE | GROUP | VISUAL_OBJECT | PICTURE, ..] => true,
            [0, 0, 1, code, ..] => *code <= LAYER_MAX,
            _ => false,
        };
        if self.open.is_none() && begins {
            self.open = Some(Unit {
                timestamp,
                media_ns: packet.media_ns,
                ..Unit::default()
            });
        }
        let Some(unit) = self.open.as_mut() else {
            return;
        };
        if unit.data.len() + packet.payload.len() > PICTURE_BYTES_MAX {
            self.drop_open();
            return;
        }
        unit.data.extend_from_slice(packet.payload);
        if packet.header.marker
            && let Some(unit) = self.open.take()
        {
            self.has_marks = true;
            self.complete(unit, out);
        }
    }

    /// Ends the track. Returns the last picture if the sender sets no markers.
    pub fn finish(&mut self) -> Option<Unit> {
        let mut last = Vec::new();
        let unit = self.open.take().filter(|_| !self.has_marks)?;
        self.complete(unit, &mut last);
        last.pop()
    }

    fn drop_open(&mut self) {
        self.left_out += u64::from(self.open.take().is_some());
    }

    fn complete(&mut self, mut unit: Unit, out: &mut Vec<Unit>) {
        let Some(at) = picture_at(&unit.data) else {
            // Headers alone.
            self.note(&unit.data);
            self.left_out += 1;
            return;
        };
        self.note(&unit.data[..at]);
        // `vop_coding_type` 0.
        unit.is_key = unit.data.get(at + 4).is_some_and(|of| of >> 6 == 0);
        out.push(unit);
    }

    fn note(&mut self, headers: &[u8]) {
        if self.seen.is_none() {
            self.seen = Headers::parse(headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtp::packet::Header;

    /// Headers of 320 by 240 pixels, as ffmpeg writes them.
    const CONFIG: &str = "000001B001000001B58913000001000000012000C48D8800CD0A041E1443\
                          000001B24C61766335392E33372E313030";

    #[test]
    fn headers_have_the_size() {
        let bytes = hexadecimal(CONFIG);
        let headers = Headers::parse(&bytes).unwrap();
        assert_eq!((headers.size, headers.profile), ((320, 240), 1));
        assert_eq!(headers.bytes, bytes);
        let picture = [&bytes[..], &[0, 0, 1, PICTURE, 0x10, 0x60]].concat();
        assert_eq!(Headers::parse(&picture), Some(headers));
        for length in 0..bytes.len() {
            let cut_off = Headers::parse(&bytes[..length]);
            assert!(cut_off.is_none_or(|of| of.size == (320, 240)), "{length}");
        }
    }

    #[test]
    fn pictures_are_joined_and_incomplete_ones_left_out() {
        let config = hexadecimal(CONFIG);
        let (key, other): (&[u8], &[u8]) = (&[0, 0, 1, PICTURE, 0x10], &[0, 0, 1, PICTURE, 0x50]);
        let first = [&config[..], key].concat();
        let packets: [(bool, bool, u32, &[u8]); 8] = [
            (false, false, 1, &first),
            (true, false, 1, &[5]),
            (false, false, 2, other),
            // The end is missing, and then a beginning.
            (false, true, 3, other),
            (true, true, 3, &[6]),
            (true, true, 4, &[7]),
            // No marker.
            (false, false, 5, other),
            (true, false, 6, other),
        ];
        let (mut mpeg4, mut units) = (Mpeg4::new(None), Vec::new());
        for (has_marker, is_after_loss, timestamp, payload) in packets {
            let marker = if has_marker { 0xe0 } else { 0x60 };
            let head = [0x80, marker, 0, 0, 0, 0, 0, timestamp as u8, 0, 0, 0, 1];
            let packet = Packet {
                header: Header::parse(&head).unwrap(),
                payload,
                media_ns: 0,
                is_after_loss,
            };
            mpeg4.push(&packet, &mut units);
        }
        let found: Vec<_> = units.iter().map(|of| (of.timestamp, of.is_key)).collect();
        assert_eq!(found, [(1, true), (5, false), (6, false)]);
        assert_eq!(units[0].data, [&first[..], &[5]].concat());
        assert_eq!(mpeg4.left_out, 2);
        assert_eq!(mpeg4.headers().unwrap().bytes, config);
    }
}
