//! Decisions by decision; long random runs are in `tests/disk_runs.rs`.

use super::*;
use crate::best_effort::BestEffortOrder;
use crate::core::Policy;
use crate::request::{Class, Decision, Dispatch, Request, RequestId, Served, Urgency};
use crate::request::{Op, Order};
use crate::task::TaskParams;

const MS: u64 = 1_000_000;

fn atlas(config: SchedulerConfig) -> DiskScheduler {
    DiskScheduler::new(
        Arc::new(DriveProfile::shipped("quantum-atlas-ii").unwrap()),
        config,
    )
}

fn at(ms: u64) -> Time {
    Time(ms * MS)
}

fn request(id: u64, start: u64, count: u64, class: Class) -> Request {
    Request {
        id: RequestId(id),
        op: Op::Read,
        start: Sector(start),
        count: SectorCount(count),
        class,
        order: Order::default(),
    }
}

fn sync(id: u64, start: u64) -> Request {
    request(id, start, 8, Class::BestEffort(Urgency::Sync))
}

fn async_(id: u64, start: u64) -> Request {
    request(id, start, 8, Class::BestEffort(Urgency::Async))
}

fn task(service_ms: u64, period_ms: u64) -> TaskParams {
    TaskParams::new(
        Nanos::from_millis(service_ms),
        Nanos::from_millis(period_ms),
    )
    .unwrap()
}

fn issued(disk: &mut DiskScheduler, now: Time) -> Dispatch {
    match disk.decide(now) {
        Decision::Issue(dispatch) => dispatch,
        wait => panic!("{wait:?} at {now:?}"),
    }
}

/// Serves all that is queued, each piece as long as predicted; the ids in order of completion.
fn drain(disk: &mut DiskScheduler, mut now: Time) -> Vec<u64> {
    let mut order = Vec::new();
    while !disk.is_empty() {
        match disk.decide(now) {
            Decision::Issue(dispatch) => {
                now += dispatch.predicted;
                if disk.completed(now, dispatch.id).unwrap().finished {
                    order.push(dispatch.id.0);
                }
            }
            Decision::Wait { until } => {
                now = until.expect("something will change").max(now + Nanos(1))
            }
        }
    }
    order
}

#[test]
fn synchronous_requests_go_first_and_each_kind_in_elevator_order() {
    let mut disk = atlas(SchedulerConfig::default());
    for (id, start) in [(1, 9_000), (2, 100), (3, 5_000)] {
        disk.submit(at(0), async_(id, start)).unwrap();
        disk.submit(at(0), sync(id + 10, start + 50)).unwrap();
    }
    assert_eq!(drain(&mut disk, at(0)), [12, 13, 11, 1, 3, 2]);
}

#[test]
fn the_nearest_goes_first_if_so_ordered() {
    let config = SchedulerConfig {
        order: BestEffortOrder::Nearest,
        ..SchedulerConfig::default()
    };
    let mut disk = atlas(config);
    disk.submit(at(0), sync(0, 4_000_000)).unwrap();
    assert_eq!(drain(&mut disk, at(0)), [0]);
    for (id, start) in [(1, 10_000), (2, 3_900_040), (3, 6_500_000), (4, 8_000_000)] {
        disk.submit(at(1000), sync(id, start)).unwrap();
    }
    assert_eq!(
        drain(&mut disk, at(1000)),
        [2, 3, 4, 1],
        "3,900,040 is nearest, then up to the end"
    );
}

#[test]
fn in_order_of_arrival_if_so_ordered() {
    let config = SchedulerConfig {
        order: BestEffortOrder::Fifo,
        ..SchedulerConfig::default()
    };
    let mut disk = atlas(config);
    for (id, start) in [(1, 9_000), (2, 100), (3, 5_000)] {
        disk.submit(at(0), sync(id, start)).unwrap();
    }
    assert_eq!(drain(&mut disk, at(0)), [1, 2, 3]);
}

