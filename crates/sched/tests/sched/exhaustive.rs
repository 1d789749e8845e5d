//! Exhaustive searches of the state space, walking the very object that the server runs.
//!
//! Time is in ticks. A state is a [`Core`](sched::core::Core) at the beginning of a tick, with what is in
//! service. From it every subset of the tasks may release a request (sporadic, or early: a task whose last
//! deadline lies ahead may ask again), and if the disk is free it is offered no best-effort request, one of
//! every size that it accepts, and one that it does not accept; a service may take its whole predicted time
//! or, where `shorter` is on, any shorter one. States already seen, up to a shift in time, are not entered
//! again, so when the search ends every schedule of any length has been covered. Under `exact`, every request
//! is offered once more as one that leaves a reserve, if the plan has a reserve.
//!
//! [`family`](family::family) makes the sets. Each search has a full form: all pairs and triples with periods
//! up to 12, or a fixed fraction of them where all would take days.
//!
//! Whole service times suffice for the verdict: at a fixed deadline the demand left after a shorter
//! service is the same and the time left is more, so slack is larger; `shorter` searches check it.

#![allow(
    clippy::print_stdout,
    reason = "a test that searches says how much it has searched"
)]

mod family;
mod search;

use crate::common;
use crate::common::{Pair, admit, admit_in_pieces};
use family::{Family, family};
use sched::core::Policy;
use sched::delta_l::delta_l;
use search::{Plan, longest_of_sweep, run, search};

/// Searches the sets, finds no miss, and finds as many states as the design says of the search of this name.
fn assert_no_miss(name: &str, family: &Family, plan: Plan) {
    let mut states = 0;
    for set in &family.sets {
        let outcome = search(set, plan);
        states += outcome.states;
        if outcome.miss.is_some() {
            panic!(
                "{name}: {set:?}: {}",
                run(set, plan, true).miss.expect("the same search")
            );
        }
    }
    family.assert_documented(name, states, 0);
}

/// In how many of the sets there is a miss: as many as the design says of the search of this name.
fn sets_with_a_miss(name: &str, family: &Family, plan: Plan) -> usize {
    let (mut states, mut missing) = (0, 0);
    for set in &family.sets {
        let outcome = search(set, plan);
        states += outcome.states;
        missing += usize::from(outcome.miss.is_some());
    }
    family.assert_documented(name, states, missing);
    missing
}

/// The defaults of a disk's configuration, with a reserve for asynchronous requests, and streams without
/// limits.
fn as_shipped() -> Plan {
    Plan {
        burst_threshold: 3,
        best_effort_share_percent: 50,
        reserve: 2,
        early: true,
        shorter: true,
        ..Plan::of(Policy::Exact)
    }
}

#[test]
fn exact_never_misses() {
    assert_no_miss("`exact`", &family(12, 8, 97, 1), Plan::of(Policy::Exact));
}

#[test]
fn exact_with_bursts_never_misses() {
    let plan = Plan {
        burst_threshold: 3,
        ..Plan::of(Policy::Exact)
    };
    assert_no_miss("`exact`, bursts until 3", &family(8, 6, 97, 1), plan);
}

#[test]
fn exact_with_bursts_and_a_reserve_never_misses() {
    let plan = Plan {
        burst_threshold: 3,
        reserve: 2,
        ..Plan::of(Policy::Exact)
    };
    let sets = family(8, 6, 97, 11);
    assert_no_miss("`exact`, bursts until 3, reserve of 2", &sets, plan);
}

#[test]
fn exact_never_misses_with_early_requests() {
    let plan = Plan {
        early: true,
        ..Plan::of(Policy::Exact)
    };
    assert_no_miss("`exact`, early requests", &family(8, 5, 701, 199), plan);
}

#[test]
fn exact_never_misses_when_services_are_shorter() {
    let plan = Plan {
        shorter: true,
        ..Plan::of(Policy::Exact)
    };
    assert_no_miss("`exact`, shorter services", &family(8, 6, 97, 1), plan);
}

#[test]
fn exact_never_misses_with_early_requests_and_shorter_services() {
    let plan = Plan {
        early: true,
        shorter: true,
        ..Plan::of(Policy::Exact)
    };
    let sets = family(8, 5, 2_003, 601);
    assert_no_miss("`exact`, early requests, shorter services", &sets, plan);
}

