//! Several disks in virtual time: that everything asked for is served once, that what was admitted is not late, and
//! that the same is the same again, however it is run.

use std::sync::Mutex;

use lab::arms::{ArmRequest, ArmScheduler, Edf};
use lab::cello::Period;
use lab::farm::{FarmOutcome, FarmRun, Load};
use lab::sweep::Sweep;
use lab::thesis::{Layout, Measured, Point, Source, Thesis, Times};
use sched::disk::{OverPrediction, SchedulerConfig};
use sched::policy::Policy;
use sched::units::{BytesPerSecond, Nanos, Time};

fn point(layout: Layout, times: Times, policy: Policy, pairs: usize) -> Point {
    Point {
        layout,
        times,
        policy,
        pairs,
        source: Source::Busy,
        seed: 7,
        over_prediction: OverPrediction::default(),
    }
}

/// The largest number of pairs that fit.
fn most(layout: Layout, times: Times) -> usize {
    Thesis::new(layout, times, 7).unwrap().admit(usize::MAX).1
}

fn measured(points: &[Point], threads: usize) -> Vec<Measured> {
    let sweep = Sweep {
        threads,
        folder: None,
        progress: &|_, _| {},
    };
    sweep.run(points).unwrap()
}

/// Blocks that a stream of this period asks for until the end of the trace.
fn blocks(period_ms: u64) -> u64 {
    (Period::busy().length().get()).div_ceil(Nanos::from_millis(period_ms).get())
}

#[test]
fn everything_that_is_asked_for_is_served_once() {
    for layout in [Layout::Rotation, Layout::Random] {
        for policy in Policy::ALL {
            let measured = &measured(&[point(layout, Times::Printed, policy, 2)], 1)[0];
            let requests = Period::busy().disks.map(|disk| disk.requests);
            let served: Vec<u64> = measured.sources.iter().map(|of| of.count).collect();
            assert_eq!(served, requests, "{layout} {policy}");
            assert_eq!(measured.best_effort.count, requests.iter().sum::<u64>());
            let asked = blocks(886) + blocks(1_253) + 2 * blocks(1_488);
            assert_eq!(measured.blocks, asked, "{layout} {policy}");
        }
    }
}

#[test]
fn streams_admitted_by_bounds_are_never_late() {
    let mut points = Vec::new();
    for layout in Layout::ALL {
        for times in [Times::Bound, Times::Near, Times::Tracks, Times::Sweeps] {
            let pairs = most(layout, times);
            let policies = [Policy::Exact, Policy::DeltaL].into_iter();
            points.extend(policies.map(|policy| point(layout, times, policy, pairs)));
        }
    }
    for (point, measured) in points.iter().zip(measured(&points, 2)) {
        assert!(measured.utilization > 0.85, "{point:?}");
        assert_eq!(
            (measured.missed, measured.overruns),
            (0, 0),
            "{point:?}: {} ms late",
            measured.lateness_max_ms
        );
    }
}

/// Bandwidth that is promised beyond what a bound for seeks over the whole disk leaves room for.
#[test]
fn more_is_admitted_where_blocks_need_what_they_take_where_they_lie() {
    let most = |times| most(Layout::Rotation, times);
    let pairs = [Times::Bound, Times::Near, Times::Tracks, Times::Sweeps].map(most);
    assert!(pairs.is_sorted_by(|a, b| a < b), "{pairs:?} pairs");
}

/// Schedulers that use the time as soon as it is known, that have to be given it, and that cannot use it; no
/// block is late.
#[test]
fn over_predicted_time_is_used_by_who_looks_at_times() {
    let runs = |policy| {
        let ways = [
            OverPrediction::Unused,
            OverPrediction::Known,
            OverPrediction::Given,
        ];
        let points = ways.map(|over_prediction| Point {
            over_prediction,
            ..point(Layout::Random, Times::Printed, policy, 15)
        });
        let measured = measured(&points, 2);
        assert!(
            measured
                .iter()
                .all(|of| of.missed == 0 || policy == Policy::Lst),
            "{policy}"
        );
        let same = |a: usize, b: usize| measured[a].hash == measured[b].hash;
        (same(0, 1), same(1, 2))
    };
    assert_eq!(runs(Policy::Exact), (false, true));
    assert_eq!(runs(Policy::Lst), (false, true));
    assert_eq!(runs(Policy::DeltaL), (true, false));
    assert_eq!(runs(Policy::Edf), (true, true));
}

