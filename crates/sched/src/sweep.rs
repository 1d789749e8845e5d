//! Requests of several streams in one sweep of the arm.
//!
//! # Problem
//!
//! A request that is served in order of deadlines may begin anywhere, so each is charged for a seek over all that
//! streams lie in. Served together in order of position, n requests move over that once.
//!
//! # Model
//!
//! The streams of one period are *members* of one task. A request waits until the task's next job is
//! released, which is when the one before is due (or at once where none is). The job is *sealed* then: of
//! each member that has asked, the first request, in ascending order. A member that asks once a period thus
//! waits a period at most, and has its block within another one; who asks for more waits for later jobs, and
//! takes nobody's place.
//!
//! ```text
//! C = n each + what n - 1 seeks take that together go over all that streams lie in
//!       + a seek over that to where the sweep begins
//!       + another one back to where the sweep was that this one interrupts
//! ```
//!
//! A job is a container: its requests are on the disk one by one, and after each the earliest deadline comes
//! first again. A request is charged what was planned for it: its own time and the seek from the one before
//! it. The arm is elsewhere only if something went in between. If that was another sweep, whose deadline then
//! is earlier, it has kept the second of its long seeks for this, and hands it over when it ends
//! ([`Core::end_sweep`]). If it was best effort, that was charged for the longest seek to where streams lie.
//! Nobody else may be on the disk.
//!
//! # Deliberately absent
//!
//! Serving a sweep before its release: best effort has that time. Both ways of the arm: the seek back is the one to
//! where the next sweep begins.

use crate::core::{Choice, Core, JobKey, Service};
use crate::predict::Predictor;
use crate::request::{Request, RequestId};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Sector, Time};
use alloc::vec::Vec;
use core::ops::Range;

/// A request that waits for a job.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    member: u32,
    arrival: Time,
    first: Sector,
    last: Sector,
    /// Service time without the seek.
    time: Nanos,
}

/// A request of a job, and what is planned for it, with the seek from the one before.
#[derive(Clone, Copy, Debug)]
struct Planned {
    id: RequestId,
    time: Nanos,
}

/// A request of a sweep that is on the disk or goes next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) request: RequestId,
    pub(crate) service: Service,
    /// Longest service time.
    pub(crate) time: Nanos,
    pub(crate) deadline: Time,
}

#[derive(Clone, Copy, Debug)]
struct Sealed {
    key: JobKey,
    deadline: Time,
    /// Number of its requests that have been started.
    started: usize,
}

#[derive(Clone, Debug)]
struct Sweep {
    task: TaskId,
    service: Nanos,
    /// The longest time of a member's request, without its seek.
    each: Nanos,
    /// The last job's deadline: the next one is not released before.
    next_release: Time,
    waiting: Vec<Waiting>,
    sealed: Option<Sealed>,
    /// The requests of the sealed job, in order.
    planned: Vec<Planned>,
    leaving: bool,
}

/// The sweeps of one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweeps {
    sweeps: Vec<Sweep>,
    /// The longest seek between two requests of streams.
    way: Nanos,
    /// True if a job counts with the whole promise, whatever requests it contains.
    counts_whole: bool,
    jobs: u64,
    /// Kept to not allocate.
    chosen: Vec<Waiting>,
}

impl Sweeps {
    pub(crate) fn new(way: Nanos, counts_whole: bool) -> Self {
        Self {
            way,
            counts_whole,
            ..Self::default()
        }
    }

    /// The longest that a request of the task's members takes without its seek, as it was admitted.
    pub(crate) fn each(params: TaskParams, way: Nanos) -> Nanos {
        params.longest().saturating_sub(way + way)
    }

    pub(crate) fn join(
        &mut self,
        task: TaskId,
        params: TaskParams,
        first_release: Time,
        requests_max: usize,
    ) {
        self.chosen.reserve(requests_max);
        self.sweeps.push(Sweep {
            task,
            service: params.service(),
            each: Self::each(params, self.way),
            next_release: first_release,
            waiting: Vec::with_capacity(requests_max),
            sealed: None,
            planned: Vec::with_capacity(requests_max),
            leaving: false,
        });
    }

    fn place(&self, task: TaskId) -> Option<usize> {
        self.sweeps.iter().position(|sweep| sweep.task == task)
    }

