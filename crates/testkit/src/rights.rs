//! Rights that a test's program does without.

use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

/// Has this thread, and those that it starts, without `right` whatever is not within `limit`. The limit is
/// the whole process's.
pub fn give_up(right: CapabilitySet, resource: Resource, limit: u64) {
    let limit = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    rustix::process::setrlimit(resource, limit).unwrap();
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(right);
    rustix::thread::set_capabilities(None, sets).unwrap();
}
