//! Cost of a decision of the whole disk scheduler with 100 streams and 1,000 best-effort requests queued,
//! with half of the disk promised and with nearly all of it. Streams are mixed in block size and period, as
//! from many kinds of clients, or nearly alike, as from many cameras of one kind. `cargo bench -p
//! clockwise-sched --bench decision`
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
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STREAMS: u64 = 100;
const FLOOR: (Nanos, Nanos) = (Nanos::from_millis(90), Nanos::from_secs(3));
/// Promised part of the disk, in percent.
const PROMISED: [u64; 3] = [50, 80, 95];
const QUEUED: u64 = 1_000;

fn mix(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The kinds of streams.
#[derive(Clone, Copy)]
enum Streams {
    /// One block for all, and periods that differ by nanoseconds.
    Alike,
    /// Each with a block of [`BLOCKS`] and a period from [`SPREAD`].
    Mixed,
}

/// Seed of the blocks and periods of mixed streams.
const SEED: u64 = 2_026;
/// The blocks of mixed streams, in sectors: 64 KiB to 16 MiB.
const BLOCKS: [u64; 5] = [128, 512, 2_048, 8_192, 32_768];
/// The least and the greatest period of mixed streams, in thousandths of what the share promised makes
/// a second.
const SPREAD: (u64, u64) = (500, 2_400);

struct Stream {
    service: Nanos,
    period: u64,
    sectors: u64,
    due: Time,
}

impl Streams {
    const fn name(self) -> &'static str {
        match self {
            Self::Alike => "alike",
            Self::Mixed => "mixed",
        }
    }

    /// A hundred streams that are promised so much of the disk, in millionths.
    fn draw(self, predictor: &Predictor, ppm: u64) -> Vec<Stream> {
        let all = || Sector(0)..Sector(predictor.capacity().get());
        let mut streams: Vec<Stream> = (0..STREAMS)
            .map(|id| {
                let drawn = |what: u64, count: u64| (mix(SEED + 2 * id + what) >> 32) % count;
                let (sectors, period) = match self {
                    Self::Alike => (2_048, 1_000),
                    Self::Mixed => (
                        BLOCKS[drawn(0, BLOCKS.len() as u64) as usize],
                        SPREAD.0 + drawn(1, SPREAD.1 - SPREAD.0 + 1),
                    ),
                };
                Stream {
                    service: predictor.worst_case(all(), Op::Read, SectorCount(sectors)),
                    period,
                    sectors,
                    due: Time(0),
                }
            })
            .collect();
        let share = |stream: &Stream| stream.service.get() as f64 / stream.period as f64;
        let scale = streams.iter().map(share).sum::<f64>() * 1e6 / ppm as f64;
        for (id, stream) in (0..).zip(&mut streams) {
            stream.period = (stream.period as f64 * scale).ceil() as u64 + id;
            stream.due = Time(id * stream.period / STREAMS);
        }
        streams
    }
}

/// A disk in the middle of its work: streams at their rates, and best effort that never gets less.
struct Busy {
    disk: DiskScheduler,
    capacity: u64,
    now: Time,
    next: u64,
    streams: Vec<Stream>,
}

impl Busy {
    fn new(streams: Streams, order: BestEffortOrder, promised: u64) -> Self {
        let profile = Arc::new(DriveProfile::shipped("hdd-8tb-7200").expect("it is shipped"));
        let mut disk = DiskScheduler::new(
            profile,
            SchedulerConfig {
                order,
                ..SchedulerConfig::default()
            },
        );
        let capacity = disk.predictor().capacity().get();
        let ppm = promised * 10_000 - FLOOR.0.get() * 1_000_000 / FLOOR.1.get();
        let streams = streams.draw(disk.predictor(), ppm);
        let mut join = |id, service, period, kind| {
            let params = TaskParams::new(service, period).expect("a task");
            disk.join(Time(0), TaskId(id), params, kind, Time(0))
                .expect("there is room");
        };
        for (id, stream) in (0..).zip(&streams) {
            join(id, stream.service, Nanos(stream.period), TaskKind::Stream);
        }
        join(STREAMS, FLOOR.0, FLOOR.1, TaskKind::Floor);
        let mut busy = Self {
            disk,
            capacity,
            now: Time(0),
            next: 0,
            streams,
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
            let stream = &mut self.streams[id as usize];
            if stream.due <= self.now {
                stream.due += Nanos(stream.period);
                let sectors = stream.sectors;
                self.submit(Class::Stream(TaskId(id)), sectors);
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

/// Describes the drawn streams in words.
fn describe(out: &mut impl io::Write, promised: u64) -> io::Result<()> {
    let busy = Busy::new(Streams::Mixed, BestEffortOrder::Scan, promised);
    let range = |values: &dyn Fn(&Stream) -> f64| {
        let of = busy.streams.iter().map(values);
        (
            of.clone().fold(f64::INFINITY, f64::min),
            of.fold(0.0, f64::max),
        )
    };
    let (shortest, longest) = range(&|stream| stream.period as f64 / 1e9);
    let (least, most) = range(&|stream| stream.service.as_millis_f64());
    writeln!(
        out,
        "mixed, seed {SEED}, {promised} % promised: periods of {shortest:.2} to {longest:.2} s, worst cases of {least:.1} to {most:.1} ms"
    )
}

fn decision(c: &mut Criterion) {
    let orders = [
        ("scan", BestEffortOrder::Scan),
        ("nearest", BestEffortOrder::Nearest),
    ];
    for promised in PROMISED {
        describe(&mut io::stdout(), promised).expect("somebody reads it");
    }
    for (streams, promised) in [Streams::Mixed, Streams::Alike]
        .into_iter()
        .flat_map(|streams| PROMISED.map(|promised| (streams, promised)))
    {
        let kind = streams.name();
        let what = format!("100 {kind} streams, 1000 best effort, {promised} % promised");
        for (name, order) in orders {
            c.bench_function(&format!("decide/{what}/{name}"), |b| {
                let mut busy = Busy::new(streams, order, promised);
                b.iter_custom(|iterations| decide_alone(&mut busy, iterations));
            });
        }
        let mut busy = Busy::new(streams, BestEffortOrder::Scan, promised);
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
