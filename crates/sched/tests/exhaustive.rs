//! Exhaustive searches of the state space, walking the very object that the server runs.
//!
//! Time is in ticks. A state is a [`Core`] at the beginning of a tick, with what is in service. From
//! it every subset of the tasks may release a request (sporadic, or early: a task whose last deadline
//! lies ahead may ask again), and if the disk is free it is offered no best-effort request, one of
//! every size that it accepts, and one that it does not accept; a service may take its whole predicted
//! time or, where `shorter` is on, any shorter one. States already seen, up to a shift in time, are
//! not entered again, so when the search ends every schedule of any length has been covered.
//!
//! Why whole service times suffice for the verdict: at a fixed deadline the demand left after a shorter
//! service is the same and the time left is more, so slack is larger; `shorter` searches check it.

#![allow(
    clippy::print_stdout,
    reason = "a test that searches says how much it has searched"
)]

mod common;

use common::{Pair, admit, params};
use sched::core::{Choice, Core, CoreOptions, JobKey, Policy, Service};
use sched::delta_l::{delta_l, delta_l_published};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use std::collections::HashSet;

/// What a search does.
#[derive(Clone, Copy)]
struct Plan {
    policy: Policy,
    burst_threshold: u64,
    /// Whether a task may ask up to a period before its release.
    early: bool,
    /// Whether services may end before their predicted time.
    shorter: bool,
    /// Best-effort requests this much larger than exact slack are let through, whatever the policy says.
    beyond_slack: Option<u64>,
}

impl Plan {
    fn of(policy: Policy) -> Self {
        Self {
            policy,
            burst_threshold: 0,
            early: false,
            shorter: false,
            beyond_slack: None,
        }
    }
}

#[derive(Clone)]
struct State {
    core: Core,
    now: u64,
    busy: Option<(Service, u64)>,
    /// The queued job of each task.
    queued: Vec<Option<JobKey>>,
    /// The last deadline of each task.
    last: Vec<u64>,
    trace: Option<std::rc::Rc<Step>>,
}

/// How a state was reached, for the report of a miss.
struct Step {
    text: String,
    before: Option<std::rc::Rc<Step>>,
}

/// What came of a search.
struct Outcome {
    states: usize,
    /// A schedule that ends in a missed deadline.
    miss: Option<String>,
}

struct Search<'a> {
    tasks: &'a [Pair],
    plan: Plan,
    seen: HashSet<Box<[i32]>>,
    stack: Vec<State>,
    digest: Vec<u64>,
    miss: Option<String>,
    traced: bool,
}

fn search(tasks: &[Pair], plan: Plan) -> Outcome {
    run(tasks, plan, false)
}

/// The same, with the schedule that leads to the miss.
fn run(tasks: &[Pair], plan: Plan, traced: bool) -> Outcome {
    let set = admit(tasks).expect("an admitted set");
    let mut core = Core::new(CoreOptions {
        policy: plan.policy,
        burst_threshold: Nanos(plan.burst_threshold),
        best_effort_share_percent: 100,
        outstanding: 1,
    });
    let origin = Time(1_000_000);
    for (index, &task) in tasks.iter().enumerate() {
        assert_eq!(
            core.join(origin, TaskId(index as u64), params(task), origin),
            origin
        );
    }
    core.set_delta_l(origin, delta_l(&set).value, delta_l_published(&set).value);
    let state = State {
        core,
        now: origin.0,
        busy: None,
        queued: vec![None; tasks.len()],
        last: vec![0; tasks.len()],
        trace: None,
    };
    let mut search = Search {
        tasks,
        plan,
        seen: HashSet::new(),
        stack: vec![],
        digest: vec![],
        miss: None,
        traced,
    };
    search.enter(state);
    while let Some(state) = search.stack.pop() {
        search.expand(&state);
        if search.miss.is_some() {
            break;
        }
    }
    Outcome {
        states: search.seen.len(),
        miss: search.miss,
    }
}

