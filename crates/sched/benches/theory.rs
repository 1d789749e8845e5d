//! Cost of a decision and of an admission. `cargo bench -p clockwise-sched --bench theory`
#![allow(
    missing_docs,
    reason = "criterion's macros define undocumented functions"
)]

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use sched::admission::Admission;
use sched::book::{Book, Span};
use sched::core::{Choice, Core, CoreOptions, JobKey, Policy, Service};
use sched::delta_l::delta_l;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Time};
use std::hint::black_box;
use testkit::Random;

/// Uniform in 0..1.
fn unit(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

fn params(service: u64, period: u64) -> TaskParams {
    TaskParams::new(Nanos(service.clamp(1, period)), Nanos(period)).expect("a task")
}

/// Sets whose last task is still to be admitted, by name.
fn sets(n: usize) -> Vec<(&'static str, Vec<TaskParams>)> {
    let mut random = Random(7);
    let each = 1.0 / n as f64;
    // Cameras of three kinds, as most disks have them.
    let nice = (0..n).map(|k| {
        let period = [500_000_000, 1_000_000_000, 2_000_000_000][k % 3];
        params((0.9 * each * period as f64) as u64, period)
    });
    // Periods of no common measure from 0.1 to 3 s, all but full.
    let spread = (0..n).map(|_| {
        let period = (1e8 * 10f64.powf(1.5 * unit(&mut random))) as u64;
        params((0.999 * each * period as f64) as u64, period)
    });
    let spread: Vec<TaskParams> = spread.collect();
    // The more often the longer: every period is a step of the blocking term.
    let mut random = Random(8);
    let falling = (0..n).map(|k| {
        let part = k as f64 / n as f64;
        let period = (2e8 * 10f64.powf(2.5 * part)) as u64 + random.next() % 1000;
        params((0.9 * each * 1e9 * (1.0 - 0.9 * part)) as u64, period)
    });
    // Alike to within a thousandth, U = 0.9999.
    let mut random = Random(9);
    let alike = (0..n).map(|_| {
        let period = 1_000_000_000 + random.next() % 1_000_000;
        params((0.9999 * each * period as f64) as u64, period)
    });
    vec![
        ("nice", nice.collect()),
        ("spread", spread.clone()),
        ("falling", falling.collect()),
        ("alike", alike.collect()),
    ]
}

fn admission(c: &mut Criterion) {
    let mut group = c.benchmark_group("admission of one more");
    for n in [100, 10_000] {
        for (name, tasks) in sets(n + 1) {
            let (last, first) = tasks.split_last().expect("tasks");
            let ids = (0..).map(TaskId);
            let set = Admission::of(ids.zip(first.iter().copied())).expect(name);
            let verdict = set.test(TaskId(u64::MAX), *last).is_ok();
            group.bench_function(
                BenchmarkId::new(
                    name,
                    format!("{n} ({verdict}, U = {:.4})", set.utilization()),
                ),
                |b| {
                    b.iter(|| black_box(&set).test(TaskId(u64::MAX), black_box(*last)));
                },
            );
        }
    }
    group.finish();
}

/// Admission as a server does it: a book of spans that is kept, which the task enters and leaves.
fn booking(c: &mut Criterion) {
    let mut group = c.benchmark_group("one more in the book");
    for n in [100, 10_000] {
        for (name, mut tasks) in sets(n + 1) {
            let mut book = Book::new();
            let last = tasks.pop().expect("tasks");
            for (index, task) in tasks.into_iter().enumerate() {
                let id = TaskId(index as u64);
                book.join(id, task, Span::since(Time(0))).expect(name);
            }
            let id = TaskId(u64::MAX);
            group.bench_function(BenchmarkId::new(name, n), |b| {
                b.iter(|| {
                    let joined = book.join(id, black_box(last), Span::since(Time(1)));
                    book.leave(id, Time::ZERO);
                    joined
                });
            });
        }
    }
    group.finish();
}

fn delta(c: &mut Criterion) {
    let mut group = c.benchmark_group("delta-L");
    for n in [100, 10_000] {
        for (name, tasks) in sets(n) {
            let ids = (0..).map(TaskId);
            let set = Admission::of(ids.zip(tasks)).expect(name);
            let kind = if delta_l(&set).exact {
                "exact"
            } else {
                "bound"
            };
            group.bench_function(BenchmarkId::new(name, format!("{n} ({kind})")), |b| {
                b.iter(|| delta_l(black_box(&set)))
            });
        }
    }
    group.finish();
}

/// A disk in virtual time: `streams` periodic streams with two blocks outstanding each, and best effort
/// always waiting.
struct Disk {
    core: Core,
    now: Time,
    random: Random,
    service: Nanos,
    best_effort: Nanos,
}

impl Disk {
    fn new(policy: Policy, streams: u64, load: f64) -> Self {
        let mut random = Random(3);
        let mut core = Core::new(CoreOptions {
            policy,
            burst_threshold: Nanos::from_millis(400),
            ..CoreOptions::default()
        });
        let service = Nanos((load * 2e9 / streams as f64) as u64);
        let mut set = Admission::new();
        for index in 0..streams {
            let task = params(service.0, 2_000_000_000 + random.next() % 400_000_000);
            set.insert(TaskId(index), task).expect("admitted");
            core.join(Time(0), TaskId(index), task, Time(0));
        }
        core.set_delta_l(Time(0), delta_l(&set).value, delta_l(&set).value);
        for index in 0..streams {
            for key in 0..2 {
                core.arrive(Time(0), TaskId(index), JobKey(key), service)
                    .expect("accepted");
            }
        }
        Self {
            core,
            now: Time(0),
            random,
            service,
            best_effort: Nanos::from_millis(12),
        }
    }

    /// One decision, and what follows from it.
    fn step(&mut self) {
        let choice = self.core.choose(self.now, Some(self.best_effort));
        let (service, cost) = match choice {
            Choice::RealTime(id, job) | Choice::Early(id, job) => {
                (Service::Job(id, job), self.service)
            }
            Choice::BestEffort => (Service::BestEffort(self.best_effort), self.best_effort),
            Choice::Wait { until } => {
                self.now = until.unwrap_or(self.now + Nanos::from_millis(1));
                return;
            }
        };
        self.core.start(self.now, service);
        self.now += Nanos(cost.0 / 2 + self.random.next() % (cost.0 / 2));
        self.core.finish(self.now, service);
        if let Service::Job(id, job) = service {
            self.core
                .arrive(self.now, id, job, self.service)
                .expect("accepted");
        }
    }
}

fn decision(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision, start, finish and arrival");
    for policy in [Policy::Exact, Policy::DeltaL, Policy::Edf] {
        for streams in [10, 100, 1000] {
            for load in [0.5, 0.8, 0.95] {
                let mut disk = Disk::new(policy, streams, load);
                for _ in 0..10_000 {
                    disk.step();
                }
                let id = BenchmarkId::new(policy.name(), format!("{streams} streams, {load}"));
                group.bench_function(id, |b| b.iter(|| disk.step()));
            }
        }
    }
    group.finish();
}

/// The worst single computation of exact slack: nothing is known, everything is early.
fn slack(c: &mut Criterion) {
    let mut group = c.benchmark_group("slack from scratch");
    for load in [0.5, 0.8, 0.95, 0.999] {
        let disk = Disk::new(Policy::Exact, 100, load);
        group.bench_function(BenchmarkId::new("100 streams", load), |b| {
            b.iter_batched_ref(
                || disk.core.clone(),
                |core| core.slack(disk.now),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(std::time::Duration::from_millis(800)).warm_up_time(std::time::Duration::from_millis(300));
    targets = admission, booking, delta, decision, slack
}
criterion_main!(benches);
