//! Results of a run.

use hdrhistogram::Histogram;
use sched::disk::{Completed, DiskReport, SubmitError};
use sched::request::{Class, Urgency};
use sched::units::{Nanos, Time};

use super::account::DiskAccount;

/// The longest latency that is told apart, an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const LATENCY_DIGITS: u8 = 3;

/// Results of a stream.
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
    /// Number of values.
    pub count: u64,
    /// The mean, in milliseconds.
    pub mean_ms: f64,
    /// The median.
    pub p50: Nanos,
    /// The 90th percentile.
    pub p90: Nanos,
    /// The 95th percentile.
    pub p95: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 999th permille.
    pub p999: Nanos,
    /// The worst.
    pub max: Nanos,
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Per stream.
    pub streams: Vec<StreamOutcome>,
    /// From submission to completion of best-effort requests.
    pub best_effort: LatencySummary,
    /// Latency of synchronous requests.
    pub synchronous: LatencySummary,
    /// Latency of asynchronous requests.
    pub asynchronous: LatencySummary,
    /// Best-effort requests that were never served: no slack was ever found for them.
    pub best_effort_unserved: u64,
    /// Requests that the scheduler did not take, and why the last one.
    pub refused: u64,
    /// Why the last of these was refused.
    pub refused_last: Option<SubmitError>,
    /// Account of the disk.
    pub disk: DiskAccount,
    /// When the last request was complete.
    pub ended: Time,
    /// The scheduler's report.
    pub report: DiskReport,
}

impl StreamOutcome {
    /// Takes another part of the stream in.
    pub(crate) fn add(&mut self, other: &Self) {
        self.completed += other.completed;
        self.missed += other.missed;
        self.lateness_max = self.lateness_max.max(other.lateness_max);
    }

    /// A block is complete, so late.
    pub(crate) fn served(&mut self, lateness: Nanos) {
        self.completed += 1;
        self.missed += u64::from(!lateness.is_zero());
        self.lateness_max = self.lateness_max.max(lateness);
    }
}

impl Outcome {
    /// Deadlines missed by all streams together.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.streams.iter().map(|stream| stream.missed).sum()
    }
}

/// Latencies as they come.
#[derive(Clone)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    sum: u128,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS)
            .expect("the bounds are constants that the library takes");
        Self { histogram, sum: 0 }
    }

    pub(crate) fn record(&mut self, latency: Nanos) {
        self.histogram.saturating_record(latency.get());
        self.sum += u128::from(latency.get());
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms have the same bounds");
        self.sum += other.sum;
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        let count = self.histogram.len();
        let quantile = |q| Nanos(self.histogram.value_at_quantile(q));
        LatencySummary {
            count,
            mean_ms: self.sum as f64 / count.max(1) as f64 / 1e6,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: Nanos(self.histogram.max()),
        }
    }
}

/// Results as clients see them, request by request.
pub(super) struct Tally {
    streams: Vec<StreamOutcome>,
    best_effort: Latencies,
    synchronous: Latencies,
    asynchronous: Latencies,
    best_effort_taken: u64,
    refused: u64,
    refused_last: Option<SubmitError>,
}

impl Tally {
    pub(super) fn new(streams: usize) -> Self {
        Self {
            streams: vec![StreamOutcome::default(); streams],
            best_effort: Latencies::new(),
            synchronous: Latencies::new(),
            asynchronous: Latencies::new(),
            best_effort_taken: 0,
            refused: 0,
            refused_last: None,
        }
    }

    pub(super) fn taken(&mut self, class: Class) {
        self.best_effort_taken += u64::from(class.of_stream().is_none());
    }

    pub(super) fn refused(&mut self, error: SubmitError) {
        self.refused += 1;
        self.refused_last = Some(error);
    }

    pub(super) fn completed(&mut self, now: Time, completed: &Completed) {
        if !completed.finished {
            return;
        }
        match completed.class {
            Class::Stream(task) | Class::Swept(task, _) => {
                self.streams[task.0 as usize].served(completed.lateness)
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

    pub(super) fn outcome(self, ended: Time, disk: DiskAccount, report: DiskReport) -> Outcome {
        let best_effort = self.best_effort.summary();
        Outcome {
            streams: self.streams,
            best_effort,
            synchronous: self.synchronous.summary(),
            asynchronous: self.asynchronous.summary(),
            best_effort_unserved: self.best_effort_taken - best_effort.count,
            refused: self.refused,
            refused_last: self.refused_last,
            disk,
            ended,
            report,
        }
    }
}
