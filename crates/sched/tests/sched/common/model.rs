//! A disk's tasks once more, naively: what is queued, and slack from its definition.

use sched::core::JobKey;
use sched::task::TaskId;

#[derive(Clone, Debug)]
pub(crate) struct ModelJob {
    pub(crate) key: JobKey,
    pub(crate) arrival: u64,
    pub(crate) release: u64,
    pub(crate) deadline: u64,
    pub(crate) remaining: u64,
    pub(crate) touched: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelTask {
    pub(crate) id: TaskId,
    pub(crate) service: u64,
    pub(crate) period: u64,
    pub(crate) spent_until: u64,
    pub(crate) first_release: u64,
    pub(crate) queue: Vec<ModelJob>,
    pub(crate) leaving: bool,
}

impl ModelTask {
    /// Takes no more jobs, and gives back at once the share that it never used.
    pub(crate) fn leave(&mut self, now: u64) {
        self.leaving = true;
        if self.queue.is_empty() && self.spent_until == self.first_release {
            self.spent_until = self.spent_until.min(now);
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.queue
            .last()
            .map_or(self.spent_until, |job| job.deadline)
    }

    pub(crate) fn push(&mut self, key: JobKey, now: u64, cost: u64) -> (u64, u64) {
        let release = now.max(self.last());
        let deadline = release + self.period;
        self.queue.push(ModelJob {
            key,
            arrival: now,
            release,
            deadline,
            remaining: cost,
            touched: false,
        });
        (release, deadline)
    }

    pub(crate) fn withdraw(&mut self, index: usize) {
        let gone = self.queue.remove(index);
        if index == 0 && gone.remaining < self.service {
            self.spent_until = gone.deadline;
            return;
        }
        for later in index..self.queue.len() {
            let before = if later == 0 {
                self.spent_until
            } else {
                self.queue[later - 1].deadline
            };
            let job = &mut self.queue[later];
            job.release = job.arrival.max(before);
            job.deadline = job.release + self.period;
        }
    }

    /// The deadlines up to `until` and their costs.
    fn deadlines(&self, now: u64, until: u64) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for (index, job) in self.queue.iter().enumerate() {
            all.push((
                job.deadline,
                if index == 0 {
                    job.remaining
                } else {
                    self.service
                },
            ));
        }
        if !self.leaving {
            let mut due = now.max(self.last()) + self.period;
            while due <= until {
                all.push((due, self.service));
                due += self.period;
            }
        }
        all.retain(|&(_, cost)| cost > 0);
        all
    }
}

/// S(now) over the deadlines before `before`, with the disk free from `free` on: every deadline up to
/// one hyperperiod after the last that is fixed.
///
/// Jobs can still be released from `from` on.
pub(crate) fn slack(tasks: &[ModelTask], (now, from): (u64, u64), free: u64, before: u64) -> i64 {
    let periods: Vec<_> = tasks.iter().map(|task| (1, task.period)).collect();
    let fixed = tasks
        .iter()
        .map(|task| from.max(task.last()) + task.period)
        .max()
        .unwrap_or(now);
    let until = fixed + super::hyperperiod(&periods);
    let mut all: Vec<(u64, u64)> = tasks
        .iter()
        .flat_map(|task| task.deadlines(from, until))
        .collect();
    all.sort_unstable();
    let (mut least, mut demand) = (i64::MAX, 0);
    for (index, &(due, cost)) in all.iter().enumerate() {
        demand += cost as i64;
        let last_of_its_kind = all.get(index + 1).is_none_or(|next| next.0 > due);
        if due > now && due < before && last_of_its_kind {
            least = least.min(due as i64 - free as i64 - demand);
        }
    }
    least
}
