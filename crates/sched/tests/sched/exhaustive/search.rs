//! A search: every schedule of a set under a plan.

use crate::common::{Pair, admit_in_pieces, params};
use sched::core::{Choice, Core, CoreOptions, JobKey, Policy, Service};
use sched::delta_l::{delta_l, delta_l_published};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

/// The keys are many and short, and nobody chooses them to collide.
type FxHashSet<T> = HashSet<T, BuildHasherDefault<rustc_hash::FxHasher>>;

/// Options of a search.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    pub(super) burst_threshold: u64,
    /// Share of best effort in slack, in percent.
    pub(super) best_effort_share_percent: u8,
    /// Each request is offered as an asynchronous one too, which has to leave this much of the slack.
    pub(super) reserve: u64,
    /// True if a task may ask up to a period before its release.
    pub(super) early: bool,
    /// True if services may end before their predicted time.
    pub(super) shorter: bool,
    /// True if jobs may take half of their service time, known when they arrive, and best effort that fits
    /// into the other half goes before them.
    pub(super) halves: bool,
    /// Each request is offered once more as one that leaves the arm this far away.
    pub(super) away: u64,
    /// True if it is offered with that extra time included.
    pub(super) charges_away: bool,
    /// Jobs are served in pieces of this length, and the set is admitted as such.
    pub(super) piece: Option<u64>,
    /// They are served whole all the same.
    pub(super) breaks_pieces: bool,
    /// Jobs are sweeps of requests of one tick each, and two long seeks of so many ticks.
    pub(super) sweeps: Option<u64>,
    /// A sweep keeps the second of these for the one that it has interrupted, and hands it over.
    pub(super) hands_over: bool,
    /// Best-effort requests this much larger than exact slack are let through, whatever the policy says.
    pub(super) beyond_slack: Option<u64>,
}

impl Plan {
    pub(super) fn of(policy: Policy) -> Self {
        Self {
            policy,
            burst_threshold: 0,
            best_effort_share_percent: 100,
            reserve: 0,
            early: false,
            shorter: false,
            halves: false,
            away: 0,
            charges_away: true,
            piece: None,
            breaks_pieces: false,
            sweeps: None,
            hands_over: true,
            beyond_slack: None,
        }
    }

    /// Time of a sweep's job that remains for its long seeks.
    fn seeks_of_sweep(&self) -> u64 {
        let long = if self.hands_over { 2 } else { 1 };
        self.sweeps.map_or(0, |way| long * way)
    }

    /// The longest that a job keeps the disk without a break, if it is served in pieces.
    fn longest(&self) -> Option<u64> {
        self.piece.or_else(|| self.sweeps.map(longest_of_sweep))
    }
}

/// The longest that a sweep keeps the disk without a break, and what it has to keep until its end.
pub(super) fn longest_of_sweep(way: u64) -> u64 {
    2 * way + 1
}

/// Position of the arm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    AmongStreams,
    /// At the next request of this task's sweep.
    At(usize),
    /// No further from where any of them goes on.
    Away(u64),
}

#[derive(Clone)]
struct State {
    core: Core,
    now: u64,
    busy: Option<(Service, u64)>,
    /// The queued job of each task, and how long it takes; of a sweep, what is left of it without its seeks.
    queued: Vec<Option<(JobKey, u64)>>,
    arm: Arm,
    /// The last deadline of each task.
    last: Vec<u64>,
    trace: Option<std::rc::Rc<Step>>,
}

/// A step on the way to a state, for the report of a miss.
struct Step {
    text: String,
    before: Option<std::rc::Rc<Step>>,
}

/// Result of a search.
pub(super) struct Outcome {
    pub(super) states: usize,
    /// A schedule that ends in a missed deadline.
    pub(super) miss: Option<String>,
}

struct Search<'a> {
    tasks: &'a [Pair],
    plan: Plan,
    seen: FxHashSet<Box<[i16]>>,
    stack: Vec<State>,
    digest: Vec<u64>,
    miss: Option<String>,
    traced: bool,
}

