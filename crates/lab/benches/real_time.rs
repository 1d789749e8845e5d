//! The guarantees in real time: the server's dispatchers on emulated drives, ten minutes each.
//!
//! The same experiments as in `guarantees`, but nothing is simulated except the mechanics of the
//! drives: requests come by the wall clock, a real-time thread decides, an emulated drive moves real
//! data and answers when its model says so. The schedulers that are compared run beside each other, each
//! on a drive of its own; the loads follow one after the other, because each drive moves its data on
//! a real-time thread and a host with few processors makes many of them late.
//!
//! ```text
//! cargo bench -p clockwise-lab --bench real_time
//! REAL_TIME_SECONDS=60 REAL_TIME_LOADS=mixed,quantum-atlas-ii,hdd-8tb-7200 ...
//! ```
//!
//! A stream stays within its first blocks, so that the data fits into memory. Positions on the platters, and
//! the promise for the whole region, are as in virtual time.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use drives::emulator::{DriveOptions, DriveStats, EmulatedDrive};
use engine::buffer::{Account, Buffer, Memory, MemoryConfig};
use engine::clock;
use engine::completion::{Completion, CompletionQueue};
use engine::dispatcher::{
    Dispatcher, DispatcherConfig, DispatcherHandle, DispatcherReport, Io, Places, StallLimits,
};
use engine::rt::{DeniedResources, ThreadParams};
use hdrhistogram::Histogram;
use lab::run::experiments::{Releases, loaded, mixed_deadlines};
use lab::run::{Experiment, Script, Wanted};
use sched::admission::Admission;
use sched::delta_l::{delta_l, delta_l_published};
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::policy::Policy;
use sched::predict::Predictor;
use sched::request::{Class, Order};
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, Nanos, Sector, SectorCount, Time};

const SEED: u64 = 2026;

/// The load with deadlines of two kinds, and that of 80 % on each drive, by the drive's name.
const LOADS: [&str; 3] = [MIXED, "quantum-atlas-ii", "hdd-8tb-7200"];
const MIXED: &str = "mixed";

const SECONDS: u64 = 600;

/// Time between the starts of two schedulers. Schedulers that decide alike would otherwise move the data of
/// every block at the same instants; with more drives than processors, the same drive would always be late. A
/// third of a block's time on either drive.
const STAGGER: Nanos = Nanos::from_millis(60);

const MINUTE: Nanos = Nanos::from_secs(60);

/// Longest time until drives and dispatchers are ready.
const PREPARED_WITHIN: Nanos = Nanos::from_secs(1);

/// Blocks of its region that a stream goes through before it begins again.
const BLOCKS_KEPT: u64 = 2;

/// The mean best-effort latency to stay under with mixed deadlines.
const MIXED_MEAN_MS_MAX: f64 = 165.0;

/// Longest wait for answers after the last request of a script. A best-effort request that is longer than
/// delta-L is never served.
const ANSWERS_WITHIN: Nanos = Nanos::from_secs(30);

/// Most queued requests.
const QUEUE_MAX: usize = 4_096;

/// With so many in flight, best effort is not submitted any more and counts as never served: a
/// multiple of what is in flight where it is served at all, and few enough for the places of a disk
/// and the memory.
const IN_FLIGHT_MAX: usize = 1_000;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

struct Outcome {
    report: DispatcherReport,
    drive: DriveStats,
    best_effort: BestEffort,
    denied: DeniedResources,
}

/// Results of best effort.
struct BestEffort {
    /// In nanoseconds.
    latency: Histogram<u64>,
    /// The sum and the number of latencies, by the minute of the request.
    by_minute: Vec<(u64, u64)>,
    unserved: usize,
}

impl Outcome {
    fn mean_ms(&self) -> f64 {
        self.best_effort.latency.mean() / 1e6
    }

