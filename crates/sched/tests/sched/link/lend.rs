//! Lenders with tasks, and borrowers that take whatever is lent.
//!
//! At each tick a free lender lends its place to an idle borrower for every time that it accepts, tries one that it
//! does not accept, or lends nothing. A piece ends at any tick up to its end; with `overruns`, also at any tick
//! after it. The lender knows that the piece has ended, or that its time is over.

use super::{Promising, admitted_sets, askings, on_disks};
use crate::common::{Pair, design, report_search};
use sched::core::{Choice, Service};
use sched::units::{Nanos, Time};
use std::collections::HashSet;

#[derive(Clone, Copy)]
struct Plan {
    borrowers: usize,
    /// True if a piece may go on after its time.
    overruns: bool,
    /// True if services of the lenders may be shorter than predicted.
    shorter: bool,
    /// A place is also lent for this much longer than the slack.
    beyond_slack: Option<u64>,
}

#[derive(Clone, Copy)]
struct Busy {
    service: Service,
    since: Time,
    until: u64,
    /// The borrower that has the place.
    borrower: Option<usize>,
}

#[derive(Clone)]
struct Lender {
    disk: Promising,
    busy: Option<Busy>,
}

/// A borrower's disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    None,
    Executes,
    Overruns,
}

#[derive(Clone)]
struct State {
    now: u64,
    lenders: Vec<Lender>,
    borrowers: Vec<Piece>,
}

struct Search<'a> {
    /// By lender.
    tasks: &'a [Vec<Pair>],
    plan: Plan,
    seen: HashSet<Vec<u64>>,
    stack: Vec<State>,
    late: bool,
    /// The most disks that executed at a time.
    executed_max: usize,
}

