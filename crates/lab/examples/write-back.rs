//! Waits of reads beside write-back: one drive of the demo in virtual time. `write-back [SECONDS] [KIB]`: KIB
//! of write-back come at once, every 2.5 s on average.
//!
//! This is no [`Experiment`](lab::run::Experiment), because those report one latency for all of best effort.
//! Here reads, single writes and write-back are told apart.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write as _};
use std::sync::Arc;

use drives::plant::{Plant, PlantSpec};
use lab::run::EventHeap;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use sched::admission::Admission;
use sched::delta_l::{delta_l, delta_l_published};
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::profile::DriveProfile;
use sched::request::{Class, Decision, Dispatch, Op, Order, Request, RequestId, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, Nanos, Sector, SectorCount, Time};

const DRIVE: &str = "hdd-8tb-7200";
const SEED: u64 = 2026;
const SECOND: u64 = 1_000_000_000;
const GIGABYTE: u64 = 1_000_000_000;
const STREAMS: u64 = 25;
const BLOCK: Bytes = Bytes::from_mib(8);
const RATE: u64 = 4_000_000;
/// Programs that ask for 4 KiB, wait for it, and ask again a second later: readers, then writers.
const READERS: usize = 12;
const DESKS: usize = 19;
const WRITE_BACK_EVERY: u64 = 2_500_000_000;
/// Sizes of write-back, in KiB, each equally likely.
const SIZES_KIB: [u64; 5] = [4, 16, 64, 256, 1_024];

#[derive(Clone, Copy)]
enum Event {
    Block(u64),
    Desk(usize),
    WriteBack,
    Done,
    Look,
}

/// Kind of client that waits.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Stream(u64),
    Desk(usize),
    WriteBack,
}

struct Run {
    disk: DiskScheduler,
    plant: Plant,
    heap: EventHeap<Event>,
    random: Xoshiro256PlusPlus,
    end: Time,
    write_back_kib: u64,
    period: Nanos,
    /// Kind and time of each request.
    waiting: BTreeMap<u64, (Waits, Time)>,
    on_disk: Option<Dispatch>,
    look: Option<Time>,
    next_id: u64,
    missed: u64,
    /// Latencies of reads, single writes and write-back.
    latencies: [Vec<Nanos>; 3],
}

/// `gigabytes` into the drive, at the beginning of a physical sector.
fn at(gigabytes: u64) -> Sector {
    Sector((gigabytes * GIGABYTE / 512) & !7)
}

/// The first stream records, the others play from four places.
fn region(stream: u64) -> (Op, Sector, u64) {
    match stream {
        0 => (Op::Write, at(1_500), 60),
        _ => (Op::Read, at(1_000 * (stream % 4)), 4),
    }
}

impl Run {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn after(&mut self, now: Time, mean: u64) -> Time {
        let fraction = ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        now + Nanos((-fraction.ln() * mean as f64) as u64 + 1)
    }

    fn push(&mut self, at: Time, event: Event) {
        if at < self.end {
            self.heap.push(at, event);
        }
    }

    fn submit(&mut self, now: Time, waits: Waits, op: Op, start: Sector, count: u64) {
        self.next_id += 1;
        let class = match (waits, op) {
            (Waits::Stream(stream), _) => Class::Stream(TaskId(stream)),
            (_, Op::Read) => Class::BestEffort(Urgency::Sync),
            (_, Op::Write) => Class::BestEffort(Urgency::Async),
        };
        let request = Request {
            id: RequestId(self.next_id),
            op,
            start,
            count: SectorCount(count),
            class,
            order: Order::default(),
        };
        self.disk.submit(now, request).expect("there is room");
        self.waiting.insert(self.next_id, (waits, now));
    }

    fn deliver(&mut self, now: Time, event: Event) {
        match event {
            Event::Block(number) => {
                let (stream, turn) = (number % STREAMS, number / STREAMS);
                let (op, start, blocks) = region(stream);
                let sectors = BLOCK.get() / 512;
                let start = start + SectorCount(turn % blocks * sectors);
                self.submit(now, Waits::Stream(stream), op, start, sectors);
                self.push(now + self.period, Event::Block(number + STREAMS));
            }
            Event::Desk(desk) => {
                let op = if desk < READERS { Op::Read } else { Op::Write };
                let start = at(4_000) + SectorCount(self.below(20_000) * 8);
                self.submit(now, Waits::Desk(desk), op, start, 8);
            }
            Event::WriteBack => {
                let mut left = self.write_back_kib;
                let mut start = at(4_000) + SectorCount((100 + self.below(500)) * 2_048);
                while left > 0 {
                    let kib = SIZES_KIB[self.below(5) as usize].min(left);
                    left -= kib;
                    self.submit(now, Waits::WriteBack, Op::Write, start, kib * 2);
                    start += SectorCount(kib * 2 + self.below(64) * 8);
                }
                let next = self.after(now, WRITE_BACK_EVERY);
                self.push(next, Event::WriteBack);
            }
            Event::Done => self.done(now),
            Event::Look => self.look = None,
        }
    }

