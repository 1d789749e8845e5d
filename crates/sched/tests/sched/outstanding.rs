//! Several requests outstanding: the whole state space of small sets of tasks on a disk with two and
//! three places.
//!
//! Time is in ticks. At each tick any subset of the tasks may ask, any service may end, early or at its
//! predicted end, and every free place is offered best effort of a length beyond all periods, or none.
//! A queued job is late if it would miss its deadline even if it were started at once.

use crate::common;
use crate::common::{Pair, admit, design, params};
use sched::core::{Choice, Core, CoreOptions, JobKey, Service};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use std::collections::HashSet;

#[derive(Clone, Copy)]
struct Plan {
    places: u32,
    /// True if a task may ask a period before its release.
    early: bool,
    /// True if best effort takes the last place as well, which the core does not allow.
    takes_last_place: bool,
}

#[derive(Clone)]
struct State {
    core: Core,
    now: u64,
    /// Services on the disk: start and predicted end.
    busy: Vec<(Service, Time, u64)>,
    queued: Vec<Option<JobKey>>,
    /// The last deadline of each task.
    last: Vec<u64>,
}

struct Search<'a> {
    tasks: &'a [Pair],
    plan: Plan,
    seen: HashSet<Vec<u64>>,
    stack: Vec<State>,
    late: bool,
}

/// Number of states, and true if a job is late in one of them.
fn search(tasks: &[Pair], plan: Plan) -> (usize, bool) {
    let mut core = Core::new(CoreOptions {
        outstanding: plan.places,
        ..CoreOptions::default()
    });
    let origin = Time(1_000_000);
    for (index, &task) in tasks.iter().enumerate() {
        core.join(origin, TaskId(index as u64), params(task), origin);
    }
    let state = State {
        core,
        now: origin.0,
        busy: vec![],
        queued: vec![None; tasks.len()],
        last: vec![0; tasks.len()],
    };
    let mut search = Search {
        tasks,
        plan,
        seen: HashSet::new(),
        stack: vec![state],
        late: false,
    };
    while let Some(state) = search.stack.pop() {
        search.expand(&state);
        if search.late {
            break;
        }
    }
    (search.seen.len(), search.late)
}

impl Search<'_> {
    /// A state at the beginning of a tick.
    fn enter(&mut self, state: State) {
        let mut key = Vec::new();
        state.core.digest(Time(state.now), &mut key);
        let mut busy: Vec<_> = (state.busy.iter())
            .map(|&(service, _, until)| (matches!(service, Service::Job(..)), until - state.now))
            .collect();
        busy.sort_unstable();
        key.extend(busy.iter().map(|&(job, left)| left << 1 | u64::from(job)));
        if self.seen.insert(key) {
            self.stack.push(state);
        }
    }

    fn expand(&mut self, state: &State) {
        let ahead = |task: usize| {
            if self.plan.early {
                self.tasks[task].1
            } else {
                0
            }
        };
        let may_ask: Vec<usize> = (0..self.tasks.len())
            .filter(|&task| {
                state.queued[task].is_none() && state.last[task] <= state.now + ahead(task)
            })
            .collect();
        for subset in 0..1u32 << may_ask.len() {
            let mut with = state.clone();
            for (bit, &task) in may_ask.iter().enumerate() {
                if subset >> bit & 1 == 1 {
                    let job = JobKey(with.now);
                    let (id, cost) = (TaskId(task as u64), Nanos(self.tasks[task].0));
                    let window = with.core.arrive(Time(with.now), id, job, cost);
                    with.queued[task] = Some(job);
                    with.last[task] = window.expect("accepted").deadline.0;
                }
            }
            self.late |= (0..self.tasks.len()).any(|task| {
                with.queued[task].is_some() && with.now + self.tasks[task].0 > with.last[task]
            });
            self.decide(&with);
        }
    }

    /// Fills the free places in every way.
    fn decide(&mut self, state: &State) {
        if state.busy.len() == self.plan.places as usize {
            return self.pass(state.clone());
        }
        let longest = Nanos(2 * self.tasks.iter().map(|task| task.1).max().expect("a task"));
        for offer in [None, Some(longest)] {
            let mut next = state.clone();
            match next.core.choose(Time(state.now), offer) {
                Choice::BestEffort => self.begin(next, Service::BestEffort(longest), longest.0),
                Choice::RealTime(id, job) | Choice::Early(id, job) => {
                    next.queued[id.0 as usize] = None;
                    self.begin(next, Service::Job(id, job), self.tasks[id.0 as usize].0);
                }
                Choice::Wait { .. } => self.pass(next),
            }
        }
        if self.plan.takes_last_place {
            self.begin(state.clone(), Service::BestEffort(longest), longest.0);
        }
    }

    fn begin(&mut self, mut state: State, service: Service, cost: u64) {
        let started = Time(state.now);
        state.core.start(started, service);
        state.busy.push((service, started, state.now + cost));
        self.decide(&state);
    }

    /// To the next tick, with every subset of the services ended by then that must or may have.
    fn pass(&mut self, mut state: State) {
        state.now += 1;
        for subset in 0..1u32 << state.busy.len() {
            let ends = |place: usize| subset >> place & 1 == 1;
            if (0..state.busy.len()).any(|place| state.busy[place].2 == state.now && !ends(place)) {
                continue;
            }
            let mut next = state.clone();
            for place in (0..state.busy.len()).rev().filter(|&place| ends(place)) {
                let (service, started, _) = next.busy.remove(place);
                next.core.finish_one(Time(next.now), service, started);
            }
            self.enter(next);
        }
    }
}

