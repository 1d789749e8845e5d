//! Long random runs of the scheduler against a naive model of the same disk.
//!
//! Streams ask periodically, sporadically, in bursts and far above their rate; periodic servers spend
//! their containers in pieces; jobs are withdrawn; tasks join, leave and change their rate; services take
//! any time up to the prediction; best effort is offered in sizes around the slack. At every decision
//! slack is computed from its definition, deadline by deadline, and the decision compared with it.

#![allow(
    clippy::print_stderr,
    reason = "a test that searches says how much it has searched"
)]

mod common;

use common::Random;
use common::model::{ModelTask, slack};
use sched::book::{Book, Span};
use sched::core::{Choice, Core, CoreOptions, JobKey, Policy, Service};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Time};

/// Periods with a small common multiple, so that the naive slack is quick.
const PERIODS: [u64; 12] = [12, 15, 16, 18, 20, 24, 30, 36, 40, 60, 72, 80];

/// How a task behaves.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Habit {
    Periodic,
    Sporadic,
    /// Several at once, now and then.
    Bursty,
    /// Always another one queued.
    Greedy,
    /// A periodic server, its container in pieces.
    Server,
}

struct Client {
    habit: Habit,
    next: u64,
}

#[derive(Default, Debug)]
struct Counts {
    decisions: u64,
    real_time: u64,
    early: u64,
    best_effort: u64,
    pieces: u64,
    withdrawn: u64,
    joined: u64,
    deferred: u64,
    left: u64,
    changed: u64,
    misses: u64,
}

struct Run {
    random: Random,
    core: Core,
    book: Book,
    tasks: Vec<ModelTask>,
    clients: Vec<Client>,
    now: u64,
    /// Service, predicted end, actual end, deadline.
    busy: Option<(Service, u64, u64, u64)>,
    started: u64,
    next_id: u64,
    next_key: u64,
    early_allowed: bool,
    changes: bool,
    counts: Counts,
}

impl Run {
    fn new(seed: u64, options: CoreOptions) -> Self {
        let mut random = Random(seed);
        let (early_allowed, changes) = (random.chance(60), random.chance(60));
        let mut run = Self {
            random,
            core: Core::new(options),
            book: Book::new(),
            tasks: Vec::new(),
            clients: Vec::new(),
            now: 10_000,
            busy: None,
            started: 0,
            next_id: 0,
            next_key: 0,
            early_allowed,
            changes,
            counts: Counts::default(),
        };
        for _ in 0..run.random.range(2, 7) {
            run.join();
        }
        run
    }

    fn random_params(&mut self) -> TaskParams {
        let period = PERIODS[self.random.range(0, PERIODS.len() as u64 - 1) as usize];
        let service = self.random.range(1, period / 2);
        let service = if self.random.chance(70) {
            service.min(period / 5 + 1)
        } else {
            service
        };
        TaskParams::new(Nanos(service), Nanos(period)).expect("a task")
    }

    fn random_client(&mut self) -> Client {
        let habits = [
            Habit::Periodic,
            Habit::Sporadic,
            Habit::Server,
            Habit::Bursty,
            Habit::Greedy,
        ];
        let habit = habits[self.random.range(0, if self.early_allowed { 4 } else { 2 }) as usize];
        Client {
            habit,
            next: self.now + self.random.range(0, 30),
        }
    }

    fn join(&mut self) {
        let (id, params) = (TaskId(self.next_id), self.random_params());
        if self
            .book
            .join(id, params, Span::since(Time(self.now)))
            .is_ok()
        {
            self.enter(id, params, self.now);
        }
    }

    /// An admitted task joins the core.
    fn enter(&mut self, id: TaskId, params: TaskParams, first_release: u64) {
        self.next_id = id.0 + 1;
        let release = self
            .core
            .join(Time(self.now), id, params, Time(first_release))
            .0;
        assert!(release >= first_release);
        self.counts.joined += 1;
        self.counts.deferred += u64::from(release > first_release);
        let (service, period) = (params.service().0, params.period().0);
        let client = self.random_client();
        self.clients.push(client);
        self.tasks.push(ModelTask {
            id,
            service,
            period,
            spent_until: release,
            queue: vec![],
            leaving: false,
        });
        self.tell_delta_l();
    }

    /// Delta-L of the set as it will be when those who leave have left.
    fn tell_delta_l(&mut self) {
        let settled = self.tasks.iter().filter(|task| !task.leaving);
        let mut book = Book::new();
        for task in settled {
            let params = TaskParams::new(Nanos(task.service), Nanos(task.period)).expect("a task");
            book.join(task.id, params, Span::since(Time(0)))
                .expect("admitted");
        }
        let (corrected, published) = (book.delta_l(Time(0)), book.delta_l_published(Time(0)));
        assert!(corrected.exact);
        self.core
            .set_delta_l(Time(self.now), corrected.value, published.value);
    }

