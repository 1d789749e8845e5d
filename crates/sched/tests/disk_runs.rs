//! Long random runs of the disk scheduler in virtual time: whatever is queued, no admitted deadline is
//! missed, nothing starves, and every order that was asked for is kept.

#![allow(clippy::print_stdout)] // a random test says its seed

mod common;
#[path = "disk_runs/run.rs"]
mod run;

use common::seed;
use run::Run;
use sched::best_effort::BestEffortOrder;
use sched::core::Policy;
use sched::request::Served;
use std::collections::HashSet;

#[test]
fn no_admitted_deadline_is_missed_and_nothing_starves() {
    let base = seed("disk runs", Some(1));
    let mut completed = 0;
    for seed in base..base + 24 {
        let order = [
            BestEffortOrder::Scan,
            BestEffortOrder::Nearest,
            BestEffortOrder::Fifo,
        ][seed as usize % 3];
        let policy = if seed % 4 == 3 {
            Policy::DeltaL
        } else {
            Policy::Exact
        };
        let mut run = Run::new(seed, policy, order, [0.5, 0.7, 0.85][seed as usize / 2 % 3]);
        for _ in 0..20_000 {
            run.step(30);
        }
        run.drain();
        completed += run.next_id;
        let report = run.disk.report(run.now);
        assert_eq!((report.missed, report.overruns), (0, 0));
        assert_eq!(
            report.queued_sync + report.queued_async + report.queued_stream,
            0
        );
        for task in report.tasks {
            assert_eq!((task.queued, task.missed), (0, 0), "{}", run.label);
        }
    }
    println!("{completed} requests");
}

/// A stream that sends 25 times what it reserved delays neither the other streams nor, beyond its
/// share of the slack, best effort (thesis 6.5.5).
#[test]
fn a_misbehaving_stream_starves_nobody() {
    let seed = seed("disk runs", Some(1));
    let mut mean = Vec::new();
    for excess in [1, 25] {
        let mut run = Run::new(seed, Policy::Exact, BestEffortOrder::Scan, 0.5);
        run.best_effort_max = 20;
        run.streams[0].excess = excess;
        for _ in 0..40_000 {
            run.step(6);
        }
        let report = run.disk.report(run.now);
        let served = |id| {
            report
                .tasks
                .iter()
                .find(|task| task.id == id)
                .map(|task| task.completed)
        };
        println!(
            "excess {excess}: plain {:?}, reserved {:?}, streams {:?}, first stream {:?}, early {}",
            run.waits("plain"),
            run.waits("reserved"),
            run.waits("stream"),
            served(run.streams[0].id),
            report.served.early
        );
        assert_eq!(report.missed, 0);
        mean.push((run.waits("plain").0, run.completed_best_effort));
    }
    let (alone, crowded) = (mean[0].0.get(), mean[1].0.get());
    assert!(
        crowded < 6 * alone.max(50_000_000),
        "best effort waits {crowded} ns, {alone} without"
    );
}

/// The same requests give the same decisions.
#[test]
fn runs_are_deterministic() {
    let trace = |seed| {
        let mut run = Run::new(seed, Policy::Exact, BestEffortOrder::Scan, 0.7);
        let mut trace = Vec::new();
        for _ in 0..3_000 {
            run.step(30);
            trace.push((run.now, run.flight.map(|flight| flight.0)));
        }
        trace
    };
    // Nothing depends on the order of a hash table: the harness's own tables differ between runs.
    let issued: HashSet<u64> = trace(7)
        .iter()
        .filter_map(|entry| entry.1.map(|dispatch| dispatch.id.0))
        .collect();
    assert!(issued.len() > 100);
    assert_eq!(trace(7), trace(7));
}

/// On a disk that streams fill, the floor's container carries best effort, and what it carries is not
/// late either, which is looked at with every completion.
#[test]
fn the_floor_of_a_full_disk_carries_best_effort_and_is_never_late() {
    let mut run = Run::new(
        seed("disk runs", Some(1)),
        Policy::Edf,
        BestEffortOrder::Scan,
        0.3,
    );
    for stream in &mut run.streams {
        stream.excess = 8;
    }
    let mut containers = 0;
    for _ in 0..20_000 {
        run.step(60);
        containers += u64::from(
            run.flight
                .is_some_and(|flight| flight.0.served == Served::Container),
        );
    }
    assert!(containers > 100, "{containers}");
}
