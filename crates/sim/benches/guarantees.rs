//! What the schedulers promise and what best effort pays for it, on simulated drives in virtual
//! time: the runs of `sim::run::experiments`, ten minutes each. Prints a table.

use std::io::Write as _;

use sched::disk::SchedulerConfig;
use sched::policy::Policy;
use sched::units::Nanos;
use sim::plant::spec::BUILT_IN;
use sim::run::experiments::{Releases, in_bursts, loaded, mixed_deadlines, with_floor};
use sim::run::{Experiment, run};

const SEED: u64 = 2026;
/// What a pool keeps for best effort unless it is told otherwise.
const FLOOR_PERCENT: u64 = 5;
const TEN_MINUTES: Nanos = Nanos::from_secs(600);

fn config(policy: Policy) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        queue_max: 100_000,
        ..SchedulerConfig::default()
    }
}

fn row(out: &mut impl std::io::Write, what: &str, experiment: &Experiment) -> std::io::Result<()> {
    let begun = std::time::Instant::now();
    let outcome = match run(experiment) {
        Ok(outcome) => outcome,
        Err(refused) => {
            return writeln!(
                out,
                "| {what} | {} | {refused} |",
                experiment.config.policy.name()
            );
        }
    };
    let elapsed = begun.elapsed();
    let blocks: u64 = outcome.streams.iter().map(|stream| stream.completed).sum();
    let best_effort = outcome.best_effort;
    let busy = outcome.used.streams + outcome.used.best_effort;
    let percent =
        |part: Nanos| 100.0 * part.as_secs_f64() / (busy + outcome.used.idle).as_secs_f64();
    writeln!(
        out,
        "| {what} | {} | {} of {blocks} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} + {:.0} % | {} | {:.2} | {:016x} | {:.2} |",
        experiment.config.policy.name(),
        outcome.missed(),
        outcome.overruns,
        outcome.best_effort_unserved,
        best_effort.mean_ms,
        best_effort.p50.as_millis_f64(),
        best_effort.p99.as_millis_f64(),
        best_effort.max.as_millis_f64(),
        percent(outcome.used.streams),
        percent(outcome.used.best_effort),
        outcome.switches,
        outcome.stream_bursts.length_mean,
        outcome.hash,
        elapsed.as_secs_f64(),
    )
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "ten minutes of a drive each, seed {SEED}; best-effort latencies in ms; floor: with the {FLOOR_PERCENT} % \
         that a server keeps for best effort\n"
    )?;
    writeln!(
        out,
        "| load | scheduler | missed | overruns | unserved | mean | p50 | p99 | max | streams + best effort | \
         switches | blocks in a row | hash | seconds to run |"
    )?;
    writeln!(
        out,
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for policy in Policy::ALL {
        let experiment = mixed_deadlines(config(policy), TEN_MINUTES, SEED);
        row(&mut out, "quantum-atlas-ii, mixed deadlines", &experiment)?;
        let with = with_floor(experiment, FLOOR_PERCENT);
        row(&mut out, "quantum-atlas-ii, mixed deadlines, floor", &with)?;
    }
    for name in BUILT_IN {
        for releases in [Releases::Together, Releases::Spread] {
            for percent in [60, 80, 90] {
                for policy in Policy::ALL {
                    let experiment =
                        loaded(name, percent, releases, config(policy), TEN_MINUTES, SEED);
                    let what = format!("{name}, {percent} %, {releases:?}");
                    row(&mut out, &what, &experiment)?;
                    if percent == 80 {
                        let with = with_floor(experiment.clone(), FLOOR_PERCENT);
                        row(&mut out, &format!("{what}, floor"), &with)?;
                        row(&mut out, &format!("{what}, bursts"), &in_bursts(experiment))?;
                    }
                }
            }
        }
    }
    Ok(())
}
