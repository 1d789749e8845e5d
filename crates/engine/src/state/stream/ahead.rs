//! Reading ahead before a stream's blocks become longer.
//!
//! While a reservation is changed no block is submitted, and the first longer block is due one new period
//! after the change. Until then the reader lives on buffers that it has already read. So before the change
//! it reads ahead to a position where a longer block begins, and does not submit that block in parts:
//! each part would cost the disks a whole period. If it cannot reach such a position, its buffers have to
//! last for one more period. If all its buffers are full and stay full, because playing them takes longer
//! than the reservation provides for, the change does not wait for that position.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sched::units::BytesPerSecond;

/// The amount to read ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadAheadTarget {
    /// Read up to a multiple of this many bytes of the range: the longer block.
    pub(crate) block: u64,
    /// The least number of buffers to fill.
    pub(crate) buffers: usize,
    /// Bytes in each buffer.
    pub(crate) buffer: u64,
    /// Number of buffers that are used during a longer block's period.
    pub(crate) period: usize,
    /// The rate reserved before the change.
    pub(crate) rate: BytesPerSecond,
}

impl ReadAheadTarget {
    /// Number of buffers missing when `read` are read and the next one begins at `next`.
    fn missing(&self, read: usize, next: u64) -> usize {
        let into = next % self.block;
        let rest = (self.block - into).div_ceil(self.buffer.max(1));
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        // The rest of a longer block takes as long as a whole one, and the next block a period more.
        let more = if into == 0 {
            0
        } else {
            self.period.saturating_sub(rest)
        };
        self.buffers.saturating_add(more).saturating_sub(read)
    }

    /// The largest value of `missing`, over all positions.
    fn missing_max(&self) -> usize {
        let more = self.period.saturating_sub(1);
        self.buffers.saturating_add(more)
    }
}

/// Coordinates a stream's readers and the thread that waits for them before a change.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// There is a target. Read without the lock.
    is_requested: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    readers: usize,
    /// The target, and its number.
    target: Option<(u64, ReadAheadTarget)>,
    targets: u64,
    /// Number of missing buffers, as last reported.
    missing: usize,
    /// No more will be read.
    is_over: bool,
    /// The time from which all buffers have been full.
    full_since: Option<Instant>,
}

impl ReadAhead {
    /// True if there is a reader to wait for.
    pub(crate) fn has_reader(&self) -> bool {
        self.state.lock().readers > 0
    }

    /// Sets a target for the readers, until the returned value is dropped. They do not read past it.
    pub(crate) fn request(&self, target: ReadAheadTarget) -> ReadAheadRequest<'_> {
        let mut state = self.state.lock();
        state.targets += 1;
        state.target = Some((state.targets, target));
        (state.missing, state.is_over, state.full_since) = (target.missing_max(), false, None);
        self.is_requested.store(true, Ordering::Release);
        ReadAheadRequest(self)
    }

    /// The rate reserved before the change, while a target is set.
    pub(crate) fn rate_before(&self) -> Option<BytesPerSecond> {
        self.target().map(|(_, target)| target.rate)
    }

    fn target(&self) -> Option<(u64, ReadAheadTarget)> {
        let is_requested = self.is_requested.load(Ordering::Acquire);
        is_requested.then(|| self.state.lock().target).flatten()
    }
}

/// Keeps a target set.
pub(crate) struct ReadAheadRequest<'a>(&'a ReadAhead);

impl ReadAheadRequest<'_> {
    /// Waits until the readers have finished or all buffers have been full for `full_for`, at most until
    /// `until`. Returns the number of missing buffers.
    pub(crate) fn wait(&self, until: Instant, full_for: Duration) -> usize {
        let mut state = self.0.state.lock();
        while state.readers > 0 && !state.is_over {
            let full = state.full_since.map(|since| since + full_for);
            let next = full.map_or(until, |full| full.min(until));
            if next <= Instant::now() {
                break;
            }
            self.0.changed.wait_until(&mut state, next);
        }
        // Without a reader nobody can be late.
        if state.readers > 0 { state.missing } else { 0 }
    }
}

