//! Best-effort requests that do not fit into the slack there is. On a disk without a floor they hold
//! nobody up for long, they are cut or wait for their own turn, and a disk that says it would wait for ever
//! has nothing queued that it could serve. On a disk with one its containers serve them in bounded time.

#![allow(clippy::print_stdout, reason = "a random test says its seed")]

mod floor;

use std::collections::BTreeMap;

use crate::common::disk::{request, scheduler};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::admission::Admission;
use sched::best_effort::BestEffortOrder;
use sched::core::Policy;
use sched::delta_l::{delta_l, delta_l_published};
use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::request::{Class, Decision, Dispatch, Op, RequestId, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};
use testkit::seed;

const CAPACITY: u64 = 8_890_760;
const ONE: SectorCount = SectorCount(1);
const FLOOR: u64 = 1_000;

/// A disk in virtual time: what is queued of best effort, and where the head is.
struct Run {
    disk: DiskScheduler,
    now: Time,
    head: Option<Sector>,
    next_id: u64,
    /// (direction, where it goes on, when it came)
    queued: BTreeMap<RequestId, (Op, Sector, Time)>,
    admission: Admission,
    /// True if no job may be late.
    guarantees: bool,
}

impl Run {
    fn new(policy: Policy, order: BestEffortOrder) -> Self {
        Self::on("quantum-atlas-ii", policy, order)
    }

    fn on(drive: &str, policy: Policy, order: BestEffortOrder) -> Self {
        let config = SchedulerConfig {
            policy,
            order,
            queue_max: 512,
            ..SchedulerConfig::default()
        };
        Self {
            disk: scheduler(drive, config),
            now: Time(0),
            head: None,
            next_id: 0,
            queued: BTreeMap::new(),
            admission: Admission::new(),
            guarantees: policy.guarantees(),
        }
    }

    /// False if it does not fit.
    fn stream(&mut self, id: u64, service: Nanos, period: Nanos) -> bool {
        let params = TaskParams::new(service, period);
        params.is_ok_and(|params| self.join(id, params, TaskKind::Stream))
    }

    fn floor(&mut self, slice: Nanos, period: Nanos) {
        let params = TaskParams::new(slice, period).expect("a floor");
        let params = params.in_pieces(self.disk.piece_max());
        assert!(
            self.join(FLOOR, params, TaskKind::Floor),
            "the disk is free"
        );
    }

    fn join(&mut self, id: u64, params: TaskParams, kind: TaskKind) -> bool {
        let id = TaskId(id);
        if self.admission.insert(id, params).is_err() {
            return false;
        }
        self.disk
            .join(self.now, id, params, kind, self.now)
            .expect("admitted");
        let corrected = delta_l(&self.admission).value;
        let published = delta_l_published(&self.admission).value;
        self.disk.set_delta_l(self.now, corrected, published);
        true
    }

    fn submit(&mut self, class: Class, op: Op, start: Sector, count: u64) -> RequestId {
        let request = request(&mut self.next_id, class, op, start, count);
        self.disk.submit(self.now, request).expect("there is room");
        if !matches!(class, Class::Stream(_)) {
            self.queued.insert(request.id, (op, start, self.now));
        }
        request.id
    }

    /// The disk takes the whole predicted time, or `percent` of it. Whether the request is complete.
    fn serve(&mut self, piece: &Dispatch, percent: u64) -> bool {
        self.now += Nanos(piece.predicted.get() * percent / 100);
        let done = self.disk.completed(self.now, piece.id).expect("issued");
        let is_late = !done.lateness.is_zero();
        assert!(!is_late || !self.guarantees, "{piece:?} is late");
        self.head = Some(Sector((piece.start + piece.count).get() - 1));
        if let Some(queued) = self.queued.get_mut(&piece.id) {
            queued.1 = piece.start + piece.count;
        }
        if done.finished {
            self.queued.remove(&piece.id);
        }
        done.finished
    }

    /// Shortest time of a queued request if it went on now.
    fn shortest(&self) -> Option<Nanos> {
        let predictor = self.disk.predictor();
        let least = |(op, at, _): &(Op, Sector, Time)| predictor.predict(self.head, *op, *at, ONE);
        self.queued.values().map(least).min()
    }
}

