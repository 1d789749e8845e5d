//! What passes is what would have been decided, and only where nothing else could be.

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
fn what_passes_goes_as_it_would_from_the_queue() {
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
