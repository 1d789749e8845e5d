//! Requests and tasks that make no sense are refused by name.

use super::*;

fn submit(disk: &mut DiskScheduler, request: Request) -> Result<(), SubmitError> {
    disk.submit(at(0), request)
}

#[test]
fn a_request_that_makes_no_sense_is_refused_by_name() {
    let mut disk = atlas(SchedulerConfig {
        queue_max: 2,
        ..SchedulerConfig::default()
    });
    let nothing = request(1, 0, 0, Class::BestEffort(Urgency::Sync));
    let behind_the_end = [sync(1, 8_890_753), sync(1, u64::MAX)];
    for request in behind_the_end.into_iter().chain([nothing]) {
        assert!(matches!(
            submit(&mut disk, request),
            Err(SubmitError::OutOfRange { .. })
        ));
    }
    let stream = Class::Stream(TaskId(5));
    assert_eq!(
        submit(&mut disk, request(1, 0, 8, stream)),
        Err(SubmitError::NoSuchTask(TaskId(5)))
    );
    join(&mut disk, 5, task(50, 1_000), TaskKind::Stream).unwrap();
    assert!(matches!(
        submit(&mut disk, request(1, 0, 2_048, stream)),
        Err(SubmitError::LongerThanReserved { .. })
    ));
    let reserved = Class::Reserved(TaskId(5), Urgency::Sync);
    assert!(matches!(
        submit(&mut disk, request(1, 0, 8, reserved)),
        Err(SubmitError::WrongKind { .. })
    ));
    submit(&mut disk, sync(1, 0)).unwrap();
    assert_eq!(
        submit(&mut disk, sync(1, 0)),
        Err(SubmitError::DuplicateId(RequestId(1)))
    );
    submit(&mut disk, sync(2, 0)).unwrap();
    assert_eq!(
        submit(&mut disk, sync(3, 0)),
        Err(SubmitError::Full { max: 2 })
    );
}

#[test]
fn a_task_that_makes_no_sense_is_refused_by_name() {
    let mut disk = atlas(SchedulerConfig {
        tasks_max: 3,
        ..SchedulerConfig::default()
    });
    let mut ask = |id, service, kind| join(&mut disk, id, task(service, 1_000), kind);
    ask(5, 50, TaskKind::Stream).unwrap();
    assert_eq!(
        ask(5, 90, TaskKind::Server),
        Err(JoinError::DuplicateTask(TaskId(5)))
    );
    assert!(matches!(
        ask(6, 9, TaskKind::Server),
        Err(JoinError::SliceTooShort { .. })
    ));
    ask(6, 90, TaskKind::Floor).unwrap();
    assert_eq!(
        ask(7, 90, TaskKind::Floor),
        Err(JoinError::SecondFloor(TaskId(6)))
    );
    ask(7, 90, TaskKind::Server).unwrap();
    assert_eq!(
        ask(8, 90, TaskKind::Stream),
        Err(JoinError::Full { max: 3 })
    );
}

/// A task that has left keeps its id, as its share, until its last deadline.
#[test]
fn an_id_is_in_use_until_its_task_has_left() {
    let mut disk = atlas(SchedulerConfig::default());
    let id = TaskId(5);
    let again = |disk: &mut DiskScheduler, now| {
        let joined = disk.join(now, id, task(200, 1_000), TaskKind::Stream, now);
        joined.map(drop)
    };
    again(&mut disk, at(0)).unwrap();
    disk.submit(at(0), block(1, 5)).unwrap();
    let first = issued(&mut disk, at(0));
    disk.completed(at(50), first.id).unwrap();
    assert_eq!(disk.leave(at(50), id), Some(at(1_000)));
    let in_use = Err(JoinError::DuplicateTask(id));
    assert_eq!(again(&mut disk, at(60)), in_use);
    assert_eq!(again(&mut disk, at(1_000)), Ok(()));
}
