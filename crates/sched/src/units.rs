//! Quantities, each in a type of its own.
//!
//! A length of time is not an instant, a sector address is not a number of sectors, and a rate is
//! neither. Arithmetic that has a meaning is defined (`Time - Time = Nanos`); arithmetic that has
//! none does not compile. All are integers: two runs with the same inputs give the same bits.
//!
//! Deliberately absent: floating point (reports convert at the edge) and any way to read a clock.

use alloc::format;
use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// Bytes in a logical sector, the unit in which disks are addressed.
pub const SECTOR_BYTES: u64 = 512;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The smallest value.
            pub const ZERO: Self = Self(0);
            /// The largest value that can be expressed.
            pub const MAX: Self = Self(u64::MAX);

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    };
}

/// Arithmetic of an amount: amounts add, subtract, and scale.
macro_rules! amount {
    ($name:ident) => {
        impl $name {
            /// The difference, or zero where `other` is the larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The sum, or the largest value where it does not fit.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The sum, unless it does not fit.
            #[must_use]
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The difference, unless `other` is the larger.
            #[must_use]
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(difference) => Some(Self(difference)),
                    None => None,
                }
            }

            /// True for zero.
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * times)
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }
    };
}

/// A position and the amount by which positions differ.
macro_rules! position {
    ($position:ident, $amount:ident) => {
        impl $position {
            /// The distance from `earlier`, or zero where `earlier` is not earlier.
            #[must_use]
            pub const fn saturating_since(self, earlier: Self) -> $amount {
                $amount(self.0.saturating_sub(earlier.0))
            }

            /// The position `amount` on, or the last one where that does not fit.
            #[must_use]
            pub const fn saturating_add(self, amount: $amount) -> Self {
                Self(self.0.saturating_add(amount.0))
            }

            /// The position `amount` on, unless that does not fit.
            #[must_use]
            pub const fn checked_add(self, amount: $amount) -> Option<Self> {
                match self.0.checked_add(amount.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }
        }
        impl Add<$amount> for $position {
            type Output = Self;
            fn add(self, amount: $amount) -> Self {
                Self(self.0 + amount.0)
            }
        }
        impl AddAssign<$amount> for $position {
            fn add_assign(&mut self, amount: $amount) {
                self.0 += amount.0;
            }
        }
        impl Sub<$amount> for $position {
            type Output = Self;
            fn sub(self, amount: $amount) -> Self {
                Self(self.0 - amount.0)
            }
        }
        impl Sub for $position {
            type Output = $amount;
            fn sub(self, earlier: Self) -> $amount {
                $amount(self.0 - earlier.0)
            }
        }
    };
}

quantity! {
    /// A length of time in nanoseconds; up to 584 years.
    Nanos
}
amount!(Nanos);

quantity! {
    /// An instant: nanoseconds since an origin that the owner of the clock chooses.
    Time
}
position!(Time, Nanos);

quantity! {
    /// The address of a 512-byte sector on one disk, counted from its start.
    Sector
}
position!(Sector, SectorCount);

quantity! {
    /// A number of 512-byte sectors.
    SectorCount
}
amount!(SectorCount);

quantity! {
    /// A number of bytes.
    Bytes
}
amount!(Bytes);

quantity! {
    /// A data rate in bytes per second.
    BytesPerSecond
}
amount!(BytesPerSecond);

impl Nanos {
    /// `us` microseconds. Panics in a constant context, and saturates elsewhere, past 584 years.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds, saturating.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds, saturating.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// In milliseconds, for people.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds, for people.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl SectorCount {
    /// The bytes in this many sectors.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * SECTOR_BYTES)
    }
}

impl Bytes {
    /// The sectors that exactly this many bytes fill, unless it is not a multiple of 512.
    #[must_use]
    pub const fn sectors(self) -> Option<SectorCount> {
        if self.0.is_multiple_of(SECTOR_BYTES) {
            Some(SectorCount(self.0 / SECTOR_BYTES))
        } else {
            None
        }
    }

    /// `kib` times 1,024 bytes.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// `mib` times 1,048,576 bytes.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }
}

impl BytesPerSecond {
    /// The time in which this rate moves `bytes`, rounded down, so that a period derived from it is
    /// never longer than the stream can bear. `None` for a rate of zero or more than 584 years.
    #[must_use]
    pub fn period_of(self, bytes: Bytes) -> Option<Nanos> {
        if self.0 == 0 {
            return None;
        }
        let nanos = u128::from(bytes.0) * 1_000_000_000 / u128::from(self.0);
        u64::try_from(nanos).ok().map(Nanos)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

impl fmt::Display for Nanos {
    /// In the unit a person would choose, to three decimals at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, per) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => ("us", 1e3),
            1_000_000..1_000_000_000 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        write!(f, "{:.3} {unit}", self.0 as f64 / per)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}ns", self.0)
    }
}

impl fmt::Debug for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

impl fmt::Debug for SectorCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sectors", self.0)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for Bytes {
    /// In the binary unit a person would choose: exact where it is a whole number of them, three
    /// digits at least where it is not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let bytes = self.0;
        if bytes < 1024 {
            return f.pad(&format!("{bytes} B"));
        }
        let power = bytes.ilog2() / 10;
        let unit = UNITS[power as usize - 1];
        let value = bytes as f64 / (1u64 << (10 * power)) as f64;
        let text = if bytes.is_multiple_of(1 << (10 * power)) {
            format!("{value:.0} {unit}")
        } else {
            format!("{value:.*} {unit}", if value < 100.0 { 2 } else { 1 })
        };
        f.pad(&text)
    }
}

impl fmt::Debug for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_period_is_never_longer_than_the_stream_can_bear() {
        let rate = BytesPerSecond(3);
        assert_eq!(rate.period_of(Bytes(10)), Some(Nanos(3_333_333_333)));
        assert_eq!(BytesPerSecond(0).period_of(Bytes(1)), None);
        assert_eq!(BytesPerSecond(1).period_of(Bytes(u64::MAX)), None);
    }

    #[test]
    fn only_whole_sectors_are_sectors() {
        assert_eq!(Bytes(1024).sectors(), Some(SectorCount(2)));
        assert_eq!(Bytes(1025).sectors(), None);
    }

    #[test]
    fn sizes_print_in_a_unit_a_person_would_choose() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes::from_mib(64).to_string(), "64 MiB");
        assert_eq!(Bytes(100_000).to_string(), "97.66 KiB");
        assert_eq!(Bytes::from_mib(1500).to_string(), "1.46 GiB");
        assert_eq!(Bytes(1 << 62).to_string(), "4 EiB");
        assert_eq!(format!("{:>8}", Bytes::from_kib(4)), "   4 KiB");
    }

    #[test]
    fn lengths_of_time_print_in_a_unit_a_person_would_choose() {
        assert_eq!(Nanos(999).to_string(), "999 ns");
        assert_eq!(Nanos::from_micros(1500).to_string(), "1.500 ms");
        assert_eq!(Nanos::from_secs(2).to_string(), "2.000 s");
    }
}
