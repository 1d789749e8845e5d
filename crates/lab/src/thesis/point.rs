//! A point of a curve: one run, described so that it can be named, kept and found again.

use drives::plant::Breakdown;
use sched::disk::{OverPrediction, SchedulerConfig};
use sched::policy::Policy;
use sched::units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use super::{Layout, NotAdmitted, Thesis, Times};
use crate::cello::Period;
use crate::farm::{FarmOutcome, FarmRun, Load};
use crate::run::LatencySummary;

/// A part of CELLO's day.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The whole day.
    Day,
    /// The busy 1,300 seconds.
    Busy,
}

impl Source {
    /// The thesis's description of it.
    #[must_use]
    pub fn period(self) -> Period {
        match self {
            Self::Day => Period::day(),
            Self::Busy => Period::busy(),
        }
    }
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Point {
    /// Layout of the movies.
    pub layout: Layout,
    /// Times for admission.
    pub times: Times,
    /// Policy of the disks' schedulers.
    pub policy: Policy,
    /// The pairs that play.
    pub pairs: usize,
    /// Load beside the streams.
    pub source: Source,
    /// Decides everything that is random.
    pub seed: u64,
    /// Use of time that blocks do not need at their positions.
    pub over_prediction: OverPrediction,
}

/// Parts of service time, in seconds of all disks together.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Split {
    /// Commands.
    pub overhead_s: f64,
    /// Moving the arm.
    pub seek_s: f64,
    /// Waiting for the place on the track.
    pub rotation_s: f64,
    /// Moving data.
    pub transfer_s: f64,
}

impl Split {
    fn of(breakdowns: impl Iterator<Item = Breakdown>) -> Self {
        let mut sum = Breakdown::default();
        breakdowns.for_each(|breakdown| sum += breakdown);
        Self {
            overhead_s: sum.overhead.as_secs_f64(),
            seek_s: sum.seek.as_secs_f64(),
            rotation_s: sum.rotation.as_secs_f64(),
            transfer_s: sum.transfer.as_secs_f64(),
        }
    }
}

/// A distribution of latencies, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of values.
    pub count: u64,
    /// The mean.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 90th percentile.
    pub p90_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The 999th permille.
    pub p999_ms: f64,
    /// The worst.
    pub max_ms: f64,
}

impl From<LatencySummary> for Latency {
    fn from(summary: LatencySummary) -> Self {
        let ms = |nanos: Nanos| nanos.as_secs_f64() * 1e3;
        Self {
            count: summary.count,
            mean_ms: summary.mean_ms,
            p50_ms: ms(summary.p50),
            p90_ms: ms(summary.p90),
            p95_ms: ms(summary.p95),
            p99_ms: ms(summary.p99),
            p999_ms: ms(summary.p999),
            max_ms: ms(summary.max),
        }
    }
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Demand of the pairs together.
    pub megabytes_per_second: f64,
    /// Tasks on all disks together.
    pub tasks: usize,
    /// The share of time promised on the fullest disk.
    pub utilization: f64,
    /// Blocks of streams served.
    pub blocks: u64,
    /// Number of late ones.
    pub missed: u64,
    /// The worst lateness.
    pub lateness_max_ms: f64,
    /// All best effort.
    pub best_effort: Latency,
    /// By disk of the trace.
    pub sources: Vec<Latency>,
    /// Changes between streams and best effort.
    pub switches: u64,
    /// Requests in a run of best effort: the mean and the standard deviation.
    pub burst_mean: f64,
    /// See above.
    pub burst_deviation: f64,
    /// Parts of the streams' time.
    pub streams: Split,
    /// Parts of best effort's time.
    pub others: Split,
    /// The time in which disks did nothing.
    pub idle_s: f64,
    /// Mean wait of a request, at a random instant, for the block on the disk.
    pub residual_ms: f64,
    /// Requests that took longer than predicted.
    pub overruns: u64,
    /// The most requests held back because a queue was full.
    pub waiting_max: u64,
    /// Requests of best effort for which there never was enough slack.
    pub unserved: u64,
    /// Covers every decision and completion.
    pub hash: u64,
}

