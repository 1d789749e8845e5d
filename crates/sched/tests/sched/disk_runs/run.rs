//! A disk in virtual time, with what asks of it.

use crate::common::disk::{atlas, request};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::admission::Admission;
use sched::best_effort::BestEffortOrder;
use sched::core::Policy;
use sched::delta_l::{delta_l, delta_l_published};
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::request::{Class, Decision, Dispatch, Op, Order, RequestId, Served, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};
use std::collections::HashMap;
use std::ops::Range;

const CAPACITY: u64 = 8_890_760;
const SERVER: TaskId = TaskId(1_000);
const FLOOR: TaskId = TaskId(1_001);

pub(super) struct Stream {
    pub(super) id: TaskId,
    count: u64,
    period: Nanos,
    next: Time,
    /// Sends so many times faster than it may.
    pub(super) excess: u64,
}

#[derive(Clone, Debug)]
struct Queued {
    order: Order,
    number: u64,
    submitted: Time,
    class: Class,
    /// Slack given to early requests and to best effort by then.
    given: Given,
}

/// Time given to each kind, in predicted times.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Given {
    /// To early requests.
    pub(super) early: Nanos,
    /// To best effort, in slack.
    pub(super) slack: Nanos,
    /// To best effort without a reservation, in slack and in the floor's containers.
    pub(super) plain: Nanos,
}

/// Time given away while a plain best-effort request waited, its own service included.
pub(super) struct Wait {
    pub(super) wait: Nanos,
    pub(super) given: Given,
}

pub(super) struct Run {
    pub(super) disk: DiskScheduler,
    pub(super) streams: Vec<Stream>,
    rng: StdRng,
    pub(super) now: Time,
    pub(super) next_id: u64,
    queued: HashMap<RequestId, Queued>,
    pub(super) flight: Option<(Dispatch, Time)>,
    /// True if other disks ask for the place on a link.
    pub(super) lends: bool,
    /// When the place comes back.
    lent: Option<Time>,
    pub(super) loans: u64,
    pub(super) best_effort_max: usize,
    /// Most requests that a stream has queued.
    pub(super) stream_max: usize,
    /// True if best-effort requests ask to be served after others.
    pub(super) ordered: bool,
    has_servers: bool,
    /// Shortest service, in percent of its predicted time.
    pub(super) least_part: u64,
    given: Given,
    pub(super) plain: Vec<Wait>,
    /// The longest service of each kind.
    pub(super) longest: Given,
    pub(super) floor: TaskParams,
    pub(super) label: String,
}

impl Run {
    pub(super) fn new(seed: u64, policy: Policy, order: BestEffortOrder, load: f64) -> Self {
        Self::with_servers(seed, policy, order, load, Some(0..30))
    }

    /// As `new`, with as many streams as fit where the load is not finite, and with or without the floor and
    /// a best-effort client with a reservation. Their slices exceed the longest piece by this many
    /// milliseconds.
    pub(super) fn with_servers(
        seed: u64,
        policy: Policy,
        order: BestEffortOrder,
        load: f64,
        servers: Option<Range<u64>>,
    ) -> Self {
        let config = SchedulerConfig {
            policy,
            order,
            queue_max: 512,
            ..SchedulerConfig::default()
        };
        let mut disk = atlas(config);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut admission = Admission::new();
        let has_servers = servers.is_some();
        let beyond = rng.random_range(servers.unwrap_or(0..1));
        let slice = disk.piece_max() + Nanos::from_millis(beyond);
        let all = [
            (FLOOR, TaskKind::Floor, 3_000),
            (SERVER, TaskKind::Server, 2_000),
        ];
        for (id, kind, ms) in all.into_iter().filter(|_| has_servers) {
            let params = TaskParams::new(slice, Nanos::from_millis(ms)).unwrap();
            let params = params.in_pieces(disk.piece_max());
            admission.insert(id, params).unwrap();
            disk.join(Time(0), id, params, kind, Time(0)).unwrap();
        }
        let mut streams = Vec::new();
        let mut used = 0.0;
        for number in 0..40 {
            let count = [256, 512, 1024, 2048][rng.random_range(0..4)];
            let all = Sector(0)..Sector(CAPACITY);
            let worst = |op| {
                disk.predictor()
                    .worst_case(all.clone(), op, SectorCount(count))
            };
            let service = worst(Op::Write).max(worst(Op::Read));
            let period = Nanos::from_millis(rng.random_range(400..3_000));
            let period = if load.is_finite() {
                period
            } else {
                // Periods have a common measure; otherwise delta-L would take long to compute.
                let least = admission.smallest_period(service).unwrap_or(period);
                Nanos::from_millis(period.max(least).get().div_ceil(100_000_000) * 100)
            };
            let id = TaskId(number);
            let Ok(params) = TaskParams::new(service, period) else {
                continue;
            };
            used += service.get() as f64 / period.get() as f64;
            if used > load || admission.insert(id, params).is_err() {
                continue;
            }
            disk.join(Time(0), id, params, TaskKind::Stream, Time(0))
                .unwrap();
            let next = Time(rng.random_range(0..1_000_000_000));
            streams.push(Stream {
                id,
                count,
                period,
                next,
                excess: 1,
            });
        }
        disk.set_delta_l(
            Time(0),
            delta_l(&admission).value,
            delta_l_published(&admission).value,
        );
        Self {
            disk,
            streams,
            rng,
            now: Time(0),
            next_id: 0,
            queued: HashMap::new(),
            flight: None,
            lends: false,
            lent: None,
            loans: 0,
            best_effort_max: 60,
            stream_max: 10,
            ordered: true,
            has_servers,
            least_part: 20,
            given: Given::default(),
            plain: Vec::new(),
            longest: Given::default(),
            floor: TaskParams::new(slice, Nanos::from_millis(3_000)).unwrap(),
            label: format!("seed {seed}, {policy:?}, {order:?}"),
        }
    }

