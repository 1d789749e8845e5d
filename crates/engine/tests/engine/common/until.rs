//! Waiting for what nothing tells of: with an end, so that what never comes fails the test.

#![allow(dead_code, reason = "each test uses its part of this")]

use std::time::{Duration, Instant};

/// Much longer than anything takes that comes at all, on a host that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until there is something to see; `None` if there never is.
pub(crate) fn seen<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if seen.is_some() || Instant::now() >= end {
            return seen;
        }
        std::thread::yield_now();
    }
}

/// Looks again and again until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let seen = seen(|| is_so().then_some(()));
    assert!(seen.is_some(), "not in {PATIENCE:?}: {what}");
}
