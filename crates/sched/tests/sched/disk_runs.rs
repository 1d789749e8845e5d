//! Long random runs of the disk scheduler in virtual time: whatever is queued, no admitted deadline is
//! missed, nothing starves, and every order that was asked for is kept.

#![allow(clippy::print_stdout)] // a random test says its seed

mod run;

use run::{Run, Wait};
use sched::best_effort::BestEffortOrder;
use sched::core::Policy;
use sched::disk::SchedulerConfig;
use sched::request::Served;
use std::collections::HashSet;
use std::ops::Range;
use testkit::seed;

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

/// Long slices are served in pieces between the requests of streams, of which not all would be admitted beside slices
/// that are served whole.
#[test]
fn long_slices_make_nobody_late() {
    let base = seed("long slices", Some(1));
    let (mut refused_whole, mut containers) = (0, 0);
    for seed in base..base + 12 {
        let policy = [Policy::Exact, Policy::DeltaL][seed as usize % 2];
        let order = BestEffortOrder::Scan;
        let mut run = Run::with_servers(seed, policy, order, 0.4, Some(400..800));
        refused_whole += u32::from(run.is_refused_whole());
        for _ in 0..20_000 {
            run.step(100);
        }
        containers += run.disk.report(run.now).served.container;
        run.drain();
        let report = run.disk.report(run.now);
        assert_eq!((report.missed, report.overruns), (0, 0), "{}", run.label);
    }
    println!("{refused_whole} of 12 refused if served whole, {containers} requests out of slices");
    assert!(refused_whole > 0 && containers > 1_000);
}

/// Streams, containers and best effort on a disk that lends its place on a link whenever it may.
#[test]
fn a_disk_that_lends_its_place_misses_no_deadline_and_nothing_starves_on_it() {
    let base = seed("disk runs", Some(1));
    let mut loans = 0;
    for seed in base..base + 12 {
        let policy = [Policy::Exact, Policy::DeltaL][seed as usize % 2];
        let load = [0.4, 0.7, 0.85][seed as usize / 2 % 3];
        let mut run = Run::new(seed, policy, BestEffortOrder::Scan, load);
        run.lends = true;
        for _ in 0..20_000 {
            run.step(10);
        }
        loans += run.loans;
        run.lends = false;
        run.drain();
        let report = run.disk.report(run.now);
        assert_eq!((report.missed, report.overruns), (0, 0), "{}", run.label);
    }
    println!("{loans} loans");
    assert!(loans > 10_000, "{loans}");
}

/// All streams send 25 times what they reserved, and there is always more best effort.
fn misbehaving(seed: u64, policy: Policy, load: f64, servers: Option<Range<u64>>) -> Run {
    let order = BestEffortOrder::Scan;
    let mut run = Run::with_servers(seed, policy, order, load, servers);
    (run.best_effort_max, run.ordered) = (40, false);
    for stream in &mut run.streams {
        stream.excess = 25;
    }
    run
}

/// On a disk without a floor streams that send more than they reserved delay neither each other nor, beyond
/// their share of the slack, best effort (thesis 6.5.5).
///
/// While best effort waits, of S given to it and E to early requests, in percent of b and 100 - b, the
/// account b E - (100 - b) S rises to b times the longest early request at most, and falls to minus (100 - b)
/// times the longest piece at least. So over any wait E <= (S + longest piece) (100 - b) / b + longest early
/// request, whether streams always have a request queued or one of them sends the next when it is answered.
#[test]
fn misbehaving_streams_leave_best_effort_its_share_of_the_slack() {
    let base = seed("disk runs", Some(1));
    let mut waits = 0;
    for seed in base..base + 16 {
        let mut run = misbehaving(seed, Policy::Exact, 0.5, None);
        if seed % 2 == 1 {
            // One alone, and it is absent from every decision at its own completion.
            run.streams.truncate(1);
            run.stream_max = 1;
        }
        for _ in 0..40_000 {
            run.step(100);
        }
        assert_eq!(run.disk.report(run.now).missed, 0, "{}", run.label);
        let b = 100 - u64::from(SchedulerConfig::default().early_share_percent);
        for Wait { wait, given } in &run.plain {
            let share = (given.slack + run.longest.slack).get() * (100 - b) / b;
            assert!(
                given.early.get() <= share + run.longest.early.get(),
                "{}: {given:?} in {wait}",
                run.label
            );
            waits += u64::from(given.early > run.longest.early);
        }
    }
    println!("{waits} waits with several early requests");
    assert!(waits > 1_000, "the share is put to the test: {waits}");
}

/// On a disk that they fill, under the scheduler that gives away least, the floor (Q, P) gives all plain
/// requests together k (Q - longest piece) within (k + 1) P: the first container of which nothing was taken
/// is released a period later at the latest, and due a period after that; and what is forfeited of each is
/// less than the longest piece.
#[test]
fn misbehaving_streams_leave_best_effort_its_floor() {
    let base = seed("disk runs", Some(1));
    let mut periods = 0;
    for seed in base..base + 8 {
        let mut run = misbehaving(seed, Policy::DeltaL, f64::INFINITY, Some(200..201));
        run.least_part = 100;
        for _ in 0..40_000 {
            run.step(100);
        }
        assert_eq!(run.disk.report(run.now).missed, 0, "{}", run.label);
        let (slice, period) = (run.floor.service(), run.floor.period());
        let whole = slice - run.longest.plain;
        for Wait { wait, given } in &run.plain {
            let containers = (wait.get() / period.get()).saturating_sub(1);
            assert!(
                given.plain.get() >= containers * whole.get(),
                "{}: {given:?} in {wait}",
                run.label
            );
            periods += containers;
        }
    }
    println!("{periods} periods of the floor");
    assert!(periods > 1_000, "the floor is put to the test: {periods}");
}

/// Equal requests give equal decisions.
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