#[test]
fn nothing_starves_behind_a_busy_corner_of_the_disk() {
    let config = SchedulerConfig {
        order: BestEffortOrder::Nearest,
        ..SchedulerConfig::default()
    };
    let mut disk = atlas(config);
    disk.submit(at(0), sync(1, 8_000_000)).unwrap();
    disk.submit(at(0), async_(2, 8_000_100)).unwrap();
    let (mut now, mut next) = (at(0), 100);
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(now < at(8_000), "done by now: {done:?}");
        while disk.len() < 6 {
            disk.submit(now, sync(next, 1_000 + next * 37 % 5_000))
                .unwrap();
            next += 1;
        }
        let dispatch = issued(&mut disk, now);
        now += dispatch.predicted;
        disk.completed(now, dispatch.id).unwrap();
        if dispatch.id.0 < 100 {
            done.push((dispatch.id.0, now.0 / MS));
        }
    }
    assert_eq!(done[0].0, 1, "synchronous ones are aged sooner: {done:?}");
    assert!(done[0].1 < 1_500 && done[1].1 < 6_000, "{done:?}");
}

#[test]
fn a_tagged_request_waits_for_those_it_names() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.submit(at(0), async_(1, 9_000)).unwrap();
    disk.submit(at(0), async_(2, 20_000)).unwrap();
    let mut tagged = async_(3, 100);
    tagged.order.after = [
        Some(RequestId(1)),
        Some(RequestId(2)),
        Some(RequestId(77)),
        None,
    ];
    disk.submit(at(0), tagged).unwrap();
    assert_eq!(drain(&mut disk, at(0)), [1, 2, 3]);
}

#[test]
fn what_a_synchronous_request_waits_for_is_served_as_synchronous() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.submit(at(0), async_(1, 8_000_000)).unwrap();
    let mut middle = async_(2, 7_000_000);
    middle.order.after[0] = Some(RequestId(1));
    disk.submit(at(0), middle).unwrap();
    for id in 10..30 {
        disk.submit(at(0), async_(id, id * 100)).unwrap();
    }
    let mut waited_for = sync(3, 100);
    waited_for.order.after[0] = Some(RequestId(2));
    disk.submit(at(0), waited_for).unwrap();
    assert_eq!(drain(&mut disk, at(0))[..3], [1, 2, 3]);
}

#[test]
fn a_barrier_divides_its_space_and_no_other() {
    let mut disk = atlas(SchedulerConfig::default());
    let in_space = |id, start, space, barrier| {
        let mut request = async_(id, start);
        request.order = Order {
            space,
            barrier,
            ..Order::default()
        };
        request
    };
    for (id, start, space, barrier) in [
        (1, 9_000, 7, false),
        (2, 8_000, 7, false),
        (3, 10, 7, true),
        (4, 20, 7, false),
        (5, 15, 7, true),
        (6, 5, 7, false),
        (7, 30, 8, false),
    ] {
        disk.submit(at(0), in_space(id, start, space, barrier))
            .unwrap();
    }
    assert_eq!(drain(&mut disk, at(0)), [7, 2, 1, 3, 4, 5, 6]);
}

#[test]
fn cancelling_a_barrier_in_the_middle_leaves_the_one_before_it_in_force() {
    let mut disk = atlas(SchedulerConfig::default());
    let mut barrier = |id, start| {
        let mut request = async_(id, start);
        request.order.barrier = true;
        disk.submit(at(0), request).unwrap();
    };
    barrier(1, 9_000);
    barrier(2, 100);
    disk.submit(at(0), async_(3, 50)).unwrap();
    assert!(disk.cancel(at(0), RequestId(2)));
    assert!(!disk.cancel(at(0), RequestId(2)), "it is gone");
    let first = issued(&mut disk, at(0));
    assert_eq!(first.id, RequestId(1));
    assert!(!disk.cancel(at(0), RequestId(1)), "it is on the disk");
    disk.completed(at(20), RequestId(1)).unwrap();
    assert_eq!(drain(&mut disk, at(20)), [3]);
}

#[test]
fn a_long_request_is_served_in_pieces_that_keep_to_the_limit() {
    let mut disk = atlas(SchedulerConfig::default());
    let limit = disk.predictor().piece_limit();
    let long = request(
        1,
        1772 * 1790 - 1_000,
        65_536,
        Class::BestEffort(Urgency::Async),
    );
    disk.submit(at(0), long).unwrap();
    let (mut now, mut next, mut pieces) = (at(0), SectorCount(0), 0);
    loop {
        let piece = issued(&mut disk, now);
        assert!(piece.predicted <= limit, "{piece:?}");
        assert_eq!((piece.offset, piece.start), (next, long.start + next));
        if pieces == 3 {
            disk.submit(now, sync(2, 100)).unwrap();
        }
        if pieces == 4 {
            assert_eq!(
                piece.id,
                RequestId(1),
                "on the disk already when the other came"
            );
        }
        next += piece.count;
        pieces += 1;
        now += Nanos::from_millis(20);
        if disk.completed(now, RequestId(1)).unwrap().finished {
            break;
        }
        if pieces == 4 {
            let other = issued(&mut disk, now);
            assert_eq!(other.id, RequestId(2), "somebody waits for it");
            now += other.predicted;
            assert!(disk.completed(now, RequestId(2)).unwrap().finished);
        }
    }
    assert_eq!(next, long.count);
    assert!(pieces > 65_536 / 2_048, "{pieces}");
}

