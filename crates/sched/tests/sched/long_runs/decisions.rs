//! Decisions, and what must hold of each of them: slack is computed from its definition.

use sched::core::{Choice, JobKey, Policy, Service};
use sched::task::TaskId;
use sched::units::{Nanos, Time};

use super::tasks::Habit;
use super::{Busy, Run};
use crate::common::model::slack;

impl Run {
    /// Checks the invariants of every instant.
    pub(super) fn check(&mut self) {
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

    pub(super) fn decide(&mut self) {
        let least = slack(&self.tasks, (self.now, self.now), self.now, u64::MAX);
        let offer = self.offer(least);
        let choice = self.core.choose(Time(self.now), offer.map(Nanos));
        self.counts.decisions += 1;
        if let Some(need) = offer {
            self.check_against_slack(choice, need, least);
        }
        let released = self.earliest_released().is_some();
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
                self.check_least_violating(id);
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

    /// Best effort to offer: any, none, or just what fits the slack and what does not.
    fn offer(&mut self, slack: i64) -> Option<u64> {
        match self.random.range(0, 4) {
            0 => None,
            1 => Some(self.random.range(1, 8)),
            2 => Some(slack.clamp(1, 60) as u64),
            3 => Some(slack.clamp(1, 60) as u64 + 1),
            _ => Some(self.random.range(1, slack.clamp(2, 60) as u64)),
        }
    }

    /// Exact slack serves best effort exactly if it fits.
    fn check_against_slack(&self, choice: Choice, need: u64, slack: i64) {
        let options = self.core.options();
        if options.policy != Policy::Exact {
            return;
        }
        let fits = need as i64 <= slack;
        let right = match choice {
            Choice::BestEffort => fits,
            Choice::RealTime(..) => !fits || options.burst_threshold > Nanos::ZERO,
            Choice::Wait { .. } => !fits,
            Choice::Early(..) => true,
        };
        assert!(right, "{choice:?} with {need} offered of {slack}");
    }

    /// Of the tasks that ask for more than their share, the one with the earliest deadline goes: it is the
    /// least ahead of its reservation. (No job is released, so every first job is early.)
    fn check_least_violating(&mut self, chosen: TaskId) {
        let heads = self.tasks.iter().filter_map(|task| {
            let job = task.queue.first().filter(|job| job.remaining > 0)?;
            Some((job.deadline, task.id))
        });
        let heads: Vec<_> = heads.collect();
        self.counts.early_of_several += u64::from(heads.len() > 1);
        let first = heads.iter().min().map(|head| head.1);
        assert_eq!(first, Some(chosen), "of {heads:?} at {}", self.now);
    }

    /// The deadline that is next of the jobs that are released.
    fn earliest_released(&self) -> Option<u64> {
        self.tasks
            .iter()
            .filter_map(|task| task.queue.first())
            .filter(|job| job.release <= self.now && job.remaining > 0)
            .map(|job| job.deadline)
            .min()
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
        let earliest = self.earliest_released();
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
        self.busy = Some(Busy {
            service,
            until: self.now + cost,
            ends: self.now + taken,
            deadline,
        });
    }

    pub(super) fn finish(&mut self) {
        let busy = self.busy.take().expect("busy");
        self.core.finish(Time(self.now), busy.service);
        self.counts.misses += u64::from(self.now > busy.deadline);
        let Service::Piece(id, key, _) = busy.service else {
            return;
        };
        let task = self
            .tasks
            .iter_mut()
            .find(|task| task.id == id)
            .expect("there");
        let job = &mut task.queue[0];
        job.remaining += busy.until - busy.ends;
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
}
