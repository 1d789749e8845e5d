//! What came of a run.

use hdrhistogram::Histogram;
use sched::disk::{Completed, DiskReport, SubmitError};
use sched::request::{Class, Dispatch, Served, Urgency};
use sched::units::{Nanos, Time};

/// The longest latency that is told apart, an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const LATENCY_DIGITS: u8 = 3;

/// What came of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamOutcome {
    /// Blocks served.
    pub completed: u64,
    /// Blocks that were complete after their deadline.
    pub missed: u64,
    /// The worst of these.
    pub lateness_max: Nanos,
}

/// A distribution of latencies.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// The mean, in milliseconds.
    pub mean_ms: f64,
    /// The median.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The worst.
    pub max: Nanos,
}

/// What the disk's time went into.
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
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BurstSummary {
    /// How many runs.
    pub count: u64,
    /// The mean number of requests in one.
    pub length_mean: f64,
    /// The standard deviation of that number.
    pub length_deviation: f64,
    /// The largest number.
    pub length_max: u64,
}

/// What came of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Per stream.
    pub streams: Vec<StreamOutcome>,
    /// From submission to completion of best-effort requests.
    pub best_effort: LatencySummary,
    /// Of those that somebody waits for.
    pub synchronous: LatencySummary,
    /// Of the others.
    pub asynchronous: LatencySummary,
    /// Best-effort requests that were never served: no slack was ever found for them.
    pub best_effort_unserved: u64,
    /// Pieces that took longer than predicted.
    pub overruns: u64,
    /// The worst of these.
    pub overrun_max: Nanos,
    /// Requests that the scheduler did not take, and why the last one.
    pub refused: u64,
    /// Why the last of these was refused.
    pub refused_last: Option<SubmitError>,
    /// What the disk's time went into.
    pub used: Use,
    /// Changes between streams and best effort.
    pub switches: u64,
    /// Runs of stream requests.
    pub stream_bursts: BurstSummary,
    /// Runs of best-effort requests.
    pub best_effort_bursts: BurstSummary,
    /// When the last request was complete.
    pub ended: Time,
    /// What the scheduler says of itself.
    pub report: DiskReport,
    /// Covers every dispatch and completion: equal for equal runs.
    pub hash: u64,
}

impl Outcome {
    /// Deadlines missed by all streams together.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.streams.iter().map(|stream| stream.missed).sum()
    }
}

/// Moments of the lengths of bursts.
#[derive(Default)]
struct Bursts {
    current: u64,
    count: u64,
    sum: u64,
    squares: u128,
    max: u64,
}

impl Bursts {
    fn end(&mut self) {
        let length = std::mem::take(&mut self.current);
        if length > 0 {
            self.count += 1;
            self.sum += length;
            self.squares += u128::from(length) * u128::from(length);
            self.max = self.max.max(length);
        }
    }

    fn summary(&self) -> BurstSummary {
        if self.count == 0 {
            return BurstSummary::default();
        }
        let mean = self.sum as f64 / self.count as f64;
        let variance = (self.squares as f64 / self.count as f64 - mean * mean).max(0.0);
        BurstSummary {
            count: self.count,
            length_mean: mean,
            length_deviation: variance.sqrt(),
            length_max: self.max,
        }
    }
}

/// Latencies as they come.
struct Latencies {
    histogram: Histogram<u64>,
    sum: u128,
}

impl Latencies {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
            .expect("the bounds are constants that the library takes");
        Self { histogram, sum: 0 }
    }

    fn record(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.get());
        self.sum += u128::from(latency.get());
    }

    fn summary(&self) -> LatencySummary {
        let count = self.histogram.len();
        let quantile = |q| Nanos(self.histogram.value_at_quantile(q));
        LatencySummary {
            count,
            mean_ms: self.sum as f64 / count.max(1) as f64 / 1e6,
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: Nanos(self.histogram.max()),
        }
    }
}

/// Fowler-Noll-Vo, 64 bits: any change of a run changes it, and it is the same on every machine.
struct Hash(u64);