/// Random sets and loads, streams that fall silent and come back: a disk that would wait for ever has
/// nothing queued that fits, by a look at every request; when the streams have gone, all is served.
#[test]
fn a_disk_that_waits_for_ever_has_nothing_that_fits() {
    let seed = seed("held up", Some(1));
    let (mut hopeless, mut cuts, mut served) = (0, 0, 0_u64);
    for seed in seed..seed + 60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let policy = [Policy::Exact, Policy::Exact, Policy::DeltaL][seed as usize % 3];
        let order = [BestEffortOrder::Scan, BestEffortOrder::Nearest][seed as usize / 3 % 2];
        let mut run = Run::new(policy, order);
        let all = Sector(0)..Sector(CAPACITY);
        let service = run
            .disk
            .predictor()
            .worst_case(all, Op::Read, SectorCount(128));
        let streams: Vec<(u64, Nanos)> = (0..rng.random_range(1..6))
            .map(|id| (id, Nanos::from_millis(rng.random_range(60..400))))
            .filter(|(id, period)| run.stream(*id, service, *period))
            .collect();
        let mut next = vec![Time(0); streams.len()];
        let piece = run.disk.piece_max();
        for _ in 0..3_000 {
            for (place, (id, period)) in streams.iter().enumerate() {
                if next[place] <= run.now {
                    let pause = if rng.random_ratio(1, 20) { 20 } else { 1 };
                    next[place] = run.now + Nanos(period.get() * pause);
                    let start = Sector(rng.random_range(0..CAPACITY - 128));
                    run.submit(Class::Stream(TaskId(*id)), Op::Read, start, 128);
                }
            }
            if run.queued.len() < 40 && rng.random_ratio(1, 3) {
                let count = if rng.random_ratio(1, 5) {
                    4_000
                } else {
                    rng.random_range(1..64)
                };
                let op = [Op::Read, Op::Write][rng.random_range(0..2)];
                let urgency = [Urgency::Sync, Urgency::Async][rng.random_range(0..2)];
                let start = Sector(rng.random_range(0..CAPACITY - count));
                run.submit(Class::BestEffort(urgency), op, start, count);
            }
            let wake = next.iter().copied().min().expect("a stream");
            match run.disk.decide(run.now) {
                Decision::Issue(dispatch) => {
                    let left = run.queued.contains_key(&dispatch.id);
                    let finished = run.serve(&dispatch, rng.random_range(30..=100));
                    cuts += u64::from(left && !finished && dispatch.predicted < piece);
                    served += 1;
                }
                Decision::Wait { until } => {
                    if until.is_none()
                        && let Some(shortest) = run.shortest()
                    {
                        let slack = run.disk.report(run.now).slack.unwrap_or(Nanos::MAX);
                        let limit = match policy {
                            Policy::DeltaL => delta_l(&run.admission).value,
                            _ => slack,
                        };
                        assert!(shortest > limit, "seed {seed}: {shortest} fits in {limit}");
                        hopeless += 1;
                    }
                    let until = until.unwrap_or(wake).min(wake);
                    run.now = until.max(run.now + Nanos(1));
                }
            }
        }
        for (id, _) in &streams {
            run.disk.leave(run.now, TaskId(*id));
        }
        let unbounded = sched::delta_l::DeltaL::UNBOUNDED.value;
        run.disk.set_delta_l(run.now, unbounded, unbounded);
        while !run.disk.is_empty() {
            match run.disk.decide(run.now) {
                Decision::Issue(dispatch) => {
                    run.serve(&dispatch, 100);
                }
                Decision::Wait { until } => run.now = until.expect("something changes"),
            }
        }
    }
    println!("{served} pieces, {cuts} cut, {hopeless} waits with nothing that fits");
    assert!(hopeless > 100 && cuts > 100, "{hopeless} {cuts}");
}

/// Outermost and innermost requests, and a stream so near to the disk's limit that at rest only requests near
/// the head fit. A distant request fits only right after a request of the stream.
struct Corner {
    run: Run,
    far: RequestId,
    near: u64,
    period: Nanos,
}

const PERIOD_OVER: u64 = 95;

impl Corner {
    fn new() -> Self {
        let mut run = Run::new(Policy::Exact, BestEffortOrder::Scan);
        let predictor = run.disk.predictor();
        let service = predictor.worst_case(Sector(0)..Sector(CAPACITY), Op::Read, SectorCount(16));
        let far = predictor.predict(Some(Sector(0)), Op::Read, Sector(CAPACITY - 16), ONE);
        let near = predictor.predict(Some(Sector(0)), Op::Read, Sector(64), SectorCount(16));
        // At rest, the period less the service time; what is far does not fit, what is near does.
        let period = service + Nanos(far.get() * PERIOD_OVER / 100);
        assert!(near < period - service && period - service < far);
        // The head is known to be outside from here on.
        run.submit(Class::BestEffort(Urgency::Sync), Op::Read, Sector(0), 16);
        let Decision::Issue(first) = run.disk.decide(run.now) else {
            panic!("nobody has been promised anything");
        };
        run.serve(&first, 100);
        assert!(run.stream(1, service, period));
        let class = Class::BestEffort(Urgency::Sync);
        let far = run.submit(class, Op::Read, Sector(CAPACITY - 16), 16);
        Self {
            run,
            far,
            near: 0,
            period,
        }
    }