impl Search<'_> {
    /// A state at the beginning of a tick, before arrivals.
    fn enter(&mut self, state: State) {
        self.digest.clear();
        state.core.digest(Time(state.now), &mut self.digest);
        let key: Box<[i32]> = self
            .digest
            .iter()
            .map(|&word| i32::try_from(word as i64).expect("small numbers"))
            .collect();
        if self.seen.insert(key) {
            self.stack.push(state);
        }
    }

    fn step(&self, state: &State, text: impl FnOnce() -> String) -> Option<std::rc::Rc<Step>> {
        let step = || Step {
            text: format!("{}: {}", state.now - 1_000_000, text()),
            before: state.trace.clone(),
        };
        self.traced.then(|| std::rc::Rc::new(step()))
    }

    fn expand(&mut self, state: &State) {
        let ahead = |task: usize| {
            if self.plan.early {
                self.tasks[task].1
            } else {
                0
            }
        };
        let may_arrive: Vec<usize> = (0..self.tasks.len())
            .filter(|&task| {
                state.queued[task].is_none() && state.last[task] <= state.now + ahead(task)
            })
            .collect();
        for subset in 0..1u32 << may_arrive.len() {
            let mut with = state.clone();
            for (bit, &task) in may_arrive.iter().enumerate() {
                if subset >> bit & 1 == 1 {
                    let (id, job) = (TaskId(task as u64), JobKey(state.now));
                    let cost = Nanos(self.tasks[task].0);
                    let window = with
                        .core
                        .arrive(Time(state.now), id, job, cost)
                        .expect("accepted");
                    with.queued[task] = Some(job);
                    with.last[task] = window.deadline.0;
                    with.trace = self.step(&with, || format!("task {task} asks"));
                }
            }
            if self.is_late(&with) {
                self.report(&with, "a queued request can no longer be in time");
                return;
            }
            if with.busy.is_some() {
                self.pass(with)
            } else {
                self.decide(&with)
            }
        }
    }

    /// Whether some queued request cannot be in time whatever happens.
    fn is_late(&self, state: &State) -> bool {
        state.queued.iter().enumerate().any(|(task, jobs)| {
            jobs.is_some_and(|job| {
                let window = state.core.window(TaskId(task as u64), job).expect("queued");
                state.now.max(state.busy.map_or(0, |(_, until)| until)) + self.tasks[task].0
                    > window.deadline.0
            })
        })
    }

    fn report(&mut self, state: &State, what: &str) {
        let mut lines = vec![format!("{}: {what}", state.now - 1_000_000)];
        let mut step = state.trace.clone();
        while let Some(at) = step {
            lines.push(at.text.clone());
            step = at.before.clone();
        }
        lines.reverse();
        self.miss = Some(lines.join("; "));
    }

    /// The disk is free: every offer of best effort.
    fn decide(&mut self, state: &State) {
        let longest = self.tasks.iter().map(|task| task.1).max().expect("a task") + 1;
        for size in 0..=longest {
            let offer = (size > 0).then_some(Nanos(size));
            let mut next = state.clone();
            let choice = next.core.choose(Time(state.now), offer);
            let refused = offer.is_some() && choice != Choice::BestEffort;
            match choice {
                Choice::BestEffort => self.begin(next, Service::BestEffort(Nanos(size)), size),
                Choice::RealTime(id, job) | Choice::Early(id, job) => {
                    next.queued[id.0 as usize] = None;
                    self.begin(next, Service::Job(id, job), self.tasks[id.0 as usize].0);
                }
                Choice::Wait { .. } => self.pass(next),
            }
            if refused {
                break;
            }
        }
        if let Some(beyond) = self.plan.beyond_slack {
            let mut next = state.clone();
            let size = next.core.slack(Time(state.now)).0 + beyond;
            self.begin(next, Service::BestEffort(Nanos(size)), size);
        }
    }

    fn begin(&mut self, mut state: State, service: Service, cost: u64) {
        state.core.start(Time(state.now), service);
        state.busy = Some((service, state.now + cost));
        state.trace = self.step(&state, || {
            format!("{service:?} until {}", state.now + cost - 1_000_000)
        });
        self.pass(state);
    }

    /// To the beginning of the next tick.
    fn pass(&mut self, mut state: State) {
        state.now += 1;
        let Some((service, until)) = state.busy else {
            return self.enter(state);
        };
        if until == state.now || self.plan.shorter {
            let mut done = state.clone();
            done.core.finish(Time(done.now), service);
            done.busy = None;
            self.enter(done);
        }
        if until > state.now {
            self.enter(state);
        }
    }
}

