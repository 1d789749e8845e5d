//! Joins, the instant of a start, bursts, several places, shares of slack: each rule played once.

use crate::common::{Pair, admit, params};
use sched::core::{Choice, Core, CoreOptions, JobKey, Policy, Service};
use sched::task::TaskId;
use sched::units::{Nanos, Time};
use std::str::FromStr;

#[test]
fn a_join_waits_until_slack_given_away_before_it_is_paid_back() {
    // Both sets are schedulable, and so is their union.
    let mut core = super::core(&[(1, 10)], Policy::Exact, Time(0));
    core.arrive(Time(0), TaskId(0), JobKey(0), Nanos(1))
        .expect("accepted");
    assert_eq!(core.slack(Time(0)), Nanos(9));
    assert_eq!(core.choose(Time(0), Some(Nanos(9))), Choice::BestEffort);
    core.start(Time(0), Service::BestEffort(Nanos(9)));
    admit(&[(1, 10), (1, 2)]).expect("schedulable from rest");
    let first = core.join(Time(1), TaskId(1), params((1, 2)), Time(1));
    assert_eq!(
        first,
        Time(9),
        "due at 11, after what is on the disk and the job due at 10"
    );
    assert_eq!(core.slack(Time(1)), Nanos(0));
}

/// The set leaves 1 in 7,810 of the disk free: a search for S from rest would go on for longer than it may.
#[test]
fn a_task_that_joins_a_disk_at_rest_begins_at_once() {
    let tasks = [(1, 33), (1, 50), (11, 43), (8, 55), (14, 52), (12, 43)];
    admit(&tasks).expect("schedulable");
    for policy in Policy::ALL {
        let mut core = Core::new(CoreOptions {
            policy,
            ..CoreOptions::default()
        });
        for (id, task) in (0..).zip(tasks) {
            let first = core.join(Time(0), TaskId(id), params(task), Time(0));
            assert_eq!(first, Time(0), "{policy}: task {id}");
        }
        // So everybody who asks at once is released at once.
        for (id, (service, period)) in (0..).zip(tasks) {
            let window = core.arrive(Time(0), TaskId(id), JobKey(0), Nanos(service));
            let window = window.expect("accepted");
            assert_eq!((window.release, window.deadline), (Time(0), Time(period)));
        }
    }
}

#[test]
fn a_job_at_the_instant_of_a_start_is_released_after_it() {
    let mut core = super::core(&[(1, 4), (4, 9)], Policy::Exact, Time(0));
    core.arrive(Time(0), TaskId(1), JobKey(0), Nanos(4))
        .expect("accepted");
    assert_eq!(
        core.choose(Time(0), None),
        Choice::RealTime(TaskId(1), JobKey(0))
    );
    core.start(Time(0), Service::Job(TaskId(1), JobKey(0)));
    let window = core
        .arrive(Time(0), TaskId(0), JobKey(0), Nanos(1))
        .expect("accepted");
    assert_eq!(
        (window.release, window.deadline),
        (Time(1), Time(5)),
        "in time: 4 + 1 = 5"
    );
}

/// The slack at which a burst until `threshold` is left. It begins at a slack of 10, which grows by 9 with each
/// of its four jobs; what is offered all the while would fit.
fn slack_after_a_burst(threshold: u64) -> u64 {
    let mut core = Core::new(CoreOptions {
        burst_threshold: Nanos(threshold),
        ..CoreOptions::default()
    });
    for id in 0..4 {
        core.join(Time(0), TaskId(id), params((10, 100)), Time(0));
        core.arrive(Time(0), TaskId(id), JobKey(0), Nanos(10))
            .expect("accepted");
    }
    assert_eq!(core.slack(Time(0)), Nanos(60));
    let long = Service::BestEffort(Nanos(50));
    assert_eq!(core.choose(Time(0), Some(Nanos(50))), Choice::BestEffort);
    core.start(Time(0), long);
    core.finish(Time(50), long);
    let mut now = Time(50);
    assert_eq!(core.slack(now), Nanos(10));
    let first = Choice::RealTime(TaskId(0), JobKey(0));
    assert_eq!(core.choose(now, Some(Nanos(20))), first, "does not fit");
    for id in 0..4 {
        let job = (TaskId(id), JobKey(0));
        match core.choose(now, Some(Nanos(5))) {
            Choice::BestEffort => return core.slack(now).0,
            choice => assert_eq!(choice, Choice::RealTime(job.0, job.1)),
        }
        core.start(now, Service::Job(job.0, job.1));
        // A tenth of what was predicted.
        now += Nanos(1);
        core.finish(now, Service::Job(job.0, job.1));
    }
    panic!("not left before its last job was served");
}

