//! Lending the dispatcher's state to submitters while the disk's thread sleeps.
//!
//! On a disk that completes at once, a transfer is a copy of some kilobytes. Waking the disk's thread for
//! it, and being woken by it, costs more than the copy, and the data moves between two processors' caches.
//! So the thread of such a disk leaves its [`Runner`] in a shared cell when it goes to sleep. A submitter
//! that finds the runner there runs it. The runner has one owner at a time, and the same state decides
//! every request; only the thread changes.
//!
//! # No deadline is at risk
//!
//! * The thread lends the runner only when nothing is queued, no timer is set, and no task but the floor
//!   has joined. Tasks join through the control queue, which only the disk's thread serves, and from then
//!   on it lends no more. So a borrower that loses the processor delays best effort, never a deadline.
//! * No thread waits for a lock: the runner is taken and returned by one atomic exchange. If the disk's
//!   thread finds the cell empty, it sleeps until the borrower rings after returning the runner.
//! * A borrower serves a bounded number of bytes and leaves the rest to the disk's thread.
//!
//! # No request is lost
//!
//! The doorbell is armed while the runner is in the cell. A borrower disarms it, arms it again on return,
//! and then looks for work once more. So a submitter finds the runner, an armed doorbell, or a borrower
//! that is going to look.

use super::Shared;
use super::run::Runner;
use crate::panics;

/// Number of times that a borrower looks for requests submitted meanwhile.
const LOOKS_MAX: usize = 4;

/// Lends the runner and sleeps until the disk's thread, which calls this, needs it again. `None` if a
/// borrower has panicked, which ends the dispatcher.
pub(super) fn lend(shared: &Shared, runner: Box<Runner>) -> Option<Box<Runner>> {
    leave(shared, runner);
    let mut is_needed = shared.has_work();
    loop {
        if !is_needed {
            shared.bell.event().wait(None);
        }
        if let Some(runner) = shared.idle.take() {
            shared.bell.disarm();
            return Some(runner);
        }
        if shared.is_closed() {
            return None;
        }
        // A borrower has the runner, and rings if work is left for this thread.
        is_needed = false;
    }
}

/// Borrows the runner, if it is available, and serves the submitted requests. Returns true if it did.
pub(super) fn help(shared: &Shared) -> bool {
    let mut looks = 0;
    while let Some(mut runner) = shared.idle.take() {
        shared.bell.disarm();
        looks += 1;
        let Ok(is_busy) = panics::shared(|| runner.help(shared)) else {
            // The panic has been reported. As after a panic of the thread, the dispatcher ends and answers all.
            shared.close();
            drop(runner);
            shared.bell.event().signal();
            return true;
        };
        leave(shared, runner);
        if is_busy || !shared.control.is_empty() || (looks == LOOKS_MAX && shared.has_work()) {
            shared.bell.ring();
            return true;
        }
        if shared.inbox.is_empty() {
            return true;
        }
    }
    looks > 0
}

fn leave(shared: &Shared, runner: Box<Runner>) {
    shared.idle.store(Some(runner));
    shared.bell.arm();
}

#[cfg(test)]
mod tests;