/// All admitted sets of `n` tasks with periods from 2 to `period_max`, by rising period.
fn admitted_sets(n: usize, period_max: u64) -> Vec<Vec<Pair>> {
    let mut sets: Vec<Vec<Pair>> = vec![vec![]];
    for _ in 0..n {
        sets = (sets.iter())
            .flat_map(|set| {
                let from = set.last().copied().unwrap_or((1, 2));
                let tasks = (from.1..=period_max).flat_map(|t| (1..=t).map(move |c| (c, t)));
                let rising = tasks.filter(move |&(c, t)| (t, c) >= (from.1, from.0));
                rising.map(move |task| [set.clone(), vec![task]].concat())
            })
            .collect();
    }
    sets.retain(|set| admit(set).is_ok());
    sets
}

/// Number of states of all sets, and number of sets with a late job.
fn searched(name: &str, sets: &[Vec<Pair>], plan: Plan) -> (usize, usize) {
    let (mut states, mut late) = (0, 0);
    for set in sets {
        let (of_set, is_late) = search(set, plan);
        states += of_set;
        late += usize::from(is_late);
    }
    common::report_search(name, sets.len(), states, late);
    (states, late)
}

const PLAN: Plan = Plan {
    places: 2,
    early: false,
    takes_last_place: false,
};

fn with_two_places() -> (usize, usize) {
    let sets = [admitted_sets(2, 6), admitted_sets(3, 4)].concat();
    let (states, late) = searched("2 places", &sets, PLAN);
    let plan = Plan {
        early: true,
        ..PLAN
    };
    let early = searched("2 places, early requests", &admitted_sets(2, 4), plan);
    (states + early.0, late + early.1)
}

fn with_three_places() -> (usize, usize) {
    let plan = Plan { places: 3, ..PLAN };
    let sets = [admitted_sets(2, 4), admitted_sets(3, 3)].concat();
    searched("3 places", &sets, plan)
}

#[test]
fn nobody_is_late_with_two_or_three_places_however_long_best_effort_takes() {
    let (two, three) = (with_two_places(), with_three_places());
    assert_eq!((two.1, three.1), (0, 0));
    let states = design::number(two.0 + three.0);
    design::assert_says(&format!("{states} states, nobody late"));
}

#[test]
fn with_best_effort_on_the_last_place_somebody_is_late_in_every_set() {
    let plan = Plan {
        takes_last_place: true,
        ..PLAN
    };
    let sets = admitted_sets(2, 6);
    let (_, late) = searched("2 places, the last one too", &sets, plan);
    assert_eq!(late, sets.len());
    design::assert_says(&format!("somebody is late in all of {late} sets"));
}