#[test]
fn the_same_points_have_the_same_results_on_any_number_of_threads() {
    let mut points: Vec<Point> = Policy::ALL
        .iter()
        .map(|policy| point(Layout::Rotation, Times::Printed, *policy, 12))
        .collect();
    points.push(point(Layout::Random, Times::Printed, Policy::Exact, 3));
    let one = measured(&points, 1);
    assert_eq!(one, measured(&points, 3));
    let hashes: std::collections::BTreeSet<u64> = one.iter().map(|of| of.hash).collect();
    assert_eq!(hashes.len(), points.len(), "each point is a run of its own");
}

#[test]
fn a_sweep_goes_on_where_it_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let counted = Mutex::new(Vec::new());
    let progress = |done: usize, all: usize| counted.lock().unwrap().push((done, all));
    let sweep = Sweep {
        threads: 1,
        folder: Some(folder.path()),
        progress: &progress,
    };
    let points = [1, 2, 3].map(|pairs| point(Layout::Rotation, Times::Printed, Policy::Lst, pairs));
    let first = sweep.run(&points[..2]).unwrap();
    // A kept result is read again: this one is in one file only.
    let path = folder.path().join(points[0].file_name());
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replace(
        &format!("\"blocks\": {}", first[0].blocks),
        "\"blocks\": 12345",
    );
    assert_ne!(text, changed);
    std::fs::write(&path, &changed).unwrap();
    // A file that is no result is measured again.
    std::fs::write(folder.path().join(points[1].file_name()), &text[..100]).unwrap();
    let all = sweep.run(&points).unwrap();
    assert_eq!(all[0].blocks, 12_345);
    assert_eq!(all[1], first[1]);
    assert_eq!(
        *counted.lock().unwrap(),
        [(1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]
    );
    // And so is the result of another program.
    let other = changed.replace("\"program\": \"", "\"program\": \"another ");
    std::fs::write(&path, other).unwrap();
    assert_eq!(sweep.run(&points[..1]).unwrap()[0], first[0]);
}

#[test]
fn more_pairs_than_there_is_room_for_are_refused_by_disk() {
    let pairs = most(Layout::Rotation, Times::Printed) + 1;
    let sweep = Sweep {
        threads: 2,
        folder: None,
        progress: &|_, _| {},
    };
    let refused = sweep.run(&[point(
        Layout::Rotation,
        Times::Printed,
        Policy::Exact,
        pairs,
    )]);
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains(&format!("{pairs} pairs")) && said.contains("disk "),
        "{said}"
    );
}

/// A rule for the arm that looks at what it is given.
struct Watched<A> {
    rule: A,
    last: Option<u64>,
}

impl<A: ArmScheduler> ArmScheduler for Watched<A> {
    fn choose(&mut self, now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        assert!(queue.is_sorted_by_key(|of| (of.deadline, of.arrived)));
        assert!(
            queue
                .iter()
                .all(|of| of.arrived <= now && Some(of.number) != self.last)
        );
        let place = self.rule.choose(now, arm, queue);
        self.last = Some(queue[place].number);
        place
    }
}

/// The last in its queue: best effort goes first, the newest before all.
struct Last;

impl ArmScheduler for Last {
    fn choose(&mut self, _now: Time, _arm: u32, queue: &[ArmRequest]) -> usize {
        queue.len() - 1
    }
}

