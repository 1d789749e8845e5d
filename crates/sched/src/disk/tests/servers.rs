//! Containers: what a periodic server and the floor serve out of theirs.

use super::*;
use crate::admission::Admission;
use crate::delta_l::delta_l;
use crate::profile::FlatSpec;

/// No slack at all: the policy serves released jobs first, and streams fill the disk.
fn full_disk() -> DiskScheduler {
    let mut disk = atlas(SchedulerConfig {
        policy: Policy::Edf,
        ..SchedulerConfig::default()
    });
    join(&mut disk, 1, task(200, 2_000), TaskKind::Stream).unwrap();
    disk
}

#[test]
fn a_container_serves_several_requests_while_they_fit_its_slice() {
    let mut disk = full_disk();
    join(&mut disk, 2, task(90, 1_000), TaskKind::Server).unwrap();
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
    join(&mut disk, 2, task(90, 1_000), TaskKind::Server).unwrap();
    let deadline = |disk: &DiskScheduler| {
        let open = disk.servers.open(TaskId(2), &disk.core);
        open.map(|container| container.deadline)
    };
    // So long and so far apart that no slice holds two.
    let long = |id: u64| {
        let start = [0, 8_000_000, 4_000_000, 0][id as usize - 1];
        request(id, start, 200, Class::Reserved(TaskId(2), Urgency::Async))
    };
    let half = Nanos::from_millis(45);
    disk.submit(at(0), long(1)).unwrap();
    disk.submit(at(0), long(2)).unwrap();
    assert_eq!(deadline(&disk), Some(at(1_000)));
    // Slack serves the first, and the second has the container that would have been the first one's.
    let first = issued(&mut disk, at(0));
    assert_eq!((first.id, first.served), (RequestId(1), Served::Slack));
    assert!(disk.completed(at(60), first.id).unwrap().finished);
    assert_eq!(deadline(&disk), Some(at(1_000)));
    // No slack is left but the slice when it is served.
    let second = issued(&mut disk, at(905));
    assert_eq!(
        (second.id, second.served, second.deadline),
        (RequestId(2), Served::Container, Some(at(1_000)))
    );
    assert!(second.predicted > half, "{second:?}");
    disk.completed(at(970), second.id).unwrap();
    // Those that come now have to wait for the next one, which is released when the last is due.
    let wait = disk.decide(at(970));
    assert!(matches!(wait, Decision::Wait { .. }), "{wait:?}");
    disk.submit(at(980), long(3)).unwrap();
    disk.submit(at(980), long(4)).unwrap();
    assert_eq!(deadline(&disk), None);
    let third = issued(&mut disk, at(1_000));
    assert_eq!((third.id, third.served), (RequestId(3), Served::Slack));
    disk.completed(at(1_060), third.id).unwrap();
    assert_eq!(deadline(&disk), Some(at(2_000)));
    let fourth = issued(&mut disk, at(1_905));
    assert_eq!(
        (fourth.id, fourth.served, fourth.deadline),
        (RequestId(4), Served::Container, Some(at(2_000)))
    );
    assert!(fourth.predicted > half, "{fourth:?}");
}

#[test]
fn a_container_that_slack_left_nothing_to_serve_is_withdrawn_as_if_it_had_never_been() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 2, task(90, 1_000), TaskKind::Server).unwrap();
    let class = Class::Reserved(TaskId(2), Urgency::Sync);
    disk.submit(at(0), request(1, 0, 8, class)).unwrap();
    let first = issued(&mut disk, at(0));
    assert_eq!(first.served, Served::Slack);
    assert!(disk.servers.open(TaskId(2), &disk.core).is_none());
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
            join(&mut disk, 9, task(90, 1_000), TaskKind::Floor).unwrap();
        }
        for id in 10..20 {
            disk.submit(at(0), async_(id, id * 300_000)).unwrap();
        }
        // Released jobs all the time: the stream alone would never let anything through.
        let (mut now, mut next, mut best_effort) = (at(0), 1_000, 0);
        while now < at(4_000) {
            while disk.tasks[0].queued < 40 {
                disk.submit(now, block(next, 1)).unwrap();
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
    let mut disk = full_disk();
    join(&mut disk, 9, task(90, 1_000), TaskKind::Floor).unwrap();
    for id in 100..103 {
        disk.submit(at(0), block(id, 1)).unwrap();
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
fn a_server_that_leaves_leaves_its_requests_to_best_effort() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 2, task(90, 1_000), TaskKind::Server).unwrap();
    for id in 0..5 {
        let class = Class::Reserved(TaskId(2), Urgency::Sync);
        disk.submit(at(0), request(id, 1_000 - 16 * id, 8, class))
            .unwrap();
    }
    join(&mut disk, 9, task(90, 1_000), TaskKind::Floor).unwrap();
    assert!(disk.leave(at(1), TaskId(2)).is_some());
    assert!(disk.leave(at(1), TaskId(2)).is_none());
    assert_eq!(disk.report(at(1)).tasks[0].queued, 5, "the floor has them");
    assert_eq!(drain(&mut disk, at(1)), [4, 3, 2, 1, 0]);
    assert_eq!(disk.report(at(1)).tasks[0].completed, 5);
}

/// A container is released when it is due to be, although the disk is busy at that instant.
#[test]
fn containers_come_a_period_apart_whatever_is_on_the_disk() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 1, task(60, 500), TaskKind::Stream).unwrap();
    join(&mut disk, 9, task(90, 200), TaskKind::Floor).unwrap();
    let (mut now, mut id, mut due) = (at(0), 0, Vec::new());
    while now < at(10_000) {
        while disk.len() < 10 {
            id += 1;
            disk.submit(now, async_(id, id * 777_777 % 8_000_000))
                .unwrap();
        }
        match disk.decide(now) {
            Decision::Issue(dispatch) => {
                due.extend(dispatch.deadline);
                now += dispatch.predicted;
                disk.completed(now, dispatch.id).unwrap();
            }
            Decision::Wait { until } => now = until.unwrap(),
        }
    }
    due.dedup();
    let expected: Vec<Time> = (1..=50).map(|period| at(200 * period)).collect();
    assert_eq!(due, expected);
}