    /// One more request near the head is queued.
    fn near(&mut self) -> RequestId {
        let class = Class::BestEffort(Urgency::Sync);
        let start = self.ahead();
        self.run.submit(class, Op::Read, start, 16)
    }

    /// Next position of the elevator.
    fn ahead(&self) -> Sector {
        self.run.head.expect("it has served something") + ONE
    }

    fn stream(&mut self) {
        let (class, start) = (Class::Stream(TaskId(1)), self.ahead());
        self.run.submit(class, Op::Read, start, 16);
    }
}

#[test]
fn near_requests_keep_passing_one_that_is_too_far() {
    let mut corner = Corner::new();
    for _ in 0..500 {
        let near = corner.near();
        let Decision::Issue(piece) = corner.run.disk.decide(corner.run.now) else {
            panic!("{near:?} is held up at {:?}", corner.run.now);
        };
        assert_eq!(piece.id, near, "what is far does not fit at rest");
        corner.run.serve(&piece, 100);
        if corner.run.now > Time(6_000_000_000) {
            return;
        }
    }
    panic!("it is not yet the turn of what is far");
}

/// A stream that asks only just after a try of what is far, when by the next one what it leaves has been
/// used up, and otherwise only if nothing else is served. Without a turn of its own what is far would
/// wait for ever, at the worst of the phases.
#[test]
fn distant_request_is_served_in_its_own_turn() {
    let quiet = Nanos::from_millis(400);
    let mut waited = 0;
    for phase in 0..8 {
        let mut corner = Corner::new();
        let (mut asked, mut served) = (corner.run.now, corner.run.now);
        loop {
            let now = corner.run.now;
            assert!(now < Time(20_000_000_000), "phase {phase}: it starves");
            if corner.run.queued.len() < 2 {
                corner.near();
            }
            if now >= served + quiet {
                (asked, served) = (now, now);
                corner.stream();
            }
            match corner.run.disk.decide(now) {
                Decision::Issue(piece) => {
                    let is_near = corner.run.queued.contains_key(&piece.id);
                    corner.near += u64::from(is_near);
                    corner.run.serve(&piece, 100);
                    served = corner.run.now;
                    if piece.id == corner.far {
                        break;
                    }
                    if is_near && corner.near % 8 == phase && served > asked + corner.period {
                        asked = served;
                        corner.stream();
                    }
                }
                Decision::Wait { until } => {
                    let next = served + quiet;
                    corner.run.now = until.map_or(next, |until| until.min(next));
                }
            }
        }
        waited += u64::from(corner.run.now > Time(7_000_000_000));
        println!("phase {phase}: after {:?}", corner.run.now);
    }
    assert!(waited > 0, "in no phase was its own turn needed");
}

/// Both neighbours are writes, before which the head has to settle; behind them is a read. Nothing will
/// change by itself, so it is found.
#[test]
fn fitting_request_is_found_behind_neighbours_that_do_not_fit() {
    const UNIT: u64 = 8;
    let mut run = Run::on("hdd-8tb-7200", Policy::Exact, BestEffortOrder::Scan);
    let sync = Class::BestEffort(Urgency::Sync);
    run.submit(sync, Op::Read, Sector(8_000), UNIT);
    let first = issued(&mut run);
    run.serve(&first, 100);
    let (head, at) = (run.head, Sector(8_160));
    let predictor = run.disk.predictor();
    let room = predictor.predict(head, Op::Read, at, SectorCount(UNIT));
    let write = |at| predictor.predict(head, Op::Write, Sector(at), SectorCount(UNIT));
    assert!(write(8_080).min(write(7_920)) > room, "{room}");
    // Slack at rest is what the period leaves.
    let service = Nanos::from_millis(50);
    assert!(run.stream(1, service, service + room));
    run.submit(sync, Op::Write, Sector(8_080), UNIT);
    run.submit(sync, Op::Write, Sector(7_920), UNIT);
    let read = run.submit(sync, Op::Read, at, UNIT);
    assert_eq!(issued(&mut run).id, read);
}

/// The request that is issued now.
fn issued(run: &mut Run) -> Dispatch {
    match run.disk.decide(run.now) {
        Decision::Issue(piece) => piece,
        Decision::Wait { until } => panic!("it waits until {until:?}"),
    }
}
