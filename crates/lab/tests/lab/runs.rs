//! The server's scheduler against the plants in virtual time: what it guarantees holds, and what it is
//! for shows. Ten minutes of a drive each; everything is deterministic.

#![allow(
    clippy::print_stdout,
    reason = "a test says its seed and what it measured"
)]

use drives::plant::spec::PROFILED;
use lab::run::experiments::{
    Releases, in_bursts, loaded, mixed_deadlines, with_floor, with_write_back,
};
use lab::run::{Arrivals, Experiment, Outcome, RunError, run};
use sched::disk::SchedulerConfig;
use sched::policy::Policy;
use sched::units::{Nanos, Time};

const SEED: u64 = 2026;
const TEN_MINUTES: Nanos = Nanos::from_secs(600);

fn config(policy: Policy) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        queue_max: 100_000,
        ..SchedulerConfig::default()
    }
}

fn outcome(experiment: &Experiment) -> Outcome {
    let outcome = run(experiment).expect("the streams are admitted");
    println!(
        "{} {}: {} blocks, {} missed, best effort {:.1} ms mean of {}, p99 {}, {} unserved, {} overruns, hash {:016x}",
        experiment.plant.name(),
        experiment.config.policy.name(),
        outcome
            .streams
            .iter()
            .map(|stream| stream.completed)
            .sum::<u64>(),
        outcome.missed(),
        outcome.best_effort.mean_ms,
        outcome.best_effort.count,
        outcome.best_effort.p99,
        outcome.best_effort_unserved,
        outcome.disk.overruns,
        outcome.disk.hash
    );
    assert_eq!(outcome.refused, 0, "{:?}", outcome.refused_last);
    outcome
}

/// Invariants of every run under a policy with guarantees.
fn assert_guaranteed(outcome: &Outcome) {
    assert_eq!(outcome.missed(), 0);
    assert_eq!(
        outcome.disk.overruns, 0,
        "worst {}",
        outcome.disk.overrun_max
    );
    assert!(outcome.streams.iter().all(|stream| stream.completed > 50));
    assert_eq!(outcome.report.missed, 0);
}

/// Requests that somebody waits for and requests that nobody waits for, and all were served.
fn assert_both_classes_served(outcome: &Outcome) {
    let (synchronous, asynchronous) = (outcome.synchronous, outcome.asynchronous);
    println!(
        "waited for {:.1} ms mean of {}, p99 {}, max {}; not waited for {:.1} ms mean of {}, p99 {}, max {}",
        synchronous.mean_ms,
        synchronous.count,
        synchronous.p99,
        synchronous.max,
        asynchronous.mean_ms,
        asynchronous.count,
        asynchronous.p99,
        asynchronous.max
    );
    assert!(synchronous.count > 1_000 && asynchronous.count > 1_000);
    assert_eq!(
        synchronous.count + asynchronous.count,
        outcome.best_effort.count
    );
    assert_eq!(outcome.best_effort_unserved, 0);
}

#[test]
fn no_deadline_is_missed_and_best_effort_is_served_in_the_order_of_the_policies() {
    println!("seed {SEED}");
    for name in PROFILED {
        for (releases, percent) in [
            (Releases::Together, 60),
            (Releases::Together, 80),
            (Releases::Together, 90),
            (Releases::Spread, 80),
        ] {
            println!("{name}, {releases:?}, {percent} %");
            let [exact, delta_l, edf] =
                [Policy::Exact, Policy::DeltaL, Policy::Edf].map(|policy| {
                    outcome(&loaded(
                        name,
                        percent,
                        releases,
                        config(policy),
                        TEN_MINUTES,
                        SEED,
                    ))
                });
            assert_guaranteed(&exact);
            assert_guaranteed(&delta_l);
            assert_eq!(exact.best_effort_unserved, 0);
            let [exact, delta_l, edf] =
                [exact, delta_l, edf].map(|outcome| outcome.best_effort.mean_ms);
            assert!(
                exact <= delta_l && delta_l <= edf,
                "{exact} {delta_l} {edf}"
            );
            if percent == 80 {
                assert!(4.0 * exact <= edf, "{exact} against {edf}");
            }
        }
    }
}

#[test]
fn mixed_deadlines_are_all_met_and_best_effort_waits_less_than_165_ms() {
    println!("seed {SEED}");
    let [exact, delta_l] = [Policy::Exact, Policy::DeltaL]
        .map(|policy| outcome(&mixed_deadlines(config(policy), TEN_MINUTES, SEED)));
    assert_guaranteed(&exact);
    // Delta-L of this set is shorter than most requests: best effort starves, streams do not.
    assert_guaranteed(&delta_l);
    assert_eq!(
        exact.streams.last().map(|tight| tight.completed),
        Some(2_400)
    );
    assert_eq!(exact.best_effort_unserved, 0);
    assert!(
        exact.best_effort.mean_ms < 165.0,
        "{}",
        exact.best_effort.mean_ms
    );
}