fn search(tasks: &[Vec<Pair>], plan: Plan) -> Search<'_> {
    let lenders = tasks.iter().map(|tasks| Lender {
        disk: Promising::new(tasks),
        busy: None,
    });
    let state = State {
        now: super::ORIGIN.0,
        lenders: lenders.collect(),
        borrowers: vec![Piece::None; plan.borrowers],
    };
    let mut search = Search {
        tasks,
        plan,
        seen: HashSet::new(),
        stack: vec![state],
        late: false,
        executed_max: 0,
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
        for lender in &state.lenders {
            lender.disk.core.digest(Time(state.now), &mut key);
            key.push(lender.busy.map_or(0, |busy| {
                let borrower = busy.borrower.map_or(0, |borrower| borrower as u64 + 1);
                (busy.until - state.now) << 4 | borrower << 1 | 1
            }));
        }
        key.extend(state.borrowers.iter().map(|piece| *piece as u64));
        if self.seen.insert(key) {
            self.stack.push(state);
        }
    }

    fn expand(&mut self, state: &State) {
        for subset in askings(state.now, state.lenders.iter().map(|lender| &lender.disk)) {
            let mut with = state.clone();
            for (lender, task) in subset {
                let cost = self.tasks[lender][task].0;
                with.lenders[lender].disk.ask(with.now, task, cost);
            }
            self.late |= (with.lenders.iter().zip(self.tasks))
                .any(|(lender, tasks)| lender.disk.is_late(with.now, tasks));
            self.decide(with, 0);
        }
    }

    /// The decisions of this lender and the following ones.
    fn decide(&mut self, state: State, lender: usize) {
        if lender == state.lenders.len() {
            return self.pass(state);
        }
        if state.lenders[lender].busy.is_some() {
            return self.decide(state, lender + 1);
        }
        let idle = |piece: &Piece| *piece == Piece::None;
        let borrower = state.borrowers.iter().position(idle);
        let mut refused = state.clone();
        if let Some(borrower) = borrower {
            for length in 1.. {
                let mut next = state.clone();
                let core = &mut next.lenders[lender].disk.core;
                if core.choose(Time(state.now), Some(Nanos(length))) != Choice::BestEffort {
                    refused = next;
                    break;
                }
                self.lend(next, lender, borrower, length);
            }
            if let Some(beyond) = self.plan.beyond_slack {
                let mut next = state.clone();
                let slack = next.lenders[lender].disk.core.slack(Time(state.now)).0;
                self.lend(next, lender, borrower, slack + beyond);
            }
            self.serve(state, lender);
        }
        self.serve(refused, lender);
    }

    fn lend(&mut self, mut state: State, lender: usize, borrower: usize, length: u64) {
        let service = Service::BestEffort(Nanos(length));
        self.start(&mut state, lender, service, length, Some(borrower));
        state.borrowers[borrower] = Piece::Executes;
        self.decide(state, lender + 1);
    }

    /// The lender lends nothing.
    fn serve(&mut self, mut state: State, lender: usize) {
        let disk = &mut state.lenders[lender].disk;
        if let Choice::RealTime(id, job) = disk.core.choose(Time(state.now), None) {
            disk.queued[id.0 as usize] = None;
            let cost = self.tasks[lender][id.0 as usize].0;
            self.start(&mut state, lender, Service::Job(id, job), cost, None);
        }
        self.decide(state, lender + 1);
    }

    fn start(
        &mut self,
        state: &mut State,
        lender: usize,
        service: Service,
        cost: u64,
        borrower: Option<usize>,
    ) {
        let since = Time(state.now);
        let lender = &mut state.lenders[lender];
        lender.disk.core.start(since, service);
        lender.busy = Some(Busy {
            service,
            since,
            until: state.now + cost,
            borrower,
        });
    }

    /// To the next tick, with everything that may have ended by then.
    fn pass(&mut self, mut state: State) {
        let own = |lender: &&Lender| lender.busy.is_some_and(|busy| busy.borrower.is_none());
        let lenders = state.lenders.iter().filter(own).count();
        let pieces = state
            .borrowers
            .iter()
            .filter(|piece| **piece != Piece::None);
        self.executed_max = self.executed_max.max(lenders + pieces.count());
        state.now += 1;
        let mut states = vec![];
        self.end_overruns(state, 0, &mut states);
        for lender in 0..self.tasks.len() {
            let before = std::mem::take(&mut states);
            for state in before {
                self.end(state, lender, &mut states);
            }
        }
        for state in states {
            self.enter(state);
        }
    }

    /// Pieces whose time is over end, or do not.
    fn end_overruns(&self, state: State, borrower: usize, states: &mut Vec<State>) {
        if borrower == state.borrowers.len() {
            return states.push(state);
        }
        if state.borrowers[borrower] == Piece::Overruns {
            let mut ended = state.clone();
            ended.borrowers[borrower] = Piece::None;
            self.end_overruns(ended, borrower + 1, states);
        }
        self.end_overruns(state, borrower + 1, states);
    }

    /// The service of a lender, or its loan, ends or does not.
    fn end(&self, state: State, lender: usize, states: &mut Vec<State>) {
        let Some(busy) = state.lenders[lender].busy else {
            return states.push(state);
        };
        let is_over = busy.until == state.now;
        let mut ended = state.clone();
        let disk = &mut ended.lenders[lender];
        disk.busy = None;
        disk.disk
            .core
            .finish_one(Time(state.now), busy.service, busy.since);
        if let Some(borrower) = busy.borrower {
            if is_over && self.plan.overruns {
                let mut overrun = ended.clone();
                overrun.borrowers[borrower] = Piece::Overruns;
                states.push(overrun);
            }
            ended.borrowers[borrower] = Piece::None;
        }
        if is_over || busy.borrower.is_some() || self.plan.shorter {
            states.push(ended);
        }
        if !is_over {
            states.push(state);
        }
    }
}

struct Found {
    sets: usize,
    states: usize,
    late: usize,
    executed_max: usize,
}