pub(super) fn search(tasks: &[Pair], plan: Plan) -> Outcome {
    run(tasks, plan, false)
}

/// Runs a search and keeps the schedule that leads to the miss.
pub(super) fn run(tasks: &[Pair], plan: Plan, traced: bool) -> Outcome {
    let set = admit_in_pieces(tasks, plan.longest()).expect("an admitted set");
    let mut core = Core::new(CoreOptions {
        policy: plan.policy,
        burst_threshold: Nanos(plan.burst_threshold),
        best_effort_share_percent: plan.best_effort_share_percent,
        outstanding: 1,
        gives_over_prediction: plan.halves,
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
        arm: Arm::AmongStreams,
        last: vec![0; tasks.len()],
        trace: None,
    };
    let mut search = Search {
        tasks,
        plan,
        seen: FxHashSet::default(),
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
        if self.plan.halves {
            let costs = state
                .queued
                .iter()
                .map(|job| job.map_or(0, |(_, cost)| cost));
            self.digest.extend(costs);
        }
        if self.plan.sweeps.is_some() {
            let left = state
                .queued
                .iter()
                .map(|job| job.map_or(0, |(_, left)| left + 1));
            self.digest.extend(left);
            self.digest.push(match state.arm {
                Arm::AmongStreams => 0,
                Arm::At(task) => 1 + task as u64,
                Arm::Away(away) => 100 + away,
            });
        }
        let key: Box<[i16]> = self
            .digest
            .iter()
            .map(|&word| i16::try_from(word as i64).expect("small numbers"))
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
        let ways = if self.plan.halves { 2 } else { 1 };
        for (subset, part) in (0..1u32 << may_arrive.len())
            .flat_map(|subset| (1..=ways).map(move |part| (subset, part)))
        {
            let mut with = state.clone();
            for (bit, &task) in may_arrive.iter().enumerate() {
                if subset >> bit & 1 == 1 {
                    let (id, job) = (TaskId(task as u64), JobKey(state.now));
                    let cost = Nanos(self.tasks[task].0.div_ceil(part));
                    let window = with
                        .core
                        .arrive(Time(state.now), id, job, cost)
                        .expect("accepted");
                    let seeks = self.plan.seeks_of_sweep();
                    with.queued[task] = Some((job, cost.0 - seeks));
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

    /// True if some queued request is late in every continuation.
    fn is_late(&self, state: &State) -> bool {
        state.queued.iter().enumerate().any(|(task, jobs)| {
            jobs.is_some_and(|(job, cost)| {
                let window = state.core.window(TaskId(task as u64), job).expect("queued");
                state.now.max(state.busy.map_or(0, |(_, until)| until)) + cost > window.deadline.0
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
        if self.plan.sweeps.is_some() {
            (1..=self.plan.away).for_each(|away| self.offer(state, 0, away));
            return;
        }
        self.offer(state, 0, 0);
        if self.plan.reserve > 0 {
            self.offer(state, self.plan.reserve, 0);
        }
        if self.plan.away > 0 {
            self.offer(state, 0, self.plan.away);
        }
        if let Some(beyond) = self.plan.beyond_slack {
            let mut next = state.clone();
            let size = next.core.slack(Time(state.now)).0 + beyond;
            self.begin(next, Service::BestEffort(Nanos(size)), size, 0);
        }
    }

    /// None, and each size that may go and leave the reserve, and the first that may not.
    fn offer(&mut self, state: &State, reserve: u64, away: u64) {
        let longest = self.tasks.iter().map(|task| task.1).max().expect("a task") + 1;
        let charged = if self.plan.charges_away { away } else { 0 };
        let nothing = self.plan.sweeps.is_none() && reserve + away > 0;
        for size in u64::from(nothing)..=longest {
            let offer = (size > 0).then_some(Nanos(size + charged));
            let mut next = state.clone();
            let choice = next
                .core
                .choose_leaving(Time(state.now), offer, Nanos(reserve));
            let refused = offer.is_some() && choice != Choice::BestEffort;
            match choice {
                Choice::BestEffort => {
                    if away > 0 {
                        next.arm = Arm::Away(away);
                    }
                    self.begin(next, Service::BestEffort(Nanos(size)), size, away);
                }
                Choice::RealTime(id, job) | Choice::Early(id, job) => {
                    let window = next.core.window(id, job).expect("queued");
                    if let Some(piece) = self.plan.piece.filter(|_| !self.plan.breaks_pieces) {
                        self.begin_piece(next, id, job, piece);
                        continue;
                    }
                    if let Some(way) = self.plan.sweeps {
                        self.begin_swept(next, id, job, way);
                        continue;
                    }
                    let (_, cost) = next.queued[id.0 as usize].take().expect("queued");
                    let cost = cost + next.core.away().0;
                    if state.now + cost > window.deadline.0 {
                        return self.report(&next, "what is started now ends too late");
                    }
                    self.begin(next, Service::Job(id, job), cost, 0);
                }
                Choice::Wait { .. } => self.pass(next),
            }
            if refused {
                break;
            }
        }
    }

    /// Serves the next piece of a job.
    fn begin_piece(&mut self, mut state: State, id: TaskId, job: JobKey, piece: u64) {
        let queued = &mut state.queued[id.0 as usize];
        let (_, left) = queued.expect("queued");
        let piece = piece.min(left);
        *queued = (piece < left).then_some((job, left - piece));
        let window = state.core.window(id, job).expect("queued");
        if state.now + left > window.deadline.0 {
            return self.report(&state, "what is left of a job ends too late");
        }
        self.begin(state, Service::Piece(id, job, Nanos(piece)), piece, 0);
    }

    /// Serves the next request of a sweep.
    fn begin_swept(&mut self, mut state: State, id: TaskId, job: JobKey, way: u64) {
        let task = id.0 as usize;
        let (_, left) = state.queued[task].expect("queued");
        state.queued[task] = Some((job, left - 1));
        let begins = left + self.plan.seeks_of_sweep() == self.tasks[task].0;
        let planned = if begins {
            way + 1
        } else {
            1 + state.core.comes_back(id, job).0
        };
        let seek = match state.arm {
            Arm::At(at) if at == task && !begins => 0,
            Arm::Away(away) => away,
            Arm::At(_) | Arm::AmongStreams => way,
        };
        let charged = planned + state.core.away().0;
        if self.plan.hands_over && seek + 1 > charged {
            return self.report(&state, "a request takes longer than it was charged");
        }
        let cost = charged.max(seek + 1);
        let window = state.core.window(id, job).expect("queued");
        if state.now + cost + left - 1 > window.deadline.0 {
            return self.report(&state, "what is left of a sweep ends too late");
        }
        state.arm = Arm::At(task);
        let service = Service::Swept(id, job, Nanos(planned));
        self.begin(state, service, cost, 0);
    }

    /// Completes the service on the disk.
    fn finish(&self, state: &mut State, service: Service) {
        let now = Time(state.now);
        state.core.finish(now, service);
        state.busy = None;
        if let (Service::Swept(id, job, _), Some(way)) = (service, self.plan.sweeps)
            && state.queued[id.0 as usize] == Some((job, 0))
        {
            state.queued[id.0 as usize] = None;
            if self.plan.hands_over {
                state.core.end_sweep(now, id, job, Nanos(way));
            } else {
                state.core.end_job(now, id, job);
            }
        }
    }

    fn begin(&mut self, mut state: State, service: Service, cost: u64, away: u64) {
        let (at, away) = (Time(state.now), Nanos(away));
        state.core.start_ending_away(at, service, away);
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
            self.finish(&mut done, service);
            self.enter(done);
        }
        if until > state.now {
            self.enter(state);
        }
    }
}
