//! Random tests of cases that are shrunk: they say the seed they run from, and run from `CLOCKWISE_SEED` if
//! that is set.

use proptest::test_runner::{Config, RngSeed};

use crate::seed;

/// The configuration of a random test of `cases` cases.
pub fn cases(cases: u32) -> Config {
    let thread = std::thread::current();
    let seed = seed(thread.name().unwrap_or("random test"), None);
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}