    /// A random task leaves, perhaps to come back at another rate.
    fn leave_or_change(&mut self) {
        let index = self.random.range(0, self.tasks.len() as u64 - 1) as usize;
        if self.tasks[index].leaving || self.tasks.len() < 2 {
            return;
        }
        let id = self.tasks[index].id;
        let free_from = self.core.leave(Time(self.now), id).expect("it is there");
        assert_eq!(free_from.0, self.tasks[index].last().max(self.now));
        self.tasks[index].leaving = true;
        let (new, params) = (TaskId(self.next_id), self.random_params());
        if self.random.chance(50) && self.book.change(id, free_from, new, params).is_ok() {
            self.counts.changed += 1;
            self.enter(new, params, free_from.0);
        } else {
            self.book.leave(id, free_from);
            self.counts.left += 1;
            self.tell_delta_l();
        }
    }

    fn arrive(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        if task.leaving || task.queue.len() >= 4 {
            return;
        }
        let whole = self.clients[index].habit == Habit::Server || self.random.chance(60);
        let cost = if whole {
            task.service
        } else {
            self.random.range(1, task.service)
        };
        let key = JobKey(self.next_key);
        self.next_key += 1;
        let window = self
            .core
            .arrive(Time(self.now), task.id, key, Nanos(cost))
            .expect("accepted");
        // What comes at the very instant of a start is released a tick later.
        let seen = self.now + u64::from(self.busy.is_some() && self.started == self.now);
        assert_eq!(
            (window.release.0, window.deadline.0),
            task.push(key, seen, cost)
        );
    }

    fn ask(&mut self, index: usize) {
        let period = self.tasks[index].period;
        match self.clients[index].habit {
            Habit::Periodic | Habit::Server => {
                self.arrive(index);
                self.clients[index].next += period;
            }
            Habit::Sporadic => {
                self.arrive(index);
                self.clients[index].next += period + self.random.range(0, period);
            }
            Habit::Bursty => {
                for _ in 0..self.random.range(1, 4) {
                    self.arrive(index);
                }
                self.clients[index].next += self.random.range(1, 5 * period);
            }
            Habit::Greedy => {
                if self.tasks[index].queue.len() < 2 {
                    self.arrive(index);
                }
                self.clients[index].next += self.random.range(1, period / 2);
            }
        }
    }

    fn withdraw_one(&mut self) {
        let index = self.random.range(0, self.tasks.len() as u64 - 1) as usize;
        let task = &mut self.tasks[index];
        if task.queue.is_empty() {
            return;
        }
        let place = self.random.range(0, task.queue.len() as u64 - 1) as usize;
        let (key, touched) = (task.queue[place].key, task.queue[place].touched);
        assert_eq!(self.core.withdraw(Time(self.now), task.id, key), !touched);
        if !touched {
            task.withdraw(place);
            self.counts.withdrawn += 1;
            for job in &task.queue {
                let window = self.core.window(task.id, job.key).expect("queued");
                assert_eq!(
                    (window.release.0, window.deadline.0),
                    (job.release, job.deadline)
                );
            }
        }
    }

    fn free_from(&self) -> u64 {
        self.busy
            .map_or(self.now, |(_, until, ..)| until.max(self.now))
    }

    /// From when on jobs can still be released.
    fn from(&self) -> u64 {
        self.now + u64::from(self.busy.is_some() && self.started == self.now)
    }

    /// What holds at every instant.
    fn check(&mut self) {
        let least = slack(
            &self.tasks,
            (self.now, self.from()),
            self.free_from(),
            u64::MAX,
        );
        assert!(least >= 0, "slack of {least} at {}", self.now);
        let seen = self.core.clone().slack(Time(self.now));
        let expected = if least == i64::MAX {
            u64::MAX
        } else {
            least as u64
        };
        assert_eq!(seen.0, expected, "at {}", self.now);
        if self.busy.is_none() && !self.tasks.iter().any(|task| task.leaving) {
            let left = self.core.delta_l_left().0;
            assert!(
                left as i64 <= least,
                "dL_r {left} above slack {least} at {}",
                self.now
            );
        }
        for task in &self.tasks {
            if let Some(job) = task.queue.first()
                && self.free_from() + job.remaining > job.deadline
                && job.remaining > 0
            {
                self.counts.misses += 1;
            }
        }
    }

