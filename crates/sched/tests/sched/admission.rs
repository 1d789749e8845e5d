//! Admission and delta-L against the definitions, an independent implementation, and the published
//! counterexamples.

#![allow(
    clippy::print_stderr,
    reason = "a test that searches says how much it has searched"
)]

use crate::common;
use crate::common::{Pair, admit, params, random_set};
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::edf::fully_nonpreemptive::{Task, dedicated_uniproc_rta};
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;
use sched::admission::{Admission, RefusedBy};
use sched::delta_l::{delta_l, delta_l_published};
use sched::task::TaskId;
use sched::units::Nanos;
use testkit::{Random, seed};

#[test]
fn the_verdict_is_that_of_the_definition_at_every_length() {
    let mut random = Random(seed("admission against every L", Some(1)));
    let (mut admitted, mut by_utilization, mut by_blocking) = (0, 0, 0);
    for _ in 0..30_000 {
        let tasks = random_set(&mut random, 6, 40);
        let verdict = admit(&tasks);
        assert_eq!(verdict.is_ok(), common::schedulable(&tasks), "{tasks:?}");
        match verdict.map_err(|refusal| refusal.by) {
            Ok(_) => admitted += 1,
            Err(RefusedBy::Utilization) => by_utilization += 1,
            Err(RefusedBy::Blocking) => by_blocking += 1,
        }
    }
    eprintln!(
        "{admitted} admitted, {by_utilization} refused by utilization, {by_blocking} by blocking"
    );
    assert!(
        admitted.min(by_utilization).min(by_blocking) > 1_000,
        "every verdict is tried"
    );
}

#[test]
fn a_refusal_names_an_interval_that_is_short_by_what_it_says() {
    let mut random = Random(seed("refusals", Some(2)));
    let (mut by_utilization, mut by_blocking) = (0, 0);
    for _ in 0..20_000 {
        let tasks = random_set(&mut random, 6, 60);
        let mut set = Admission::new();
        let mut inside: Vec<Pair> = Vec::new();
        for (index, &task) in tasks.iter().enumerate() {
            let before = set.clone();
            let refused = set.insert(TaskId(index as u64), params(task));
            let mut with = inside.clone();
            with.push(task);
            let Err(refusal) = refused else {
                inside.push(task);
                continue;
            };
            assert_eq!(
                format!("{before:?}"),
                format!("{set:?}"),
                "a refusal changes nothing"
            );
            assert!(refusal.short_by > Nanos::ZERO);
            if refusal.by == RefusedBy::Utilization {
                by_utilization += 1;
                assert!(!common::fits_whole_disk(&with));
                assert_eq!(refusal.task, TaskId(index as u64));
                let longest = with.iter().map(|&(_, t)| t).max().expect("a task");
                assert_eq!(refusal.interval, Nanos(longest), "{with:?}");
                let asked = common::share_of(&with, longest);
                assert_eq!(refusal.short_by.0, asked - longest, "{with:?}");
            } else {
                by_blocking += 1;
                let blocker = tasks[refusal.task.0 as usize];
                let l = refusal.interval.0;
                let due: u64 = with.iter().map(|&(c, t)| (l - 1) / t * c).sum();
                assert!(blocker.1 > l);
                assert_eq!(
                    blocker.0 + due - l,
                    refusal.short_by.0,
                    "{with:?} {refusal:?}"
                );
            }
            break;
        }
    }
    assert!(
        by_utilization.min(by_blocking) > 1_000,
        "{by_utilization} refused by utilization, {by_blocking} by blocking"
    );
}

/// Every T_i as deadline: schedulable if the response time of each task is at most its period.
fn schedulable_by_response_times(tasks: &[Pair]) -> bool {
    let limit = Duration::from(4 * common::hyperperiod(tasks) + 1000);
    let arrivals: Vec<_> = tasks
        .iter()
        .map(|&(_, t)| Sporadic {
            min_inter_arrival: Duration::from(t),
            jitter: Duration::zero(),
        })
        .collect();
    let task = |index: usize| Task {
        wcet: Scalar::new(Service::from(tasks[index].0)),
        arrivals: &arrivals[index],
        deadline: Duration::from(tasks[index].1),
    };
    common::fits_whole_disk(tasks)
        && (0..tasks.len()).all(|index| {
            let others: Vec<_> = (0..tasks.len())
                .filter(|&other| other != index)
                .map(task)
                .collect();
            dedicated_uniproc_rta(&task(index), &others, limit)
                .is_ok_and(|bound| bound <= Duration::from(tasks[index].1))
        })
}