/// A drive of 100 us a request and 500 MB/s.
fn fast_drive(policy: Policy) -> DiskScheduler {
    let file = DriveProfile::shipped("conservative-file").unwrap();
    let mut spec = file.spec().clone();
    spec.outstanding = 1;
    spec.physical_sector_bytes = 512;
    spec.flat = Some(FlatSpec {
        read_overhead_us: 100,
        write_overhead_us: 100,
        read_bytes_per_second: 500_000_000,
        write_bytes_per_second: 500_000_000,
    });
    let config = SchedulerConfig {
        policy,
        ..SchedulerConfig::default()
    };
    DiskScheduler::new(Arc::new(DriveProfile::new(spec).unwrap()), config)
}

/// If the longest piece takes 199.3 us, a wait of 1 ms would delay a stream's request for longer than
/// admission has counted.
#[test]
fn a_container_lingers_for_no_longer_than_the_longest_piece() {
    for policy in [Policy::Exact, Policy::DeltaL] {
        let mut disk = fast_drive(policy);
        let piece_max = disk.piece_max();
        assert_eq!(piece_max, Nanos(199_328));
        let stream = TaskParams::new(Nanos(108_192), Nanos(357_520)).unwrap();
        let server = TaskParams::new(Nanos(13_940_000), Nanos::from_millis(20)).unwrap();
        let server = server.in_pieces(piece_max);
        let tasks = [(1, stream, TaskKind::Stream), (2, server, TaskKind::Server)];
        for (id, params, kind) in tasks {
            join(&mut disk, id, params, kind).unwrap();
        }
        let set = tasks.map(|(id, params, _)| (TaskId(id), params));
        let set = Admission::of(set.into_iter()).unwrap();
        let slack = delta_l(&set).value;
        disk.set_delta_l(at(0), slack, slack);
        // Too long for the slack there is.
        let class = Class::Reserved(TaskId(2), Urgency::Sync);
        disk.submit(at(0), request(1, 0, 97, class)).unwrap();
        let first = issued(&mut disk, at(0));
        assert_eq!(first.served, Served::Container, "{policy}");
        let now = at(0) + first.predicted;
        disk.completed(now, first.id).unwrap();
        let lingers = Decision::Wait {
            until: Some(now + piece_max),
        };
        assert_eq!(disk.decide(now), lingers, "{policy}");
        let now = now + Nanos(1);
        let block = request(2, 0, 8, Class::Stream(TaskId(1)));
        disk.submit(now, block).unwrap();
        assert_eq!(disk.decide(now), lingers, "{policy}");
        let now = now + piece_max;
        let second = issued(&mut disk, now);
        assert_eq!(second.id, block.id, "{policy}");
        let done = disk.completed(now + second.predicted, second.id).unwrap();
        assert_eq!(done.lateness, Nanos::ZERO, "{policy}");
    }
}

/// A slice that is shorter than a request at a slow place serves it all the same, or nothing ever would.
#[test]
fn a_container_serves_a_request_at_a_slow_place_that_no_slice_would_hold() {
    let mut disk = full_disk();
    let slice = Nanos(disk.piece_max().0.next_multiple_of(MS));
    let params = TaskParams::new(slice, Nanos::from_millis(1_000)).unwrap();
    join(&mut disk, 2, params, TaskKind::Server).unwrap();
    disk.set_slow(Sector(0)..Sector(2_048), Nanos::from_millis(5_000));
    let class = Class::Reserved(TaskId(2), Urgency::Sync);
    disk.submit(at(0), request(10, 64, 8, class)).unwrap();
    let dispatch = issued(&mut disk, at(0));
    assert_eq!(
        (dispatch.id, dispatch.served),
        (RequestId(10), Served::Container)
    );
    assert_eq!(dispatch.predicted, disk.piece_max());
}
