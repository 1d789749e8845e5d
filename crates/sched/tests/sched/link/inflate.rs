//! Disks that all promise, with times that allow for the others.
//!
//! A service has some units on the link. It takes C on a link of its own: the last unit comes from the medium a tick
//! before its end, and each one before that as much earlier as the medium takes for a unit. The link moves a unit a
//! tick. A disk that has units to move is passed over at most m - 1 times in a row; otherwise the search chooses.

use super::{Promising, admitted_sets, askings, longer, on_disks};
use crate::common::{Pair, design, report_search};
use sched::core::{Choice, Service};
use sched::units::{Nanos, Time};
use std::collections::HashSet;

#[derive(Clone, Copy)]
struct Plan {
    disks: u64,
    /// Units of a service, and ticks that the medium takes for one.
    units: u64,
    medium: u64,
    /// True if the disks count on longer times.
    inflates: bool,
}

impl Plan {
    /// D of docs/design/scheduling.md, section 16, with a burst of one unit.
    fn delay(self) -> u64 {
        (self.units * self.disks).saturating_sub(self.units * self.medium) + self.disks - 1
    }

    /// The delay that a link can cause. A unit is moved when all of it has come, so the first one's time on the
    /// medium gains nothing.
    fn delay_max(self) -> u64 {
        (self.units - 1) * self.disks.saturating_sub(self.medium) + self.disks - 1
    }

    /// The shortest service.
    fn least(self) -> u64 {
        (self.units - 1) * self.medium + 1
    }

    /// The time that the disks add to each service.
    fn more(self) -> u64 {
        if self.inflates { self.delay() } else { 0 }
    }
}

#[derive(Clone, Copy)]
struct Busy {
    service: Service,
    since: u64,
    /// Time of the service on a link of its own.
    alone: u64,
    deadline: Option<u64>,
    /// Units that have crossed the link.
    crossed: u64,
    /// How often the disk has been passed over since it has had units to move.
    passed_over: u64,
}

impl Busy {
    /// True if a unit is there to be moved in this tick.
    fn has_data(&self, now: u64, plan: Plan) -> bool {
        let later = (plan.units - self.crossed - 1) * plan.medium;
        now + later + 1 >= self.since + self.alone
    }
}

#[derive(Clone)]
struct Disk {
    promising: Promising,
    busy: Option<Busy>,
}

#[derive(Clone)]
struct State {
    now: u64,
    disks: Vec<Disk>,
}

struct Search<'a> {
    /// By disk: tasks with their times alone.
    tasks: &'a [Vec<Pair>],
    plan: Plan,
    seen: HashSet<Vec<u64>>,
    stack: Vec<State>,
    late: bool,
    delayed_max: u64,
}

fn search(tasks: &[Vec<Pair>], plan: Plan) -> Search<'_> {
    let disks = tasks.iter().map(|tasks| Disk {
        promising: Promising::new(&longer(tasks, plan.more())),
        busy: None,
    });
    let state = State {
        now: super::ORIGIN.0,
        disks: disks.collect(),
    };
    let mut search = Search {
        tasks,
        plan,
        seen: HashSet::new(),
        stack: vec![state],
        late: false,
        delayed_max: 0,
    };
    while let Some(state) = search.stack.pop() {
        search.expand(&state);
        if search.late {
            break;
        }
    }
    search
}