#[test]
fn an_independent_implementation_agrees() {
    let mut random = Random(seed("admission against response-time analysis", Some(3)));
    let (mut yes, mut no) = (0, 0);
    let sets = if testkit::is_full() { 100_000 } else { 10_000 };
    for _ in 0..sets {
        let tasks = random_set(&mut random, 6, 30);
        let ours = admit(&tasks).is_ok();
        assert_eq!(ours, schedulable_by_response_times(&tasks), "{tasks:?}");
        if ours { yes += 1 } else { no += 1 }
    }
    eprintln!("response-time analysis agrees on {yes} admitted and {no} refused sets");
    assert!(yes.min(no) > sets / 10);
}

#[test]
fn taking_a_task_out_leaves_the_set_that_was_never_with_it() {
    let mut random = Random(seed("removal", Some(4)));
    let mut admitted = 0;
    for _ in 0..5_000 {
        let tasks = random_set(&mut random, 8, 50);
        let Ok(mut set) = admit(&tasks) else { continue };
        admitted += 1;
        let gone = random.range(0, tasks.len() as u64 - 1);
        assert_eq!(set.remove(TaskId(gone)), Some(params(tasks[gone as usize])));
        let mut without = Admission::new();
        for (index, &task) in tasks
            .iter()
            .enumerate()
            .filter(|&(index, _)| index as u64 != gone)
        {
            without
                .insert(TaskId(index as u64), params(task))
                .expect("a subset of an admitted set is admitted");
        }
        assert_eq!(format!("{set:?}"), format!("{without:?}"));
    }
    assert!(admitted > 1_000, "{admitted}");
}

#[test]
fn admissibility_is_monotone_in_the_period_and_the_smallest_is_found() {
    let mut random = Random(seed("smallest period", Some(5)));
    let mut found = 0;
    for _ in 0..3_000 {
        let tasks = random_set(&mut random, 5, 40);
        let Ok(set) = admit(&tasks[..tasks.len() - 1]) else {
            continue;
        };
        let service = random.range(1, 12);
        let fits = |period: u64| {
            let mut with = tasks[..tasks.len() - 1].to_vec();
            with.push((service, period));
            common::schedulable(&with)
        };
        let verdicts: Vec<bool> = (service..200).map(fits).collect();
        assert!(
            verdicts.is_sorted(),
            "once a period is admitted, every longer one is: {tasks:?} {service}"
        );
        let expected = verdicts
            .iter()
            .position(|&fits| fits)
            .map(|index| service + index as u64);
        let smallest = set.smallest_period(Nanos(service)).map(|period| period.0);
        match expected {
            Some(period) => {
                found += 1;
                assert_eq!(smallest, Some(period), "{tasks:?} {service}");
            }
            None => assert!(
                smallest.is_none_or(|period| period >= 200),
                "{tasks:?} {service} {smallest:?}"
            ),
        }
    }
    assert!(found > 1_000);
}

#[test]
fn delta_l_is_that_of_the_definition_at_every_length() {
    let mut random = Random(seed("delta-L against every L", Some(6)));
    let (mut differ, mut sets) = (0, 0);
    while sets < 10_000 {
        let tasks = random_set(&mut random, 5, 24);
        let Ok(set) = admit(&tasks) else { continue };
        sets += 1;
        let corrected = delta_l(&set);
        assert!(corrected.exact);
        assert_eq!(
            corrected.value.0 as i64,
            common::delta_l(&tasks),
            "{tasks:?}"
        );
        let published = delta_l_published(&set);
        assert_eq!(
            published.value.0 as i64,
            common::delta_l_published(&tasks),
            "{tasks:?}"
        );
        differ += u32::from(published.value > corrected.value);
    }
    eprintln!("of {sets} admitted sets, {differ} have a published delta-L that is too large");
    assert!(differ > 0);
}

/// (corrected, published) of an admitted set.
fn both(tasks: &[Pair]) -> (u64, u64) {
    let set = admit(tasks).expect("schedulable");
    let corrected = delta_l(&set);
    assert!(corrected.exact);
    (corrected.value.0, delta_l_published(&set).value.0)
}

