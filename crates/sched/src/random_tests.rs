//! Random tests say the seed they run from, and run from `CLOCKWISE_SEED` if that is set: in this crate
//! and in others.

use proptest::test_runner::{Config, RngSeed};

use crate::seed::seed;

/// The configuration of a random test of `cases` cases.
pub(crate) fn cases(cases: u32) -> Config {
    let thread = std::thread::current();
    let seed = seed(thread.name().unwrap_or("random test"), None);
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}
