//! Disks that share a link: the whole state space of small sets of tasks on two and three disks.
//!
//! Time is in ticks. At each tick any subset of the tasks of all disks may ask. What the disks do to each other is
//! not left to the rules: a link is played unit by unit where times are inflated, and what executes is counted where
//! places are lent.

mod inflate;
mod lend;
mod random;

use crate::common::{Pair, admit, params};
use sched::core::{Core, CoreOptions, JobKey};
use sched::task::TaskId;
use sched::units::{Nanos, Time};

const ORIGIN: Time = Time(1_000_000);

/// A disk with tasks.
#[derive(Clone)]
struct Promising {
    core: Core,
    /// By task: the queued job.
    queued: Vec<Option<JobKey>>,
    /// By task: the last deadline.
    last: Vec<u64>,
}

impl Promising {
    /// An idle disk that counts on these times.
    fn new(tasks: &[Pair]) -> Self {
        let mut core = Core::new(CoreOptions::default());
        for (index, &task) in tasks.iter().enumerate() {
            core.join(ORIGIN, TaskId(index as u64), params(task), ORIGIN);
        }
        Self {
            core,
            queued: vec![None; tasks.len()],
            last: vec![0; tasks.len()],
        }
    }

    fn ask(&mut self, now: u64, task: usize, cost: u64) {
        let job = JobKey(now);
        let id = TaskId(task as u64);
        let window = self.core.arrive(Time(now), id, job, Nanos(cost));
        self.queued[task] = Some(job);
        self.last[task] = window.expect("accepted").deadline.0;
    }

    /// True if a queued job would be late even if it were started now.
    fn is_late(&self, now: u64, tasks: &[Pair]) -> bool {
        let late =
            |task: usize| self.queued[task].is_some() && now + tasks[task].0 > self.last[task];
        (0..tasks.len()).any(late)
    }
}

/// Every set of (disk, task) that may ask now.
fn askings<'a>(now: u64, disks: impl Iterator<Item = &'a Promising>) -> Vec<Vec<(usize, usize)>> {
    let mut subsets = vec![vec![]];
    for (index, disk) in disks.enumerate() {
        for task in 0..disk.last.len() {
            if disk.queued[task].is_none() && disk.last[task] <= now {
                let with = |subset: &Vec<_>| [subset.clone(), vec![(index, task)]].concat();
                let more: Vec<_> = subsets.iter().map(with).collect();
                subsets.extend(more);
            }
        }
    }
    subsets
}

/// All sets of `n` tasks with periods up to `period_max` and times from `least` on, by rising period, that are
/// admitted if each takes `more` longer.
fn admitted_sets(n: usize, period_max: u64, least: u64, more: u64) -> Vec<Vec<Pair>> {
    let mut sets: Vec<Vec<Pair>> = vec![vec![]];
    for _ in 0..n {
        sets = (sets.iter())
            .flat_map(|set| {
                let from = set.last().copied().unwrap_or((least, least));
                let tasks = (from.1..=period_max).flat_map(|t| (least..=t).map(move |c| (c, t)));
                let rising = tasks.filter(move |&(c, t)| (t, c) >= (from.1, from.0));
                rising.map(move |task| [set.clone(), vec![task]].concat())
            })
            .collect();
    }
    sets.retain(|set| {
        let longer = longer(set, more);
        longer.iter().all(|(c, t)| c <= t) && admit(&longer).is_ok()
    });
    sets
}

/// The tasks, if each takes so much longer.
fn longer(tasks: &[Pair], more: u64) -> Vec<Pair> {
    tasks.iter().map(|&(c, t)| (c + more, t)).collect()
}

/// The ways to give each of `disks` disks one of the sets, up to the order of the disks.
fn on_disks(sets: &[Vec<Pair>], disks: usize) -> Vec<Vec<Vec<Pair>>> {
    let mut found: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..disks {
        found = (found.iter())
            .flat_map(|chosen| {
                let from = chosen.last().copied().unwrap_or(0);
                (from..sets.len()).map(move |set| [chosen.clone(), vec![set]].concat())
            })
            .collect();
    }
    let sets_of = |chosen: &Vec<usize>| chosen.iter().map(|&set| sets[set].clone()).collect();
    found.iter().map(sets_of).collect()
}