#[test]
fn what_does_not_make_sense_is_refused_by_name() {
    let mut disk = atlas(SchedulerConfig {
        queue_max: 2,
        tasks_max: 3,
        ..SchedulerConfig::default()
    });
    let submit = |disk: &mut DiskScheduler, request| disk.submit(at(0), request).unwrap_err();
    assert!(matches!(
        submit(
            &mut disk,
            request(1, 0, 0, Class::BestEffort(Urgency::Sync))
        ),
        SubmitError::OutOfRange { .. }
    ));
    assert!(matches!(
        submit(&mut disk, sync(1, 8_890_753)),
        SubmitError::OutOfRange { .. }
    ));
    assert!(matches!(
        submit(&mut disk, sync(1, u64::MAX)),
        SubmitError::OutOfRange { .. }
    ));
    let stream = Class::Stream(TaskId(5));
    assert_eq!(
        submit(&mut disk, request(1, 0, 8, stream)),
        SubmitError::NoSuchTask(TaskId(5))
    );
    disk.join(at(0), TaskId(5), task(50, 1000), TaskKind::Stream, at(0))
        .unwrap();
    assert!(matches!(
        submit(&mut disk, request(1, 0, 2_048, stream)),
        SubmitError::LongerThanReserved { .. }
    ));
    let reserved = Class::Reserved(TaskId(5), Urgency::Sync);
    assert!(matches!(
        submit(&mut disk, request(1, 0, 8, reserved)),
        SubmitError::WrongKind { .. }
    ));
    disk.submit(at(0), sync(1, 0)).unwrap();
    assert_eq!(
        submit(&mut disk, sync(1, 0)),
        SubmitError::DuplicateId(RequestId(1))
    );
    disk.submit(at(0), sync(2, 0)).unwrap();
    assert_eq!(submit(&mut disk, sync(3, 0)), SubmitError::Full { max: 2 });

    let join = |disk: &mut DiskScheduler, id, service, kind| {
        disk.join(at(0), TaskId(id), task(service, 1000), kind, at(0))
            .map(drop)
    };
    assert_eq!(
        join(&mut disk, 5, 90, TaskKind::Server),
        Err(JoinError::DuplicateTask(TaskId(5)))
    );
    assert!(matches!(
        join(&mut disk, 6, 9, TaskKind::Server),
        Err(JoinError::SliceTooShort { .. })
    ));
    join(&mut disk, 6, 90, TaskKind::Floor).unwrap();
    assert_eq!(
        join(&mut disk, 7, 90, TaskKind::Floor),
        Err(JoinError::SecondFloor(TaskId(6)))
    );
    join(&mut disk, 7, 90, TaskKind::Server).unwrap();
    assert_eq!(
        join(&mut disk, 8, 90, TaskKind::Stream),
        Err(JoinError::Full { max: 3 })
    );
}

/// No slack at all: the policy serves released jobs first, and streams fill the disk.
fn full_disk() -> DiskScheduler {
    let mut disk = atlas(SchedulerConfig {
        policy: Policy::Edf,
        ..SchedulerConfig::default()
    });
    disk.join(at(0), TaskId(1), task(200, 2_000), TaskKind::Stream, at(0))
        .unwrap();
    disk
}