    /// The mean of each minute as a share of another's, from the least to the greatest.
    fn by_minute(&self, other: &Self) -> Vec<f64> {
        let mean = |minute: &(u64, u64)| minute.0 as f64 / minute.1 as f64;
        let minutes = self.best_effort.by_minute.iter();
        let mut ratios: Vec<f64> = minutes
            .zip(&other.best_effort.by_minute)
            .map(|(ours, theirs)| mean(ours) / mean(theirs))
            .filter(|ratio| ratio.is_finite())
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

fn main() -> Result<(), AnyError> {
    let seconds = std::env::var("REAL_TIME_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
    let length = Nanos::from_secs(seconds);
    let chosen = std::env::var("REAL_TIME_LOADS").unwrap_or_else(|_| LOADS.join(","));
    let folder = tempfile::tempdir_in("/dev/shm")?;
    for load in chosen.split(',') {
        let experiments = [Policy::Exact, Policy::DeltaL, Policy::Edf]
            .map(|policy| experiment(load, policy, length));
        let outcomes = std::thread::scope(|scope| {
            let mut begin = clock::now().saturating_add(PREPARED_WITHIN);
            let threads = experiments.each_ref().map(|experiment| {
                begin = begin.saturating_add(STAGGER);
                let name = experiment.config.policy.name();
                let path = folder.path().join(format!("{load}-{name}"));
                scope.spawn(move || run(experiment, &path, begin))
            });
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().expect("a run does not panic"));
            joined.collect::<Result<Vec<_>, AnyError>>()
        })?;
        print(seconds, load, &experiments, &outcomes)?;
    }
    Ok(())
}

fn experiment(load: &str, policy: Policy, length: Nanos) -> Experiment {
    assert!(
        LOADS.contains(&load),
        "no load {load:?}: expected some of {LOADS:?}"
    );
    let config = SchedulerConfig {
        policy,
        queue_max: QUEUE_MAX,
        ..SchedulerConfig::default()
    };
    match load {
        MIXED => mixed_deadlines(config, length, SEED),
        drive => loaded(drive, 80, Releases::Together, config, length, SEED),
    }
}

/// Runs an experiment on an emulated drive in `path` from that instant on.
fn run(experiment: &Experiment, path: &Path, begin: Time) -> Result<Outcome, AnyError> {
    let options = DriveOptions {
        seed: experiment.seed,
        ..DriveOptions::default()
    };
    let drive = EmulatedDrive::create(path, experiment.plant.clone(), &options)?;
    let control = drive.control();
    let (dispatcher, denied) = Dispatcher::start(DispatcherConfig {
        name: experiment.config.policy.name().to_owned(),
        disk: Box::new(drive),
        scheduler: DiskScheduler::new(Arc::clone(&experiment.profile), experiment.config.clone()),
        thread: ThreadParams::dispatcher("disk"),
        places: Places::default(),
        patience: StallLimits::default(),
        link: None,
    })?;
    let handle = dispatcher.handle();
    admit(experiment, &handle, begin)?;
    let best_effort = Client::new(experiment, handle.clone())?.follow(experiment, begin)?;
    let report = handle.report()?;
    dispatcher.stop(false);
    Ok(Outcome {
        report,
        drive: control.stats(),
        best_effort,
        denied,
    })
}

/// Admits the streams and lets them join.
fn admit(experiment: &Experiment, disk: &DispatcherHandle, begin: Time) -> Result<(), AnyError> {
    let predictor = Predictor::new(&experiment.profile);
    let mut admission = Admission::new();
    for (index, load) in experiment.streams.iter().enumerate() {
        let id = TaskId(index as u64);
        let service = predictor.worst_case(load.region.clone(), load.op, load.block);
        let params = TaskParams::new(service, load.period)?;
        admission.insert(id, params)?;
        disk.join(id, params, TaskKind::Stream, begin)?;
    }
    let published = delta_l_published(&admission).value;
    disk.set_delta_l(delta_l(&admission).value, published);
    Ok(())
}

/// The client that submits an experiment's requests.
struct Client {
    disk: DispatcherHandle,
    account: Account,
    queue: CompletionQueue,
    in_flight: HashMap<u64, (Class, Buffer)>,
    submitted: u64,
    refused: usize,
    best_effort: Histogram<u64>,
    by_minute: Vec<(u64, u64)>,
}

impl Client {
    fn new(experiment: &Experiment, disk: DispatcherHandle) -> Result<Self, AnyError> {
        let blocks: u64 = experiment
            .streams
            .iter()
            .map(|load| load.block.bytes().0)
            .sum();
        // Every stream has a block in flight and may be about to have a second.
        let share = Bytes(2 * blocks + Bytes::from_mib(32).0);
        let memory = Memory::new(&MemoryConfig {
            lock: false,
            ..MemoryConfig::new(Bytes(share.0 / 16 * 17))
        })?;
        Ok(Self {
            disk,
            account: memory.open_account("bench", share)?,
            queue: CompletionQueue::new(QUEUE_MAX)?,
            in_flight: HashMap::new(),
            submitted: 0,
            refused: 0,
            best_effort: Histogram::new_with_bounds(1, 1_000_000_000_000, 3)?,
            by_minute: Vec::new(),
        })
    }

    /// Submits what the script says when it says so, and waits for the answers.
    fn follow(mut self, experiment: &Experiment, begin: Time) -> Result<BestEffort, AnyError> {
        for (at, wanted) in Script::new(experiment) {
            let at = begin.saturating_add(at - Time::ZERO);
            while let Some(answer) = self.queue.wait(Some(at)) {
                self.answered(begin, answer)?;
            }
            self.submit(experiment, wanted)?;
        }
        let until = clock::now().saturating_add(ANSWERS_WITHIN);
        while !self.in_flight.is_empty()
            && let Some(answer) = self.queue.wait(Some(until))
        {
            self.answered(begin, answer)?;
        }
        Ok(BestEffort {
            latency: self.best_effort,
            by_minute: self.by_minute,
            unserved: self.in_flight.len() + self.refused,
        })
    }

    fn submit(&mut self, experiment: &Experiment, wanted: Wanted) -> Result<(), AnyError> {
        if self.in_flight.len() >= IN_FLIGHT_MAX && !matches!(wanted.class, Class::Stream(_)) {
            self.refused += 1;
            return Ok(());
        }
        let bytes = wanted.count.bytes().0 as usize;
        let buffer = self.account.allocate(bytes)?;
        let io = Io {
            account: self.account.id(),
            op: wanted.op,
            start: confined(experiment, wanted),
            count: wanted.count,
            class: wanted.class,
            order: Order::default(),
            durable: false,
            segments: buffer.segments(wanted.op, 0..bytes)?,
            target: self.queue.target(self.submitted)?,
        };
        self.in_flight
            .insert(self.submitted, (wanted.class, buffer));
        self.submitted += 1;
        self.disk.submit(io)?;
        Ok(())
    }

    fn answered(&mut self, begin: Time, answer: Completion) -> Result<(), AnyError> {
        answer.result?;
        let (class, _) = self
            .in_flight
            .remove(&answer.token)
            .expect("an answer to a request");
        if !matches!(class, Class::Stream(_)) {
            let timing = answer.timing;
            let latency = timing.completed.saturating_since(timing.submitted);
            self.best_effort.saturating_record(latency.0);
            let minute = (timing.submitted.saturating_since(begin).0 / MINUTE.0) as usize;
            if self.by_minute.len() <= minute {
                self.by_minute.resize(minute + 1, (0, 0));
            }
            self.by_minute[minute].0 += latency.0;
            self.by_minute[minute].1 += 1;
        }
        Ok(())
    }
}

/// Position of a request: streams go round in the first blocks of their regions.
fn confined(experiment: &Experiment, wanted: Wanted) -> Sector {
    let Class::Stream(TaskId(index)) = wanted.class else {
        return wanted.start;
    };
    let from = experiment.streams[index as usize].region.start;
    let kept = wanted.count.0 * BLOCKS_KEPT;
    from + SectorCount((wanted.start - from).0 % kept)
}

fn print(
    seconds: u64,
    load: &str,
    experiments: &[Experiment],
    outcomes: &[Outcome],
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{load}: {seconds} s in real time, seed {SEED}, beside each other; latencies in ms; net is net of the host's lateness\n"
    )?;
    writeln!(
        out,
        "| drive | streams | scheduler | promised | busy | blocks | missed net (gross) | overruns net (gross) \
         | best effort (unserved) | mean | p50 | p99 | max | host late over 0.2 ms, worst | drive late p99 |"
    )?;
    writeln!(out, "|{}", "---|".repeat(15))?;
    for (experiment, outcome) in experiments.iter().zip(outcomes) {
        row(&mut out, seconds, experiment, outcome)?;
    }
    let means: Vec<f64> = outcomes.iter().map(Outcome::mean_ms).collect();
    if load == MIXED {
        writeln!(
            out,
            "\nexact: mean {:.1} ms, to be under {MIXED_MEAN_MS_MAX}\n",
            means[0]
        )?;
    } else {
        writeln!(
            out,
            "\nexact is {:.3} of delta-l, to be at most 1, and {:.3} of edf, to be at most 0.25\n",
            means[0] / means[1],
            means[0] / means[2],
        )?;
        let ratios = outcomes[0].by_minute(&outcomes[1]);
        if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
            writeln!(
                out,
                "minute by minute it is {least:.3} to {most:.3} of delta-l, in the median {:.3}\n",
                ratios[ratios.len() / 2]
            )?;
        }
    }
    let mut denied: Vec<String> = outcomes
        .iter()
        .flat_map(|outcome| outcome.denied.0.iter().map(ToString::to_string))
        .collect();
    denied.sort();
    denied.dedup();
    for denied in denied {
        writeln!(out, "denied by the host: {denied}\n")?;
    }
    Ok(())
}