#[test]
fn rules_for_the_arm_serve_all_that_is_asked_for() {
    let thesis = Thesis::new(Layout::Rotation, Times::Printed, 7).unwrap();
    let end = Time::ZERO + Nanos::from_secs(100);
    let load = thesis.cello(&Period::busy(), 7).until(end);
    let config = SchedulerConfig::default();
    let watched = |load: &Load, pairs: usize| {
        let (admitted, ..) = thesis.admit(pairs);
        let run = FarmRun {
            disks: &thesis.disks,
            admitted: &admitted,
            load,
            config: &config,
            end,
            seed: 7,
            slot: None,
            slack_every: Some(Nanos::from_secs(1)),
        };
        let edf = run.run_by(|_| Watched {
            rule: Edf,
            last: None,
        });
        let last = run.run_by(|_| Watched {
            rule: Last,
            last: None,
        });
        let server = run.run();
        for outcome in [&edf, &last] {
            assert_eq!(
                (outcome.best_effort.count, outcome.unserved),
                (load.requests, 0)
            );
            assert!(outcome.slack.iter().flatten().all(Option::is_none));
            let blocks = |outcome: &FarmOutcome| -> u64 {
                outcome.streams.iter().map(|of| of.completed).sum()
            };
            // A stream whose blocks are late asks for fewer.
            if outcome.missed() == 0 {
                assert_eq!(blocks(outcome), blocks(&server));
            }
        }
        (edf, last)
    };
    // Alone, a stream is late under no rule.
    let (edf, last) = watched(&Load::default(), 1);
    assert_eq!((edf.missed(), last.missed()), (0, 0));
    let (edf, last) = watched(&load, 24);
    assert_eq!(edf.missed(), 0);
    assert!(last.missed() > 0);
    assert!(last.best_effort.mean_ms < edf.best_effort.mean_ms);
}

#[test]
fn g_scan_serves_everything_on_any_number_of_threads() {
    let points = [2, 24].map(|pairs| point(Layout::Rotation, Times::Printed, Policy::Exact, pairs));
    let run = |threads| {
        let sweep = Sweep {
            threads,
            folder: None,
            progress: &|_, _| {},
        };
        sweep.run_by_g_scan(&points).unwrap()
    };
    let measured = run(1);
    assert_eq!(measured, run(2));
    let requests: u64 = Period::busy().disks.map(|disk| disk.requests).iter().sum();
    for of in &measured {
        assert_eq!((of.best_effort.count, of.unserved), (requests, 0));
    }
    assert!(measured[0].best_effort.mean_ms < measured[1].best_effort.mean_ms);
}

/// By the clock as in virtual time: the same requests and blocks, each once.
#[test]
fn a_run_in_real_time_serves_what_is_asked_for() {
    let thesis = Thesis::new(Layout::Rotation, Times::Printed, 7).unwrap();
    let end = Time::ZERO + Nanos::from_secs(3);
    let load = thesis.cello(&Period::busy(), 7).until(end);
    let (admitted, ..) = thesis.admit(12);
    let config = SchedulerConfig::default();
    let run = FarmRun {
        disks: &thesis.disks,
        admitted: &admitted,
        load: &load,
        config: &config,
        end,
        seed: 7,
        slot: None,
        slack_every: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let begin = engine::clock::now().saturating_add(Nanos::from_secs(1));
    let real = run.run_in_real_time(folder.path(), begin).unwrap();
    let simulated = run.run();
    let blocks = |outcome: &FarmOutcome| -> Vec<u64> {
        outcome.streams.iter().map(|of| of.completed).collect()
    };
    assert_eq!(blocks(&real.farm), blocks(&simulated));
    let requests = |outcome: &FarmOutcome| -> Vec<u64> {
        outcome.sources.iter().map(|of| of.latency.count).collect()
    };
    assert_eq!(requests(&real.farm), requests(&simulated));
    assert_eq!(real.farm.best_effort.count, load.requests);
    assert_eq!((real.unserved, real.farm.missed()), (0, 0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn pairs_ask_for_what_the_table_says() {
    assert_eq!(Thesis::bandwidth(1).get(), (245 + 172) * 1_024);
    assert_eq!(
        Thesis::bandwidth(25).get(),
        (13 * (245 + 172) + 12 * (817 + 172)) * 1_024
    );
    assert_eq!(Thesis::bandwidth(0), BytesPerSecond(0));
}
