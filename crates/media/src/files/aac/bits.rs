//! Numbers in configurations of AAC.

use super::super::bits::Bits;

/// Sampling frequencies in Hz, by their index (ISO/IEC 14496-3, table 1.18).
pub(super) const FREQUENCIES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// An audio object type.
pub(super) fn take_object_type(bits: &mut Bits<'_>) -> Option<u8> {
    Some(match bits.take(5)? {
        31 => 32 + bits.take(6)? as u8,
        of => of as u8,
    })
}

/// A sampling frequency: its index, and Hz.
pub(super) fn take_frequency(bits: &mut Bits<'_>) -> Option<(u8, u32)> {
    let index = bits.take(4)?;
    let frequency = match index {
        15 => bits.take(24)?,
        _ => *FREQUENCIES.get(index as usize)?,
    };
    Some((index as u8, frequency))
}
