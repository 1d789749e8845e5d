//! What a decision of the whole disk scheduler costs, with 100 streams and 1,000 best-effort requests queued,
//! where half of the disk is promised and where nearly all of it is.
//! `cargo bench -p clockwise-sched --bench decision`
#![allow(
    missing_docs,
    reason = "criterion's macros define undocumented functions"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use sched::best_effort::BestEffortOrder;
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::{Class, Decision, Dispatch, Op, Order, Request, RequestId, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STREAMS: u64 = 100;
const FLOOR: (Nanos, Nanos) = (Nanos::from_millis(90), Nanos::from_secs(3));
/// How much of the disk is promised, in percent.
const PROMISED: [u64; 3] = [50, 80, 95];
const QUEUED: u64 = 1_000;

fn mix(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// A disk in the middle of its work: streams at their rates, and best effort that never gets less.
struct Busy {
    disk: DiskScheduler,
    capacity: u64,
    period: u64,
    now: Time,
    next: u64,
    due: Vec<Time>,
}

impl Busy {
    fn new(order: BestEffortOrder, promised: u64) -> Self {
        let profile = Arc::new(DriveProfile::shipped("hdd-8tb-7200").expect("it is shipped"));
        let mut disk = DiskScheduler::new(
            profile,
            SchedulerConfig {
                order,
                ..SchedulerConfig::default()
            },
        );
        let capacity = disk.predictor().capacity().get();
        let all = Sector(0)..Sector(capacity);
        let service = disk
            .predictor()
            .worst_case(all, Op::Read, SectorCount(2_048));
        let ppm = promised * 10_000 - FLOOR.0.get() * 1_000_000 / FLOOR.1.get();
        let period = STREAMS * service.get() * 1_000_000 / ppm;
        let mut join = |id, service, period, kind| {
            let params = TaskParams::new(service, period).expect("a task");
            disk.join(Time(0), TaskId(id), params, kind, Time(0))
                .expect("there is room");
        };
        for id in 0..STREAMS {
            join(id, service, Nanos(period + id), TaskKind::Stream);
        }
        join(STREAMS, FLOOR.0, FLOOR.1, TaskKind::Floor);
        let due = (0..STREAMS).map(|id| Time(id * period / STREAMS)).collect();
        let mut busy = Self {
            disk,
            capacity,
            period,
            now: Time(0),
            next: 0,
            due,
        };
        for _ in 0..QUEUED {
            busy.best_effort();
        }
        busy
    }

    fn submit(&mut self, class: Class, count: u64) {
        let start = Sector(mix(self.next) % (self.capacity - count) / 8 * 8);
        let id = RequestId(self.next);
        self.next += 1;
        let (op, count, order) = (Op::Read, SectorCount(count), Order::default());
        self.disk
            .submit(
                self.now,
                Request {
                    id,
                    op,
                    start,
                    count,
                    class,
                    order,
                },
            )
            .expect("it fits");
    }

    fn best_effort(&mut self) {
        let urgency = if self.next.is_multiple_of(2) {
            Urgency::Sync
        } else {
            Urgency::Async
        };
        self.submit(Class::BestEffort(urgency), 16);
    }

    fn arrivals(&mut self) {
        for id in 0..STREAMS {
            if self.due[id as usize] <= self.now {
                self.due[id as usize] += Nanos(self.period + id);
                self.submit(Class::Stream(TaskId(id)), 2_048);
            }
        }
    }

    fn decide(&mut self) -> Option<Dispatch> {
        match self.disk.decide(self.now) {
            Decision::Issue(dispatch) => Some(dispatch),
            Decision::Wait { .. } => None,
        }
    }

    fn complete(&mut self, dispatch: Dispatch) {
        self.now += Nanos(dispatch.predicted.get() * 6 / 10);
        let done = self
            .disk
            .completed(self.now, dispatch.id)
            .expect("it was issued");
        if done.finished && !matches!(done.class, Class::Stream(_)) {
            self.best_effort();
        }
    }
}

/// Decisions alone, timed one by one: the clock's own time is in them.
fn decide_alone(busy: &mut Busy, iterations: u64) -> Duration {
    let mut spent = Duration::ZERO;
    for _ in 0..iterations {
        busy.arrivals();
        let begun = Instant::now();
        let decided = black_box(busy.decide());
        spent += begun.elapsed();
        match decided {
            Some(dispatch) => busy.complete(dispatch),
            None => busy.now += Nanos::from_millis(1),
        }
    }
    spent
}

fn decision(c: &mut Criterion) {
    let orders = [
        ("scan", BestEffortOrder::Scan),
        ("nearest", BestEffortOrder::Nearest),
    ];
    for promised in PROMISED {
        let what = format!("100 streams, 1000 best effort, {promised} % promised");
        for (name, order) in orders {
            c.bench_function(&format!("decide/{what}/{name}"), |b| {
                let mut busy = Busy::new(order, promised);
                b.iter_custom(|iterations| decide_alone(&mut busy, iterations));
            });
        }
        let mut busy = Busy::new(BestEffortOrder::Scan, promised);
        c.bench_function(&format!("submit, decide, complete/{what}"), |b| {
            b.iter(|| {
                busy.arrivals();
                match busy.decide() {
                    Some(dispatch) => busy.complete(dispatch),
                    None => busy.now += Nanos::from_millis(1),
                }
            });
        });
    }
    c.bench_function("the clock's own time", |b| b.iter(Instant::now));
    let predictor = Predictor::new(&DriveProfile::shipped("hdd-8tb-7200").expect("it is shipped"));
    let mut number = 0;
    c.bench_function("predict", |b| {
        b.iter(|| {
            number += 1;
            let head = Sector(mix(number) % 15_000_000_000);
            let start = Sector(mix(number + 7) % 15_000_000_000);
            predictor.predict(Some(head), Op::Read, start, SectorCount(64))
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_secs(1));
    targets = decision
}
criterion_main!(benches);
