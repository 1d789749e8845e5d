//! Figure 7.1: the simulator against the clock. The same streams, the same requests and the same drives, once
//! in virtual time and once by the server's dispatchers on emulated drives, all schedulers beside each other.

use std::fmt;
use std::path::Path;

use engine::clock;
use sched::disk::SchedulerConfig;
use sched::policy::Policy;
use sched::units::{Nanos, Time};

use super::{Figure, FigureError, Options, Page, Statement};
use crate::chart::{Axis, Chart, Curve, page as draw};
use crate::farm::{FarmOutcome, FarmRun, Load, RealOutcome};
use crate::thesis::figures::table::Table;
use crate::thesis::{Layout, Source, SweepError, Thesis};

/// Pairs that play: few, half of what there is room for, and nearly all.
const PAIRS: [usize; 4] = [1, 12, 20, 23];

/// Longest time until drives and dispatchers are ready.
const PREPARED_WITHIN: Nanos = Nanos::from_secs(2);

/// Time between the starts of two schedulers. Schedulers that decide alike would otherwise move the data of
/// every block at the same instants.
const STAGGER: Nanos = Nanos::from_millis(37);

/// By how much means may differ.
const APART: f64 = 0.05;

/// Simulated drives of so many kinds of luck show how much of a difference is chance.
const LUCKS: u64 = 16;

/// Options of a figure that is measured by the clock.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    /// Seconds of the busy period's 1,300, from its beginning.
    pub seconds: u64,
    /// Folder of the drives' data.
    pub folder: &'a Path,
    /// Told how many of how many loads are done.
    pub progress: &'a (dyn Fn(usize, usize) + Sync),
}

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock")
            .field("seconds", &self.seconds)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// A scheduler with a load.
struct Run {
    policy: Policy,
    megabytes_per_second: f64,
    simulated: FarmOutcome,
    /// The least and the greatest mean of simulated drives of other luck, in ms.
    spread: (f64, f64),
    real: RealOutcome,
}

impl Run {
    fn is_near(&self) -> bool {
        (self.ratio() - 1.0).abs() <= APART
    }

    fn is_within_chance(&self) -> bool {
        let mean = self.real.farm.best_effort.mean_ms;
        let (least, most) = self.spread;
        mean >= least * (1.0 - APART) && mean <= most * (1.0 + APART)
    }

    fn ratio(&self) -> f64 {
        self.real.farm.best_effort.mean_ms / self.simulated.best_effort.mean_ms.max(1e-9)
    }
}

fn measure(
    thesis: &Thesis,
    load: &Load,
    pairs: usize,
    options: &Options,
    clock: &Clock<'_>,
) -> Result<Vec<Run>, FigureError> {
    let (admitted, pairs, _) = thesis.admit(pairs);
    let configs = Policy::ALL.map(|policy| SchedulerConfig {
        policy,
        ..SchedulerConfig::default()
    });
    let end = Time::ZERO + Nanos::from_secs(clock.seconds);
    let lucky = |config, luck: u64| FarmRun {
        disks: &thesis.disks,
        admitted: &admitted,
        load,
        config,
        end,
        seed: options.seed.wrapping_add(luck),
        slot: None,
        slack_every: None,
    };
    let of = |config| lucky(config, 0);
    let mut begin = clock::now().saturating_add(PREPARED_WITHIN);
    let real: Vec<_> = std::thread::scope(|scope| {
        let threads = configs.each_ref().map(|config| {
            begin = begin.saturating_add(STAGGER);
            let folder = clock.folder.join(config.policy.name());
            scope.spawn(move || {
                std::fs::create_dir_all(&folder)?;
                let outcome = of(config).run_in_real_time(&folder, begin);
                std::fs::remove_dir_all(&folder)?;
                Ok::<_, FigureError>(outcome?)
            })
        });
        let joined = threads.into_iter();
        joined
            .map(|thread| thread.join().expect("a run does not panic"))
            .collect()
    });
    let runs = configs.iter().zip(real).map(|(config, real)| {
        let means = (1..=LUCKS).map(|luck| lucky(config, luck).run().best_effort.mean_ms);
        let spread = means.fold((f64::MAX, 0.0_f64), |(least, most), mean| {
            (least.min(mean), most.max(mean))
        });
        Ok(Run {
            policy: config.policy,
            spread,
            megabytes_per_second: Thesis::bandwidth(pairs).get() as f64 / 1e6,
            simulated: of(config).run(),
            real: real?,
        })
    });
    runs.collect()
}