#[test]
fn exact_as_shipped_never_misses() {
    assert_no_miss(
        "`exact` as shipped",
        &family(6, 4, 4_501, 1_801),
        as_shipped(),
    );
}

#[test]
fn delta_l_never_misses() {
    assert_no_miss("`delta-l`", &family(12, 8, 25, 1), Plan::of(Policy::DeltaL));
}

#[test]
fn delta_l_never_misses_with_early_requests_and_shorter_services() {
    let plan = Plan {
        early: true,
        shorter: true,
        ..Plan::of(Policy::DeltaL)
    };
    let sets = family(8, 6, 401, 67);
    assert_no_miss("`delta-l`, early requests, shorter services", &sets, plan);
}

/// Those of the sets with a Delta-L of `least` or more, or those with less.
fn with_delta_l(mut family: Family, is_least: impl Fn(u64) -> bool) -> Family {
    family
        .sets
        .retain(|set| is_least(delta_l(&admit(set).expect("an admitted set")).value.0));
    family
}

/// Finds no miss in those of the sets that have slack for the way back.
fn assert_no_miss_away(name: &str, family: Family, plan: Plan) {
    let family = with_delta_l(family, |delta_l| delta_l >= plan.away);
    let mut states = 0;
    for set in &family.sets {
        let outcome = search(set, plan);
        states += outcome.states;
        assert_eq!(outcome.miss, None, "{name}: {set:?}");
    }
    common::report_search(name, family.sets.len(), states, 0);
    assert!(
        family.sets.len() > 10 && states > 10_000,
        "{name}: {states}"
    );
}

#[test]
fn nobody_is_late_because_the_arm_was_away() {
    for away in [1, 3] {
        let plan = Plan {
            away,
            burst_threshold: 3,
            ..Plan::of(Policy::Exact)
        };
        assert_no_miss_away("`exact`, arm away", family(8, 6, 197, 9), plan);
    }
    for policy in [Policy::Exact, Policy::DeltaL] {
        let plan = Plan {
            away: 2,
            early: true,
            shorter: true,
            ..Plan::of(policy)
        };
        let name = format!("`{policy}`, arm away, early requests, shorter services");
        assert_no_miss_away(&name, family(6, 4, 4_501, 1_801), plan);
    }
}

/// Pairs and triples that are admitted because they are served in pieces of that length, and only because of that.
/// Periods are up to 10 and 7, or up to 12 and 8 in the full form of the test.
fn admitted_in_pieces(piece: u64) -> Vec<Vec<Pair>> {
    let until = if testkit::is_full() { (12, 8) } else { (10, 7) };
    let tasks = |until: u64| {
        (2..=until).flat_map(|period| (1..=period).map(move |service| (service, period)))
    };
    let pairs = tasks(until.0).flat_map(|a| tasks(until.0).map(move |b| vec![a, b]));
    let triples = tasks(until.1)
        .flat_map(|a| tasks(until.1).flat_map(move |b| tasks(until.1).map(move |c| vec![a, b, c])));
    let is_rising = |set: &Vec<Pair>| {
        set.windows(2)
            .all(|pair| (pair[0].1, pair[0].0) <= (pair[1].1, pair[1].0))
    };
    let sets = pairs.chain(triples).filter(is_rising);
    sets.filter(|set| admit(set).is_err() && admit_in_pieces(set, Some(piece)).is_ok())
        .collect()
}

/// If others wait for a piece at most, sets are admitted that would be refused otherwise, and no job is late.
/// Served whole, each of these sets has a late job.
#[test]
fn nobody_is_late_who_waits_for_a_piece() {
    let (mut sets, mut states) = (0, 0);
    for piece in 1..=3 {
        for set in admitted_in_pieces(piece) {
            sets += 1;
            for policy in [Policy::Exact, Policy::DeltaL] {
                for early in [false, true] {
                    let plan = Plan {
                        piece: Some(piece),
                        early,
                        burst_threshold: 2,
                        ..Plan::of(policy)
                    };
                    let outcome = search(&set, plan);
                    states += outcome.states;
                    assert!(
                        outcome.miss.is_none(),
                        "{policy}, pieces of {piece}: {set:?}: {:?}",
                        run(&set, plan, true).miss
                    );
                }
            }
            let whole = Plan {
                piece: Some(piece),
                breaks_pieces: true,
                ..Plan::of(Policy::Edf)
            };
            assert!(search(&set, whole).miss.is_some(), "{set:?} served whole");
        }
    }
    println!("{sets} sets in pieces: {states} states");
    assert!(sets > 100, "{sets}");
}