    /// The longest time of a request of this task's members, without its seek.
    pub(crate) fn longest_of(&self, task: TaskId) -> Option<Nanos> {
        self.place(task).map(|place| self.sweeps[place].each)
    }

    /// A member's request waits for a job from now on.
    pub(crate) fn wait(
        &mut self,
        now: Time,
        task: TaskId,
        member: u32,
        request: &Request,
        time: Nanos,
    ) {
        let Some(place) = self.place(task) else {
            return;
        };
        self.sweeps[place].waiting.push(Waiting {
            id: request.id,
            member,
            arrival: now,
            first: request.start,
            last: Sector((request.start + request.count).get() - 1),
            time,
        });
    }

    /// A request is taken back. `false`: it is in a job, which counts on it.
    pub(crate) fn cancel(&mut self, task: TaskId, id: RequestId) -> bool {
        let Some(place) = self.place(task) else {
            return false;
        };
        let waiting = &mut self.sweeps[place].waiting;
        let before = waiting.len();
        waiting.retain(|request| request.id != id);
        waiting.len() < before
    }

    /// When a request is due that is in a job; the latest that it may be due if it is not in one yet.
    pub(crate) fn deadline(&self, task: TaskId, id: RequestId) -> Option<Time> {
        let sweep = &self.sweeps[self.place(task)?];
        let sealed = sweep.sealed?;
        let of_job = sweep.planned[sealed.started..].iter();
        of_job
            .map(|planned| planned.id)
            .any(|planned| planned == id)
            .then_some(sealed.deadline)
    }

    /// Takes no more requests; those that wait `within` these sectors are still served. Returns when its
    /// share is free.
    pub(crate) fn leave(
        &mut self,
        now: Time,
        task: TaskId,
        (predictor, within): (&Predictor, &Range<Sector>),
        core: &mut Core,
    ) -> Option<Time> {
        let place = self.place(task)?;
        let sweep = &mut self.sweeps[place];
        sweep.leaving = true;
        if sweep.waiting.is_empty() {
            let free_from = core.leave(now, task);
            if sweep.sealed.is_none() {
                self.sweeps.swap_remove(place);
            }
            return free_from;
        }
        let from = sweep.next_release_after(core.earliest_release(now));
        let period = core.period(task)?;
        let jobs = sweep.jobs_left(sweep.places(predictor, within));
        Some(from + Nanos(period.get().saturating_mul(jobs)))
    }

    /// Seals the jobs whose time came before `until`. To be called before anything else that happens at
    /// `now`, so that jobs are released when they were to be; with the end of that instant when everything
    /// that happens in it is known. When the next one's time will come.
    pub(crate) fn advance(
        &mut self,
        now: Time,
        until: Time,
        predictor: &Predictor,
        core: &mut Core,
    ) -> Option<Time> {
        let mut next: Option<Time> = None;
        for place in 0..self.sweeps.len() {
            let sweep = &self.sweeps[place];
            let Some(first) = sweep.waiting.first().filter(|_| sweep.sealed.is_none()) else {
                continue;
            };
            let release = first.arrival.max(sweep.next_release);
            if release < until {
                self.seal(now, place, predictor, core);
            } else {
                next = Some(next.map_or(release, |next| next.min(release)));
            }
        }
        next
    }

    fn seal(&mut self, now: Time, place: usize, predictor: &Predictor, core: &mut Core) {
        let Self {
            sweeps,
            way,
            counts_whole,
            jobs,
            chosen,
        } = self;
        let sweep = &mut sweeps[place];
        let since = sweep.waiting[0].arrival.max(sweep.next_release);
        chosen.clear();
        for request in &sweep.waiting {
            if chosen.iter().all(|other| other.member != request.member) {
                chosen.push(*request);
            }
        }
        let cost = loop {
            chosen.sort_unstable_by_key(|request| (request.first, request.arrival, request.id));
            let cost = plan(chosen, *way, predictor, &mut sweep.planned);
            if cost <= sweep.service || chosen.len() == 1 {
                break cost.min(sweep.service);
            }
            // More than was admitted has asked: who came last waits.
            let last =
                (0..chosen.len()).max_by_key(|index| (chosen[*index].arrival, chosen[*index].id));
            chosen.remove(last.unwrap_or_default());
        };
        let cost = if *counts_whole { sweep.service } else { cost };
        let key = JobKey(*jobs);
        *jobs += 1;
        let Ok(window) = core.arrived(now, since, sweep.task, key, cost) else {
            unreachable!("a sweep has a task, and costs no more than was admitted")
        };
        let planned = &sweep.planned;
        sweep
            .waiting
            .retain(|request| planned.iter().all(|other| other.id != request.id));
        let deadline = window.deadline;
        sweep.sealed = Some(Sealed {
            key,
            deadline,
            started: 0,
        });
        if sweep.leaving && sweep.waiting.is_empty() {
            core.leave(now, sweep.task);
        }
    }

