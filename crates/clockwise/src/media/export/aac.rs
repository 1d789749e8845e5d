//! AAC in MPEG4-GENERIC packets (RFC 3640): frames of sound from packets.

use super::unit::{Packet, Unit};

/// How frames lie in packets, and what a decoder has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    size_bits: u32,
    index_bits: u32,
    delta_bits: u32,
    /// What a decoder is told (`AudioSpecificConfig`, ISO/IEC 14496-3).
    pub specific: Vec<u8>,
    /// The type of its objects, from 1.
    pub object_type: u8,
    /// Which of the sampling frequencies it has.
    pub frequency_index: u8,
    /// How many channels, as that is written.
    pub channels: u8,
}

/// How many samples a frame of AAC has.
pub const FRAME_SAMPLES: u32 = 1_024;

/// The longest frame.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// The value of one of the parameters of a format (`a=fmtp`).
pub(super) fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|one| {
        let (key, value) = one.trim().split_once('=')?;
        key.trim()
            .eq_ignore_ascii_case(name)
            .then_some(value.trim())
    })
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|of| of.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect(),
    )
}

impl Config {
    /// Of what a description says; `None`: it says too little, or that it is no AAC.
    #[must_use]
    pub fn parse(parameters: &str) -> Option<Self> {
        let bits = |name| match parameter(parameters, name) {
            None => Some(0),
            Some(text) => text.parse().ok().filter(|bits| *bits <= 16),
        };
        let specific = hexadecimal(parameter(parameters, "config")?)?;
        let head = u16::from_be_bytes([*specific.first()?, *specific.get(1)?]);
        let config = Self {
            size_bits: bits("sizelength")?,
            index_bits: bits("indexlength")?,
            delta_bits: bits("indexdeltalength")?,
            object_type: (head >> 11) as u8,
            frequency_index: (head >> 7 & 0xf) as u8,
            channels: (head >> 3 & 0xf) as u8,
            specific,
        };
        (config.size_bits > 0 && (1..=4).contains(&config.object_type)).then_some(config)
    }

    /// What goes before a frame where nothing else says how to decode it (ADTS, ISO/IEC 13818-7, 6.2).
    #[must_use]
    pub fn adts(&self, frame_bytes: usize) -> [u8; 7] {
        let length = (frame_bytes + 7).min(0x1fff) as u32;
        let profile = self.object_type - 1;
        [
            0xff,
            0xf1,
            profile << 6 | (self.frequency_index & 0xf) << 2 | self.channels >> 2 & 1,
            self.channels << 6 | (length >> 11) as u8,
            (length >> 3) as u8,
            (length << 5) as u8 | 0x1f,
            0xfc,
        ]
    }
}

/// Reads numbers of any length.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }
}

/// Puts frames together.
#[derive(Debug)]
pub struct Aac {
    /// How they lie in packets.
    pub config: Config,
    /// A frame that lies in several packets: how long it is in all, and what has come.
    open: Option<(usize, Unit)>,
    /// Frames that were left out: parts of them are missing.
    pub left_out: u64,
}