/// Pairs and triples that are admitted as sweeps with long seeks of that time, and leave the slack for the way back.
fn admitted_as_sweeps(way: u64, away: u64, until: (u64, u64)) -> Vec<Vec<Pair>> {
    let longest = longest_of_sweep(way);
    let tasks = |until: u64| {
        (2..=until).flat_map(move |period| (longest..=period).map(move |service| (service, period)))
    };
    let pairs = tasks(until.0).flat_map(|a| tasks(until.0).map(move |b| vec![a, b]));
    let triples = tasks(until.1)
        .flat_map(|a| tasks(until.1).flat_map(move |b| tasks(until.1).map(move |c| vec![a, b, c])));
    let is_rising = |set: &Vec<Pair>| {
        set.windows(2)
            .all(|pair| (pair[0].1, pair[0].0) <= (pair[1].1, pair[1].0))
    };
    let sets = pairs.chain(triples).filter(is_rising);
    let has_slack = |set: &Vec<Pair>| {
        let admitted = admit_in_pieces(set, Some(longest));
        admitted.is_ok_and(|admitted| delta_l(&admitted).value.0 >= away)
    };
    sets.filter(has_slack).collect()
}

/// Requests that are served in sweeps, which interrupt each other, with best effort in between that leaves
/// the arm elsewhere: no request takes longer than it was charged, and none is late. Where sweeps keep
/// nothing for those that they interrupt, these are late.
#[test]
fn nobody_is_late_in_a_sweep() {
    let (mut sets, mut states) = (0, 0);
    let long = testkit::is_full();
    for (way, away, until) in [
        (1, 1, if long { (16, 13) } else { (13, 11) }),
        (1, 2, if long { (16, 12) } else { (12, 10) }),
        (2, 3, if long { (18, 17) } else { (14, 0) }),
    ] {
        for set in admitted_as_sweeps(way, away, until) {
            sets += 1;
            for (policy, shorter) in [
                (Policy::Exact, false),
                (Policy::Exact, true),
                (Policy::DeltaL, false),
            ] {
                let plan = Plan {
                    sweeps: Some(way),
                    away,
                    shorter,
                    burst_threshold: 2,
                    ..Plan::of(policy)
                };
                let outcome = search(&set, plan);
                states += outcome.states;
                assert!(
                    outcome.miss.is_none(),
                    "{policy}, way {way}, away {away}, shorter {shorter}: {set:?}: {:?}",
                    run(&set, plan, true).miss
                );
            }
        }
    }
    println!("{sets} sets of sweeps: {states} states");
    assert!(sets > 100, "{sets}");
    // The second is interrupted up to three times.
    let set = [(3, 6), (11, 24)];
    for hands_over in [true, false] {
        let plan = Plan {
            sweeps: Some(1),
            hands_over,
            away: 1,
            ..Plan::of(Policy::Exact)
        };
        let is_late = search(&set, plan).miss.is_some();
        assert_eq!(is_late, !hands_over, "{:?}", run(&set, plan, true).miss);
    }
}

#[test]
fn nobody_is_late_for_what_goes_in_over_predicted_time() {
    for policy in [Policy::DeltaL, Policy::Exact] {
        let plan = Plan {
            halves: true,
            shorter: true,
            ..Plan::of(policy)
        };
        let name = format!("`{policy}`, over-predicted time");
        assert_no_miss_away(&name, family(8, 5, 2_003, 601), plan);
        let plan = Plan {
            early: true,
            away: 1,
            ..plan
        };
        assert_no_miss_away(&name, family(6, 4, 4_501, 1_801), plan);
    }
}