    fn decide(&mut self) {
        let least = slack(&self.tasks, (self.now, self.now), self.now, u64::MAX);
        let offer = match self.random.range(0, 4) {
            0 => None,
            1 => Some(self.random.range(1, 8)),
            2 => Some(least.clamp(1, 60) as u64),
            3 => Some(least.clamp(1, 60) as u64 + 1),
            _ => Some(self.random.range(1, least.clamp(2, 60) as u64)),
        };
        let choice = self.core.choose(Time(self.now), offer.map(Nanos));
        self.counts.decisions += 1;
        let released = self.tasks.iter().any(|task| {
            task.queue
                .first()
                .is_some_and(|job| job.release <= self.now && job.remaining > 0)
        });
        let options = self.core.options();
        if options.policy == Policy::Exact
            && let Some(need) = offer
        {
            let fits = need as i64 <= least;
            match choice {
                Choice::BestEffort => assert!(fits, "{need} of {least}"),
                Choice::RealTime(..) => assert!(
                    !fits || options.burst_threshold > Nanos::ZERO,
                    "{need} of {least}"
                ),
                Choice::Wait { .. } => assert!(!fits, "{need} of {least}"),
                Choice::Early(..) => {}
            }
        }
        match choice {
            Choice::BestEffort => {
                let need = offer.expect("offered");
                self.counts.best_effort += 1;
                self.begin(Service::BestEffort(Nanos(need)), need, u64::MAX);
            }
            Choice::RealTime(id, key) => {
                assert!(released);
                self.counts.real_time += 1;
                self.serve(id, key);
            }
            Choice::Early(id, key) => {
                assert!(!released);
                self.counts.early += 1;
                let task = self.tasks.iter().find(|task| task.id == id).expect("there");
                let job = &task.queue[0];
                assert!(job.release > self.now);
                let room = slack(&self.tasks, (self.now, self.now), self.now, job.deadline);
                assert!(job.remaining as i64 <= room, "early {job:?} in {room}");
                self.serve(id, key);
            }
            Choice::Wait { until } => {
                assert!(!released);
                self.check_wait(offer, until.map(|until| until.0));
                let until = until.map_or(self.now + 50, |until| until.0);
                self.pause(until.min(self.now + self.random.clone().range(1, 30)));
            }
        }
    }

    /// Until then the answer does not change by itself.
    fn check_wait(&mut self, offer: Option<u64>, until: Option<u64>) {
        assert!(until.is_none_or(|until| until > self.now));
        for _ in 0..3 {
            let at = self.now + self.random.range(0, 100);
            if until.is_none_or(|until| at < until) {
                let later = self.core.clone().choose(Time(at), offer.map(Nanos));
                assert!(
                    matches!(later, Choice::Wait { .. }),
                    "{later:?} at {at}, not before {until:?}"
                );
            }
        }
    }

    fn serve(&mut self, id: TaskId, key: JobKey) {
        let index = self
            .tasks
            .iter()
            .position(|task| task.id == id)
            .expect("there");
        let earliest = self.tasks.iter().filter_map(|task| {
            task.queue
                .first()
                .filter(|job| job.release <= self.now && job.remaining > 0)
                .map(|job| job.deadline)
        });
        let earliest = earliest.min();
        let server = self.clients[index].habit == Habit::Server;
        let task = &mut self.tasks[index];
        let job = task.queue[0].clone();
        assert_eq!(job.key, key);
        assert!(
            earliest.is_none_or(|due| due >= job.deadline),
            "in order of deadline"
        );
        assert_eq!(self.core.remaining(id, key), Some(Nanos(job.remaining)));
        if server {
            let cost = self.random.range(1, job.remaining);
            task.queue[0].remaining -= cost;
            task.queue[0].touched = true;
            self.counts.pieces += 1;
            self.begin(Service::Piece(id, key, Nanos(cost)), cost, job.deadline);
        } else {
            task.queue.remove(0);
            task.spent_until = job.deadline;
            self.begin(Service::Job(id, key), job.remaining, job.deadline);
        }
    }

    fn begin(&mut self, service: Service, cost: u64, deadline: u64) {
        self.core.start(Time(self.now), service);
        self.started = self.now;
        let taken = if self.random.chance(60) {
            cost
        } else {
            self.random.range(1, cost)
        };
        self.busy = Some((service, self.now + cost, self.now + taken, deadline));
    }

