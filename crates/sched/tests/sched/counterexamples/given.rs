//! Over-predicted time that is given to best effort, where jobs are taken back at any moment.

use crate::common::{Pair, admit, params};
use sched::core::{Choice, Core, CoreOptions, JobKey, Policy, Service};
use sched::delta_l::{delta_l, delta_l_published};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use testkit::{Random, seed};

/// A disk whose tasks ask for less than their C, more often than they may, and take jobs back.
struct Run {
    core: Core,
    random: Random,
    tasks: Vec<Pair>,
    /// Queued jobs and their service times.
    queued: Vec<(TaskId, JobKey, u64)>,
    now: u64,
    keys: u64,
    withdrawn: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let tasks = loop {
            let count = random.range(1, 3);
            let task = |_| {
                let period = random.range(2, 16);
                (random.range(2, period), period)
            };
            let tasks: Vec<Pair> = (0..count).map(task).collect();
            if admit(&tasks).is_ok() {
                break tasks;
            }
        };
        let mut core = Core::new(CoreOptions {
            policy: Policy::DeltaL,
            gives_over_prediction: true,
            ..CoreOptions::default()
        });
        for (id, task) in (0..).zip(&tasks) {
            core.join(Time(0), TaskId(id), params(*task), Time(0));
        }
        let set = admit(&tasks).expect("admitted");
        let (corrected, published) = (delta_l(&set).value, delta_l_published(&set).value);
        core.set_delta_l(Time(0), corrected, published);
        Self {
            core,
            random,
            tasks,
            queued: Vec::new(),
            now: 0,
            keys: 0,
            withdrawn: 0,
        }
    }

    /// Tasks ask at random, and take something back at random.
    fn ask(&mut self) {
        for place in 0..self.tasks.len() {
            let id = TaskId(place as u64);
            let waiting = self.queued.iter().filter(|job| job.0 == id).count();
            if waiting < 3 && self.random.chance(30) {
                let cost = self.random.range(1, self.tasks[place].0);
                let job = JobKey(self.keys);
                self.keys += 1;
                let window = self.core.arrive(Time(self.now), id, job, Nanos(cost));
                window.expect("accepted");
                self.queued.push((id, job, cost));
            }
        }
        if !self.queued.is_empty() && self.random.chance(20) {
            let place = self.random.below(self.queued.len() as u64) as usize;
            let (id, job, _) = self.queued.swap_remove(place);
            assert!(self.core.withdraw(Time(self.now), id, job));
            self.withdrawn += 1;
        }
    }

    /// The decision of the free disk: the service, its end and its deadline.
    fn decide(&mut self) -> Option<(Service, u64, u64)> {
        let offer = self.random.range(1, 8);
        match self.core.choose(Time(self.now), Some(Nanos(offer))) {
            Choice::BestEffort => Some((Service::BestEffort(Nanos(offer)), offer, u64::MAX)),
            Choice::RealTime(id, job) | Choice::Early(id, job) => {
                let place = self
                    .queued
                    .iter()
                    .position(|one| (one.0, one.1) == (id, job));
                let (_, _, cost) = self.queued.swap_remove(place.expect("queued"));
                let window = self.core.window(id, job).expect("queued");
                Some((Service::Job(id, job), cost, window.deadline.0))
            }
            Choice::Wait { .. } => None,
        }
    }

    /// False if somebody is late.
    fn play(&mut self, ticks: u64) -> bool {
        let mut busy = None;
        while self.now < ticks {
            if let Some((service, until, due)) = busy
                && until == self.now
            {
                self.core.finish(Time(self.now), service);
                busy = None;
                if self.now > due {
                    return false;
                }
            }
            self.ask();
            if busy.is_none()
                && let Some((service, takes, due)) = self.decide()
            {
                self.core.start(Time(self.now), service);
                busy = Some((service, self.now + takes, due));
            }
            self.now += 1;
        }
        true
    }
}

#[test]
fn nobody_is_late_whatever_is_taken_back_where_over_prediction_is_given() {
    let base = seed("given and taken back", Some(1));
    let mut withdrawn = 0;
    for seed in base..base + 2_000 {
        let mut run = Run::new(seed);
        assert!(
            run.play(200),
            "seed {seed}: late at {}: {:?}",
            run.now,
            run.tasks
        );
        withdrawn += run.withdrawn;
    }
    assert!(withdrawn > 10_000, "{withdrawn}");
}