#[test]
fn an_arm_that_is_away_and_not_charged_for_makes_late() {
    let family = || family(8, 5, 2_003, 601);
    let plan = |away, charges_away| Plan {
        away,
        charges_away,
        ..Plan::of(Policy::Exact)
    };
    let late = |family: Family, plan| {
        let misses = |set: &&Vec<common::Pair>| search(set, plan).miss.is_some();
        (family.sets.iter().filter(misses).count(), family.sets.len())
    };
    // Not charged for: in every set.
    let with_enough = with_delta_l(family(), |delta_l| delta_l >= 2);
    let (missed, all) = late(with_enough, plan(2, false));
    assert_eq!(missed, all);
    // Charged for, in sets that have not the slack for it.
    let with_too_little = with_delta_l(family(), |delta_l| delta_l < 2);
    let (missed, all) = late(with_too_little, plan(2, true));
    assert!(missed > all / 2, "{missed} of {all}");
}

#[test]
fn one_tick_more_than_exact_slack_misses_in_every_set() {
    let sets = family(12, 8, 25, 9);
    let beyond = |beyond| Plan {
        beyond_slack: Some(beyond),
        ..Plan::of(Policy::Exact)
    };
    let name = "`exact`, and S(t) + 1 let through";
    assert_eq!(sets_with_a_miss(name, &sets, beyond(1)), sets.sets.len());
    let name = "`exact`, and S(t) let through whatever else it says";
    assert_no_miss(name, &family(8, 6, 197, 9), beyond(0));
}

#[test]
fn delta_l_as_published_misses() {
    let plan = Plan::of(Policy::DeltaLPublished);
    assert!(sets_with_a_miss("`delta-l-published`", &family(12, 8, 25, 1), plan) > 0);
}

#[test]
fn lst_and_edf_miss() {
    for policy in [Policy::Lst, Policy::Edf] {
        let name = format!("`{}`", policy.name());
        assert!(sets_with_a_miss(&name, &family(12, 8, 25, 1), Plan::of(policy)) > 0);
    }
    // The thesis's two tasks, in tens of its ticks.
    let plan = Plan::of(Policy::Lst);
    let schedule = run(&[(2, 3), (1, 4)], plan, true).miss.expect("LST misses");
    println!("lst, (10, 40) and (20, 30) in tens: {schedule}");
}

#[test]
fn there_are_as_many_sets_as_the_design_says() {
    let all = common::design::number(family::all().len());
    common::design::assert_says(&format!(
        "{all} admitted pairs and triples with periods up to 12"
    ));
}

testkit::full! {
    "soak: all pairs and triples with periods up to 12, or one in many of them",
    exact_never_misses => exact_never_misses_full,
    exact_with_bursts_never_misses => exact_with_bursts_never_misses_full,
    exact_with_bursts_and_a_reserve_never_misses => exact_with_bursts_and_a_reserve_never_misses_full,
    exact_never_misses_with_early_requests => exact_never_misses_with_early_requests_full,
    exact_never_misses_when_services_are_shorter => exact_never_misses_when_services_are_shorter_full,
    exact_never_misses_with_early_requests_and_shorter_services => exact_never_misses_with_early_requests_and_shorter_services_full,
    exact_as_shipped_never_misses => exact_as_shipped_never_misses_full,
    delta_l_never_misses => delta_l_never_misses_full,
    delta_l_never_misses_with_early_requests_and_shorter_services => delta_l_never_misses_with_early_requests_and_shorter_services_full,
    nobody_is_late_because_the_arm_was_away => nobody_is_late_because_the_arm_was_away_full,
    nobody_is_late_who_waits_for_a_piece => nobody_is_late_who_waits_for_a_piece_full,
    nobody_is_late_in_a_sweep => nobody_is_late_in_a_sweep_full,
    nobody_is_late_for_what_goes_in_over_predicted_time => nobody_is_late_for_what_goes_in_over_predicted_time_full,
    an_arm_that_is_away_and_not_charged_for_makes_late => an_arm_that_is_away_and_not_charged_for_makes_late_full,
    one_tick_more_than_exact_slack_misses_in_every_set => one_tick_more_than_exact_slack_misses_in_every_set_full,
    delta_l_as_published_misses => delta_l_as_published_misses_full,
    lst_and_edf_miss => lst_and_edf_miss_full,
}
