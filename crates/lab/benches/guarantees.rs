//! The schedulers' promises, and their price for best effort, on simulated drives in virtual time: the runs
//! of `lab::run::experiments`, ten minutes each. Prints a table.

use std::io::{self, Write as _};

use drives::plant::spec::PROFILED;
use lab::run::experiments::{
    Releases, in_bursts, loaded, mixed_deadlines, with_floor, with_write_back,
};
use lab::run::{Experiment, LatencySummary, run};
use sched::disk::SchedulerConfig;
use sched::policy::Policy;
use sched::units::Nanos;

const SEED: u64 = 2026;
/// A pool's default floor for best effort.
const FLOOR_PERCENT: u64 = 5;
const TEN_MINUTES: Nanos = Nanos::from_secs(600);

fn config(policy: Policy) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        queue_max: 100_000,
        ..SchedulerConfig::default()
    }
}

/// A load, and what is changed of it.
type Variant = (&'static str, fn(Experiment) -> Experiment);

const AS_IT_IS: Variant = ("", |experiment| experiment);
const FLOOR: Variant = (", floor", |experiment| {
    with_floor(experiment, FLOOR_PERCENT)
});
const BURSTS: Variant = (", bursts", in_bursts);
const WRITE_BACK: Variant = (", write-back", with_write_back);
const WRITE_BACK_AND_FLOOR: Variant = (", write-back, floor", |experiment| {
    with_floor(with_write_back(experiment), FLOOR_PERCENT)
});

/// The mean best-effort latency of a load under a scheduler, in milliseconds.
struct Mean {
    load: String,
    policy: Policy,
    mean_ms: f64,
}

/// Runs it, and says the mean unless its streams are refused.
fn row(
    out: &mut impl io::Write,
    load: String,
    experiment: &Experiment,
) -> io::Result<Option<Mean>> {
    let begun = std::time::Instant::now();
    let policy = experiment.config.policy;
    let outcome = match run(experiment) {
        Ok(outcome) => outcome,
        Err(refused) => {
            writeln!(out, "| {load} | {} | {refused} |", policy.name())?;
            return Ok(None);
        }
    };
    let elapsed = begun.elapsed();
    let blocks: u64 = outcome.streams.iter().map(|stream| stream.completed).sum();
    let best_effort = outcome.best_effort;
    let busy = outcome.disk.used.streams + outcome.disk.used.best_effort;
    let percent =
        |part: Nanos| 100.0 * part.as_secs_f64() / (busy + outcome.disk.used.idle).as_secs_f64();
    let mean_of = |summary: LatencySummary| match summary.count {
        0 => String::new(),
        _ => format!("{:.1}", summary.mean_ms),
    };
    writeln!(
        out,
        "| {load} | {} | {} of {blocks} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {} | {} | {:.0} + {:.0} % | {} | {:.2} | {:016x} | {:.2} |",
        policy.name(),
        outcome.missed(),
        outcome.disk.overruns,
        outcome.best_effort_unserved,
        best_effort.mean_ms,
        best_effort.p50.as_millis_f64(),
        best_effort.p99.as_millis_f64(),
        best_effort.max.as_millis_f64(),
        mean_of(outcome.synchronous),
        mean_of(outcome.asynchronous),
        percent(outcome.disk.used.streams),
        percent(outcome.disk.used.best_effort),
        outcome.disk.switches,
        outcome.disk.stream_bursts.length_mean(),
        outcome.disk.hash,
        elapsed.as_secs_f64(),
    )?;
    Ok(Some(Mean {
        load,
        policy,
        mean_ms: best_effort.mean_ms,
    }))
}

/// Means under `exact` relative to the others, for the loads with a goal.
fn ratios(out: &mut impl io::Write, means: &[Mean]) -> io::Result<()> {
    writeln!(
        out,
        "\n| load | exact, mean | of delta-l, to be at most 1 | of edf, to be at most 0.25 |\n|---|---|---|---|"
    )?;
    for exact in means {
        if exact.policy != Policy::Exact || !exact.load.contains(" 80 %") {
            continue;
        }
        let share_of = |policy| {
            let other = means
                .iter()
                .find(|mean| mean.load == exact.load && mean.policy == policy);
            other.map_or(f64::NAN, |other| exact.mean_ms / other.mean_ms)
        };
        writeln!(
            out,
            "| {} | {:.1} | {:.3} | {:.3} |",
            exact.load,
            exact.mean_ms,
            share_of(Policy::DeltaL),
            share_of(Policy::Edf),
        )?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "ten minutes of a drive each, seed {SEED}; best-effort latencies in ms, the means also of requests that \
         somebody waits for and of those that nobody does; floor: with the {FLOOR_PERCENT} % that a server keeps \
         for best effort; write-back: nobody waits for writes, which are asynchronous then\n"
    )?;
    writeln!(
        out,
        "| load | scheduler | missed | overruns | unserved | mean | p50 | p99 | max | waited for | not waited for | \
         streams + best effort | switches | blocks in a row | hash | seconds to run |"
    )?;
    writeln!(out, "|{}", "---|".repeat(16))?;
    let mut means = Vec::new();
    for policy in Policy::ALL {
        for (variant, change) in [AS_IT_IS, FLOOR, WRITE_BACK] {
            let experiment = change(mixed_deadlines(config(policy), TEN_MINUTES, SEED));
            let load = format!("quantum-atlas-ii, mixed deadlines{variant}");
            means.extend(row(&mut out, load, &experiment)?);
        }
    }
    for name in PROFILED {
        for releases in [Releases::Together, Releases::Spread] {
            for percent in [60, 80, 90] {
                for policy in Policy::ALL {
                    let experiment =
                        loaded(name, percent, releases, config(policy), TEN_MINUTES, SEED);
                    let variants: &[Variant] = match percent {
                        80 => &[AS_IT_IS, FLOOR, BURSTS, WRITE_BACK, WRITE_BACK_AND_FLOOR],
                        _ => &[AS_IT_IS, WRITE_BACK],
                    };
                    for (variant, change) in variants {
                        let load = format!("{name}, {percent} %, {releases:?}{variant}");
                        means.extend(row(&mut out, load, &change(experiment.clone()))?);
                    }
                }
            }
        }
    }
    ratios(&mut out, &means)
}