impl Point {
    /// The name of the file in which its result is kept.
    #[must_use]
    pub fn file_name(&self) -> String {
        let Self {
            layout,
            times,
            policy,
            pairs,
            source,
            seed,
            over_prediction,
        } = self;
        let way = match over_prediction {
            OverPrediction::Known => String::new(),
            OverPrediction::Unused | OverPrediction::Given => format!("-{over_prediction:?}"),
        };
        format!("{layout}-{times:?}-{policy}-{pairs}-{source:?}-{seed}{way}.json").to_lowercase()
    }

    /// Runs it on disks that are laid out already, beside a load that was made for them.
    ///
    /// # Errors
    /// When there is no room for so many pairs.
    pub fn run(&self, thesis: &Thesis, load: &Load) -> Result<Measured, NotAdmitted> {
        self.measure(thesis, load, |run| run.run())
    }

    /// Runs it with G-SCAN in place of its policy.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_by_g_scan(&self, thesis: &Thesis, load: &Load) -> Result<Measured, NotAdmitted> {
        self.measure(thesis, load, |run| run.run_by(|disk| run.g_scan(disk)))
    }

    fn measure(
        &self,
        thesis: &Thesis,
        load: &Load,
        run: impl FnOnce(&FarmRun<'_>) -> FarmOutcome,
    ) -> Result<Measured, NotAdmitted> {
        let (admitted, _, refused) = thesis.admit(self.pairs);
        if let Some(refused) = refused {
            return Err(refused);
        }
        let config = SchedulerConfig {
            policy: self.policy,
            over_prediction: self.over_prediction,
            ..SchedulerConfig::default()
        };
        let outcome = run(&FarmRun {
            disks: &thesis.disks,
            admitted: &admitted,
            load,
            config: &config,
            end: Time::ZERO + self.source.period().length(),
            seed: self.seed,
            slot: None,
            slack_every: None,
        });
        let utilizations = admitted.utilizations();
        Ok(Measured {
            megabytes_per_second: Thesis::bandwidth(self.pairs).get() as f64 / 1e6,
            tasks: admitted.tasks(),
            utilization: utilizations.into_iter().fold(0.0, f64::max),
            ..Measured::of(&outcome)
        })
    }
}

impl Measured {
    /// The results, without the demand.
    pub(crate) fn of(outcome: &FarmOutcome) -> Self {
        let mut bursts = crate::run::Bursts::default();
        let disks = &outcome.disks;
        disks
            .iter()
            .for_each(|disk| bursts.add(&disk.best_effort_bursts));
        Self {
            megabytes_per_second: 0.0,
            tasks: 0,
            utilization: 0.0,
            blocks: outcome.streams.iter().map(|stream| stream.completed).sum(),
            missed: outcome.missed(),
            lateness_max_ms: outcome.lateness_max().as_secs_f64() * 1e3,
            best_effort: outcome.best_effort.into(),
            sources: outcome
                .sources
                .iter()
                .map(|source| source.latency.into())
                .collect(),
            switches: disks.iter().map(|disk| disk.switches).sum(),
            burst_mean: bursts.length_mean(),
            burst_deviation: bursts.length_deviation(),
            streams: Split::of(disks.iter().map(|disk| disk.split[0])),
            others: Split::of(disks.iter().map(|disk| disk.split[1])),
            idle_s: disks.iter().map(|disk| disk.used.idle.as_secs_f64()).sum(),
            residual_ms: {
                let squares: f64 = disks.iter().map(|disk| disk.stream_squares_s2).sum();
                let time: f64 = disks
                    .iter()
                    .map(|disk| {
                        (disk.used.streams + disk.used.best_effort + disk.used.idle).as_secs_f64()
                    })
                    .sum();
                squares / 2.0 / time.max(1e-9) * 1e3
            },
            overruns: disks.iter().map(|disk| disk.overruns).sum(),
            waiting_max: outcome.waiting_max,
            unserved: outcome.unserved,
            hash: outcome.hash,
        }
    }
}
