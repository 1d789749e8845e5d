//! The floor's containers serve requests that have waited for too long: in bounded time, if they fit into the
//! slack.

use std::collections::BTreeMap;

use super::{CAPACITY, Run};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::best_effort::BestEffortOrder;
use sched::core::Policy;
use sched::delta_l::delta_l;
use sched::disk::SchedulerConfig;
use sched::request::{Class, Decision, Dispatch, Op, RequestId, Served, Urgency};
use sched::task::TaskId;
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::seed;

/// The floor has 24.5 of every 100 ms, and the longest period on the disk is a minute. Nothing of a write fits into
/// delta-L, and only a container of which nothing was taken holds all of it. There are always reads that fit, 16 to a
/// period of the floor, so that a container comes after the same number of them each time.
#[test]
fn request_that_never_fits_is_served_by_the_floor() {
    const READ: u64 = 488;
    let ms = |ms| Nanos::from_millis(ms);
    for (policy, phase) in Policy::ALL
        .into_iter()
        .flat_map(|p| (0..9).map(move |n| (p, n)))
    {
        let mut run = Run::on("conservative-solid-state", policy, BestEffortOrder::Scan);
        run.floor(Nanos::from_micros(24_500), ms(100));
        assert!(run.stream(1, ms(68), ms(60_000)));
        let predictor = run.disk.predictor();
        let takes = |op, count| predictor.predict(None, op, Sector(0), SectorCount(count));
        let slack = delta_l(&run.admission).value;
        assert!(takes(Op::Read, READ) < slack && slack < takes(Op::Write, 1));
        let sync = Class::BestEffort(Urgency::Sync);
        let (mut others, mut write) = (0, None);
        while write.is_none_or(|(id, _)| run.queued.contains_key(&id)) {
            while run.queued.len() < 20 {
                let at = run.next_id * 1_000 % CAPACITY;
                run.submit(sync, Op::Read, Sector(at), READ);
            }
            if others == phase && write.is_none() {
                let class = Class::BestEffort(Urgency::Async);
                let id = run.submit(class, Op::Write, Sector(0), 1_000);
                // Five seconds until it is aged, nine containers, and one that had begun.
                write = Some((id, run.now + ms(6_000)));
            }
            let limit = write.map_or(run.now, |(_, limit)| limit);
            assert!(run.now <= limit, "{policy}, phase {phase}: {others} others");
            match run.disk.decide(run.now) {
                Decision::Issue(piece) => {
                    run.serve(&piece, 100);
                    others += 1;
                }
                Decision::Wait { until } => run.now = until.expect("a container"),
            }
        }
    }
}

/// An aged request, and what has been served since then.
struct Aged {
    /// When it was.
    due: Time,
    containers: u64,
    /// Whole pieces of it and of those that were overdue for longer.
    pieces: u64,
}

/// A disk with a floor and a random load.
struct Load {
    run: Run,
    rng: StdRng,
    period: Nanos,
    streams: Vec<(u64, Nanos, u64, Time)>,
    greedy: bool,
    depth: usize,
    aged: BTreeMap<RequestId, Aged>,
    urgencies: BTreeMap<RequestId, Urgency>,
    container: Option<Time>,
    most: u64,
}