fn row(
    out: &mut impl io::Write,
    seconds: u64,
    experiment: &Experiment,
    outcome: &Outcome,
) -> io::Result<()> {
    let predictor = Predictor::new(&experiment.profile);
    let promised: f64 = experiment
        .streams
        .iter()
        .map(|load| {
            let service = predictor.worst_case(load.region.clone(), load.op, load.block);
            service.as_secs_f64() / load.period.as_secs_f64()
        })
        .sum();
    let counters = &outcome.report.counters;
    let blocks: u64 = counters.tasks.values().map(|task| task.completed).sum();
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let quantile = |q| ms(outcome.best_effort.latency.value_at_quantile(q));
    writeln!(
        out,
        "| {} | {} | {} | {:.1} % | {:.1} % | {blocks} | {} ({}) | {} ({}) | {} ({}) | {:.1} | {:.1} | {:.1} | {:.1} | {}, {:.2} | {:.3} |",
        experiment.plant.name(),
        experiment.streams.len(),
        experiment.config.policy.name(),
        promised * 100.0,
        counters.busy.as_secs_f64() / seconds as f64 * 100.0,
        counters.missed.count,
        counters.missed_gross.count,
        counters.overruns.count,
        counters.overruns_gross.count,
        outcome.best_effort.latency.len(),
        outcome.best_effort.unserved,
        outcome.mean_ms(),
        quantile(0.5),
        quantile(0.99),
        ms(outcome.best_effort.latency.max()),
        counters.host_late.count,
        counters.host_late.max.as_millis_f64(),
        outcome.drive.lateness.p99.as_millis_f64(),
    )
}
