//! Exhaustive searches of the state space, walking the very object that the server runs.
//!
//! Time is in ticks. A state is a [`Core`](sched::core::Core) at the beginning of a tick, with what is in service. From
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

#[path = "../common/mod.rs"]
mod common;
mod family;
mod search;

use common::Pair;
use family::{small_family, sporadic_family};
use sched::core::Policy;
use search::{Plan, run, search};

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
