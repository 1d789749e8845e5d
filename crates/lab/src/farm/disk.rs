//! One disk of a farm, from its first event to its last.

use std::collections::VecDeque;
use std::sync::Arc;

use drives::plant::Plant;
use sched::disk::{DiskScheduler, SchedulerConfig, SubmitError};
use sched::request::Request;
use sched::units::{Nanos, Time};

use super::FarmRun;
use super::feed::{BEST_EFFORT_ID, Feed};
use super::outcome::DiskOutcome;
use crate::run::{Decider, Machine};

struct Run<'a, D> {
    machine: Machine<D>,
    feed: Feed<'a>,
    /// Best effort that the scheduler has no place for: its clients hold it.
    waiting: VecDeque<Request>,
    outcome: DiskOutcome,
}

/// Options of the scheduler of disk `number`.
pub(super) fn config(of: &FarmRun<'_>, number: usize) -> SchedulerConfig {
    SchedulerConfig {
        streams_within: of.admitted.on_disk[number].within.clone(),
        sweeps: of.admitted.on_disk[number].sweeps.is_some(),
        ..of.config.clone()
    }
}

/// The server's scheduler of disk `number`, which everything admitted has joined.
pub(super) fn scheduler(of: &FarmRun<'_>, number: usize) -> DiskScheduler {
    let on_disk = &of.admitted.on_disk[number];
    let profile = Arc::clone(&of.disks.profile);
    let mut scheduler = DiskScheduler::new(profile, config(of, number));
    for task in &on_disk.tasks {
        scheduler
            .join(Time::ZERO, task.id, task.params, task.kind, Time::ZERO)
            .expect("what was admitted to an idle disk joins it");
    }
    let (corrected, published) = of.admitted.delta_l()[number];
    scheduler.set_delta_l(Time::ZERO, corrected.value, published.value);
    scheduler
}

/// Runs disk `number`.
pub(super) fn run<D: Decider>(
    of: &FarmRun<'_>,
    number: usize,
    plant: Plant,
    decider: D,
) -> DiskOutcome {
    let streams = of.admitted.on_disk[number].streams.iter();
    let streams = streams.map(|of| of.stream).collect();
    let mut run = Run {
        machine: Machine::new(plant, decider),
        feed: Feed::new(of, number),
        waiting: VecDeque::new(),
        outcome: DiskOutcome::new(of.load.sources, streams, of.slot),
    };
    let mut now = Time::ZERO;
    let mut looks = Looks::new(of);
    while let Some(next) = run.next_at() {
        looks.until(next, &mut run);
        now = next;
        run.step(now);
    }
    looks.until(Time::MAX, &mut run);
    run.outcome.account = run.machine.into_account(now);
    run.outcome
}

/// Looks at the slack now and then. Between two events nothing changes but the time.
struct Looks {
    every: Option<Nanos>,
    next: Time,
    end: Time,
}

impl Looks {
    fn new(of: &FarmRun<'_>) -> Self {
        Self {
            every: of.slack_every.map(|every| every.max(Nanos(1))),
            next: Time::ZERO,
            end: of.end,
        }
    }

    fn until<D: Decider>(&mut self, next: Time, run: &mut Run<'_, D>) {
        let Some(every) = self.every else { return };
        while self.next < next.min(self.end) {
            let slack = run.machine.slack(self.next);
            run.outcome.slack.push(slack);
            self.next += every;
        }
    }
}

impl<D: Decider> Run<'_, D> {
    fn next_at(&self) -> Option<Time> {
        match (self.feed.next_at(), self.machine.next_at()) {
            (Some(asked), Some(done)) => Some(asked.min(done)),
            (asked, done) => asked.or(done),
        }
    }

    fn step(&mut self, now: Time) {
        if let Some((dispatch, completed)) = self.machine.completed(now)
            && completed.finished
        {
            if dispatch.id.0 & BEST_EFFORT_ID == 0 {
                let lane = Feed::lane_of(dispatch.id);
                self.outcome.block(lane, completed.lateness);
                self.feed.had(lane, now);
            } else {
                let traced = self.feed.traced((dispatch.id.0 & !BEST_EFFORT_ID) as usize);
                self.outcome.best_effort(traced, now);
            }
            if let Some(first) = self.waiting.pop_front() {
                self.submit(now, first);
            }
        }
        while let Some(request) = self.feed.next(now) {
            self.submit(now, request);
        }
        self.machine.decide(now);
    }

    fn submit(&mut self, now: Time, request: Request) {
        match self.machine.submit(now, request) {
            Ok(()) => {}
            Err(SubmitError::Full { .. }) => {
                self.waiting.push_back(request);
                let most = self.outcome.waiting_max.max(self.waiting.len() as u64);
                self.outcome.waiting_max = most;
            }
            Err(error) => unreachable!("what was placed on a disk and admitted is taken: {error}"),
        }
    }
}