    /// True if its tasks would be refused if slices kept the disk from their beginning to their end.
    pub(super) fn is_refused_whole(&mut self) -> bool {
        let report = self.disk.report(self.now);
        let whole = |params: TaskParams| params.in_pieces(params.service());
        let tasks = report.tasks.iter();
        Admission::of(tasks.map(|task| (task.id, whole(task.params)))).is_err()
    }

    fn submit(&mut self, class: Class, op: Op, count: u64, order: Order) {
        let start = Sector(self.rng.random_range(0..CAPACITY - count));
        let mut request = request(&mut self.next_id, class, op, start, count);
        request.order = order;
        let id = request.id;
        self.disk.submit(self.now, request).unwrap();
        self.queued.insert(
            id,
            Queued {
                order,
                number: id.0,
                submitted: self.now,
                class,
                given: self.given,
            },
        );
    }

    fn stream_requests(&mut self) {
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            if stream.next > self.now {
                continue;
            }
            let period = stream.period.get() / stream.excess;
            let jitter = if stream.excess > 1 {
                0
            } else {
                self.rng.random_range(0..period / 4)
            };
            stream.next = self.now + Nanos(period + jitter);
            let (id, count) = (stream.id, stream.count);
            let waiting = self
                .queued
                .values()
                .filter(|queued| queued.class == Class::Stream(id))
                .count();
            if waiting < self.stream_max {
                let op = if id.0.is_multiple_of(2) {
                    Op::Read
                } else {
                    Op::Write
                };
                self.submit(Class::Stream(id), op, count, Order::default());
            }
        }
    }

    fn best_effort_request(&mut self) {
        let mut order = Order {
            space: self.rng.random_range(0..3),
            ..Order::default()
        };
        for tag in &mut order.after {
            if self.rng.random_ratio(1, 6) && self.next_id > 0 {
                *tag = Some(RequestId(
                    self.rng
                        .random_range(self.next_id.saturating_sub(40)..self.next_id),
                ));
            }
        }
        order.barrier = self.rng.random_ratio(1, 20);
        if !self.ordered {
            order = Order::default();
        }
        let urgency = if self.rng.random() {
            Urgency::Sync
        } else {
            Urgency::Async
        };
        let class = if self.has_servers && self.rng.random_ratio(1, 4) {
            Class::Reserved(SERVER, urgency)
        } else {
            Class::BestEffort(urgency)
        };
        let count = if self.rng.random_ratio(1, 30) {
            5_000
        } else {
            self.rng.random_range(1..64)
        };
        let op = if self.rng.random() {
            Op::Read
        } else {
            Op::Write
        };
        self.submit(class, op, count, order);
    }

    /// The issued piece keeps the order that its request asked for.
    fn check_order(&self, dispatch: &Dispatch) {
        let issued = &self.queued[&dispatch.id];
        if matches!(issued.class, Class::Stream(_)) {
            return;
        }
        for tag in issued.order.after.iter().flatten() {
            let before = self
                .queued
                .get(tag)
                .is_some_and(|queued| queued.number < issued.number);
            assert!(!before, "{}: {issued:?} before {tag:?}", self.label);
        }
        for other in self.queued.values() {
            let same_space =
                !matches!(other.class, Class::Stream(_)) && other.order.space == issued.order.space;
            let in_the_way =
                other.number < issued.number && (issued.order.barrier || other.order.barrier);
            assert!(
                !(same_space && in_the_way),
                "{}: {issued:?} before {other:?}",
                self.label
            );
        }
    }

    fn note_given(&mut self, dispatch: &Dispatch) {
        let mut add = |of: fn(&mut Given) -> &mut Nanos| {
            *of(&mut self.given) += dispatch.predicted;
            let longest = of(&mut self.longest);
            *longest = dispatch.predicted.max(*longest);
        };
        match dispatch.served {
            Served::Early => add(|given| &mut given.early),
            Served::Slack => add(|given| &mut given.slack),
            Served::RealTime | Served::Container => {}
        }
        if matches!(self.queued[&dispatch.id].class, Class::BestEffort(_)) {
            add(|given| &mut given.plain);
        }
    }

    fn complete(&mut self, dispatch: Dispatch) {
        let done = self.disk.completed(self.now, dispatch.id).unwrap();
        assert_eq!(
            done.lateness,
            Nanos(0),
            "{}: {dispatch:?} at {:?}",
            self.label,
            self.now
        );
        assert_eq!(done.overrun, Nanos(0));
        if done.finished {
            let queued = self.queued.remove(&dispatch.id).unwrap();
            if matches!(queued.class, Class::BestEffort(_)) {
                let (before, after) = (queued.given, self.given);
                self.plain.push(Wait {
                    wait: self.now - queued.submitted,
                    given: Given {
                        early: after.early - before.early,
                        slack: after.slack - before.slack,
                        plain: after.plain - before.plain,
                    },
                });
            }
        }
    }

    pub(super) fn step(&mut self, arrivals_per_second: u64) {
        self.stream_requests();
        let best_effort = self
            .queued
            .values()
            .filter(|queued| !matches!(queued.class, Class::Stream(_)));
        if best_effort.count() < self.best_effort_max
            && self.rng.random_range(0..100) < arrivals_per_second
        {
            self.best_effort_request();
        }
        if self.rng.random_ratio(1, 200)
            && let Some(id) = self.queued.keys().min().copied()
            && self.disk.cancel(self.now, id)
        {
            self.queued.remove(&id);
        }
        if let Some((dispatch, until)) = self.flight
            && until <= self.now
        {
            self.flight = None;
            self.complete(dispatch);
        }
        let mut wake = self.now + Nanos::from_millis(10);
        self.lend();
        if let Some(until) = self.lent {
            wake = wake.min(until);
        } else if self.flight.is_none() {
            match self.disk.decide(self.now) {
                Decision::Issue(dispatch) => {
                    self.check_order(&dispatch);
                    self.note_given(&dispatch);
                    let part = if self.rng.random() {
                        100
                    } else {
                        self.rng.random_range(self.least_part..=100)
                    };
                    let until = self.now + Nanos(dispatch.predicted.get() * part / 100);
                    self.flight = Some((dispatch, until));
                }
                Decision::Wait { until } => {
                    wake = wake.min(until.unwrap_or(wake)).max(self.now + Nanos(1))
                }
            }
        }
        if let Some((_, until)) = self.flight {
            wake = wake.min(until);
        }
        self.now = self
            .streams
            .iter()
            .map(|stream| stream.next)
            .fold(wake, Time::min)
            .max(self.now);
    }

    /// The place comes back, or is lent for up to twice the longest piece.
    fn lend(&mut self) {
        if self.lent.take_if(|until| *until <= self.now).is_some() {
            self.disk.returned(self.now);
        }
        if !self.lends || self.rng.random_ratio(1, 3) {
            return;
        }
        let service = Nanos(self.rng.random_range(1..=2 * self.disk.piece_max().get()));
        if self.disk.lend(self.now, service) {
            let takes = if self.rng.random() {
                service
            } else {
                Nanos(self.rng.random_range(0..=service.get()))
            };
            self.lent = Some(self.now + takes);
            self.loans += 1;
        }
    }

    /// Takes no more requests and serves those that are queued.
    pub(super) fn drain(&mut self) {
        self.streams.clear();
        let end = self.now + Nanos::from_secs(3_600);
        while !self.queued.is_empty() {
            assert!(
                self.now < end,
                "{}: {} requests starve",
                self.label,
                self.queued.len()
            );
            self.step(0);
        }
        assert!(self.disk.is_empty());
    }
}
