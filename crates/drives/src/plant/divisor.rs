//! Division by numbers that are known beforehand: an angle is a remainder, and there are a dozen in a request.

/// A number to divide by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Divisor {
    value: u64,
    /// 2^64 over the value, less than 1 too small.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    /// For 0.
    pub(super) const fn new(value: u64) -> Self {
        Self {
            value,
            reciprocal: u64::MAX / value,
        }
    }

    pub(super) const fn get(self) -> u64 {
        self.value
    }

    /// Quotient and remainder of `number`.
    pub(super) const fn div_rem(self, number: u64) -> (u64, u64) {
        // Less than 1 too small again, so at most 1 when rounded down.
        let quotient = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let remainder = number - quotient * self.value;
        if remainder < self.value {
            (quotient, remainder)
        } else {
            (quotient + 1, remainder - self.value)
        }
    }

    pub(super) const fn div(self, number: u64) -> u64 {
        self.div_rem(number).0
    }

    pub(super) const fn rem(self, number: u64) -> u64 {
        self.div_rem(number).1
    }

    /// The quotient rounded up.
    pub(super) const fn div_ceil(self, number: u64) -> u64 {
        let (quotient, remainder) = self.div_rem(number);
        quotient + (remainder > 0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    fn check(value: u64, number: u64) {
        let divisor = Divisor::new(value);
        let expected = (number / value, number % value);
        assert_eq!(divisor.div_rem(number), expected, "{number} by {value}");
        assert_eq!(divisor.div_ceil(number), number.div_ceil(value));
    }

    #[test]
    fn at_the_edges() {
        let edges = [1, 2, 3, 179, 8_333_333, 1 << 32, (1 << 63) - 1, u64::MAX];
        for value in edges {
            for near in [0, 1, value - 1, value, value.saturating_mul(7), u64::MAX] {
                for number in [near.saturating_sub(1), near, near.saturating_add(1)] {
                    check(value, number);
                }
            }
        }
    }

    #[test]
    fn anywhere() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..200_000 {
            let (value, number) = (random.next_u64(), random.next_u64());
            let value = (value >> (value % 64)).max(1);
            check(value, number >> (number % 64));
            check(value, number / value * value);
        }
    }
}
