//! The speed at which a recording is shown (`Scale`, RFC 2326, section 12.34) or sent (`Speed`, section 12.35).

use sched::units::BytesPerSecond;

/// A speed in thousandths of the original one; negative is backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Scale(pub i64);

impl Scale {
    /// The original speed.
    pub const ONE: Self = Self(1_000);

    /// The media time that is shown in a time, in the same unit.
    #[must_use]
    pub fn of(self, time: i128) -> i128 {
        time * i128::from(self.0) / 1_000
    }

    /// The time in which a media time is shown, in the same unit.
    #[must_use]
    pub fn time_for(self, shown: i128) -> i128 {
        match self.0 {
            0 => 0,
            scale => shown * 1_000 / i128::from(scale),
        }
    }

    /// The rate at this speed of what has rate `as_it_was` at the original speed.
    #[must_use]
    pub fn of_rate(self, as_it_was: BytesPerSecond) -> BytesPerSecond {
        rate(self.of(i128::from(as_it_was.0)))
    }

    /// The rate at the original speed of what has rate `taken` at this speed.
    #[must_use]
    pub fn as_it_was(self, taken: BytesPerSecond) -> BytesPerSecond {
        rate(self.time_for(i128::from(taken.0)))
    }

    /// True if only key frames are shown: faster than the original speed, or backwards.
    #[must_use]
    pub fn is_by_keys(self) -> bool {
        self.0 > 1_000 || self.0 < 0
    }
}

/// Clamps to 1 and to the largest rate.
fn rate(of: i128) -> BytesPerSecond {
    BytesPerSecond(u64::try_from(of.max(1)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_converts_times_exactly() {
        for (scale, shown, time) in [
            (1_000, 7, 7),
            (2_000, 14, 7),
            (500, 7, 14),
            (-4_000, -28, 7),
        ] {
            let scale = Scale(scale);
            assert_eq!(scale.time_for(shown), time);
            assert_eq!(scale.of(time), shown);
        }
        assert!(Scale(1_001).is_by_keys() && Scale(-1).is_by_keys());
        assert!(!Scale(500).is_by_keys() && !Scale::ONE.is_by_keys());
    }
}