impl Drop for ReadAheadRequest<'_> {
    fn drop(&mut self) {
        self.0.is_requested.store(false, Ordering::Release);
        self.0.state.lock().target = None;
    }
}

/// A reader of a stream.
pub(crate) struct ReadAheadReader<'a> {
    ahead: &'a ReadAhead,
    /// A change waits for this reader.
    is_waited_for: Cell<bool>,
    /// The target that this reader knows of.
    known_target: Cell<Option<(u64, ReadAheadTarget)>>,
    /// Enough is read for the target: the next block is submitted after the change.
    holds: Cell<bool>,
}

/// A reader's progress.
#[derive(Clone, Copy)]
pub(crate) struct ReadProgress {
    /// Buffers read and not used.
    pub(crate) read: usize,
    /// Buffers in flight.
    pub(crate) in_flight: usize,
    /// The most buffers that can be read; one may be in use.
    pub(crate) most: usize,
    /// Position in the range of the next buffer.
    pub(crate) next: u64,
}

impl<'a> ReadAheadReader<'a> {
    /// Registers a reader, until it [settles](Self::settle).
    pub(crate) fn new(ahead: &'a ReadAhead) -> Self {
        ahead.state.lock().readers += 1;
        Self {
            ahead,
            is_waited_for: Cell::new(true),
            known_target: Cell::new(None),
            holds: Cell::new(false),
        }
    }

    /// Changes need not wait for this reader any more.
    pub(crate) fn settle(&self) {
        if self.is_waited_for.replace(false) {
            self.ahead.state.lock().readers -= 1;
            self.ahead.changed.notify_all();
        }
    }

    /// True if a target is set.
    pub(crate) fn is_requested(&self) -> bool {
        self.ahead.target().is_some()
    }

    /// True if nothing is to be submitted now.
    pub(crate) fn holds(&self) -> bool {
        self.holds.get()
    }

    /// Looks for a new target. To be called before the buffers for it are looked at.
    pub(crate) fn load_target(&self) {
        let target = self.ahead.target();
        if self.known_target.replace(target) != target {
            self.holds.set(false);
        }
    }

    /// Checks if enough is read ahead. To be called before a block is submitted.
    pub(crate) fn check_target(&self, progress: impl FnOnce() -> ReadProgress) {
        let Some((_, target)) = self.known_target.get().filter(|_| !self.holds.get()) else {
            return;
        };
        let of = progress();
        let is_enough = of.read + of.in_flight >= target.buffers.min(of.most);
        self.holds
            .set(is_enough && of.next.is_multiple_of(target.block));
    }

    /// Reports progress to the waiting thread; to be called before sleeping. `is_all`: no more will be
    /// submitted. `is_full`: all buffers are used.
    pub(crate) fn report(
        &self,
        is_all: bool,
        is_full: bool,
        progress: impl FnOnce() -> ReadProgress,
    ) {
        let Some((number, target)) = self.known_target.get() else {
            return;
        };
        let of = progress();
        let is_there = is_full && of.next.is_multiple_of(target.block);
        let is_over = of.in_flight == 0 && (self.holds.get() || is_all || is_there);
        // When the reader stopped at the target it had filled all buffers that it could.
        let most = match self.holds.get() {
            true => of.most,
            false => of.read.min(of.most),
        };
        let mut state = self.ahead.state.lock();
        let is_it = state
            .target
            .is_some_and(|(requested, _)| requested == number);
        if is_it && !state.is_over {
            state.missing = target.missing(most, of.next);
            state.is_over = is_over;
            self.holds.set(self.holds.get() || is_over);
            let since = state.full_since.or_else(|| Some(Instant::now()));
            state.full_since = since.filter(|_| is_full && of.in_flight == 0);
            self.ahead.changed.notify_all();
        }
    }
}