    fn done(&mut self, now: Time) {
        let piece = self.on_disk.take().expect("something was on the disk");
        let done = self.disk.completed(now, piece.id).expect("it was issued");
        if !done.finished {
            return;
        }
        let (waits, since) = self.waiting.remove(&piece.id.0).expect("somebody asked");
        let latency = now.saturating_since(since);
        match waits {
            Waits::Stream(_) => self.missed += u64::from(latency > self.period),
            Waits::Desk(desk) => {
                self.latencies[usize::from(desk >= READERS)].push(latency);
                let next = self.after(now, SECOND);
                self.push(next, Event::Desk(desk));
            }
            Waits::WriteBack => self.latencies[2].push(latency),
        }
    }

    fn decide(&mut self, now: Time) {
        if self.on_disk.is_some() {
            return;
        }
        match self.disk.decide(now) {
            Decision::Issue(piece) => {
                let service = self.plant.service(now, piece.op, piece.start, piece.count);
                self.heap.push(service.completed, Event::Done);
                self.on_disk = Some(piece);
            }
            Decision::Wait { until: Some(until) } if self.look != Some(until) => {
                self.look = Some(until);
                self.heap.push(until.max(now + Nanos(1)), Event::Look);
            }
            Decision::Wait { .. } => {}
        }
    }
}

/// The streams, which begin a millisecond after each other, and a floor of a twentieth.
fn admit(disk: &mut DiskScheduler, period: Nanos) -> Result<(), Box<dyn Error>> {
    let mut admission = Admission::new();
    let block = BLOCK.sectors().ok_or("whole sectors")?;
    for stream in 0..STREAMS {
        let (op, start, blocks) = region(stream);
        let end = start + SectorCount(blocks * block.get());
        let service = disk.predictor().worst_case(start..end, op, block);
        let params = TaskParams::new(service, period)?;
        admission.insert(TaskId(stream), params)?;
        disk.join(
            Time::ZERO,
            TaskId(stream),
            params,
            TaskKind::Stream,
            Time::ZERO,
        )?;
    }
    let slice = disk.piece_max();
    let floor = TaskParams::new(slice, Nanos(slice.get() * 20))?;
    admission.insert(TaskId(STREAMS), floor)?;
    disk.join(
        Time::ZERO,
        TaskId(STREAMS),
        floor,
        TaskKind::Floor,
        Time::ZERO,
    )?;
    let (corrected, published) = (delta_l(&admission), delta_l_published(&admission));
    disk.set_delta_l(Time::ZERO, corrected.value, published.value);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or: u64| arguments.next().map_or(Ok(or), |text| text.parse());
    let (seconds, write_back_kib) = (number(1_200)?, number(12_000)?);
    let profile = Arc::new(DriveProfile::shipped(DRIVE)?);
    let config = SchedulerConfig {
        queue_max: 100_000,
        ..SchedulerConfig::default()
    };
    let mut disk = DiskScheduler::new(profile, config);
    let period = Nanos(BLOCK.get() * SECOND / RATE);
    admit(&mut disk, period)?;
    let spec = PlantSpec::built_in(DRIVE).ok_or("no such plant")?;
    let mut run = Run {
        disk,
        plant: Plant::new(spec, SEED),
        heap: EventHeap::default(),
        random: Xoshiro256PlusPlus::seed_from_u64(SEED),
        end: Time(seconds * SECOND),
        write_back_kib,
        period,
        waiting: BTreeMap::new(),
        on_disk: None,
        look: None,
        next_id: 0,
        missed: 0,
        latencies: [const { Vec::new() }; 3],
    };
    for stream in 0..STREAMS {
        run.push(Time(stream * 1_000_000), Event::Block(stream));
    }
    for desk in 0..DESKS {
        let first = run.after(Time::ZERO, SECOND);
        run.push(first, Event::Desk(desk));
    }
    run.push(Time(SECOND), Event::WriteBack);
    while let Some(now) = run.heap.next_at() {
        while let Some((_, event)) = run.heap.pop_until(now) {
            run.deliver(now, event);
        }
        run.decide(now);
    }
    print(&mut run, seconds)?;
    Ok(())
}

fn print(run: &mut Run, seconds: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{seconds} s of {DRIVE}, seed {SEED}, {} KiB of write-back at once; {} deadlines missed",
        run.write_back_kib, run.missed
    )?;
    writeln!(out, "| ms | requests | mean | p50 | p99 | p99.9 | max |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for (who, latencies) in ["reads", "single writes", "write-back"]
        .iter()
        .zip(&mut run.latencies)
    {
        latencies.sort_unstable();
        let Some(last) = latencies.len().checked_sub(1) else {
            continue;
        };
        let at = |part: f64| latencies[(last as f64 * part) as usize].as_millis_f64();
        let sum: f64 = latencies
            .iter()
            .map(|latency| latency.as_millis_f64())
            .sum();
        writeln!(
            out,
            "| {who} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            latencies.len(),
            sum / latencies.len() as f64,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        )?;
    }
    Ok(())
}