impl Aac {
    /// Nothing has come yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            open: None,
            left_out: 0,
        }
    }

    /// Takes the next packet, and gives the frames that are whole now.
    pub fn push(&mut self, packet: &Packet<'_>, clock_rate: u32, out: &mut Vec<Unit>) {
        let payload = packet.payload;
        let sizes = self.sizes(payload);
        let Some((sizes, mut rest)) = sizes else {
            self.left_out += 1;
            return;
        };
        if packet.is_after_loss && self.open.take().is_some() {
            self.left_out += 1;
        }
        if let [size] = sizes[..]
            && size > rest.len()
        {
            self.part(packet, size, rest, out);
            return;
        }
        for (number, size) in (0_u32..).zip(sizes) {
            let Some((frame, behind)) = rest.split_at_checked(size) else {
                self.left_out += 1;
                return;
            };
            if frame.is_empty() {
                self.left_out += 1;
                continue;
            }
            let after = number.wrapping_mul(FRAME_SAMPLES);
            let after_ns = u64::from(after) * 1_000_000_000 / u64::from(clock_rate.max(1));
            out.push(Unit {
                data: frame.to_vec(),
                timestamp: packet.header.timestamp.wrapping_add(after),
                media_ns: packet.media_ns.saturating_add(after_ns),
                is_key: true,
            });
            rest = behind;
        }
    }

    /// The sizes of the frames in a packet, and what is behind them.
    fn sizes<'a>(&self, payload: &'a [u8]) -> Option<(Vec<usize>, &'a [u8])> {
        let (bits, rest) = payload.split_first_chunk::<2>()?;
        let bits = usize::from(u16::from_be_bytes(*bits));
        let (heads, rest) = rest.split_at_checked(bits.div_ceil(8))?;
        let mut heads = Bits {
            bytes: heads,
            at: 0,
        };
        let mut sizes = Vec::new();
        while heads.at < bits {
            let size = heads.take(self.config.size_bits)?;
            let index = match sizes.is_empty() {
                true => self.config.index_bits,
                false => self.config.delta_bits,
            };
            heads.take(index)?;
            sizes.push(size as usize);
        }
        (!sizes.is_empty()).then_some((sizes, rest))
    }

    fn part(&mut self, packet: &Packet<'_>, size: usize, part: &[u8], out: &mut Vec<Unit>) {
        let timestamp = packet.header.timestamp;
        let is_next = |(whole, unit): &(usize, Unit)| *whole == size && unit.timestamp == timestamp;
        if self.open.as_ref().is_some_and(|open| !is_next(open)) {
            self.open = None;
            self.left_out += 1;
        }
        if size > FRAME_BYTES_MAX || (self.open.is_none() && packet.is_after_loss) {
            self.left_out += 1;
            return;
        }
        let begun = || {
            let unit = Unit {
                timestamp,
                media_ns: packet.media_ns,
                is_key: true,
                ..Unit::default()
            };
            (size, unit)
        };
        let (whole, mut unit) = self.open.take().unwrap_or_else(begun);
        unit.data.extend_from_slice(part);
        if unit.data.len() < whole {
            self.open = Some((whole, unit));
        } else {
            unit.data.truncate(whole);
            out.push(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packet::Header;
    use super::*;

    const SAID: &str = "profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3; config=1190";

    fn units(aac: &mut Aac, payload: &[u8], is_after_loss: bool) -> Vec<Unit> {
        let header = Header::parse(&[0x80, 97, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]).unwrap();
        let mut out = Vec::new();
        let packet = Packet {
            header,
            payload,
            media_ns: 5,
            is_after_loss,
        };
        aac.push(&packet, 48_000, &mut out);
        out
    }

    #[test]
    fn frames_are_found_in_packets() {
        let config = Config::parse(SAID).unwrap();
        assert_eq!(
            (config.object_type, config.frequency_index, config.channels),
            (2, 3, 2)
        );
        // The header of a stereo frame of 9 bytes at 48 kHz.
        assert_eq!(config.adts(9), [0xff, 0xf1, 0x4c, 0x80, 0x02, 0x1f, 0xfc]);
        let mut aac = Aac::new(config);
        // Two frames, of 2 bytes and 1.
        let two = [0, 32, 0, 2 << 3, 0, 1 << 3, 7, 8, 9];
        let found = units(&mut aac, &two, false);
        let expected = [(vec![7, 8], 9, 5), (vec![9], 1_033, 21_333_338)];
        let found: Vec<_> = found
            .into_iter()
            .map(|of| (of.data, of.timestamp, of.media_ns))
            .collect();
        assert_eq!(found, expected);
        // One of four bytes in two packets.
        assert!(units(&mut aac, &[0, 16, 0, 4 << 3, 1, 2], false).is_empty());
        let found = units(&mut aac, &[0, 16, 0, 4 << 3, 3, 4], false);
        assert_eq!(found[0].data, [1, 2, 3, 4]);
        assert_eq!(aac.left_out, 0);
        // One whose second part is missing, and nonsense.
        units(&mut aac, &[0, 16, 0, 4 << 3, 1, 2], false);
        assert!(units(&mut aac, &[0, 16, 0, 4 << 3, 3, 4], true).is_empty());
        for nonsense in [
            &[][..],
            &[0],
            &[0, 0, 1],
            &[0, 99, 0],
            &[0, 32, 0, 8, 0, 99, 1],
        ] {
            units(&mut aac, nonsense, false);
        }
        assert!(aac.left_out >= 6, "{}", aac.left_out);
    }

    #[test]
    fn what_is_no_aac_is_not_taken_for_it() {
        for said in [
            "",
            "config=1190",
            "sizelength=13;config=zz",
            "sizelength=99;config=1190",
            "sizelength=13;config=11",
        ] {
            assert_eq!(Config::parse(said), None, "{said}");
        }
    }
}
