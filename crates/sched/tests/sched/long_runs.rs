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

mod decisions;
mod tasks;

use crate::common::model::ModelTask;
use sched::book::Book;
use sched::core::{Core, CoreOptions, Policy, Service};
use sched::units::{Nanos, Time};
use tasks::Client;
use testkit::Random;

/// Counts of each event of a run.
#[derive(Default, Debug)]
struct Counts {
    decisions: u64,
    real_time: u64,
    early: u64,
    early_of_several: u64,
    best_effort: u64,
    pieces: u64,
    withdrawn: u64,
    joined: u64,
    deferred: u64,
    left: u64,
    changed: u64,
    misses: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.decisions += other.decisions;
        self.real_time += other.real_time;
        self.early += other.early;
        self.early_of_several += other.early_of_several;
        self.best_effort += other.best_effort;
        self.pieces += other.pieces;
        self.withdrawn += other.withdrawn;
        self.joined += other.joined;
        self.deferred += other.deferred;
        self.left += other.left;
        self.changed += other.changed;
        self.misses += other.misses;
    }

    /// Count of the rarest event.
    fn rarest(&self) -> u64 {
        self.real_time
            .min(self.early)
            .min(self.early_of_several)
            .min(self.best_effort)
            .min(self.pieces)
            .min(self.withdrawn)
            .min(self.deferred)
            .min(self.left)
            .min(self.changed)
    }
}

/// State of the disk.
#[derive(Clone, Copy)]
struct Busy {
    service: Service,
    /// When it is over as predicted.
    until: u64,
    /// When it is over.
    ends: u64,
    deadline: u64,
}

/// A disk, its scheduler and the model of both.
struct Run {
    random: Random,
    core: Core,
    book: Book,
    tasks: Vec<ModelTask>,
    clients: Vec<Client>,
    now: u64,
    busy: Option<Busy>,
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

    /// To the next event, at `until` at the latest.
    fn pause(&mut self, until: u64) {
        let next = self
            .clients
            .iter()
            .map(|client| client.next)
            .min()
            .unwrap_or(until);
        let done = self.busy.map_or(until, |busy| busy.ends);
        self.now = next.min(done).min(until).max(self.now);
        if self.busy.is_some_and(|busy| busy.ends == self.now) {
            self.finish();
        }
        for index in 0..self.tasks.len() {
            if self.clients[index].next <= self.now {
                self.ask(index);
            }
        }
    }

    fn forget_those_who_left(&mut self) {
        let busy = self.busy.map(|busy| busy.service);
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

    /// From when on the disk is free, as predicted.
    fn free_from(&self) -> u64 {
        self.busy.map_or(self.now, |busy| busy.until.max(self.now))
    }

    /// From when on jobs can still be released.
    fn from(&self) -> u64 {
        self.now + u64::from(self.busy.is_some() && self.started == self.now)
    }
}

fn runs(name: &str, default_seed: u64, options: impl Fn(&mut Random) -> CoreOptions) {
    let seed = testkit::seed(name, Some(default_seed));
    let runs = if testkit::is_full() { 20_000 } else { 2_000 };
    let mut total = Counts::default();
    for index in 0..runs {
        let mut random = Random(seed.wrapping_mul(1_000_003) + index);
        let options = options(&mut random);
        let mut run = Run::new(random.next(), options);
        run.run(300);
        let misses = run.counts.misses;
        assert_eq!(misses, 0, "run {index} of seed {seed}: {options:?}");
        total.add(&run.counts);
    }
    eprintln!("{name}: {runs} runs, {total:?}");
    assert!(total.rarest() > 20, "everything is tried: {total:?}");
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

testkit::full! {
    "soak: ten times as many runs",
    exact_is_never_late_and_decides_as_the_definition_says => exact_is_never_late_and_decides_as_the_definition_says_full,
    exact_with_bursts_is_never_late => exact_with_bursts_is_never_late_full,
    delta_l_is_never_late_and_never_above_exact_slack => delta_l_is_never_late_and_never_above_exact_slack_full,
}
