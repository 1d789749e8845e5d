//! Shares of slack: early requests and best effort share the time that released requests leave, while both
//! come and go.
//!
//! With b percent for best effort, the account b E - (100 - b) S of what early requests (E) and best effort
//! (S) were given lies between b times the longest early request and minus (100 - b) times the longest
//! best-effort one. Each can lack at most the distance between these two bounds while it waits.

use crate::common::params;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sched::core::{Choice, Core, CoreOptions, JobKey, Service};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use testkit::seed;

const TASK: TaskId = TaskId(0);
/// So long that every job but the first is early, and everything fits.
const PERIOD: u64 = 1_000_000_000;

/// A disk on which no released job waits, a stream that always exceeds its rate, and best effort.
struct Run {
    core: Core,
    now: Time,
    percent: u64,
    early_max: u64,
    keys: u64,
    /// Early requests that wait.
    waiting: u64,
    /// Time that each was given.
    early: u64,
    best_effort: u64,
}

/// A service and its length.
#[derive(PartialEq, Eq, Debug)]
enum Served {
    Early(u64),
    BestEffort(u64),
    Nobody,
}

impl Run {
    fn new(percent: u64, early_max: u64) -> Self {
        let mut core = Core::new(CoreOptions {
            best_effort_share_percent: percent as u8,
            ..CoreOptions::default()
        });
        core.join(Time(0), TASK, params((early_max, PERIOD)), Time(0));
        let mut run = Self {
            core,
            now: Time(0),
            percent,
            early_max,
            keys: 0,
            waiting: 0,
            early: 0,
            best_effort: 0,
        };
        // The one that is released at once.
        run.ask(early_max);
        let first = Choice::RealTime(TASK, JobKey(0));
        assert_eq!(run.core.choose(run.now, None), first);
        run.serve(Service::Job(TASK, JobKey(0)), early_max);
        run.waiting = 0;
        run
    }

    fn ask(&mut self, cost: u64) {
        let job = JobKey(self.keys);
        self.core
            .arrive(self.now, TASK, job, Nanos(cost))
            .expect("accepted");
        self.keys += 1;
        self.waiting += 1;
    }

    fn serve(&mut self, service: Service, cost: u64) {
        self.core.start(self.now, service);
        self.now += Nanos(cost);
        self.core.finish(self.now, service);
    }

    fn step(&mut self, best_effort: Option<u64>) -> Served {
        match self.core.choose(self.now, best_effort.map(Nanos)) {
            Choice::Early(id, job) => {
                let cost = self.core.remaining(id, job).expect("queued").0;
                self.serve(Service::Job(id, job), cost);
                self.waiting -= 1;
                self.early += cost;
                Served::Early(cost)
            }
            Choice::BestEffort => {
                let cost = best_effort.expect("offered");
                self.serve(Service::BestEffort(Nanos(cost)), cost);
                self.best_effort += cost;
                Served::BestEffort(cost)
            }
            Choice::Wait { .. } => {
                assert!(
                    best_effort.is_none() && self.waiting == 0,
                    "everything fits"
                );
                Served::Nobody
            }
            Choice::RealTime(..) => unreachable!("all of them are early"),
        }
    }

    fn account(&self) -> i64 {
        (self.percent * self.early) as i64 - ((100 - self.percent) * self.best_effort) as i64
    }

    /// The distance between the account's bounds.
    fn distance(&self, best_effort_max: u64) -> i64 {
        (self.percent * self.early_max + (100 - self.percent) * best_effort_max) as i64
    }
}

#[test]
fn a_stream_that_asks_only_when_answered_leaves_best_effort_its_share() {
    for percent in [10, 50, 75, 90] {
        let mut run = Run::new(percent, 10);
        for _ in 0..2_000 {
            // The client learns of the answer after the disk has decided its next service.
            let served = run.step(Some(1));
            if run.waiting == 0 && matches!(served, Served::BestEffort(_)) {
                run.ask(10);
            }
            let (account, bound) = (run.account(), run.distance(1));
            assert!(account <= bound, "{percent} %: {account} > {bound}");
        }
        assert!(run.early > 0, "{percent} %: what is left is used");
    }
}

#[test]
fn best_effort_that_asks_only_when_answered_leaves_early_requests_their_share() {
    for percent in [10, 50, 75, 90] {
        let mut run = Run::new(percent, 1);
        let mut best_effort = Some(10);
        for _ in 0..2_000 {
            run.ask(1);
            best_effort = match run.step(best_effort) {
                Served::BestEffort(_) => None,
                _ => Some(10),
            };
            let (account, bound) = (run.account(), run.distance(10));
            assert!(-account <= bound, "{percent} %: {account} < -{bound}");
        }
        assert!(run.best_effort > 0, "{percent} %: best effort has its turn");
    }
}