#[test]
fn bursts_end_at_the_threshold_and_not_before() {
    for (threshold, left_at) in [(10, 10), (11, 19), (19, 19), (20, 28), (28, 28), (29, 37)] {
        assert_eq!(slack_after_a_burst(threshold), left_at, "{threshold}");
    }
}

#[test]
fn several_places_keep_the_last_one_for_real_time() {
    let mut core = Core::new(CoreOptions {
        outstanding: 2,
        ..CoreOptions::default()
    });
    core.join(Time(0), TaskId(0), params((5, 20)), Time(0));
    let best_effort = Service::BestEffort(Nanos(1000));
    assert_eq!(core.choose(Time(0), Some(Nanos(1000))), Choice::BestEffort);
    core.start(Time(0), best_effort);
    assert_eq!(
        core.choose(Time(0), Some(Nanos(1))),
        Choice::Wait { until: None },
        "the last place"
    );
    core.arrive(Time(3), TaskId(0), JobKey(0), Nanos(5))
        .expect("accepted");
    assert_eq!(
        core.choose(Time(3), Some(Nanos(1))),
        Choice::RealTime(TaskId(0), JobKey(0))
    );
    core.start(Time(3), Service::Job(TaskId(0), JobKey(0)));
    core.finish(Time(8), Service::Job(TaskId(0), JobKey(0)));
    core.arrive(Time(8), TaskId(0), JobKey(1), Nanos(5))
        .expect("accepted");
    assert_eq!(
        core.choose(Time(8), None),
        Choice::Wait {
            until: Some(Time(23))
        },
        "early jobs do not take it either"
    );
    core.finish(Time(9), best_effort);
    assert_eq!(
        core.choose(Time(9), None),
        Choice::Early(TaskId(0), JobKey(1))
    );
}

/// Two pieces of 3 out of a container of 6; the one that was started first ends first. The service before
/// both has ended by then.
#[test]
fn equal_pieces_are_told_apart_by_their_starts() {
    let mut core = Core::new(CoreOptions {
        outstanding: 3,
        ..CoreOptions::default()
    });
    let (task, job) = (TaskId(0), JobKey(0));
    core.join(Time(0), task, params((6, 20)), Time(0));
    let best_effort = Service::BestEffort(Nanos(3));
    core.start(Time(0), best_effort);
    core.arrive(Time(1), task, job, Nanos(6)).expect("accepted");
    let piece = Service::Piece(task, job, Nanos(3));
    for start in [1, 2] {
        let choice = core.choose(Time(start), None);
        assert_eq!(choice, Choice::RealTime(task, job));
        core.start(Time(start), piece);
    }
    core.finish(Time(3), best_effort);
    core.finish_one(Time(4), piece, Time(1));
    assert_eq!(
        core.remaining(task, job),
        Some(Nanos(0)),
        "one is on the disk"
    );
    core.finish_one(Time(5), piece, Time(2));
    assert_eq!(core.remaining(task, job), None, "all 6 have been used");
    let wait = Choice::Wait { until: None };
    assert_eq!(core.choose(Time(5), None), wait);
}

/// Of equal best-effort requests, too, the one that ended is told from the one that goes on.
#[test]
fn equal_requests_are_told_apart_by_their_starts() {
    let mut core = Core::new(CoreOptions {
        outstanding: 3,
        ..CoreOptions::default()
    });
    core.join(Time(0), TaskId(0), params((1, 20)), Time(0));
    let service = Service::BestEffort(Nanos(9));
    core.start(Time(0), service);
    core.start(Time(5), service);
    core.finish_one(Time(6), service, Time(5));
    assert_eq!(core.slack(Time(6)), Nanos(20 - 3 - 1), "free from 9 on");
}