impl Load {
    fn new(seed: u64, policy: Policy) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let order = [BestEffortOrder::Scan, BestEffortOrder::Fifo][rng.random_range(0..2)];
        let mut run = Run::on("conservative-solid-state", policy, order);
        let slice = run.disk.piece_max() + Nanos::from_millis(rng.random_range(0..30));
        let period = Nanos::from_millis(rng.random_range(6..30) * 10);
        run.floor(slice, period);
        let mut streams = Vec::new();
        for id in 0..8 {
            let count = [8, 512, 4_096, 12_000][rng.random_range(0..4)];
            let all = Sector(0)..Sector(CAPACITY);
            let predictor = run.disk.predictor();
            let service = predictor.worst_case(all, Op::Read, SectorCount(count));
            // With a stream that asks as often as it may, best effort has little more than the floor.
            let often = rng
                .random::<bool>()
                .then(|| run.admission.smallest_period(service));
            let period = Nanos::from_millis(rng.random_range(3..600) * 10);
            let period = often.flatten().unwrap_or(period).get().div_ceil(10_000_000);
            let period = Nanos::from_millis(10 * period);
            if run.stream(id, service, period) {
                streams.push((id, period, count, Time(0)));
            }
        }
        let (greedy, depth) = (rng.random(), rng.random_range(20..200));
        Self {
            run,
            rng,
            period,
            streams,
            greedy,
            depth,
            aged: BTreeMap::new(),
            urgencies: BTreeMap::new(),
            container: None,
            most: 0,
        }
    }

    fn ask(&mut self) {
        let now = self.run.now;
        for (id, period, count, next) in &mut self.streams {
            if *next <= now && self.run.disk.len() < 400 {
                let third = if self.greedy {
                    1
                } else {
                    self.rng.random_range(3..6)
                };
                *next = now + Nanos(period.get() / 3 * third);
                let start = Sector(self.rng.random_range(0..CAPACITY - *count));
                self.run
                    .submit(Class::Stream(TaskId(*id)), Op::Read, start, *count);
            }
        }
        while self.run.queued.len() < self.depth {
            let is_long = self.rng.random_ratio(1, 8);
            let count = if is_long {
                4_000
            } else {
                self.rng.random_range(1..64)
            };
            let is_write = self.rng.random_ratio(1, 4);
            let op = if is_write { Op::Write } else { Op::Read };
            let urgency = [Urgency::Sync, Urgency::Async][self.rng.random_range(0..2)];
            let start = Sector(self.rng.random_range(0..CAPACITY - count));
            let id = self
                .run
                .submit(Class::BestEffort(urgency), op, start, count);
            self.urgencies.insert(id, urgency);
        }
    }

    fn due(&self, id: RequestId) -> Time {
        let config = SchedulerConfig::default();
        let limit = match self.urgencies[&id] {
            Urgency::Sync => config.sync_age_limit,
            Urgency::Async => config.async_age_limit,
        };
        self.run.queued[&id].2 + limit
    }

    fn step(&mut self, label: &str) {
        self.ask();
        let now = self.run.now;
        let queued: Vec<RequestId> = self.run.queued.keys().copied().collect();
        for id in queued {
            let due = self.due(id);
            if now > due {
                self.aged.entry(id).or_insert(Aged {
                    due,
                    containers: 0,
                    pieces: 0,
                });
            }
        }
        match self.run.disk.decide(now) {
            Decision::Issue(piece) => self.serve(&piece, label),
            Decision::Wait { until } => {
                let asks = self.streams.iter().map(|stream| stream.3);
                let wake = asks.chain(until).min().expect("a container");
                self.run.now = wake.max(now + Nanos(1));
            }
        }
    }

    /// Checks that no request has waited for too long, and notes the piece for those that wait.
    fn serve(&mut self, piece: &Dispatch, label: &str) {
        let whole = self.run.disk.predictor();
        let whole = whole.piece_sectors(0, whole.piece_limit()).get();
        let of_best_effort = self.run.queued.contains_key(&piece.id);
        let due = of_best_effort.then(|| self.due(piece.id));
        let begins = piece.served == Served::Container && self.container != piece.deadline;
        if begins {
            self.container = piece.deadline;
        }
        let part = self.rng.random_range(30..=100);
        let finished = self.run.serve(piece, part);
        let is_whole = finished || piece.count.get() + 8 > whole;
        for aged in self.aged.values_mut() {
            aged.containers += u64::from(begins);
            aged.pieces += u64::from(is_whole && due.is_some_and(|due| due <= aged.due));
            assert!(
                aged.containers <= 9 * aged.pieces + 8,
                "{label}: {} containers, {} pieces",
                aged.containers,
                aged.pieces
            );
        }
        if finished && let Some(aged) = self.aged.remove(&piece.id) {
            self.most = self.most.max(aged.containers);
            let periods = Nanos(self.period.get() * (9 * aged.pieces + 1));
            let bound = aged.due + periods + self.run.disk.piece_max();
            let now = self.run.now;
            assert!(now <= bound || !self.run.guarantees, "{label}: {now:?}");
        }
    }
}

/// An aged request waits for nine of the floor's containers at most for each whole piece of it and of those that are
/// overdue for longer, under every policy.
#[test]
fn aged_request_waits_for_nine_containers_at_most_for_each_piece() {
    let base = seed("aged with a floor", Some(1));
    let mut most = [0; Policy::ALL.len()];
    for seed in base..base + 40 {
        let place = seed as usize % Policy::ALL.len();
        let policy = Policy::ALL[place];
        let mut load = Load::new(seed, policy);
        let label = format!("seed {seed}, {policy}");
        for _ in 0..4_000 {
            load.step(&label);
        }
        most[place] = most[place].max(load.most);
    }
    println!("aged requests have waited for {most:?} containers");
    // `edf` is the last: it serves them in between, however late that makes others.
    let all_wait = most[..4].iter().all(|most| *most > 9);
    assert!(all_wait, "requests wait for containers: {most:?}");
}
