//! Requests of the streams and of the best-effort sources of an experiment.
//!
//! Both ways to run an experiment use it: in virtual time an event asks its source for the next request; in
//! real time a [`Script`] lists the requests and their times.

use std::ops::Range;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use sched::request::{Class, Op, Urgency};
use sched::task::TaskId;
use sched::units::{Sector, SectorCount, Time};

use super::Experiment;
use super::heap::EventHeap;
use super::workload::{ArrivalProcess, Arrivals, Cursor, place};
use crate::dice::Dice;

/// A request that a source makes, before it has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The direction.
    pub op: Op,
    /// The first sector.
    pub start: Sector,
    /// Number of sectors.
    pub count: SectorCount,
    /// On whose account: the task of a stream is its index.
    pub class: Class,
}

/// The state of every source.
pub(super) struct Sources<'a> {
    experiment: &'a Experiment,
    dice: Dice,
    cursors: Vec<Cursor>,
    processes: Vec<ArrivalProcess>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(experiment: &'a Experiment) -> Self {
        let processes = experiment.best_effort.iter();
        Self {
            experiment,
            dice: Dice(Xoshiro256PlusPlus::seed_from_u64(experiment.seed ^ 0x5EED)),
            cursors: experiment.streams.iter().map(Cursor::new).collect(),
            processes: processes.map(|_| ArrivalProcess::new()).collect(),
        }
    }

    pub(super) fn stream(&mut self, index: usize) -> Wanted {
        let load = &self.experiment.streams[index];
        Wanted {
            op: load.op,
            start: self.cursors[index].advance(load, &mut self.dice),
            count: load.block,
            class: Class::Stream(TaskId(index as u64)),
        }
    }

    pub(super) fn best_effort(&mut self, index: usize) -> Wanted {
        let load = &self.experiment.best_effort[index];
        let count = load.sizes[self.dice.below(load.sizes.len() as u64) as usize];
        let reads = self.dice.below(100) < u64::from(load.read_percent);
        let region: &Range<Sector> = &load.region;
        let start = place(&mut self.dice, region, count);
        let (op, urgency) = if reads {
            (Op::Read, Urgency::Sync)
        } else {
            (Op::Write, load.write_urgency)
        };
        Wanted {
            op,
            start,
            count,
            class: Class::BestEffort(urgency),
        }
    }

    /// When a best-effort source asks next: after `last`, when it asked, or, if it is closed, when
    /// that was answered.
    pub(super) fn next_best_effort(&mut self, index: usize, last: Time) -> Time {
        let arrivals = self.experiment.best_effort[index].arrivals;
        self.processes[index].next(arrivals, last, &mut self.dice)
    }
}

enum Source {
    Stream(usize),
    BestEffort(usize),
}

/// All requests of an experiment in the order of their times, which do not depend on how they are
/// served: closed sources have no place in it and are left out.
pub struct Script<'a> {
    experiment: &'a Experiment,
    sources: Sources<'a>,
    heap: EventHeap<Source>,
    end: Time,
}

impl<'a> Script<'a> {
    /// The script of an experiment.
    #[must_use]
    pub fn new(experiment: &'a Experiment) -> Self {
        let mut script = Self {
            experiment,
            sources: Sources::new(experiment),
            heap: EventHeap::default(),
            end: Time::ZERO + experiment.duration,
        };
        for (index, load) in experiment.streams.iter().enumerate() {
            script.push(load.first, Source::Stream(index));
        }
        for (index, load) in experiment.best_effort.iter().enumerate() {
            if !matches!(load.arrivals, Arrivals::Closed { .. }) {
                let first = script.sources.next_best_effort(index, Time::ZERO);
                script.push(first, Source::BestEffort(index));
            }
        }
        script
    }

    fn push(&mut self, at: Time, source: Source) {
        if at < self.end {
            self.heap.push(at, source);
        }
    }
}

impl Iterator for Script<'_> {
    type Item = (Time, Wanted);

    fn next(&mut self) -> Option<(Time, Wanted)> {
        let (at, source) = self.heap.pop_until(self.end)?;
        let wanted = match source {
            Source::Stream(index) => {
                let next = at + self.experiment.streams[index].period;
                self.push(next, Source::Stream(index));
                self.sources.stream(index)
            }
            Source::BestEffort(index) => {
                let wanted = self.sources.best_effort(index);
                let next = self.sources.next_best_effort(index, at);
                self.push(next, Source::BestEffort(index));
                wanted
            }
        };
        Some((at, wanted))
    }
}

impl std::fmt::Debug for Script<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
