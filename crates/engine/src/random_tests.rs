//! Random tests say the seed they run from, and run from `CLOCKWISE_SEED` if that is set.

use proptest::test_runner::{Config, RngSeed};

/// The configuration of a random test of `cases` cases.
#[allow(clippy::print_stdout)]
pub(crate) fn cases(cases: u32) -> Config {
    let given = std::env::var("CLOCKWISE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| crate::clock::now().0);
    println!("CLOCKWISE_SEED={seed}");
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}