#[test]
fn sixty_seven_tasks_have_no_slack_where_the_papers_see_66() {
    let tasks: Vec<Pair> = [vec![(4, 200); 33], vec![(3, 300); 34]].concat();
    assert_eq!(common::m(&tasks, 600), 0);
    assert_eq!(both(&tasks), (0, 66));
}

#[test]
fn small_sets_whose_published_delta_l_is_too_large() {
    assert_eq!(both(&[(7, 18), (6, 24), (9, 25)]), (1, 3));
    assert_eq!(both(&[(3, 13), (4, 23), (7, 24), (7, 25)]), (2, 4));
}

#[test]
fn the_set_that_usd_admits_and_misses_is_refused() {
    let ms = 1_000_000;
    let tasks = [
        (42 * ms, 250 * ms),
        (69 * ms, 250 * ms),
        (122 * ms, 1000 * ms),
        (163 * ms, 2000 * ms),
    ];
    let used: f64 = tasks.iter().map(|&(c, t)| c as f64 / t as f64).sum();
    assert!((used - 0.6475).abs() < 1e-9);
    let refusal = admit(&tasks).expect_err("163 + 42 + 69 ms do not fit into 250");
    assert_eq!((refusal.by, refusal.task), (RefusedBy::Blocking, TaskId(3)));
    assert_eq!(
        (refusal.interval, refusal.short_by),
        (Nanos(250 * ms + 1), Nanos(24 * ms - 1))
    );
    let text = refusal.to_string();
    assert!(
        text.contains("task 3") && text.contains("250.000 ms") && text.contains("24.000 ms"),
        "{text}"
    );
}

#[test]
fn a_full_disk_is_refused_by_utilization_and_the_largest_rate_is_told() {
    let mut set = admit(&[(30, 100), (30, 100)]).expect("0.6");
    let refusal = set.insert(TaskId(9), params((50, 100))).expect_err("1.1");
    assert_eq!(
        (refusal.by, refusal.interval, refusal.short_by),
        (RefusedBy::Utilization, Nanos(100), Nanos(10))
    );
    assert_eq!(
        set.smallest_period(Nanos(42)),
        None,
        "it would block the others for too long, however seldom"
    );
    assert_eq!(
        set.smallest_period(Nanos(41)),
        Some(Nanos(103)),
        "41 / 102 is more than is left"
    );
    assert_eq!(set.smallest_period(Nanos(40)), Some(Nanos(100)));
}

#[test]
fn too_much_is_told_for_the_longest_period_there_is() {
    // 0.3 + 0.2 + 0.25 of the disk, and 0.42 more: in 300 ns 90 + 60 + 75 + 128.6 are asked for.
    let mut set = admit(&[(30, 100), (60, 300), (50, 200)]).expect("0.75");
    let refusal = set.insert(TaskId(9), params((60, 140))).expect_err("1.18");
    assert_eq!(
        (refusal.by, refusal.interval, refusal.short_by, refusal.task),
        (
            RefusedBy::Utilization,
            Nanos(300),
            Nanos(90 + 60 + 75 + 129 - 300),
            TaskId(9)
        )
    );
}

#[test]
fn a_search_that_is_cut_short_says_so_and_is_safe() {
    let mut set = Admission::new();
    for (index, period) in [
        1_000_003_019,
        1_200_000_041,
        1_400_000_023,
        1_700_000_009,
        1_900_000_043,
    ]
    .into_iter()
    .enumerate()
    {
        set.insert(TaskId(index as u64), params((230_000_000, period)))
            .expect("there is room");
    }
    assert!(delta_l(&set).exact);
    let period = set
        .smallest_period(Nanos(150_000_000))
        .expect("there is room for a rare one");
    set.insert(TaskId(9), params((150_000_000, period.0)))
        .expect("it was found to fit");
    assert!(1.0 - set.utilization() < 1e-9, "the disk is all but full");
    let bound = delta_l(&set);
    assert_eq!((bound.value, bound.exact), (Nanos::ZERO, false));
}

testkit::full! {
    "soak: ten times as many sets",
    an_independent_implementation_agrees => an_independent_implementation_agrees_full,
}