/// All admitted sets of `n` tasks with periods from 2 to `period_max`, by rising period.
fn admitted_sets(n: usize, period_max: u64) -> Vec<Vec<Pair>> {
    fn extend(set: &mut Vec<Pair>, n: usize, period_max: u64, all: &mut Vec<Vec<Pair>>) {
        if set.len() == n {
            if admit(set).is_ok() {
                all.push(set.clone());
            }
            return;
        }
        let last = set.last().copied().unwrap_or((1, 2));
        for period in last.1..=period_max {
            for service in 1..=period {
                if (service, period) >= last || period > last.1 {
                    set.push((service, period));
                    extend(set, n, period_max, all);
                    set.pop();
                }
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut Vec::new(), n, period_max, &mut all);
    all
}

/// All pairs and triples up to a period, and every `stride`-th triple with a longer one up to 12.
fn family(pairs_until: u64, triples_until: u64, stride: usize) -> Vec<Vec<Pair>> {
    let mut sets = admitted_sets(2, pairs_until);
    sets.extend(admitted_sets(3, triples_until));
    let longer = admitted_sets(3, 12)
        .into_iter()
        .filter(|set| set[2].1 > triples_until);
    sets.extend(longer.step_by(stride));
    sets
}

/// The family for plans without early requests.
fn sporadic_family() -> Vec<Vec<Pair>> {
    if common::long() {
        family(12, 12, 1)
    } else {
        family(12, 8, 25)
    }
}

/// A smaller one, for plans with many more states.
fn small_family() -> Vec<Vec<Pair>> {
    if common::long() {
        family(12, 8, 50)
    } else {
        family(8, 6, 1_000_000)
    }
}

fn assert_no_miss(name: &str, sets: &[Vec<Pair>], plan: Plan) {
    let mut states = 0;
    for set in sets {
        let outcome = search(set, plan);
        states += outcome.states;
        if outcome.miss.is_some() {
            panic!(
                "{name}: {set:?}: {}",
                run(set, plan, true).miss.expect("the same search")
            );
        }
    }
    println!("{name}: {} sets, {states} states, no miss", sets.len());
}

/// The sets in which a search finds a miss.
fn sets_with_a_miss(name: &str, sets: &[Vec<Pair>], plan: Plan) -> Vec<Vec<Pair>> {
    let mut states = 0;
    let missing = sets.iter().filter(|set| {
        let outcome = search(set, plan);
        states += outcome.states;
        outcome.miss.is_some()
    });
    let missing: Vec<_> = missing.cloned().collect();
    println!(
        "{name}: {} sets, {states} states, a miss in {}",
        sets.len(),
        missing.len()
    );
    missing
}

#[test]
fn exact_never_misses() {
    assert_no_miss("exact", &sporadic_family(), Plan::of(Policy::Exact));
}

#[test]
fn exact_with_bursts_never_misses() {
    let plan = Plan {
        burst_threshold: 3,
        ..Plan::of(Policy::Exact)
    };
    assert_no_miss("exact, bursts until 3", &small_family(), plan);
}

#[test]
fn exact_never_misses_with_early_requests() {
    let plan = Plan {
        early: true,
        ..Plan::of(Policy::Exact)
    };
    assert_no_miss("exact, early requests", &small_family(), plan);
}

#[test]
fn exact_never_misses_when_services_are_shorter() {
    let plan = Plan {
        shorter: true,
        ..Plan::of(Policy::Exact)
    };
    assert_no_miss("exact, shorter services", &small_family(), plan);
}

#[test]
fn delta_l_never_misses() {
    assert_no_miss("delta-l", &sporadic_family(), Plan::of(Policy::DeltaL));
}

#[test]
fn delta_l_never_misses_with_early_requests_and_shorter_services() {
    let plan = Plan {
        early: true,
        shorter: true,
        ..Plan::of(Policy::DeltaL)
    };
    assert_no_miss(
        "delta-l, early requests, shorter services",
        &small_family(),
        plan,
    );
}

#[test]
fn one_tick_more_than_exact_slack_misses_in_every_set() {
    let sets = sporadic_family();
    let plan = Plan {
        beyond_slack: Some(1),
        ..Plan::of(Policy::Exact)
    };
    assert_eq!(
        sets_with_a_miss("exact slack + 1", &sets, plan).len(),
        sets.len()
    );
    let plan = Plan {
        beyond_slack: Some(0),
        ..Plan::of(Policy::Exact)
    };
    assert_eq!(
        sets_with_a_miss("exact slack + 0", &small_family(), plan),
        Vec::<Vec<Pair>>::new()
    );
}

#[test]
fn delta_l_as_published_misses() {
    let missing = sets_with_a_miss(
        "delta-l-published",
        &small_family(),
        Plan::of(Policy::DeltaLPublished),
    );
    assert!(!missing.is_empty());
}

#[test]
fn lst_and_edf_miss() {
    for policy in [Policy::Lst, Policy::Edf] {
        let missing = sets_with_a_miss(policy.name(), &small_family(), Plan::of(policy));
        assert!(!missing.is_empty());
    }
    // The thesis's two tasks, in tens of its ticks.
    let plan = Plan::of(Policy::Lst);
    let schedule = run(&[(2, 3), (1, 4)], plan, true).miss.expect("LST misses");
    println!("lst, (10, 40) and (20, 30) in tens: {schedule}");
}
