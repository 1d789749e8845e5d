//! Reading numbers of any number of bits, as in configurations of AAC.

/// Sampling frequencies in Hz, by their index (ISO/IEC 14496-3, table 1.18).
pub(super) const FREQUENCIES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// A reader of bits, the most significant first.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Number of bits that have been read.
    pub(super) at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    /// Skips `count` bits; `None` if there are fewer.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        let at = self.at.checked_add(count)?;
        (at <= self.bytes.len() * 8).then(|| self.at = at)
    }

    /// Number of unread bits.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() * 8 - self.at
    }

    /// Copies `count` bytes from any bit on, padded with zero bits.
    pub(super) fn bytes(&self, from: usize, count: usize) -> Vec<u8> {
        let byte = |place: usize| u16::from(self.bytes.get(place).copied().unwrap_or(0));
        let places = from / 8..from / 8 + count;
        let two = places.map(|place| byte(place) << 8 | byte(place + 1));
        two.map(|two| (two << (from % 8) >> 8) as u8).collect()
    }

    pub(super) fn object_type(&mut self) -> Option<u8> {
        Some(match self.take(5)? {
            31 => 32 + self.take(6)? as u8,
            of => of as u8,
        })
    }

    /// A sampling frequency: its index, and Hz.
    pub(super) fn frequency(&mut self) -> Option<(u8, u32)> {
        let index = self.take(4)?;
        let frequency = match index {
            15 => self.take(24)?,
            _ => *FREQUENCIES.get(index as usize)?,
        };
        Some((index as u8, frequency))
    }
}
