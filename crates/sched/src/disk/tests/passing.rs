//! A request that passes the queue is the one that would have been decided, and it passes only if no other
//! could be.

use super::*;

/// Serves a request that passes, in as long as half of what is predicted.
fn pass(disk: &mut DiskScheduler, now: Time, request: &Request) -> Dispatch {
    let dispatch = disk.pass(now, request).expect("nothing stands in the way");
    let waits = disk.decide(now);
    assert_eq!(waits, Decision::Wait { until: None }, "it is on the disk");
    assert!(!disk.cancel(now, request.id), "it is on the disk");
    dispatch
}

#[test]
fn passing_request_goes_as_it_would_from_the_queue() {
    for with_floor in [false, true] {
        let mut disks = [(); 2].map(|()| atlas(SchedulerConfig::default()));
        for disk in &mut disks {
            if with_floor {
                join(disk, 9, task(250, 5_000), TaskKind::Floor).unwrap();
            }
        }
        let [queueing, passing] = &mut disks;
        let places = [700_000, 700_008, 8_000_000, 16, 4_000_000];
        let mut now = at(1);
        for (id, start) in (0..).zip(places) {
            let request = if id % 2 == 0 {
                sync(id, start)
            } else {
                async_(id, start)
            };
            queueing.submit(now, request).unwrap();
            let queued = issued(queueing, now);
            let passed = pass(passing, now, &request);
            assert_eq!(passed, queued);
            // The third takes longer than predicted.
            now += Nanos(passed.predicted.get() / 2 * if id == 2 { 3 } else { 1 });
            if id == 3 {
                let failed = passing.failed(now, request.id);
                assert_eq!(failed, queueing.failed(now, request.id));
            } else {
                let completed = passing.completed(now, request.id);
                assert_eq!(completed, queueing.completed(now, request.id));
                assert!(completed.unwrap().finished);
            }
            assert_eq!(passing.completed(now, request.id), None, "it ends once");
            assert_eq!(passing.report(now), queueing.report(now));
        }
        assert_eq!(passing.report(now).overruns, 1);
    }
}

#[test]
fn nothing_passes_where_something_else_could_be_decided() {
    let idle = || atlas(SchedulerConfig::default());
    let refuses = |disk: &mut DiskScheduler, request: Request| {
        assert_eq!(disk.pass(at(1), &request), None, "{request:?}");
    };
    let mut disk = idle();
    refuses(&mut disk, request(1, 0, 8, Class::Stream(TaskId(1))));
    refuses(
        &mut disk,
        request(1, 0, 8, Class::Reserved(TaskId(1), Urgency::Sync)),
    );
    refuses(
        &mut disk,
        request(1, u64::MAX - 8, 8, Class::BestEffort(Urgency::Sync)),
    );
    refuses(
        &mut disk,
        request(1, 0, 0, Class::BestEffort(Urgency::Sync)),
    );
    // In more than one piece.
    refuses(
        &mut disk,
        request(1, 0, 65_536, Class::BestEffort(Urgency::Sync)),
    );
    // Beside one that passes, is queued, or is on the disk.
    pass(&mut disk, at(1), &sync(1, 0));
    refuses(&mut disk, sync(2, 8));
    disk.completed(at(2), RequestId(1)).unwrap();
    disk.submit(at(2), sync(3, 8)).unwrap();
    refuses(&mut disk, sync(4, 16));
    issued(&mut disk, at(2));
    refuses(&mut disk, sync(4, 16));
    disk.completed(at(3), RequestId(3)).unwrap();
    pass(&mut disk, at(3), &sync(4, 16));
    for kind in [TaskKind::Stream, TaskKind::Server] {
        let mut disk = idle();
        join(&mut disk, 1, task(250, 5_000), kind).unwrap();
        refuses(&mut disk, sync(1, 0));
    }
}

fn solid_state(outstanding: u32) -> DiskScheduler {
    let shipped = DriveProfile::shipped("conservative-solid-state").unwrap();
    let mut spec = shipped.spec().clone();
    spec.outstanding = outstanding;
    let profile = Arc::new(DriveProfile::new(spec).unwrap());
    DiskScheduler::new(profile, SchedulerConfig::default())
}

/// A write of 18.5 ms has passed when a stream of 5.02 in 6.02 ms joins and asks at once.
#[test]
fn task_that_joins_during_a_passing_request_is_not_late() {
    let stream = TaskParams::new(Nanos(5_020_000), Nanos(6_020_000)).unwrap();
    let mut disk = solid_state(1);
    let write = Request {
        op: Op::Write,
        ..request(1, 0, 1_000, Class::BestEffort(Urgency::Sync))
    };
    let passed = pass(&mut disk, at(1), &write);
    assert_eq!(passed.predicted, Nanos(18_533_334));
    let (joined, ends) = (at(1) + Nanos(1), at(1) + passed.predicted);
    let release = disk.join(joined, TaskId(1), stream, TaskKind::Stream, joined);
    let release = release.unwrap();
    assert!(release > joined, "the disk is not free in time");
    assert!(release <= ends, "nothing else is owed");
    let block = request(2, 0, 7, Class::Stream(TaskId(1)));
    disk.submit(joined, block).unwrap();
    assert_eq!(disk.decide(joined), Decision::Wait { until: None });
    assert!(disk.completed(ends, write.id).unwrap().finished);
    let issued = issued(&mut disk, ends);
    assert_eq!(issued.id, block.id);
    let done = disk.completed(ends + issued.predicted, block.id).unwrap();
    assert_eq!(done.lateness, Nanos::ZERO);
}

/// With two places what passes has one of them, and the other one is for whoever has joined meanwhile.
#[test]
fn passing_request_takes_one_of_several_places() {
    let mut disk = solid_state(2);
    pass(&mut disk, at(1), &sync(1, 0));
    let again = disk.submit(at(1), sync(1, 0));
    assert_eq!(again, Err(SubmitError::DuplicateId(RequestId(1))));
    let stream = TaskKind::Stream;
    disk.join(at(2), TaskId(1), task(6, 20), stream, at(2))
        .unwrap();
    let block = request(2, 0, 7, Class::Stream(TaskId(1)));
    disk.submit(at(2), block).unwrap();
    disk.submit(at(2), sync(3, 64)).unwrap();
    assert_eq!(issued(&mut disk, at(2)).id, block.id);
    assert_eq!(disk.decide(at(2)), Decision::Wait { until: None });
    disk.completed(at(7), block.id).unwrap();
    let wait = disk.decide(at(7));
    assert_eq!(wait, Decision::Wait { until: None }, "for real time only");
    disk.completed(at(8), RequestId(1)).unwrap();
    assert_eq!(issued(&mut disk, at(8)).id, RequestId(3));
}

/// Nothing goes past the floor's containers: what does not fit into the slack beside them is queued, and
/// served from one.
#[test]
fn request_beyond_the_slack_does_not_pass() {
    let mut disk = atlas(SchedulerConfig::default());
    join(&mut disk, 9, task(95, 100), TaskKind::Floor).unwrap();
    let one = sync(1, 4_000_000);
    assert_eq!(disk.pass(at(1), &one), None);
    disk.submit(at(1), one).unwrap();
    assert_eq!(issued(&mut disk, at(1)).served, Served::Container);
}