    /// The request whose turn it is, if a choice is a sweep's.
    pub(crate) fn turn(&self, choice: Choice, core: &Core) -> Option<Turn> {
        let (Choice::RealTime(task, key) | Choice::Early(task, key)) = choice else {
            return None;
        };
        let sweep = &self.sweeps[self.place(task)?];
        let sealed = sweep.sealed?;
        let planned = sweep.planned[sealed.started];
        let time = planned.time + core.comes_back(task, key);
        Some(Turn {
            request: planned.id,
            service: Service::Swept(task, key, time),
            time: time + core.away(),
            deadline: sealed.deadline,
        })
    }

    /// The request whose turn it was has been started.
    pub(crate) fn started(&mut self, task: TaskId) {
        let place = self.place(task);
        if let Some(sealed) = place.and_then(|place| self.sweeps[place].sealed.as_mut()) {
            sealed.started += 1;
        }
    }

    /// A request of this task has ended on the disk.
    pub(crate) fn ended(&mut self, now: Time, task: TaskId, core: &mut Core) {
        let Some(place) = self.place(task) else {
            return;
        };
        let sweep = &mut self.sweeps[place];
        if let Some(sealed) = sweep
            .sealed
            .take_if(|sealed| sealed.started == sweep.planned.len())
        {
            core.end_sweep(now, task, sealed.key, self.way);
            sweep.next_release = sealed.deadline;
            if sweep.leaving && sweep.waiting.is_empty() {
                self.sweeps.swap_remove(place);
            }
        }
    }
}

impl Sweep {
    /// Number of waiting requests that fit into a job, in any selection, if each belongs to another member.
    fn places(&self, predictor: &Predictor, within: &Range<Sector>) -> u64 {
        let across = self.waiting.iter().map(|request| {
            let [first, last] = [request.first, request.last].map(|at| predictor.cylinder(at));
            last.abs_diff(first)
        });
        let across = across.max().unwrap_or_default();
        let most = self.service.get() / self.each.get().max(1);
        let fits = |count: &u64| {
            let times = Nanos(self.each.get().saturating_mul(*count));
            let seeks = predictor.seeks_of_sweep(within, within, *count, across);
            times.saturating_add(seeks) <= self.service
        };
        (2..=most).take_while(fits).last().unwrap_or(1)
    }

    /// The most jobs that it takes to serve what waits, if so many requests of different members always fit into one.
    ///
    /// A job that leaves nobody behind serves one request of each member, so there are no more such jobs than
    /// requests of one member wait. Every other job serves at least `places`.
    fn jobs_left(&self, places: u64) -> u64 {
        let mut members: Vec<u32> = self.waiting.iter().map(|one| one.member).collect();
        members.sort_unstable();
        let of_one = members.chunk_by(|one, next| one == next).map(<[u32]>::len);
        let of_one = of_one.max().unwrap_or_default() as u64;
        of_one + (members.len() as u64 - of_one) / places
    }

    /// When the next job is released at the latest, if somebody waits and jobs can be released from `from` on.
    fn next_release_after(&self, from: Time) -> Time {
        self.sealed
            .map_or(self.next_release.max(from), |sealed| sealed.deadline)
    }
}

/// Service times of the requests of a job in this order, and of the whole job.
fn plan(
    requests: &[Waiting],
    way: Nanos,
    predictor: &Predictor,
    planned: &mut Vec<Planned>,
) -> Nanos {
    planned.clear();
    let mut before: Option<Sector> = None;
    for request in requests {
        let seek = before.map_or(way, |last| predictor.seek_in_sweep(last, request.first));
        planned.push(Planned {
            id: request.id,
            time: request.time + seek,
        });
        before = Some(request.last);
    }
    planned.iter().map(|planned| planned.time).sum::<Nanos>() + way
}
