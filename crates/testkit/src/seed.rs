//! The seed of a random test.

/// The seed of a random test: `CLOCKWISE_SEED` if that is set, otherwise `fixed`, or a new one each time.
/// Printed, so that what has failed can be repeated.
#[allow(clippy::print_stdout, reason = "a random test prints its seed")]
pub fn seed(what: &str, fixed: Option<u64>) -> u64 {
    let given = std::env::var("CLOCKWISE_SEED").ok();
    let given = given.map(|text| text.parse().expect("CLOCKWISE_SEED is a number"));
    let new = || std::time::UNIX_EPOCH.elapsed().expect("it is after 1970");
    let seed = given.or(fixed).unwrap_or_else(|| new().as_nanos() as u64);
    std::println!("{what}: CLOCKWISE_SEED={seed}");
    seed
}