    fn finish(&mut self) {
        let (service, until, actual, deadline) = self.busy.take().expect("busy");
        self.core.finish(Time(self.now), service);
        self.counts.misses += u64::from(self.now > deadline);
        let Service::Piece(id, key, _) = service else {
            return;
        };
        let task = self
            .tasks
            .iter_mut()
            .find(|task| task.id == id)
            .expect("there");
        let job = &mut task.queue[0];
        job.remaining += until - actual;
        let over = job.remaining == 0;
        let ended = !over && self.random.chance(30);
        if ended {
            assert!(self.core.end_job(Time(self.now), id, key));
        }
        if over || ended {
            let job = task.queue.remove(0);
            task.spent_until = job.deadline;
        }
    }

    /// To the next event, at `until` at the latest.
    fn pause(&mut self, until: u64) {
        let next = self
            .clients
            .iter()
            .map(|client| client.next)
            .min()
            .unwrap_or(until);
        let done = self.busy.map_or(until, |(_, _, actual, _)| actual);
        self.now = next.min(done).min(until).max(self.now);
        if self
            .busy
            .is_some_and(|(_, _, actual, _)| actual == self.now)
        {
            self.finish();
        }
        for index in 0..self.tasks.len() {
            if self.clients[index].next <= self.now {
                self.ask(index);
            }
        }
    }

    fn forget_those_who_left(&mut self) {
        let busy = self.busy.map(|(service, ..)| service);
        let in_service =
            |id| matches!(busy, Some(Service::Job(of, _) | Service::Piece(of, ..)) if of == id);
        for index in (0..self.tasks.len()).rev() {
            let task = &self.tasks[index];
            if task.leaving
                && task.queue.is_empty()
                && task.spent_until <= self.now
                && !in_service(task.id)
            {
                self.tasks.remove(index);
                self.clients.remove(index);
            }
        }
    }

    fn run(&mut self, decisions: u64) {
        while self.counts.decisions < decisions {
            if self.changes && self.random.chance(4) {
                match self.random.range(0, 2) {
                    0 if self.tasks.len() < 8 => self.join(),
                    1 if !self.tasks.is_empty() => self.leave_or_change(),
                    _ => {}
                }
            }
            if self.random.chance(3) && !self.tasks.is_empty() {
                self.withdraw_one();
            }
            self.book.prune(Time(self.now));
            self.forget_those_who_left();
            self.check();
            if self.busy.is_some() {
                self.pause(u64::MAX)
            } else {
                self.decide()
            }
        }
    }
}

fn runs(name: &str, default_seed: u64, options: impl Fn(&mut Random) -> CoreOptions) {
    let seed = common::seed(name, default_seed);
    let runs = if common::long() { 20_000 } else { 2_000 };
    let mut total = Counts::default();
    for index in 0..runs {
        let mut random = Random(seed.wrapping_mul(1_000_003) + index);
        let options = options(&mut random);
        let mut run = Run::new(random.next(), options);
        run.run(300);
        let counts = run.counts;
        assert_eq!(counts.misses, 0, "run {index} of seed {seed}: {options:?}");
        for (sum, count) in [
            (&mut total.decisions, counts.decisions),
            (&mut total.real_time, counts.real_time),
            (&mut total.early, counts.early),
            (&mut total.best_effort, counts.best_effort),
            (&mut total.pieces, counts.pieces),
            (&mut total.withdrawn, counts.withdrawn),
            (&mut total.joined, counts.joined),
            (&mut total.deferred, counts.deferred),
            (&mut total.left, counts.left),
            (&mut total.changed, counts.changed),
        ] {
            *sum += count;
        }
    }
    eprintln!("{name}: {runs} runs, {total:?}");
    let Counts {
        real_time,
        early,
        best_effort,
        pieces,
        withdrawn,
        deferred,
        left,
        changed,
        ..
    } = total;
    let least = [
        real_time,
        early,
        best_effort,
        pieces,
        withdrawn,
        deferred,
        left,
        changed,
    ]
    .into_iter()
    .min();
    assert!(least > Some(20), "everything is tried: {total:?}");
}

#[test]
fn exact_is_never_late_and_decides_as_the_definition_says() {
    runs("exact", 11, |random| CoreOptions {
        best_effort_share_percent: random.range(0, 100) as u8,
        ..CoreOptions::default()
    });
}

#[test]
fn exact_with_bursts_is_never_late() {
    runs("exact with bursts", 12, |random| CoreOptions {
        burst_threshold: Nanos(random.range(1, 60)),
        best_effort_share_percent: random.range(0, 100) as u8,
        ..CoreOptions::default()
    });
}

#[test]
fn delta_l_is_never_late_and_never_above_exact_slack() {
    runs("delta-l", 13, |random| CoreOptions {
        policy: Policy::DeltaL,
        best_effort_share_percent: random.range(0, 100) as u8,
        ..CoreOptions::default()
    });
}
