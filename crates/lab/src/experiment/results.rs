//! Results of an experiment, as tables.

use std::borrow::Cow;
use std::fmt::Write as _;

use sched::policy::Policy;
use sched::units::Nanos;
use serde::{Deserialize, Serialize};

use super::Run;
use crate::farm::{Admitted, FarmOutcome};
use crate::thesis::{Latency, Measured, Split};

/// Results of a stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamResult {
    /// Its name in the file; several may be of one.
    pub name: String,
    /// Bandwidth that its period reserves, in bytes per second.
    pub bytes_per_second: u64,
    /// Blocks served; each of the parts of one that lies in several extents counts.
    pub blocks: u64,
    /// Number of late ones.
    pub missed: u64,
    /// The worst lateness.
    pub lateness_max_ms: f64,
}

/// Use of a disk's time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DiskResult {
    /// The share of its time that is promised.
    pub promised: f64,
    /// Delta-L, corrected.
    pub delta_l_ms: f64,
    /// Serving streams.
    pub streams_s: f64,
    /// Serving best effort.
    pub best_effort_s: f64,
    /// Nothing.
    pub idle_s: f64,
}

/// Best effort of a source that was asked for in a slot of time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SlotResult {
    /// The source, by number.
    pub source: usize,
    /// The slot, from 0.
    pub slot: usize,
    /// Number of requests.
    pub requests: u64,
    /// Their mean latency.
    pub mean_ms: f64,
    /// The worst.
    pub max_ms: f64,
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// The scheduler.
    pub scheduler: Policy,
    /// Number of groups of streams.
    pub load: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Results of all disks and streams together.
    pub measured: Measured,
    /// By stream, in the order in which they joined.
    pub streams: Vec<StreamResult>,
    /// By disk.
    pub disks: Vec<DiskResult>,
    /// Best effort over time, if it was asked for.
    pub slots: Vec<SlotResult>,
    /// The slack of each disk over time in nanoseconds, if it was asked for; nothing where nothing limits it.
    pub slack_ns: Vec<Vec<Option<u64>>>,
}

/// Results of all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Results {
    /// By scheduler, load and seed.
    pub runs: Vec<RunResult>,
    /// The volumes that best effort asks something of.
    pub sources: Vec<String>,
    /// The length of slots.
    #[serde(rename = "latency_slot_ns")]
    pub slot: Option<Nanos>,
    /// Interval between two looks at slack.
    #[serde(rename = "slack_every_ns")]
    pub slack_every: Option<Nanos>,
}

/// A name as a field of CSV (RFC 4180, section 2).
fn field(name: &str) -> Cow<'_, str> {
    if name.contains(['"', ',', '\r', '\n']) {
        return Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")));
    }
    Cow::Borrowed(name)
}

fn ms(nanos: Nanos) -> f64 {
    nanos.as_secs_f64() * 1e3
}

impl RunResult {
    pub(super) fn new(
        run: &Run,
        admitted: &Admitted,
        names: &[&str],
        outcome: &FarmOutcome,
    ) -> Self {
        let utilizations = admitted.utilizations();
        let streams: Vec<StreamResult> = admitted
            .streams()
            .iter()
            .zip(names)
            .zip(&outcome.streams)
            .map(|((stream, name), of)| StreamResult {
                name: (*name).to_owned(),
                bytes_per_second: (stream.track.block.get() as f64 / stream.period.as_secs_f64())
                    as u64,
                blocks: of.completed,
                missed: of.missed,
                lateness_max_ms: ms(of.lateness_max),
            })
            .collect();
        let disks = outcome.disks.iter().zip(&utilizations);
        let disks = disks.zip(admitted.delta_l());
        let slots = outcome.sources.iter().enumerate();
        Self {
            scheduler: run.scheduler,
            load: run.load,
            seed: run.seed,
            measured: Measured {
                megabytes_per_second: streams.iter().map(|of| of.bytes_per_second).sum::<u64>()
                    as f64
                    / 1e6,
                tasks: admitted.tasks(),
                utilization: utilizations.iter().copied().fold(0.0, f64::max),
                ..Measured::of(outcome)
            },
            streams,
            disks: disks
                .map(|((of, promised), (delta_l, _))| DiskResult {
                    promised: *promised,
                    delta_l_ms: ms(delta_l.value),
                    streams_s: of.used.streams.as_secs_f64(),
                    best_effort_s: of.used.best_effort.as_secs_f64(),
                    idle_s: of.used.idle.as_secs_f64(),
                })
                .collect(),
            slots: slots
                .flat_map(|(source, of)| {
                    let slots = of.slots.iter().enumerate();
                    slots.map(move |(slot, of)| SlotResult {
                        source,
                        slot,
                        requests: of.count,
                        mean_ms: ms(of.sum) / of.count.max(1) as f64,
                        max_ms: ms(of.max),
                    })
                })
                .collect(),
            slack_ns: outcome
                .slack
                .iter()
                .map(|disk| disk.iter().map(|slack| slack.map(Nanos::get)).collect())
                .collect(),
        }
    }
}

/// Adds a line; writing to a string does not fail.
macro_rules! line {
    ($text:expr, $($arguments:tt)*) => {
        let _ = writeln!($text, $($arguments)*);
    };
}

