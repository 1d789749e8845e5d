//! Random numbers with the distributions that workloads need.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;
use sched::units::Nanos;

/// A source of random numbers with the distributions that workloads need.
pub(crate) struct Dice(pub(crate) Xoshiro256PlusPlus);

impl Dice {
    /// Uniform in 0 .. `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponentially distributed with the mean `mean`, at least a nanosecond.
    pub(crate) fn exponential(&mut self, mean: Nanos) -> Nanos {
        // `libm`, not the platform's: same bits anywhere.
        let fraction = self.fraction();
        Nanos((-libm::log(fraction) * mean.get() as f64) as u64).max(Nanos(1))
    }

    /// Geometrically distributed with the mean `mean`, at least 1.
    pub(crate) fn geometric(&mut self, mean: u64) -> u64 {
        let mut length = 1;
        while self.below(mean.max(1)) != 0 {
            length += 1;
        }
        length
    }

    /// Normally distributed with the mean 0 and the deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        // Box and Muller's, of which one of two is used: what a number is does not depend on who asked before.
        let radius = libm::sqrt(-2.0 * libm::log(self.fraction()));
        radius * libm::cos(std::f64::consts::TAU * self.fraction())
    }

    /// In (0, 1], of 53 random bits.
    fn fraction(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn normal_numbers_have_their_moments() {
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(7));
        let n = 200_000;
        let numbers: Vec<f64> = (0..n).map(|_| dice.normal()).collect();
        let mean = |power: i32| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / f64::from(n);
        for (power, wanted) in [(1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)] {
            assert!(
                (mean(power) - wanted).abs() < 0.1,
                "moment {power}: {}",
                mean(power)
            );
        }
    }
}