impl Search<'_> {
    /// A state at the beginning of a tick.
    fn enter(&mut self, state: State) {
        let mut key = Vec::new();
        for disk in &state.disks {
            disk.promising.core.digest(Time(state.now), &mut key);
            key.extend(disk.busy.map_or([0; 4], |busy| {
                let alone_until = busy.since + busy.alone + 100 - state.now;
                let due = busy
                    .deadline
                    .map_or(0, |deadline| deadline + 100 - state.now);
                [alone_until, busy.crossed, busy.passed_over, due]
            }));
        }
        if self.seen.insert(key) {
            self.stack.push(state);
        }
    }

    fn expand(&mut self, state: &State) {
        for subset in askings(state.now, state.disks.iter().map(|disk| &disk.promising)) {
            let mut with = state.clone();
            for (disk, task) in subset {
                let cost = self.tasks[disk][task].0 + self.plan.more();
                with.disks[disk].promising.ask(with.now, task, cost);
            }
            self.late |= (with.disks.iter().zip(self.tasks))
                .any(|(disk, tasks)| disk.promising.is_late(with.now, tasks));
            self.decide(with, 0);
        }
    }

    /// The decisions of this disk and the following ones: best effort of every size that it accepts, or none.
    fn decide(&mut self, state: State, disk: usize) {
        if disk == state.disks.len() {
            return self.carry(&state);
        }
        if state.disks[disk].busy.is_some() {
            return self.decide(state, disk + 1);
        }
        let more = self.plan.more();
        for alone in self.plan.least().. {
            let mut next = state.clone();
            let core = &mut next.disks[disk].promising.core;
            let offered = Nanos(alone + more);
            if core.choose(Time(state.now), Some(offered)) != Choice::BestEffort {
                break;
            }
            self.begin(next, disk, Service::BestEffort(offered), alone, None);
        }
        let mut next = state;
        let promising = &mut next.disks[disk].promising;
        match promising.core.choose(Time(next.now), None) {
            Choice::RealTime(id, job) => {
                let task = id.0 as usize;
                promising.queued[task] = None;
                let deadline = promising.last[task];
                let alone = self.tasks[disk][task].0;
                self.begin(next, disk, Service::Job(id, job), alone, Some(deadline));
            }
            _ => self.decide(next, disk + 1),
        }
    }

    fn begin(
        &mut self,
        mut state: State,
        disk: usize,
        service: Service,
        alone: u64,
        deadline: Option<u64>,
    ) {
        let since = state.now;
        let begins = &mut state.disks[disk];
        begins.promising.core.start(Time(since), service);
        begins.busy = Some(Busy {
            service,
            since,
            alone,
            deadline,
            crossed: 0,
            passed_over: 0,
        });
        self.decide(state, disk + 1);
    }

    /// The link moves a unit of any disk that fairness allows.
    fn carry(&mut self, state: &State) {
        let has_data = |disk: &Disk| {
            disk.busy
                .is_some_and(|busy| busy.has_data(state.now, self.plan))
        };
        let waiting: Vec<usize> = (0..state.disks.len())
            .filter(|&disk| has_data(&state.disks[disk]))
            .collect();
        if waiting.is_empty() {
            return self.pass(state.clone());
        }
        for &chosen in &waiting {
            let mut next = state.clone();
            for &disk in &waiting {
                let busy = next.disks[disk].busy.as_mut().expect("it has data");
                if disk == chosen {
                    busy.crossed += 1;
                    busy.passed_over = 0;
                } else {
                    busy.passed_over += 1;
                }
            }
            if self.is_fair(&next) {
                self.pass(next);
            }
        }
    }

    /// True if each disk that waits can still have one of the next units in time.
    fn is_fair(&self, state: &State) -> bool {
        let passed_over = state.disks.iter().filter_map(|disk| disk.busy);
        let passed_over: Vec<u64> = passed_over.map(|busy| busy.passed_over).collect();
        // The number of disks that fairness serves within the next `units`.
        let within = |units: u64| {
            let is_within = |&&over: &&u64| over > 0 && over + units >= self.plan.disks;
            passed_over.iter().filter(is_within).count() as u64
        };
        (0..self.plan.disks).all(|units| within(units) <= units)
    }

    fn pass(&mut self, mut state: State) {
        state.now += 1;
        for disk in &mut state.disks {
            let Some(busy) = disk.busy else {
                continue;
            };
            let took = state.now - busy.since;
            if busy.crossed == self.plan.units {
                self.delayed_max = self.delayed_max.max(took - busy.alone);
                self.late |= busy.deadline.is_some_and(|deadline| state.now > deadline);
                let core = &mut disk.promising.core;
                core.finish_one(Time(state.now), busy.service, Time(busy.since));
                disk.busy = None;
            }
        }
        self.enter(state);
    }
}

