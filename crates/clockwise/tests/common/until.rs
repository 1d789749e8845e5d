//! Waiting for what no event tells.

use std::time::{Duration, Instant};

/// How long anything may take, on a machine that is busy building.
const WITHIN: Duration = Duration::from_secs(60);

/// Waits until `condition` holds; fails with `what` is waited for when that takes too long.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !condition() {
        assert!(Instant::now() < end, "not within {WITHIN:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
