//! Account of a disk in virtual time: the use of its time, and its changes between streams and best effort.

use sched::disk::Completed;
use sched::request::{Dispatch, Served};
use sched::units::{Nanos, Time};

use drives::plant::Breakdown;

/// Use of a disk's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Use {
    /// Serving streams.
    pub streams: Nanos,
    /// Serving best effort.
    pub best_effort: Nanos,
    /// Nothing.
    pub idle: Nanos,
}

/// Runs of requests of one kind without one of the other in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bursts {
    /// Number of runs.
    pub count: u64,
    /// Requests in all of them.
    pub requests: u64,
    /// The squares of their lengths, summed.
    pub squares: u128,
    /// The longest, in requests.
    pub length_max: u64,
    current: u64,
}

impl Bursts {
    fn end(&mut self) {
        let length = std::mem::take(&mut self.current);
        if length > 0 {
            self.count += 1;
            self.requests += length;
            self.squares += u128::from(length) * u128::from(length);
            self.length_max = self.length_max.max(length);
        }
    }

    /// The mean number of requests in one.
    #[must_use]
    pub fn length_mean(&self) -> f64 {
        self.requests as f64 / self.count.max(1) as f64
    }

    /// The standard deviation of that number.
    #[must_use]
    pub fn length_deviation(&self) -> f64 {
        let mean = self.length_mean();
        let squares = self.squares as f64 / self.count.max(1) as f64;
        (squares - mean * mean).max(0.0).sqrt()
    }

    /// Takes those of another disk in.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.requests += other.requests;
        self.squares += other.squares;
        self.length_max = self.length_max.max(other.length_max);
    }
}

/// Account of a disk.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DiskAccount {
    /// Use of its time.
    pub used: Use,
    /// Mechanical parts of service time: of streams and of best effort.
    pub split: [Breakdown; 2],
    /// The squares of the service times of blocks, in seconds squared, summed.
    pub stream_squares_s2: f64,
    /// Pieces that took longer than predicted.
    pub overruns: u64,
    /// The worst of these.
    pub overrun_max: Nanos,
    /// Changes between streams and best effort.
    pub switches: u64,
    /// Runs of stream requests.
    pub stream_bursts: Bursts,
    /// Runs of best-effort requests.
    pub best_effort_bursts: Bursts,
    /// Covers every dispatch and completion: equal for equal runs.
    pub hash: u64,
}

/// The account while it is kept.
#[derive(Default)]
pub(super) struct Account {
    so_far: DiskAccount,
    last_was_stream: Option<bool>,
    hash: Hash,
}

impl Account {
    pub(super) fn dispatched(&mut self, now: Time, dispatch: &Dispatch) {
        let served = match dispatch.served {
            Served::RealTime => 0,
            Served::Early => 1,
            Served::Slack => 2,
            Served::Container => 3,
        };
        let Dispatch {
            id, start, count, ..
        } = *dispatch;
        for value in [now.get(), id.0, start.get(), count.get() << 2 | served] {
            self.hash.add(value);
        }
    }

    pub(super) fn completed(
        &mut self,
        now: Time,
        dispatch: &Dispatch,
        breakdown: &Breakdown,
        completed: &Completed,
    ) {
        self.hash.add(now.get());
        self.hash.add(dispatch.predicted.get());
        let is_stream = completed.class.of_stream().is_some();
        let so_far = &mut self.so_far;
        so_far.overruns += u64::from(!completed.overrun.is_zero());
        so_far.overrun_max = so_far.overrun_max.max(completed.overrun);
        let (used, split) = if is_stream {
            (&mut so_far.used.streams, &mut so_far.split[0])
        } else {
            (&mut so_far.used.best_effort, &mut so_far.split[1])
        };
        *used += completed.actual;
        if is_stream {
            let seconds = completed.actual.as_secs_f64();
            so_far.stream_squares_s2 += seconds * seconds;
        }
        *split += *breakdown;
        self.switch_to(is_stream);
    }

    fn switch_to(&mut self, is_stream: bool) {
        let DiskAccount {
            switches,
            stream_bursts,
            best_effort_bursts,
            ..
        } = &mut self.so_far;
        let (this, other) = if is_stream {
            (stream_bursts, best_effort_bursts)
        } else {
            (best_effort_bursts, stream_bursts)
        };
        if self.last_was_stream.replace(is_stream) == Some(!is_stream) {
            *switches += 1;
            other.end();
        }
        this.current += 1;
    }

    pub(super) fn ended(mut self, ended: Time) -> DiskAccount {
        self.so_far.stream_bursts.end();
        self.so_far.best_effort_bursts.end();
        let Use {
            streams,
            best_effort,
            ..
        } = self.so_far.used;
        self.so_far.used.idle = (ended - Time::ZERO).saturating_sub(streams + best_effort);
        self.so_far.hash = self.hash.0;
        self.so_far
    }
}

/// A hash by Fowler, Noll and Vo's recipe on words instead of bytes, the high half folded back in: any change of
/// a run changes it, and it is the same on every machine.
pub(crate) struct Hash(pub(crate) u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hash {
    pub(crate) fn add(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