#[test]
fn a_container_serves_several_requests_while_they_fit_its_slice() {
    let mut disk = full_disk();
    disk.join(at(0), TaskId(2), task(90, 1_000), TaskKind::Server, at(0))
        .unwrap();
    for id in 10..20 {
        let class = Class::Reserved(TaskId(2), Urgency::Async);
        disk.submit(at(0), request(id, id * 300_000, 8, class))
            .unwrap();
    }
    disk.submit(at(0), async_(5, 0)).unwrap();
    let (mut now, mut in_container) = (at(0), 0);
    loop {
        let dispatch = issued(&mut disk, now);
        if dispatch.served != Served::Container {
            break;
        }
        assert_eq!(dispatch.deadline, Some(at(1_000)));
        in_container += 1;
        now += dispatch.predicted;
        let done = disk.completed(now, dispatch.id).unwrap();
        assert_eq!(done.lateness, Nanos::ZERO);
    }
    assert!(
        (3..=6).contains(&in_container),
        "{in_container} of up to 27 ms in 90 ms"
    );
    assert!(now <= at(90), "no longer than the slice: {now:?}");
    let report = disk.report(now);
    assert_eq!(report.served.container, in_container);
    assert_eq!(report.tasks[1].completed, in_container);
    assert_eq!(report.tasks[1].queued, 10 - in_container);
}

#[test]
fn the_next_container_comes_a_period_later_and_those_left_behind_move_up() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.join(at(0), TaskId(2), task(90, 1_000), TaskKind::Server, at(0))
        .unwrap();
    let class = Class::Reserved(TaskId(2), Urgency::Sync);
    disk.submit(at(0), request(1, 0, 8, class)).unwrap();
    // Slack serves it, so the container of 0 is still there for what comes later.
    let first = issued(&mut disk, at(0));
    assert_eq!(first.served, Served::Slack);
    disk.completed(at(20), first.id).unwrap();
    disk.submit(at(30), request(2, 0, 8, class)).unwrap();
    assert_eq!(
        disk.servers.open(TaskId(2), &disk.core).unwrap().deadline,
        at(1_030)
    );
}

#[test]
fn the_floor_serves_best_effort_on_a_full_disk_and_without_it_nothing_does() {
    let mut served = Vec::new();
    for floor in [false, true] {
        let mut disk = full_disk();
        if floor {
            disk.join(at(0), TaskId(9), task(90, 1_000), TaskKind::Floor, at(0))
                .unwrap();
        }
        for id in 10..20 {
            disk.submit(at(0), async_(id, id * 300_000)).unwrap();
        }
        // Released jobs all the time: the stream alone would never let anything through.
        let (mut now, mut next, mut best_effort) = (at(0), 1_000, 0);
        while now < at(4_000) {
            let due = |disk: &DiskScheduler| disk.tasks[0].queued < 40;
            while due(&disk) {
                disk.submit(now, request(next, 0, 1_024, Class::Stream(TaskId(1))))
                    .unwrap();
                next += 1;
            }
            match disk.decide(now) {
                Decision::Issue(dispatch) => {
                    best_effort += u64::from(dispatch.served == Served::Container);
                    now += dispatch.predicted;
                    disk.completed(now, dispatch.id).unwrap();
                }
                Decision::Wait { until } => now = until.unwrap(),
            }
        }
        served.push(best_effort);
    }
    assert_eq!(served[0], 0);
    assert!(served[1] > 0);
}

#[test]
fn a_container_lingers_for_the_next_request_of_a_client_that_waits_for_answers() {
    let mut disk = atlas(SchedulerConfig {
        policy: Policy::Edf,
        ..SchedulerConfig::default()
    });
    disk.join(at(0), TaskId(1), task(200, 2_000), TaskKind::Stream, at(0))
        .unwrap();
    disk.join(at(0), TaskId(9), task(90, 1_000), TaskKind::Floor, at(0))
        .unwrap();
    for id in 100..103 {
        disk.submit(at(0), request(id, 0, 1_024, Class::Stream(TaskId(1))))
            .unwrap();
    }
    let mut now = at(0);
    for id in 1..4 {
        disk.submit(now, sync(id, id * 50)).unwrap();
        let dispatch = issued(&mut disk, now);
        assert_eq!(
            (dispatch.id, dispatch.served),
            (RequestId(id), Served::Container)
        );
        now += Nanos::from_millis(10);
        disk.completed(now, dispatch.id).unwrap();
        let Decision::Wait { until: Some(until) } = disk.decide(now) else {
            panic!("it lingers")
        };
        assert_eq!(until, now + crate::server::LINGER);
        now += Nanos::from_micros(300);
    }
    let wait = Decision::Wait {
        until: Some(now + Nanos::from_micros(700)),
    };
    assert_eq!(disk.decide(now), wait, "still waiting for a fourth");
    let stream = issued(&mut disk, now + Nanos::from_millis(1));
    assert_eq!(stream.served, Served::RealTime);
}