/// A best-effort request of 1 goes in the time by which the first job is shorter than the task's 2. When the job is
/// withdrawn that time has been used, so its slot is not given back.
#[test]
fn a_slot_of_which_best_effort_has_used_a_part_is_not_given_back() {
    let options = CoreOptions {
        policy: Policy::DeltaL,
        gives_over_prediction: true,
        ..CoreOptions::default()
    };
    let task = TaskId(0);
    let [first, second] = [JobKey(0), JobKey(1)];
    for served in [false, true] {
        let mut core = Core::new(options);
        core.join(Time(0), task, params((2, 2)), Time(0));
        core.set_delta_l(Time(0), Nanos(0), Nanos(0));
        core.arrive(Time(0), task, first, Nanos(1))
            .expect("accepted");
        core.arrive(Time(0), task, second, Nanos(2))
            .expect("accepted");
        let service = Service::BestEffort(Nanos(1));
        assert_eq!(core.choose(Time(0), Some(Nanos(1))), Choice::BestEffort);
        core.start(Time(0), service);
        if served {
            core.finish(Time(1), service);
        }
        assert!(core.withdraw(Time(1), task, first));
        let window = core.window(task, second).expect("queued");
        assert_eq!((window.release, window.deadline), (Time(2), Time(4)));
    }
}

#[test]
fn a_misbehaving_stream_leaves_best_effort_its_share() {
    let share = |percent: u8| {
        let options = CoreOptions {
            best_effort_share_percent: percent,
            ..CoreOptions::default()
        };
        let mut core = Core::new(options);
        core.join(Time(0), TaskId(0), params((4, 10_000)), Time(0));
        let (mut now, mut best_effort, mut early) = (Time(0), 0, 0);
        for key in 0..600 {
            core.arrive(now, TaskId(0), JobKey(key), Nanos(4))
                .expect("accepted");
        }
        assert_eq!(
            core.choose(now, None),
            Choice::RealTime(TaskId(0), JobKey(0))
        );
        core.start(now, Service::Job(TaskId(0), JobKey(0)));
        now += Nanos(4);
        core.finish(now, Service::Job(TaskId(0), JobKey(0)));
        for _ in 0..500 {
            let (service, cost) = match core.choose(now, Some(Nanos(4))) {
                Choice::BestEffort => (Service::BestEffort(Nanos(4)), &mut best_effort),
                Choice::Early(id, job) | Choice::RealTime(id, job) => {
                    (Service::Job(id, job), &mut early)
                }
                Choice::Wait { .. } => unreachable!("both wait and the disk is nearly empty"),
            };
            *cost += 4;
            core.start(now, service);
            now += Nanos(4);
            core.finish(now, service);
        }
        100 * best_effort / (best_effort + early)
    };
    assert_eq!(
        (share(100), share(75), share(50), share(0)),
        (100, 75, 50, 0)
    );
}

#[test]
fn policies_are_asked_for_by_name() {
    let names = ["exact", "delta-l", "delta-l-published", "lst", "edf"];
    let policies: Vec<_> = names
        .iter()
        .map(|name| Policy::from_str(name).expect("known"))
        .collect();
    assert_eq!(policies, Policy::ALL);
    assert_eq!(CoreOptions::default().policy, Policy::Exact);
}

/// All but full, and the periods have no common multiple to speak of: S would take too long to find.
#[test]
fn slack_that_would_take_too_long_to_find_is_bounded_from_below() {
    let periods = [
        1_000_003_019,
        1_200_000_041,
        1_400_000_023,
        1_700_000_009,
        1_900_000_043,
    ];
    let mut tasks: Vec<Pair> = periods
        .iter()
        .map(|&period| (230_000_000, period))
        .collect();
    let room = admit(&tasks).expect("room");
    let rare = room
        .smallest_period(Nanos(150_000_000))
        .expect("room for a rare one");
    tasks.push((150_000_000, rare.0));
    let mut core = Core::new(CoreOptions::default());
    for (index, &task) in tasks.iter().enumerate() {
        let release = core.join(Time(0), TaskId(index as u64), params(task), Time(0));
        assert!(
            release <= Time(1_000),
            "nothing is owed but roundings of a nanosecond"
        );
    }
    core.set_delta_l(Time(0), Nanos(0), Nanos(0));
    assert_eq!(core.slack(Time(5)), Nanos(0), "a safe bound");
    assert!(matches!(
        core.choose(Time(5), Some(Nanos(1))),
        Choice::Wait { .. }
    ));
    for (index, &(service, _)) in tasks.iter().enumerate() {
        core.arrive(Time(9), TaskId(index as u64), JobKey(0), Nanos(service))
            .expect("accepted");
    }
    assert!(
        matches!(core.choose(Time(9), Some(Nanos(1))), Choice::RealTime(..)),
        "real time goes on"
    );
}
