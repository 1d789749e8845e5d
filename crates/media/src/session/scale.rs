//! How fast a recording is shown.

use sched::units::BytesPerSecond;

/// How fast a recording is shown, in thousandths of how fast it was; below zero backwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Scale(pub i64);

impl Scale {
    /// As it was.
    pub const ONE: Self = Self(1_000);

    /// How much is shown in a time.
    #[must_use]
    pub fn of(self, time: i128) -> i128 {
        time * i128::from(self.0) / 1_000
    }

    /// The time in which so much is shown.
    #[must_use]
    pub fn time_for(self, shown: i128) -> i128 {
        match self.0 {
            0 => 0,
            scale => shown * 1_000 / i128::from(scale),
        }
    }

    /// The rate that it takes, of what takes this as it was.
    #[must_use]
    pub fn of_rate(self, as_it_was: BytesPerSecond) -> BytesPerSecond {
        rate(self.of(i128::from(as_it_was.0)))
    }

    /// What takes this takes so much as it was.
    #[must_use]
    pub fn as_it_was(self, taken: BytesPerSecond) -> BytesPerSecond {
        rate(self.time_for(i128::from(taken.0)))
    }

    /// Whether only key frames are shown.
    #[must_use]
    pub fn is_by_keys(self) -> bool {
        self.0 > 1_000 || self.0 < 0
    }
}

/// The least there is for nothing, and the most there is for more than that.
fn rate(of: i128) -> BytesPerSecond {
    BytesPerSecond(u64::try_from(of.max(1)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_exact() {
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