impl Results {
    /// A row for all best effort of each run, and one for that of each volume: latency, and what else there is of the
    /// run.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = "scheduler,load,seed,MB/s,tasks,promised,volume,requests,mean_ms,p50_ms,p90_ms,p95_ms,\
                        p99_ms,p999_ms,max_ms,blocks,missed,lateness_max_ms,switches,burst_mean,burst_deviation"
            .to_owned();
        for whose in ["streams", "best_effort"] {
            for part in ["overhead", "seek", "rotation", "transfer"] {
                let _ = write!(text, ",{whose}_{part}_s");
            }
        }
        text.push_str(",idle_s,overruns,waiting_max,unserved,hash\n");
        for run in &self.runs {
            let of = &run.measured;
            let sources = self.sources.iter().map(String::as_str).zip(&of.sources);
            for (volume, latency) in std::iter::once(("all", &of.best_effort)).chain(sources) {
                let (first, volume, last) = (self.head(run), field(volume), tail(of));
                line!(text, "{first},{volume},{},{last}", latencies(latency));
            }
        }
        text
    }

    fn head(&self, run: &RunResult) -> String {
        let of = &run.measured;
        format!(
            "{},{},{},{:.3},{},{:.4}",
            run.scheduler, run.load, run.seed, of.megabytes_per_second, of.tasks, of.utilization
        )
    }

    /// A row for each stream of each run.
    #[must_use]
    pub fn streams_csv(&self) -> String {
        let mut text =
            "scheduler,load,seed,number,stream,bytes_per_second,blocks,missed,lateness_max_ms\n"
                .to_owned();
        for run in &self.runs {
            for (number, of) in run.streams.iter().enumerate() {
                line!(
                    text,
                    "{},{},{},{number},{},{},{},{},{:.3}",
                    run.scheduler,
                    run.load,
                    run.seed,
                    field(&of.name),
                    of.bytes_per_second,
                    of.blocks,
                    of.missed,
                    of.lateness_max_ms
                );
            }
        }
        text
    }

    /// A row for each disk of each run.
    #[must_use]
    pub fn disks_csv(&self) -> String {
        let mut text =
            "scheduler,load,seed,disk,promised,delta_l_ms,streams_s,best_effort_s,idle_s\n"
                .to_owned();
        for run in &self.runs {
            for (disk, of) in run.disks.iter().enumerate() {
                line!(
                    text,
                    "{},{},{},{disk},{:.4},{:.3},{:.3},{:.3},{:.3}",
                    run.scheduler,
                    run.load,
                    run.seed,
                    of.promised,
                    of.delta_l_ms,
                    of.streams_s,
                    of.best_effort_s,
                    of.idle_s
                );
            }
        }
        text
    }

    /// Best effort over time, if it was asked for: a row for each volume and slot in which something was asked of it.
    #[must_use]
    pub fn slots_csv(&self) -> Option<String> {
        let slot = self.slot?;
        let mut text = "scheduler,load,seed,volume,at_s,requests,mean_ms,max_ms\n".to_owned();
        for run in &self.runs {
            for of in run.slots.iter().filter(|of| of.requests > 0) {
                line!(
                    text,
                    "{},{},{},{},{:.3},{},{:.3},{:.3}",
                    run.scheduler,
                    run.load,
                    run.seed,
                    field(&self.sources[of.source]),
                    slot.as_secs_f64() * of.slot as f64,
                    of.requests,
                    of.mean_ms,
                    of.max_ms
                );
            }
        }
        Some(text)
    }

    /// Slack over time, if it was asked for: a row for each time at which it was looked at. Nothing limits it
    /// where its column is empty.
    #[must_use]
    pub fn slack_csv(&self) -> Option<String> {
        let every = self.slack_every?;
        let mut text = "scheduler,load,seed,disk,at_s,slack_ms\n".to_owned();
        for run in &self.runs {
            for (disk, slack) in run.slack_ns.iter().enumerate() {
                for (look, slack) in slack.iter().enumerate() {
                    let slack = slack.map(|slack| format!("{:.3}", ms(Nanos(slack))));
                    line!(
                        text,
                        "{},{},{},{disk},{:.3},{}",
                        run.scheduler,
                        run.load,
                        run.seed,
                        every.as_secs_f64() * look as f64,
                        slack.unwrap_or_default()
                    );
                }
            }
        }
        Some(text)
    }

    /// Covers every decision and completion of every run.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = crate::run::Hash::default();
        self.runs.iter().for_each(|run| hash.add(run.measured.hash));
        hash.0
    }
}

fn latencies(of: &Latency) -> String {
    let Latency {
        count,
        mean_ms,
        p50_ms,
        p90_ms,
        p95_ms,
        p99_ms,
        p999_ms,
        max_ms,
    } = of;
    format!(
        "{count},{mean_ms:.3},{p50_ms:.3},{p90_ms:.3},{p95_ms:.3},{p99_ms:.3},{p999_ms:.3},{max_ms:.3}"
    )
}

fn tail(of: &Measured) -> String {
    let mut text = format!(
        "{},{},{:.3},{},{:.3},{:.3}",
        of.blocks, of.missed, of.lateness_max_ms, of.switches, of.burst_mean, of.burst_deviation
    );
    for split in [&of.streams, &of.others] {
        let Split {
            overhead_s,
            seek_s,
            rotation_s,
            transfer_s,
        } = split;
        let _ = write!(
            text,
            ",{overhead_s:.3},{seek_s:.3},{rotation_s:.3},{transfer_s:.3}"
        );
    }
    let _ = write!(
        text,
        ",{:.3},{},{},{},{:016x}",
        of.idle_s, of.overruns, of.waiting_max, of.unserved, of.hash
    );
    text
}