#[test]
fn requests_before_their_time_are_early_and_due_when_they_would_have_been() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.join(at(0), TaskId(1), task(200, 1_000), TaskKind::Stream, at(0))
        .unwrap();
    for id in 1..4 {
        disk.submit(at(0), request(id, 0, 1_024, Class::Stream(TaskId(1))))
            .unwrap();
    }
    let mut now = at(0);
    for (id, served) in [
        (1, Served::RealTime),
        (2, Served::Early),
        (3, Served::Early),
    ] {
        let dispatch = issued(&mut disk, now);
        assert_eq!((dispatch.id, dispatch.served), (RequestId(id), served));
        assert_eq!(dispatch.deadline, Some(at(1_000 * id)));
        now += dispatch.predicted;
        let done = disk.completed(now, dispatch.id).unwrap();
        assert!(done.finished && done.lateness.is_zero());
    }
    assert_eq!(disk.report(now).tasks[0].early, 2);
}

#[test]
fn overruns_and_misses_are_counted_where_they_happen() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.join(at(0), TaskId(1), task(200, 300), TaskKind::Stream, at(0))
        .unwrap();
    disk.submit(at(0), request(1, 0, 1_024, Class::Stream(TaskId(1))))
        .unwrap();
    let dispatch = issued(&mut disk, at(0));
    let done = disk.completed(at(310), dispatch.id).unwrap();
    assert_eq!(done.lateness, Nanos::from_millis(10));
    assert_eq!(done.overrun, Nanos::from_millis(310) - dispatch.predicted);
    let report = disk.report(at(310));
    assert_eq!((report.missed, report.overruns), (1, 1));
    assert_eq!((report.tasks[0].missed, report.tasks[0].overruns), (1, 1));
    assert_eq!(report.lateness_max, Nanos::from_millis(10));
    let record = disk.service_records()[10];
    assert_eq!(
        (record.pieces, record.actual_max),
        (1, Nanos::from_millis(310))
    );
    assert!(record.ratio_permille_max > 1_000);
}

#[test]
fn what_is_late_already_goes_before_best_effort() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.join(at(0), TaskId(1), task(200, 1_000), TaskKind::Stream, at(0))
        .unwrap();
    disk.submit(at(0), request(1, 0, 1_024, Class::Stream(TaskId(1))))
        .unwrap();
    disk.submit(at(0), sync(2, 100)).unwrap();
    assert_eq!(
        issued(&mut disk, at(0)).id,
        RequestId(2),
        "there is time for both"
    );
    // The drive took 1.2 s. The next deadline of the stream is far away, the last one has passed.
    disk.completed(at(1_200), RequestId(2)).unwrap();
    disk.submit(at(1_200), sync(3, 100)).unwrap();
    assert_eq!(disk.report(at(1_200)).slack, Some(Nanos::ZERO));
    assert_eq!(issued(&mut disk, at(1_200)).id, RequestId(1));
}

#[test]
fn a_busy_interval_is_from_the_first_release_to_the_last_completion() {
    let mut disk = atlas(SchedulerConfig::default());
    for id in 1..=2 {
        disk.join(at(0), TaskId(id), task(200, 1_000), TaskKind::Stream, at(0))
            .unwrap();
    }
    let block = |id, task| request(id, 0, 1_024, Class::Stream(TaskId(task)));
    assert_eq!(disk.busy_since(at(5)), None);
    disk.submit(at(10), block(1, 1)).unwrap();
    issued(&mut disk, at(10));
    disk.submit(at(20), block(2, 2)).unwrap();
    disk.completed(at(100), RequestId(1)).unwrap();
    assert_eq!(
        disk.busy_since(at(100)),
        Some(at(10)),
        "the other one waits"
    );
    issued(&mut disk, at(100));
    assert_eq!(disk.busy_since(at(150)), Some(at(10)));
    disk.completed(at(200), RequestId(2)).unwrap();
    assert_eq!(disk.busy_since(at(200)), None);
    // An early block has a claim from its release on, in the queue or on the disk.
    disk.submit(at(300), block(3, 1)).unwrap();
    issued(&mut disk, at(300));
    assert_eq!(disk.busy_since(at(1_009)), None);
    assert_eq!(disk.busy_since(at(1_500)), Some(at(1_010)));
    disk.completed(at(1_600), RequestId(3)).unwrap();
    assert_eq!(disk.busy_since(at(1_600)), None);
}

