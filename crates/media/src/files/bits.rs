//! Reading decoder configurations: numbers of any number of bits, and hexadecimal text.

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

    /// One bit, which is a flag.
    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)? == 1)
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
}

/// Parses hexadecimal digits up to the first other character. Some descriptions have quotes around them or
/// text after them.
pub(super) fn hexadecimal(text: &str) -> Vec<u8> {
    let text = text.trim_matches('"');
    let digits: Vec<u32> = text.chars().map_while(|of| of.to_digit(16)).collect();
    let bytes = digits.chunks_exact(2);
    bytes.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
