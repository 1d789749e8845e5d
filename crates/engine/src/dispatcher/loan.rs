//! The dispatcher, lent to those who submit while its thread sleeps.
//!
//! A disk that completes at once is a copy of some kilobytes; waking the thread that would do the copy,
//! and being woken by it, costs more than the copy, and then two processors have the data in their
//! caches by turns. So the thread of such a disk leaves its [`Runner`] behind when it goes to sleep, and
//! a submitter that finds it runs it: one owner at a time still decides every request, only the thread
//! changes.
//!
//! # Why this harms no promise
//!
//! * The thread lends only when nothing is queued, no timer is set and no task but the floor has joined:
//!   nobody is promised anything. A task joins through the control queue, which only the thread
//!   serves, and from then on it lends no more. So a borrower that loses the processor delays best
//!   effort, never a deadline.
//! * Nobody waits for a lock: the runner is taken and left in one exchange. The thread that wants it and
//!   finds it taken sleeps until the borrower, on leaving, rings.
//! * A borrower serves a bounded number of bytes, and leaves the rest to the thread.
//!
//! # No request is forgotten
//!
//! The doorbell is armed while nobody has the runner, and disarmed by whoever takes it, who arms it
//! again on leaving and then looks once more for work. Whoever submits meanwhile either finds the
//! runner, or an armed bell, or somebody who is going to look.

use super::Shared;
use super::run::Runner;
use crate::panics;

/// How often a borrower looks again for what others have submitted meanwhile.
const LOOKS_MAX: usize = 4;

/// Leaves the runner behind and sleeps until it is needed on this thread, which is the disk's. `None`
/// if a borrower has panicked and with it the dispatcher has ended.
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
        // Somebody has it, and rings if anything is left for this thread.
        is_needed = false;
    }
}

/// Serves what has been submitted, if nobody has the runner. Whether it did.
pub(super) fn help(shared: &Shared) -> bool {
    let mut looks = 0;
    while let Some(mut runner) = shared.idle.take() {
        shared.bell.disarm();
        looks += 1;
        let Ok(is_busy) = panics::shared(|| runner.help(shared)) else {
            // The panic has been reported. As when the thread panics: the end, with answers for all.
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
