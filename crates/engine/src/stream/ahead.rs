//! Reading ahead before blocks become longer.
//!
//! While what a stream has reserved is changed nothing is asked for, and the first longer block is due a period of the new
//! ones later: until then whoever reads goes on with what it has read. So it reads as far ahead before, up to where a
//! longer block begins, and keeps from asking for that one until it is asked for as what it is. Asked for in parts it would
//! cost the disks a period for each of them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// How far is to be read ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// Up to a multiple of so many bytes of the range.
    pub(super) block: u64,
    /// So many buffers at least.
    pub(super) buffers: usize,
}

/// What of a stream is read ahead, between whoever reads and whoever waits for that.
#[derive(Default)]
pub(super) struct Ahead {
    /// There is a target: looked at without the lock.
    is_wanted: AtomicBool,
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Default)]
struct State {
    readers: usize,
    target: Option<Target>,
    /// How many buffers are read and not used.
    read: usize,
    /// No more will be.
    is_over: bool,
}

impl Ahead {
    /// Whether somebody reads.
    pub(super) fn is_read(&self) -> bool {
        self.state.lock().readers > 0
    }

    /// What whoever reads is to read, and not to go past, until what this returns is dropped.
    pub(super) fn want(&self, target: Target) -> Wanted<'_> {
        let mut state = self.state.lock();
        (state.target, state.read, state.is_over) = (Some(target), 0, false);
        self.is_wanted.store(true, Ordering::Release);
        Wanted(self)
    }

    fn target(&self) -> Option<Target> {
        let is_wanted = self.is_wanted.load(Ordering::Acquire);
        is_wanted.then(|| self.state.lock().target).flatten()
    }
}

/// Whoever reads.
pub(super) struct Reading<'a> {
    ahead: &'a Ahead,
    /// A change waits for what it reads ahead.
    is_waited_for: Cell<bool>,
    /// For that enough is read: what follows is asked for when blocks have become longer.
    holds_for: Cell<Option<Target>>,
}

/// How far it is.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    /// How many buffers are read and not used.
    pub(super) read: usize,
    /// How many are on their way.
    pub(super) in_flight: usize,
    /// How many there can be, as one may be in use.
    pub(super) most: usize,
    /// Where in the range that ends which was asked for last, if what is next follows it.
    pub(super) follows: Option<u64>,
}

impl<'a> Reading<'a> {
    /// Until it has [settled](Self::settle).
    pub(super) fn new(ahead: &'a Ahead) -> Self {
        ahead.state.lock().readers += 1;
        Self {
            ahead,
            is_waited_for: Cell::new(true),
            holds_for: Cell::new(None),
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn settle(&self) {
        if self.is_waited_for.replace(false) {
            self.ahead.state.lock().readers -= 1;
            self.ahead.told.notify_all();
        }
    }

    /// Whether nothing is to be asked for now.
    pub(super) fn holds(&self) -> bool {
        self.holds_for.get().is_some()
    }

    /// Looks whether enough is read ahead, before something is asked for.
    pub(super) fn look(&self, progress: impl FnOnce() -> Progress) {
        let target = self.ahead.target();
        let holds = target.filter(|target| {
            self.holds_for.get() == Some(*target) || {
                let of = progress();
                let is_enough = of.read + of.in_flight >= target.buffers.min(of.most);
                is_enough && target.begins(of.follows)
            }
        });
        self.holds_for.set(holds);
    }

    /// Tells whoever waits, before sleeping; `is_all`: nothing is to be asked for, though there may be buffers.
    pub(super) fn tell(
        &self,
        is_all: bool,
        has_buffers: bool,
        progress: impl FnOnce() -> Progress,
    ) {
        let Some(target) = self.ahead.target() else {
            return;
        };
        let of = progress();
        let holds = self.holds_for.get() == Some(target);
        // If it only lacks buffers, there is more when one has been used.
        let is_all = is_all && (has_buffers || target.begins(of.follows));
        let is_over = of.in_flight == 0 && (holds || is_all);
        if is_over {
            self.holds_for.set(Some(target));
        }
        let mut state = self.ahead.state.lock();
        (state.read, state.is_over) = (of.read, is_over);
        if is_over {
            self.ahead.told.notify_all();
        }
    }
}

impl Target {
    /// Whether a longer block begins behind what ends there, or with what does not follow anything.
    fn begins(&self, follows: Option<u64>) -> bool {
        follows.is_none_or(|to| to.is_multiple_of(self.block))
    }
}

/// Something is to be read ahead for as long as this is kept.
pub(super) struct Wanted<'a>(&'a Ahead);

impl Wanted<'_> {
    /// Waits until all is read that will be, but not longer than until then; how many buffers are missing.
    pub(super) fn wait(&self, until: Instant) -> usize {
        let mut state = self.0.state.lock();
        while state.readers > 0 && !state.is_over {
            if self.0.told.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        match state.target {
            Some(target) if state.readers > 0 => target.buffers.saturating_sub(state.read),
            // Nobody is left who could be late.
            _ => 0,
        }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.is_wanted.store(false, Ordering::Release);
        self.0.state.lock().target = None;
    }
}