#[test]
fn what_is_missing_is_known_to_the_nanosecond() {
    for (policy, known) in [(Policy::Exact, true), (Policy::DeltaL, false)] {
        let mut disk = atlas(SchedulerConfig {
            policy,
            ..SchedulerConfig::default()
        });
        disk.join(at(0), TaskId(1), task(200, 1_000), TaskKind::Stream, at(0))
            .unwrap();
        assert_eq!(disk.shortfall(at(0)), Some(Nanos::ZERO), "nobody waits");
        disk.submit(at(0), request(1, 0, 1_024, Class::Stream(TaskId(1))))
            .unwrap();
        let worst =
            disk.predictor()
                .worst_case(Sector(0)..Sector(1_024), Op::Read, SectorCount(1_024));
        let last = at(1_000) + Nanos::ZERO - worst;
        let if_known = |missing| known.then_some(missing);
        assert_eq!(disk.shortfall(last), if_known(Nanos::ZERO));
        let later = last + Nanos::from_millis(3);
        assert_eq!(disk.shortfall(later), if_known(Nanos::from_millis(3)));
        assert_eq!(disk.shortfall(at(1_000)), None, "it is late already");
    }
}

#[test]
fn a_failed_request_is_gone_and_the_head_is_anywhere() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.submit(at(0), sync(1, 100)).unwrap();
    issued(&mut disk, at(0));
    assert!(disk.failed(at(5), RequestId(1)).unwrap().finished);
    assert!(disk.failed(at(5), RequestId(1)).is_none());
    assert!(disk.is_empty());
    disk.submit(at(5), sync(2, 108)).unwrap();
    let far = disk
        .predictor()
        .predict(None, Op::Read, Sector(108), SectorCount(8));
    assert_eq!(issued(&mut disk, at(5)).predicted, far);
}

#[test]
fn a_server_that_leaves_leaves_its_requests_to_best_effort() {
    let mut disk = atlas(SchedulerConfig::default());
    disk.join(at(0), TaskId(2), task(90, 1_000), TaskKind::Server, at(0))
        .unwrap();
    for id in 0..5 {
        let class = Class::Reserved(TaskId(2), Urgency::Sync);
        disk.submit(at(0), request(id, 1_000 - 16 * id, 8, class))
            .unwrap();
    }
    disk.join(at(0), TaskId(9), task(90, 1_000), TaskKind::Floor, at(0))
        .unwrap();
    assert!(disk.leave(at(1), TaskId(2)).is_some());
    assert!(disk.leave(at(1), TaskId(2)).is_none());
    assert_eq!(disk.report(at(1)).tasks[0].queued, 5, "the floor has them");
    assert_eq!(drain(&mut disk, at(1)), [4, 3, 2, 1, 0]);
    assert_eq!(disk.report(at(1)).tasks[0].completed, 5);
}

#[test]
fn with_several_places_best_effort_never_takes_the_last_one() {
    let mut spec = DriveProfile::shipped("conservative-file")
        .unwrap()
        .spec()
        .clone();
    spec.outstanding = 3;
    let profile = Arc::new(DriveProfile::new(spec).unwrap());
    let mut disk = DiskScheduler::new(profile, SchedulerConfig::default());
    disk.join(at(0), TaskId(1), task(200, 1_000), TaskKind::Stream, at(0))
        .unwrap();
    for id in 0..4 {
        disk.submit(at(0), sync(id, id * 8)).unwrap();
    }
    issued(&mut disk, at(0));
    issued(&mut disk, at(0));
    assert!(matches!(disk.decide(at(0)), Decision::Wait { .. }));
    disk.submit(at(1), request(9, 0, 1_024, Class::Stream(TaskId(1))))
        .unwrap();
    assert_eq!(issued(&mut disk, at(1)).id, RequestId(9));
    assert_eq!(disk.decide(at(1)), Decision::Wait { until: None });
    disk.completed(at(9), RequestId(9)).unwrap();
    disk.completed(at(9), RequestId(0)).unwrap();
    assert_eq!(issued(&mut disk, at(9)).served, Served::Slack);
}