/// Measures figure 7.1 by the clock.
///
/// # Errors
/// When the host does not give what drives and dispatchers need, or nothing can be drawn.
pub fn online(options: &Options, clock: &Clock<'_>) -> Result<Page, FigureError> {
    let thesis =
        Thesis::new(Layout::Rotation, options.times, options.seed).map_err(SweepError::from)?;
    let end = Time::ZERO + Nanos::from_secs(clock.seconds);
    let load = thesis
        .cello(&Source::Busy.period(), options.seed)
        .until(end);
    let mut runs = Vec::new();
    for (done, pairs) in PAIRS.into_iter().enumerate() {
        (clock.progress)(done, PAIRS.len());
        runs.extend(measure(&thesis, &load, pairs, options, clock)?);
    }
    let mut table = Table::new(&[
        "scheduler",
        "MB/s",
        "requests",
        "simulated_mean_ms",
        "simulated_least_ms",
        "simulated_most_ms",
        "real_mean_ms",
        "ratio",
        "simulated_p99_ms",
        "real_p99_ms",
        "missed_simulated",
        "missed_net",
        "missed_gross",
        "unserved",
        "drives_late_p99_ms",
    ]);
    let mut hash = crate::run::Hash::default();
    for run in &runs {
        let (simulated, real) = (&run.simulated.best_effort, &run.real.farm.best_effort);
        hash.add(run.simulated.hash);
        table.row(&[
            run.policy.to_string(),
            format!("{:.3}", run.megabytes_per_second),
            real.count.to_string(),
            format!("{:.3}", simulated.mean_ms),
            format!("{:.3}", run.spread.0),
            format!("{:.3}", run.spread.1),
            format!("{:.3}", real.mean_ms),
            format!("{:.4}", run.ratio()),
            format!("{:.3}", simulated.p99.as_secs_f64() * 1e3),
            format!("{:.3}", real.p99.as_secs_f64() * 1e3),
            run.simulated.missed().to_string(),
            run.real.farm.missed().to_string(),
            run.real.missed_gross.to_string(),
            run.real.unserved.to_string(),
            format!("{:.3}", run.real.drives_late_p99.as_secs_f64() * 1e3),
        ]);
    }
    let chart = |policy: Policy| {
        let line = |name: &str, colour: usize, of: fn(&Run) -> f64| Curve {
            name: name.to_owned(),
            points: runs
                .iter()
                .filter(|run| run.policy == policy)
                .map(|run| (run.megabytes_per_second, of(run)))
                .collect(),
            colour,
            is_aid: false,
        };
        Chart {
            title: policy.to_string(),
            x: Axis::linear("real-time load, MB/s"),
            y: Axis::log("mean best-effort latency, ms"),
            curves: vec![
                line("simulated", 0, |run| run.simulated.best_effort.mean_ms),
                line("by the clock", 1, |run| run.real.farm.best_effort.mean_ms),
            ],
        }
    };
    Ok(Page {
        figure: Figure::Online,
        title: "the simulator against the clock".to_owned(),
        notes: format!(
            "The first {} seconds of the busy period, {} requests, in real time: the server's dispatchers on emulated \\
             drives, three for each scheduler, all schedulers at a time. The drives have the same luck in both. What \\
             pool, map and sockets cost is not in it. Net is net of the host's own lateness. Unlike the other figures \\
             this one is not the same again: its hash covers the simulated half.",
            clock.seconds, load.requests
        ),
        svg: draw(
            "Figure 7.1: simulated and by the clock",
            &Policy::ALL.map(chart),
            3,
        )?,
        csv: table.into_text(),
        statements: statements(&runs),
        hash: hash.0,
    })
}

fn statements(runs: &[Run]) -> Vec<Statement> {
    let by = |a: &&Run, b: &&Run| a.ratio().total_cmp(&b.ratio());
    let at = |run: Option<&Run>| {
        run.map_or("nothing".to_owned(), |run| {
            format!(
                "{:.3} ({} at {:.1} MB/s)",
                run.ratio(),
                run.policy,
                run.megabytes_per_second
            )
        })
    };
    let near = runs.iter().filter(|run| run.is_near()).count();
    let chance = runs.iter().filter(|run| run.is_within_chance()).count();
    let found = format!(
        "by the clock over simulated: {} to {}; within 5 % in {near} of {} runs",
        at(runs.iter().min_by(by)),
        at(runs.iter().max_by(by)),
        runs.len()
    );
    let right = |run: &&Run| matches!(run.policy, Policy::Exact | Policy::DeltaL);
    let missed: u64 = runs
        .iter()
        .filter(right)
        .map(|run| run.real.farm.missed())
        .sum();
    let gross: u64 = runs
        .iter()
        .filter(right)
        .map(|run| run.real.missed_gross)
        .sum();
    let unserved: u64 = runs.iter().map(|run| run.real.unserved).sum();
    vec![
        Statement::new(
            "what is measured differs only slightly from what is simulated",
            near == runs.len(),
            found,
        ),
        Statement::new(
            "(not in the thesis) what is measured is within 5 % of what simulated drives take whose arms have other luck",
            chance == runs.len(),
            format!(
                "in {chance} of {} runs; of {LUCKS} kinds of luck the slowest takes up to {:.2} times the fastest",
                runs.len(),
                runs.iter()
                    .map(|run| run.spread.1 / run.spread.0)
                    .fold(0.0, f64::max)
            ),
        ),
        Statement::new(
            "(not in the thesis) `exact` and `delta-l` miss nothing by the clock, net of the host's lateness",
            missed == 0,
            format!("{missed} net, {gross} gross"),
        ),
        Statement::new(
            "(not in the thesis) all best effort is served",
            unserved == 0,
            format!("{unserved} requests were not"),
        ),
    ]
}