/// A file system's writes are asynchronous: nobody waits until it flushes, and they leave slack to reads.
#[test]
fn write_back_costs_no_deadline_and_best_effort_keeps_its_goals() {
    println!("seed {SEED}");
    for name in PROFILED {
        for releases in [Releases::Together, Releases::Spread] {
            println!("{name}, {releases:?}");
            let [exact, delta_l, edf] =
                [Policy::Exact, Policy::DeltaL, Policy::Edf].map(|policy| {
                    let load = loaded(name, 80, releases, config(policy), TEN_MINUTES, SEED);
                    outcome(&with_write_back(load))
                });
            for outcome in [&exact, &delta_l] {
                assert_guaranteed(outcome);
                assert_both_classes_served(outcome);
            }
            let [exact, delta_l, edf] =
                [exact, delta_l, edf].map(|outcome| outcome.best_effort.mean_ms);
            assert!(exact <= delta_l, "{exact} against {delta_l}");
            assert!(4.0 * exact <= edf, "{exact} against {edf}");
        }
    }
}

#[test]
fn mixed_deadlines_are_all_met_beside_write_back_and_reads_do_not_wait_for_it() {
    println!("seed {SEED}");
    let waited_for = mixed_deadlines(config(Policy::Exact), TEN_MINUTES, SEED);
    let write_back = outcome(&with_write_back(waited_for.clone()));
    let waited_for = outcome(&waited_for);
    assert_guaranteed(&write_back);
    assert_both_classes_served(&write_back);
    assert_eq!(waited_for.asynchronous.count, 0);
    let (all, reads) = (write_back.best_effort, write_back.synchronous);
    assert!(all.mean_ms < 165.0, "{}", all.mean_ms);
    assert!(
        reads.mean_ms <= waited_for.best_effort.mean_ms,
        "{}",
        reads.mean_ms
    );
    // The slack that a write leaves is what the next read needs: without it the worst waited for the end
    // of a burst, 593 ms.
    assert!(reads.max < Nanos::from_millis(250), "{}", reads.max);
}

/// Ten small requests a second are too few to make a stream late, whoever goes first. Here the queue of best
/// effort is never empty, and two in five are writes that nobody waits for.
#[test]
fn more_best_effort_than_the_disk_can_serve_costs_no_deadline() {
    println!("seed {SEED}");
    let two_minutes = Nanos::from_secs(120);
    for policy in [Policy::Exact, Policy::DeltaL] {
        let mut loads = vec![mixed_deadlines(config(policy), two_minutes, SEED)];
        for name in PROFILED {
            let load = loaded(
                name,
                80,
                Releases::Together,
                config(policy),
                two_minutes,
                SEED,
            );
            loads.push(load);
        }
        for load in loads {
            let mut load = with_write_back(load);
            for best_effort in &mut load.best_effort {
                best_effort.arrivals = Arrivals::Poisson {
                    mean: Nanos::from_millis(10),
                };
            }
            let outcome = outcome(&load);
            assert_eq!(outcome.missed(), 0);
            assert_eq!(
                outcome.disk.overruns, 0,
                "worst {}",
                outcome.disk.overrun_max
            );
            let took = outcome.ended - Time::ZERO;
            assert!(took > Nanos(two_minutes.get() / 4 * 5), "{took}");
        }
    }
}

#[test]
fn a_floor_takes_nothing_from_the_streams_and_best_effort_lives_on_it() {
    println!("seed {SEED}");
    for name in PROFILED {
        let full = loaded(
            name,
            97,
            Releases::Together,
            config(Policy::DeltaL),
            TEN_MINUTES,
            SEED,
        );
        let with = outcome(&with_floor(full, 2));
        assert_guaranteed(&with);
        assert_eq!(with.best_effort_unserved, 0);
    }
}

/// The floor that a server keeps unless it is told otherwise: best effort under `exact` has no need of it
/// at a load like this, and it is not for more than it leaves.
#[test]
fn the_usual_floor_changes_nothing_for_exact_at_80_percent_and_refuses_what_fills_the_disk() {
    println!("seed {SEED}");
    let config = config(Policy::Exact);
    for name in PROFILED {
        let load = loaded(
            name,
            80,
            Releases::Together,
            config.clone(),
            TEN_MINUTES,
            SEED,
        );
        let without = outcome(&load);
        let with = outcome(&with_floor(load, 5));
        assert_guaranteed(&with);
        let [with, without] = [with, without].map(|outcome| outcome.best_effort.mean_ms);
        assert!(with <= without * 1.01, "{with} {without}");
    }
    // 98 % are promised.
    let full = mixed_deadlines(config, TEN_MINUTES, SEED);
    assert!(run(&with_floor(full, 5)).is_err());
}

#[test]
fn best_effort_in_bursts_costs_no_deadline() {
    println!("seed {SEED}");
    for policy in [Policy::Exact, Policy::DeltaL] {
        let load = loaded(
            "quantum-atlas-ii",
            80,
            Releases::Spread,
            config(policy),
            TEN_MINUTES,
            SEED,
        );
        assert_guaranteed(&outcome(&in_bursts(load)));
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let experiment = |seed| mixed_deadlines(config(Policy::Exact), Nanos::from_secs(30), seed);
    let [first, again, other] = [1, 1, 2].map(|seed| outcome(&experiment(seed)));
    assert_eq!(first, again);
    assert_ne!(first.disk.hash, other.disk.hash);
}

#[test]
fn more_than_the_disk_can_carry_is_refused() {
    let config = config(Policy::Exact);
    let experiment = loaded(
        "quantum-atlas-ii",
        110,
        Releases::Spread,
        config,
        TEN_MINUTES,
        SEED,
    );
    let refused = run(&experiment).unwrap_err();
    assert!(matches!(refused, RunError::Refused { .. }), "{refused}");
}