struct Found {
    sets: usize,
    states: usize,
    late: usize,
}

/// Searches all ways to give the disks these sets. No service takes longer than inflated.
fn searched(sets: &[Vec<Pair>], plan: Plan) -> Found {
    let sets = on_disks(sets, plan.disks as usize);
    let mut found = Found {
        sets: sets.len(),
        states: 0,
        late: 0,
    };
    let mut delayed_max = 0;
    for set in &sets {
        let search = search(set, plan);
        found.states += search.seen.len();
        found.late += usize::from(search.late);
        delayed_max = delayed_max.max(search.delayed_max);
    }
    let Plan {
        disks,
        units,
        medium,
        inflates,
    } = plan;
    let name = format!("inflate {inflates}, {disks} disks, {units} units, {medium} ticks each");
    report_search(&name, found.sets, found.states, found.late);
    if inflates {
        assert_eq!(delayed_max, plan.delay_max(), "{name}");
        assert!(delayed_max <= plan.delay(), "{name}");
    }
    found
}

/// Links, the longest periods of single tasks there, and of pairs of tasks.
fn links(inflates: bool) -> Vec<(Plan, u64, u64)> {
    let links = if testkit::is_full() {
        [
            ((2, 1, 1), (8, 7)),
            ((2, 2, 1), (10, 8)),
            ((2, 2, 2), (9, 7)),
            ((2, 3, 1), (12, 0)),
            ((3, 1, 1), (7, 0)),
        ]
    } else if inflates {
        [
            ((2, 1, 1), (6, 6)),
            ((2, 2, 1), (8, 7)),
            ((2, 2, 2), (7, 6)),
            ((2, 3, 1), (9, 0)),
            ((3, 1, 1), (6, 0)),
        ]
    } else {
        [
            ((2, 1, 1), (5, 4)),
            ((2, 2, 1), (6, 0)),
            ((2, 2, 2), (6, 0)),
            ((2, 3, 1), (7, 0)),
            ((3, 1, 1), (4, 0)),
        ]
    };
    let plan = |((disks, units, medium), (single, pair))| {
        let plan = Plan {
            disks,
            units,
            medium,
            inflates,
        };
        (plan, single, pair)
    };
    links.into_iter().map(plan).collect()
}

fn sets(plan: Plan, single: u64, pair: u64) -> Vec<Vec<Pair>> {
    let of = |n, period_max| admitted_sets(n, period_max, plan.least(), plan.more());
    [of(1, single), of(2, pair)].concat()
}

#[test]
fn nobody_is_late_whose_times_allow_for_the_other_disks_of_the_link() {
    let (mut sets_of_all, mut states) = (0, 0);
    for (plan, single, pair) in links(true) {
        let found = searched(&sets(plan, single, pair), plan);
        assert_eq!(found.late, 0);
        sets_of_all += found.sets;
        states += found.states;
    }
    let sets = design::number(sets_of_all);
    let states = design::number(states);
    if !testkit::is_full() {
        design::assert_says(&format!("{sets} sets with inflated times, {states} states"));
    }
}

/// The disks count on a link of their own.
#[test]
fn somebody_is_late_whose_times_do_not_allow_for_the_other_disks() {
    let (mut sets_of_all, mut late) = (0, 0);
    for (plan, single, pair) in links(false) {
        let found = searched(&sets(plan, single, pair), plan);
        sets_of_all += found.sets;
        late += found.late;
    }
    let all = design::number(sets_of_all);
    let late = design::number(late);
    if !testkit::is_full() {
        design::assert_says(&format!(
            "late in {late} of {all} sets with times that are not inflated"
        ));
    }
}

testkit::full! {
    "soak: longer periods on the disks of a link",
    nobody_is_late_whose_times_allow_for_the_other_disks_of_the_link => nobody_is_late_whose_times_allow_for_the_other_disks_of_the_link_full,
    somebody_is_late_whose_times_do_not_allow_for_the_other_disks => somebody_is_late_whose_times_do_not_allow_for_the_other_disks_full,
}
