//! Reading ahead before blocks become longer.
//!
//! While what a stream has reserved is changed nothing is asked for, and the first longer block is due a period of the new
//! ones later: until then whoever reads goes on with what it has read. So it reads as far ahead before, up to where a
//! longer block begins, and keeps from asking for that one until it is asked for as what it is. Asked for in parts it would
//! cost the disks a period for each of them: where it cannot get there, what it has is to last for one more. Where all of
//! its buffers are full and stay so, as what is played lasts longer than what is reserved, nobody waits for that place.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sched::units::BytesPerSecond;

/// How far is to be read ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// Up to a multiple of so many bytes of the range.
    pub(crate) block: u64,
    /// So many buffers at least.
    pub(crate) buffers: usize,
    /// With so many bytes in each.
    pub(crate) buffer: u64,
    /// For how many buffers a longer block's period lasts.
    pub(crate) period: usize,
    /// What was reserved before.
    pub(crate) rate: BytesPerSecond,
}

impl Target {
    /// How many buffers are missing where so many are read, and what is next begins there.
    fn missing(&self, read: usize, next: u64) -> usize {
        let into = next % self.block;
        let rest = (self.block - into).div_ceil(self.buffer.max(1));
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        // The rest of a longer block comes when all of it would, and the next one a period behind that.
        let more = if into == 0 {
            0
        } else {
            self.period.saturating_sub(rest)
        };
        self.buffers.saturating_add(more).saturating_sub(read)
    }

    /// How many there may be, wherever that is.
    fn missing_max(&self) -> usize {
        let more = self.period.saturating_sub(1);
        self.buffers.saturating_add(more)
    }
}

/// What of a stream is read ahead, between whoever reads and whoever waits for that.
#[derive(Default)]
pub(crate) struct Ahead {
    /// There is a target: looked at without the lock.
    is_wanted: AtomicBool,
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Default)]
struct State {
    readers: usize,
    /// With how many there were before.
    target: Option<(u64, Target)>,
    targets: u64,
    /// How many buffers are missing, as far as has been told.
    missing: usize,
    /// No more will be read.
    is_over: bool,
    /// Since when all buffers are full.
    full_since: Option<Instant>,
}

impl Ahead {
    /// Whether somebody reads who is waited for.
    pub(crate) fn is_read(&self) -> bool {
        self.state.lock().readers > 0
    }

    /// What whoever reads is to read, and not to go past, until what this returns is dropped.
    pub(crate) fn want(&self, target: Target) -> Wanted<'_> {
        let mut state = self.state.lock();
        state.targets += 1;
        state.target = Some((state.targets, target));
        (state.missing, state.is_over, state.full_since) = (target.missing_max(), false, None);
        self.is_wanted.store(true, Ordering::Release);
        Wanted(self)
    }

    /// What was reserved before something was to be read ahead, if that goes on.
    pub(crate) fn rate_before(&self) -> Option<BytesPerSecond> {
        self.target().map(|(_, target)| target.rate)
    }

    fn target(&self) -> Option<(u64, Target)> {
        let is_wanted = self.is_wanted.load(Ordering::Acquire);
        is_wanted.then(|| self.state.lock().target).flatten()
    }
}

/// Something is to be read ahead for as long as this is kept.
pub(crate) struct Wanted<'a>(&'a Ahead);

impl Wanted<'_> {
    /// Waits until all is read that will be, or all buffers are full for so long, but not longer than until then; how many
    /// buffers are missing.
    pub(crate) fn wait(&self, until: Instant, full_for: Duration) -> usize {
        let mut state = self.0.state.lock();
        while state.readers > 0 && !state.is_over {
            let full = state.full_since.map(|since| since + full_for);
            let next = full.map_or(until, |full| full.min(until));
            if next <= Instant::now() {
                break;
            }
            self.0.told.wait_until(&mut state, next);
        }
        // If nobody is left, nobody can be late.
        if state.readers > 0 { state.missing } else { 0 }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.is_wanted.store(false, Ordering::Release);
        self.0.state.lock().target = None;
    }
}

/// Whoever reads.
pub(crate) struct Reading<'a> {
    ahead: &'a Ahead,
    /// A change waits for what it reads ahead.
    is_waited_for: Cell<bool>,
    /// What it knows of, with the buffers that there are for that.
    noticed: Cell<Option<(u64, Target)>>,
    /// Enough is read for that: what follows is asked for when blocks have become longer.
    holds: Cell<bool>,
}

/// How far it is.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    /// How many buffers are read and not used.
    pub(crate) read: usize,
    /// How many are on their way.
    pub(crate) in_flight: usize,
    /// How many there can be, as one may be in use.
    pub(crate) most: usize,
    /// Where in the range what is next begins.
    pub(crate) next: u64,
}

impl<'a> Reading<'a> {
    /// Until it has [settled](Self::settle).
    pub(crate) fn new(ahead: &'a Ahead) -> Self {
        ahead.state.lock().readers += 1;
        Self {
            ahead,
            is_waited_for: Cell::new(true),
            noticed: Cell::new(None),
            holds: Cell::new(false),
        }
    }

    /// Nobody waits for it any more.
    pub(crate) fn settle(&self) {
        if self.is_waited_for.replace(false) {
            self.ahead.state.lock().readers -= 1;
            self.ahead.told.notify_all();
        }
    }

    /// Whether something is to be read ahead.
    pub(crate) fn is_wanted(&self) -> bool {
        self.ahead.target().is_some()
    }

    /// Whether nothing is to be asked for now.
    pub(crate) fn holds(&self) -> bool {
        self.holds.get()
    }

    /// Looks whether something is to be read ahead, before the buffers are looked at that it gets for that.
    pub(crate) fn notice(&self) {
        let target = self.ahead.target();
        if self.noticed.replace(target) != target {
            self.holds.set(false);
        }
    }

    /// Looks whether enough is read ahead, before something is asked for.
    pub(crate) fn look(&self, progress: impl FnOnce() -> Progress) {
        let Some((_, target)) = self.noticed.get().filter(|_| !self.holds.get()) else {
            return;
        };
        let of = progress();
        let is_enough = of.read + of.in_flight >= target.buffers.min(of.most);
        self.holds
            .set(is_enough && of.next.is_multiple_of(target.block));
    }

    /// Tells whoever waits how much is read, before sleeping; whether no more is asked for, and whether all buffers are used.
    pub(crate) fn tell(&self, is_all: bool, is_full: bool, progress: impl FnOnce() -> Progress) {
        let Some((number, target)) = self.noticed.get() else {
            return;
        };
        let of = progress();
        let is_there = is_full && of.next.is_multiple_of(target.block);
        let is_over = of.in_flight == 0 && (self.holds.get() || is_all || is_there);
        // When it held there was as much as there could be.
        let most = match self.holds.get() {
            true => of.most,
            false => of.read.min(of.most),
        };
        let mut state = self.ahead.state.lock();
        let is_it = state.target.is_some_and(|(wanted, _)| wanted == number);
        if is_it && !state.is_over {
            state.missing = target.missing(most, of.next);
            state.is_over = is_over;
            self.holds.set(self.holds.get() || is_over);
            let since = state.full_since.or_else(|| Some(Instant::now()));
            state.full_since = since.filter(|_| is_full && of.in_flight == 0);
            self.ahead.told.notify_all();
        }
    }
}
