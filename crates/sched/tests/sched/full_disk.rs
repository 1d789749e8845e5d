//! A disk that is promised to the last nanosecond: streams, periodic servers and the floor with U = 1,
//! always more best effort than there is room for, tasks that leave and others that take their place.
//! Under every scheduler that guarantees anything, nothing is late and nothing starves.

#![allow(clippy::print_stdout, reason = "a random test says its seed")]

use std::collections::HashMap;

use crate::common::disk::atlas;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sched::book::{Book, Span};
use sched::core::Policy;
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::request::{Class, Decision, Dispatch, Op, Order, Request, RequestId, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::seed;

const CAPACITY: u64 = 8_890_760;
/// Periods with a common multiple, so that shares can add up to one.
const PERIODS_MS: [u64; 6] = [400, 600, 800, 1_200, 2_400, 4_800];
const COMMON: Nanos = Nanos::from_millis(4_800);
const STREAM_SECTORS: u64 = 512;
const FLOOR: TaskId = TaskId(0);
const QUEUE_MAX: usize = 256;

#[derive(Clone, Copy)]
struct Member {
    id: TaskId,
    params: TaskParams,
    kind: TaskKind,
    next: Time,
}

struct Run {
    label: String,
    disk: DiskScheduler,
    book: Book,
    members: Vec<Member>,
    /// Left, and their shares not free before.
    leaving: Vec<Time>,
    rng: StdRng,
    now: Time,
    last_task: u64,
    last_request: u64,
    classes: HashMap<RequestId, Class>,
    flight: Option<(Dispatch, Time)>,
    full_joins: u32,
    pieces: [u64; 4],
}

/// The task's part of [`COMMON`].
fn part(params: TaskParams) -> u64 {
    params.service().get() * (COMMON.get() / params.period().get())
}

impl Run {
    fn new(seed: u64, policy: Policy) -> Self {
        let config = SchedulerConfig {
            policy,
            queue_max: QUEUE_MAX,
            ..SchedulerConfig::default()
        };
        let mut run = Self {
            label: format!("seed {seed}, {policy}"),
            disk: atlas(config),
            book: Book::new(),
            members: Vec::new(),
            leaving: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            now: Time(0),
            last_task: 0,
            last_request: 0,
            classes: HashMap::new(),
            flight: None,
            full_joins: 0,
            pieces: [0; 4],
        };
        let slice = run.disk.piece_max();
        run.enter(FLOOR, slice, 4_800, TaskKind::Floor);
        run.fill();
        run
    }

    fn left(&self) -> u64 {
        let used: u64 = self.members.iter().map(|member| part(member.params)).sum();
        COMMON.get() - used
    }

    /// Offers the task; true if it was admitted and is on the disk.
    fn enter(&mut self, id: TaskId, service: Nanos, period_ms: u64, kind: TaskKind) -> bool {
        let params = TaskParams::new(service, Nanos::from_millis(period_ms)).expect("a task");
        if self.book.join(id, params, Span::since(self.now)).is_err() {
            return false;
        }
        self.disk
            .join(self.now, id, params, kind, self.now)
            .expect("admitted");
        let next = self.now;
        self.members.push(Member {
            id,
            params,
            kind,
            next,
        });
        self.tell_delta_l();
        true
    }

    fn tell_delta_l(&mut self) {
        let corrected = self.book.delta_l_min(Span::since(self.now)).value;
        let published = self.book.delta_l_published(self.now).value;
        self.disk.set_delta_l(self.now, corrected, published);
    }

    /// Admits tasks until not a nanosecond is left, or nothing more fits.
    fn fill(&mut self) {
        let all = Sector(0)..Sector(CAPACITY);
        let predictor = self.disk.predictor();
        let stream = [Op::Read, Op::Write]
            .map(|op| predictor.worst_case(all.clone(), op, SectorCount(STREAM_SECTORS)))
            .into_iter()
            .max()
            .expect("two of them");
        let slice = self.disk.piece_max();
        for _ in 0..40 {
            let period = *PERIODS_MS.choose(&mut self.rng).expect("some");
            let (service, kind) = if self.rng.random_ratio(1, 3) {
                let more = Nanos::from_millis(self.rng.random_range(0..20));
                (slice + more, TaskKind::Server)
            } else {
                (stream, TaskKind::Stream)
            };
            self.last_task += 1;
            self.enter(TaskId(self.last_task), service, period, kind);
        }
        // The rest, to the nanosecond, as the slice of one more server.
        let left = self.left();
        for period in PERIODS_MS.into_iter().rev() {
            let times = COMMON.get() / (period * 1_000_000);
            let service = Nanos(left / times);
            self.last_task += 1;
            if left.is_multiple_of(times)
                && service >= slice
                && self.enter(TaskId(self.last_task), service, period, TaskKind::Server)
            {
                self.full_joins += 1;
                break;
            }
        }
    }

    /// A task leaves; when its share is free others may have it.
    fn replace(&mut self) {
        let index = self.rng.random_range(1..self.members.len());
        let member = self.members.swap_remove(index);
        let free_from = self.disk.leave(self.now, member.id).expect("it is there");
        self.book.leave(member.id, free_from);
        self.leaving.push(free_from);
        self.tell_delta_l();
    }

    fn submit(&mut self, class: Class) {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let count = match class {
            Class::Stream(_) => STREAM_SECTORS,
            _ if self.rng.random_ratio(1, 20) => 4_000,
            _ => self.rng.random_range(1..128),
        };
        let op = if self.rng.random() {
            Op::Read
        } else {
            Op::Write
        };
        let request = Request {
            id,
            op,
            start: Sector(self.rng.random_range(0..CAPACITY - count)),
            count: SectorCount(count),
            class,
            order: Order::default(),
        };
        self.disk.submit(self.now, request).expect("there is room");
        self.classes.insert(id, class);
    }

    fn queued(&self, matches: impl Fn(Class) -> bool) -> usize {
        self.classes
            .values()
            .filter(|class| matches(**class))
            .count()
    }

    fn arrivals(&mut self) {
        let urgency = if self.rng.random() {
            Urgency::Sync
        } else {
            Urgency::Async
        };
        // Requests that a server leaves behind go on as plain best effort, which may be slow here.
        let has_room = self.classes.len() < QUEUE_MAX - 64;
        for index in 0..self.members.len() {
            let Member {
                id,
                params,
                kind,
                next,
            } = self.members[index];
            match kind {
                TaskKind::Stream if next <= self.now => {
                    // A request comes as often as reserved, at times a little later.
                    let late = self.rng.random_range(0..3) * params.period().get() / 8;
                    self.members[index].next = self.now + params.period() + Nanos(late);
                    self.submit(Class::Stream(id));
                }
                TaskKind::Server
                    if has_room
                        && self.rng.random_ratio(1, 12)
                        && self.queued(
                            |class| matches!(class, Class::Reserved(of, _) if of == id),
                        ) < 6 =>
                {
                    self.submit(Class::Reserved(id, urgency));
                }
                _ => {}
            }
        }
        if has_room && self.queued(|class| matches!(class, Class::BestEffort(_))) < 8 {
            self.submit(Class::BestEffort(urgency));
        }
    }

    fn complete(&mut self, dispatch: &Dispatch) {
        let done = self
            .disk
            .completed(self.now, dispatch.id)
            .expect("it was on the disk");
        assert_eq!(
            done.lateness,
            Nanos::ZERO,
            "{}: {dispatch:?} at {:?}",
            self.label,
            self.now
        );
        self.pieces[dispatch.served as usize] += 1;
        if done.finished {
            self.classes.remove(&dispatch.id);
        }
    }

    fn step(&mut self) {
        if let Some((dispatch, until)) = self.flight
            && until <= self.now
        {
            self.flight = None;
            self.complete(&dispatch);
        }
        self.arrivals();
        if self.members.len() > 3 && self.rng.random_ratio(1, 300) {
            self.replace();
        }
        let before = self.leaving.len();
        let now = self.now;
        self.leaving.retain(|free_from| *free_from > now);
        if self.leaving.len() < before {
            self.book.prune(now);
            if self.leaving.is_empty() {
                self.fill();
            }
        }
        let mut wake = self.now + Nanos::from_millis(20);
        if self.flight.is_none() {
            match self.disk.decide(self.now) {
                Decision::Issue(dispatch) => {
                    let percent = if self.rng.random() {
                        100
                    } else {
                        self.rng.random_range(20..=100)
                    };
                    let until = self.now + Nanos(dispatch.predicted.get() * percent / 100);
                    self.flight = Some((dispatch, until));
                }
                Decision::Wait { until } => {
                    wake = until.map_or(wake, |until| until.min(wake));
                }
            }
        }
        if let Some((_, until)) = self.flight {
            wake = wake.min(until);
        }
        let streams = self
            .members
            .iter()
            .filter(|member| member.kind == TaskKind::Stream);
        let wake = streams.map(|member| member.next).fold(wake, Time::min);
        self.now = wake.max(self.now + Nanos(1));
    }

    /// No more requests: those queued are served.
    fn drain(&mut self) {
        self.members
            .retain(|member| matches!(member.kind, TaskKind::Floor | TaskKind::Server));
        let end = self.now + Nanos::from_secs(3_600);
        while !self.classes.is_empty() {
            assert!(
                self.now < end,
                "{}: {} requests starve",
                self.label,
                self.classes.len()
            );
            if let Some((dispatch, until)) = self.flight.take() {
                self.now = self.now.max(until);
                self.complete(&dispatch);
                continue;
            }
            match self.disk.decide(self.now) {
                Decision::Issue(dispatch) => {
                    self.flight = Some((dispatch, self.now + dispatch.predicted));
                }
                Decision::Wait { until } => {
                    self.now = until.expect("something is queued").max(self.now + Nanos(1));
                }
            }
        }
    }
}

#[test]
fn on_a_disk_promised_to_the_last_nanosecond_nothing_is_late_and_nothing_starves() {
    let base = seed("a full disk", Some(1));
    let (mut full, mut pieces) = (0, [0; 4]);
    for seed in base..base + if testkit::is_full() { 320 } else { 16 } {
        let policy = [Policy::Exact, Policy::DeltaL][seed as usize % 2];
        let mut run = Run::new(seed, policy);
        for _ in 0..30_000 {
            run.step();
        }
        run.drain();
        full += run.full_joins;
        for (sum, count) in pieces.iter_mut().zip(run.pieces) {
            *sum += count;
        }
        let report = run.disk.report(run.now);
        assert_eq!((report.missed, report.overruns), (0, 0), "{}", run.label);
    }
    println!("{full} times full; real-time, early, slack, container: {pieces:?}");
    assert!(full > 60, "only {full} sets came to U = 1");
    assert!(pieces[0] > 1_000 && pieces[3] > 1_000, "{pieces:?}");
}

testkit::full! {
    "soak: twenty times as many seeds",
    on_a_disk_promised_to_the_last_nanosecond_nothing_is_late_and_nothing_starves => on_a_disk_promised_to_the_last_nanosecond_nothing_is_late_and_nothing_starves_full,
}