fn searched(name: &str, lenders: usize, sets: &[Vec<Pair>], plan: Plan) -> Found {
    let sets = on_disks(sets, lenders);
    let mut found = Found {
        sets: sets.len(),
        states: 0,
        late: 0,
        executed_max: 0,
    };
    for set in &sets {
        let search = search(set, plan);
        found.states += search.seen.len();
        found.late += usize::from(search.late);
        found.executed_max = found.executed_max.max(search.executed_max);
    }
    report_search(name, found.sets, found.states, found.late);
    found
}

const PLAN: Plan = Plan {
    borrowers: 1,
    overruns: false,
    shorter: false,
    beyond_slack: None,
};

/// Places, borrowers, and the sets that a lender may have.
fn links() -> Vec<(usize, usize, Vec<Vec<Pair>>)> {
    let sets = |singles, pairs, triples| {
        [
            admitted_sets(1, singles, 1, 0),
            admitted_sets(2, pairs, 1, 0),
            admitted_sets(3, triples, 1, 0),
        ]
        .concat()
    };
    if testkit::is_full() {
        vec![
            (1, 1, sets(12, 8, 5)),
            (1, 2, sets(8, 6, 4)),
            (2, 1, sets(5, 3, 2)),
        ]
    } else {
        vec![
            (1, 1, sets(10, 7, 4)),
            (1, 2, sets(8, 5, 3)),
            (2, 1, sets(4, 2, 2)),
        ]
    }
}

/// Searches all links. Returns the number of states.
fn assert_nobody_late(plan: Plan, executed_more: bool) -> usize {
    let mut states = 0;
    for (places, borrowers, sets) in links() {
        let name = format!("lend, {places} of {} disks", places + borrowers);
        let plan = Plan { borrowers, ..plan };
        let found = searched(&name, places, &sets, plan);
        assert_eq!(found.late, 0, "{name}");
        let most = if executed_more {
            places + borrowers
        } else {
            places
        };
        assert_eq!(found.executed_max, most, "{name}");
        states += found.states;
    }
    states
}

fn assert_documented(words: &str) {
    if !testkit::is_full() {
        design::assert_says(words);
    }
}

#[test]
fn nobody_is_late_who_lends_a_place_and_no_more_disks_execute_than_there_are_places() {
    let whole = assert_nobody_late(PLAN, false);
    let shorter = assert_nobody_late(
        Plan {
            shorter: true,
            ..PLAN
        },
        false,
    );
    assert_documented(&format!(
        "{} states with lent places",
        design::number(whole + shorter)
    ));
}

/// More disks execute then, as the design says; their times are not longer here.
#[test]
fn nobody_is_late_who_has_lent_to_a_piece_that_overruns() {
    let plan = Plan {
        overruns: true,
        ..PLAN
    };
    let states = assert_nobody_late(plan, true);
    assert_documented(&format!("{} states with overruns", design::number(states)));
}

#[test]
fn who_lends_a_tick_more_than_the_slack_is_late_in_every_set() {
    let mut sets_tried = 0;
    for (places, borrowers, sets) in links() {
        let plan = Plan {
            borrowers,
            beyond_slack: Some(1),
            ..PLAN
        };
        let found = searched("lend, a tick more than the slack", places, &sets, plan);
        assert_eq!(found.late, found.sets);
        sets_tried += found.sets;
    }
    assert_documented(&format!("late in all of {sets_tried} sets"));
}

testkit::full! {
    "soak: longer periods on the disks of a link",
    nobody_is_late_who_lends_a_place_and_no_more_disks_execute_than_there_are_places => nobody_is_late_who_lends_a_place_and_no_more_disks_execute_than_there_are_places_full,
    nobody_is_late_who_has_lent_to_a_piece_that_overruns => nobody_is_late_who_has_lent_to_a_piece_that_overruns_full,
    who_lends_a_tick_more_than_the_slack_is_late_in_every_set => who_lends_a_tick_more_than_the_slack_is_late_in_every_set_full,
}