impl Hash {
    fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

/// Whether a piece was served for a stream, early or not.
fn is_stream(class: Class) -> bool {
    matches!(class, Class::Stream(_))
}

pub(super) struct Tally {
    streams: Vec<StreamOutcome>,
    best_effort: Latencies,
    synchronous: Latencies,
    asynchronous: Latencies,
    best_effort_taken: u64,
    overruns: u64,
    overrun_max: Nanos,
    refused: u64,
    refused_last: Option<SubmitError>,
    used: Use,
    switches: u64,
    bursts: [Bursts; 2],
    last_was_stream: Option<bool>,
    hash: Hash,
}

impl Tally {
    pub(super) fn new(streams: usize) -> Self {
        Self {
            streams: vec![StreamOutcome::default(); streams],
            best_effort: Latencies::new(),
            synchronous: Latencies::new(),
            asynchronous: Latencies::new(),
            best_effort_taken: 0,
            overruns: 0,
            overrun_max: Nanos::ZERO,
            refused: 0,
            refused_last: None,
            used: Use::default(),
            switches: 0,
            bursts: Default::default(),
            last_was_stream: None,
            hash: Hash(0xCBF2_9CE4_8422_2325),
        }
    }

    pub(super) fn taken(&mut self, class: Class) {
        self.best_effort_taken += u64::from(!is_stream(class));
    }

    pub(super) fn refused(&mut self, error: SubmitError) {
        self.refused += 1;
        self.refused_last = Some(error);
    }

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
        for value in [now.get(), id.0, start.get(), count.get(), served] {
            self.hash.add(value);
        }
    }

    pub(super) fn completed(&mut self, now: Time, dispatch: &Dispatch, completed: &Completed) {
        self.hash.add(now.get());
        self.hash.add(dispatch.predicted.get());
        self.overruns += u64::from(!completed.overrun.is_zero());
        self.overrun_max = self.overrun_max.max(completed.overrun);
        let stream = is_stream(completed.class);
        if stream {
            self.used.streams += completed.actual;
        } else {
            self.used.best_effort += completed.actual;
        }
        self.switch_to(stream);
        if !completed.finished {
            return;
        }
        match completed.class {
            Class::Stream(task) => {
                let outcome = &mut self.streams[task.0 as usize];
                outcome.completed += 1;
                outcome.missed += u64::from(!completed.lateness.is_zero());
                outcome.lateness_max = outcome.lateness_max.max(completed.lateness);
            }
            Class::Reserved(_, urgency) | Class::BestEffort(urgency) => {
                let latency = now - completed.submitted;
                self.best_effort.record(latency);
                match urgency {
                    Urgency::Sync => self.synchronous.record(latency),
                    Urgency::Async => self.asynchronous.record(latency),
                }
            }
        }
    }

    fn switch_to(&mut self, stream: bool) {
        if let Some(before) = self.last_was_stream.replace(stream)
            && before != stream
        {
            self.switches += 1;
            self.bursts[usize::from(before)].end();
        }
        self.bursts[usize::from(stream)].current += 1;
    }

    pub(super) fn outcome(mut self, ended: Time, report: DiskReport) -> Outcome {
        self.bursts.iter_mut().for_each(Bursts::end);
        let best_effort = self.best_effort.summary();
        let busy = self.used.streams + self.used.best_effort;
        let idle = (ended - Time::ZERO).saturating_sub(busy);
        Outcome {
            streams: self.streams,
            best_effort,
            synchronous: self.synchronous.summary(),
            asynchronous: self.asynchronous.summary(),
            best_effort_unserved: self.best_effort_taken - best_effort.count,
            overruns: self.overruns,
            overrun_max: self.overrun_max,
            refused: self.refused,
            refused_last: self.refused_last,
            used: Use { idle, ..self.used },
            switches: self.switches,
            stream_bursts: self.bursts[1].summary(),
            best_effort_bursts: self.bursts[0].summary(),
            ended,
            report,
            hash: self.hash.0,
        }
    }
}
