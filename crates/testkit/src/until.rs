//! Waiting for what nothing tells of: with an end, so that what never comes fails the test.

use std::time::{Duration, Instant};

/// Much longer than anything takes that comes at all, on a host that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// So often it is looked for what is awaited.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Looks again and again until there is something to see; `None` if there never is.
pub fn seen<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = look();
        if seen.is_some() || Instant::now() >= end {
            return seen;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Looks again and again until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let seen = seen(|| is_so().then_some(()));
    assert!(seen.is_some(), "not within {PATIENCE:?}: {what}");
}