/// A client that was alone with the disk has used time that nobody wanted.
#[test]
fn nobody_pays_for_an_idle_disk() {
    let mut run = Run::new(50, 10);
    for _ in 0..100 {
        assert_eq!(run.step(Some(10)), Served::BestEffort(10));
    }
    for _ in 0..3 {
        run.ask(10);
        run.ask(10);
        assert_eq!(run.step(Some(10)), Served::Early(10));
        assert_eq!(run.step(Some(10)), Served::BestEffort(10));
        // Best effort goes away for a while.
        assert_eq!(run.step(None), Served::Early(10));
        for _ in 0..100 {
            run.ask(10);
            assert_eq!(run.step(None), Served::Early(10));
        }
    }
}

/// Time given to one kind while the other is away pays its debt, and no more than that.
#[test]
fn time_given_during_absence_pays_the_debt() {
    let mut run = Run::new(50, 10);
    run.ask(10);
    assert_eq!(run.step(Some(10)), Served::Early(10));
    assert_eq!(run.step(Some(10)), Served::BestEffort(10), "it is owed 10");
    run.ask(10);
    assert_eq!(run.step(Some(30)), Served::Early(10), "that is paid");
    assert_eq!(run.step(Some(30)), Served::BestEffort(30), "alone");
    for _ in 0..3 {
        run.ask(10);
    }
    assert_eq!(run.step(Some(30)), Served::Early(10));
    assert_eq!(run.step(Some(30)), Served::BestEffort(30), "20 too much");
    run.ask(10);
    run.ask(10);
    assert_eq!(run.step(None), Served::Early(10));
    assert_eq!(run.step(None), Served::Early(10), "that is paid");
    assert_eq!(run.step(Some(10)), Served::Early(10));
    assert_eq!(run.step(Some(10)), Served::BestEffort(10));
}

#[test]
fn debt_is_forgotten_when_no_request_waits() {
    let mut run = Run::new(50, 10);
    run.ask(10);
    run.ask(1);
    assert_eq!(run.step(Some(1)), Served::Early(10));
    // Best effort is owed 10, and nobody wants anything.
    assert_eq!(run.step(None), Served::Early(1));
    assert_eq!(run.step(None), Served::Nobody);
    run.ask(1);
    run.ask(1);
    assert_eq!(run.step(Some(9)), Served::Early(1), "from the beginning");
    assert_eq!(run.step(Some(9)), Served::BestEffort(9));
    // Early requests are owed 8, and go away.
    assert_eq!(run.step(None), Served::Early(1));
    assert_eq!(run.step(Some(1)), Served::BestEffort(1));
    run.ask(1);
    run.ask(1);
    assert_eq!(run.step(Some(1)), Served::Early(1));
    assert_eq!(
        run.step(Some(1)),
        Served::BestEffort(1),
        "from the beginning"
    );
}

/// Both come and go at random: while either waits, it lacks no more of its share than the account's bounds
/// are apart.
#[test]
fn waiting_side_gets_its_share_while_the_other_comes_and_goes() {
    let base = seed("shares", Some(1));
    let (mut most, mut tried) = (0.0_f64, 0);
    for seed in base..base + 300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (early_max, best_effort_max) = (rng.random_range(1..40), rng.random_range(1..40));
        let mut run = Run::new(rng.random_range(1..100), early_max);
        // Probability, of each, to have a request when it has none queued.
        let often = [1_u32, 3, 30].map(|_| rng.random_range(1..=10));
        let bound = run.distance(best_effort_max);
        let mut best_effort = None;
        // The least and the largest that the account has been while best effort, early requests have waited.
        let (mut low, mut high) = (None, None);
        for _ in 0..400 {
            if run.waiting == 0 && rng.random_ratio(often[0], 10) {
                for _ in 0..rng.random_range(1..4) {
                    run.ask(rng.random_range(1..=early_max));
                }
            }
            if best_effort.is_none() && rng.random_ratio(often[1], 10) {
                best_effort = Some(rng.random_range(1..=best_effort_max));
            }
            let (before, early) = (run.account(), run.waiting > 0);
            let offered = best_effort;
            if let Served::BestEffort(_) = run.step(best_effort) {
                let goes_on = rng.random_ratio(often[2], 10);
                best_effort = goes_on.then(|| rng.random_range(1..=best_effort_max));
            }
            let after = run.account();
            low = offered.map(|_| low.unwrap_or(before).min(after));
            high = early.then(|| high.unwrap_or(before).max(after));
            let lacks = [low.map(|low| after - low), high.map(|high| high - after)];
            for lacks in lacks.into_iter().flatten() {
                assert!(lacks <= bound, "seed {seed}: {lacks} > {bound}");
                most = most.max(lacks as f64 / bound as f64);
            }
            tried += u32::from(offered.is_some() && early);
        }
    }
    assert!(tried > 10_000 && most > 0.9, "{tried}, {most}");
}
