//! The sequence header of AV1 (AV1 bitstream specification, 5.5), as far as files need it.

use crate::files::bits::Bits;
use crate::rtp::packet::av1::Obu;

/// A parsed sequence header.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sequence {
    /// The OBU, with its length.
    pub obu: Vec<u8>,
    /// Profile, 0 to 2.
    pub profile: u8,
    /// Level of the first operating point (`seq_level_idx`).
    pub level: u8,
    /// True if that is of the high tier.
    pub is_high_tier: bool,
    /// Largest width and height of frames.
    pub size: (u16, u16),
    /// 8, 10 or 12.
    pub bit_depth: u8,
    /// True if there are no colours.
    pub is_monochrome: bool,
    /// True if chrominance has half the columns, and half the rows.
    pub is_subsampled: (bool, bool),
    /// Position of the samples of chrominance.
    pub chroma_position: u8,
    /// True if each frame is a still picture with a short header.
    pub is_still: bool,
}

impl Sequence {
    /// Parses an OBU; `None` if it is incomplete.
    #[must_use]
    pub fn parse(obu: &Obu<'_>) -> Option<Self> {
        let bits = &mut Bits::new(obu.data);
        let mut of = Self {
            profile: bits.take(3)? as u8,
            ..Self::default()
        };
        obu.push(&mut of.obu);
        let _is_single_picture = bits.flag()?;
        of.is_still = bits.flag()?;
        match of.is_still {
            true => of.level = bits.take(5)? as u8,
            false => of.read_operating_points(bits)?,
        }
        let (width_bits, height_bits) = (bits.take(4)? + 1, bits.take(4)? + 1);
        let mut side = |count| u16::try_from(bits.take(count)? + 1).ok();
        of.size = (side(width_bits)?, side(height_bits)?);
        if !of.is_still && bits.flag()? {
            bits.take(7)?;
        }
        // Superblocks of 128 samples, and two filters.
        bits.take(3)?;
        if !of.is_still {
            skip_tools(bits)?;
        }
        // Scaling and two more filters.
        bits.take(3)?;
        of.read_colours(bits)?;
        Some(of)
    }

    fn read_operating_points(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        // Bits of a delay in the decoder model.
        let mut delay_bits = None;
        if bits.flag()? {
            bits.skip(64)?;
            if bits.flag()? {
                skip_uvlc(bits)?;
            }
            if bits.flag()? {
                delay_bits = Some(bits.take(5)? + 1);
                bits.skip(42)?;
            }
        }
        let has_display_delay = bits.flag()?;
        let count = bits.take(5)? + 1;
        for number in 0..count {
            bits.take(12)?;
            let level = bits.take(5)? as u8;
            let is_high_tier = level > 7 && bits.flag()?;
            if number == 0 {
                (self.level, self.is_high_tier) = (level, is_high_tier);
            }
            if let Some(delay_bits) = delay_bits
                && bits.flag()?
            {
                bits.skip(2 * delay_bits as usize + 1)?;
            }
            if has_display_delay && bits.flag()? {
                bits.take(4)?;
            }
        }
        Some(())
    }

    fn read_colours(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        let is_deep = bits.flag()?;
        self.bit_depth = match (is_deep, self.profile) {
            (false, _) => 8,
            (true, 2) if bits.flag()? => 12,
            (true, _) => 10,
        };
        self.is_monochrome = self.profile != 1 && bits.flag()?;
        let mut colours = (2, 2, 2);
        if bits.flag()? {
            colours = (bits.take(8)?, bits.take(8)?, bits.take(8)?);
        }
        // Primaries of BT.709, the transfer of sRGB, and the identity matrix.
        const RGB: (u32, u32, u32) = (1, 13, 0);
        if !self.is_monochrome && colours == RGB {
            return Some(());
        }
        let _is_full_range = bits.flag()?;
        self.is_subsampled = match self.profile {
            _ if self.is_monochrome => (true, true),
            0 => (true, true),
            1 => (false, false),
            _ if self.bit_depth < 12 => (true, false),
            _ if bits.flag()? => (true, bits.flag()?),
            _ => (false, false),
        };
        if !self.is_monochrome && self.is_subsampled == (true, true) {
            self.chroma_position = bits.take(2)? as u8;
        }
        Some(())
    }

    /// Its name for players ("AV1 Codec ISO Media File Format Binding", 5).
    #[must_use]
    pub fn codec(&self) -> String {
        let tier = if self.is_high_tier { 'H' } else { 'M' };
        let Self {
            profile,
            level,
            bit_depth,
            ..
        } = self;
        format!("av01.{profile}.{level:02}{tier}.{bit_depth:02}")
    }
}

/// Skips a number with as many leading zeros as it has more bits (4.10.3).
fn skip_uvlc(bits: &mut Bits<'_>) -> Option<()> {
    let mut zeros = 0;
    while !bits.flag()? {
        zeros += 1;
    }
    // 32 and more stand for the largest number, without more bits.
    bits.skip(if zeros < 32 { zeros } else { 0 })
}

/// Skips the flags of coding tools that still pictures do not have.
fn skip_tools(bits: &mut Bits<'_>) -> Option<()> {
    bits.take(4)?;
    let has_order = bits.flag()?;
    if has_order {
        bits.take(2)?;
    }
    let has_screen_content = bits.flag()? || bits.flag()?;
    if has_screen_content && !bits.flag()? {
        bits.take(1)?;
    }
    if has_order {
        bits.take(3)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(hex: &str) -> Option<Sequence> {
        let digits: Vec<u32> = hex.chars().filter_map(|of| of.to_digit(16)).collect();
        let bytes = digits.chunks(2).map(|of| (of[0] << 4 | of[1]) as u8);
        let bytes: Vec<u8> = bytes.collect();
        Sequence::parse(&Obu::parse(&bytes)?)
    }

    /// Headers as libaom, SVT-AV1 and rav1e write them.
    #[test]
    fn headers_of_encoders_are_parsed() {
        for (hex, codec, size, subsampled) in [
            (
                "0a0b000000043d07c4daf90040",
                "av01.0.00M.08",
                (322, 242),
                (true, true),
            ),
            (
                "0a0b000000043d07c4daf94040",
                "av01.0.00M.10",
                (322, 242),
                (true, true),
            ),
            (
                "0a0a000000043d07c4daf92a",
                "av01.0.00M.08",
                (322, 242),
                (true, true),
            ),
            (
                "0a0a200000043d07c4daf902",
                "av01.1.00M.08",
                (322, 242),
                (false, false),
            ),
            (
                "0a0a400000043d07c4daf901",
                "av01.2.00M.08",
                (322, 242),
                (true, false),
            ),
            (
                "0a0b00000042abbfc373efe401",
                "av01.0.08M.08",
                (1_920, 1_080),
                (true, true),
            ),
            (
                "0a0e000000faabbfc371085640808085",
                "av01.0.31M.08",
                (1_920, 1_080),
                (true, true),
            ),
        ] {
            let of = parse(hex).unwrap();
            assert_eq!(
                (&*of.codec(), of.size, of.is_subsampled),
                (codec, size, subsampled),
                "{hex}"
            );
            assert!(!of.is_still);
            assert_eq!(of.is_monochrome, hex.ends_with("2a"), "{hex}");
            // The OBU is kept as it was.
            assert_eq!(
                of.obu
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>(),
                hex
            );
            for length in (0..hex.len() - 4).step_by(2) {
                assert_eq!(parse(&hex[..length]), None, "{length} of {hex}");
            }
        }
    }
}
