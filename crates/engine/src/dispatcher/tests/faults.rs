//! Disks that fail, stall or vanish, and a dispatcher that panics.

use super::*;

#[test]
fn after_a_failed_write_there_are_no_writes_and_reads_go_on() {
    let rig = rig();
    rig.freeze();
    rig.knobs.fails_writes.store(true, Ordering::SeqCst);
    rig.handle.submit(rig.small(1, Op::Write, 0)).unwrap();
    rig.handle.submit(rig.small(2, Op::Write, 64)).unwrap();
    rig.handle.submit(rig.small(3, Op::Read, 0)).unwrap();
    rig.thaw();
    let results = rig.results(4);
    let failed = [results[&1], results[&2]];
    assert!(failed.contains(&Err(IoError::Poisoned)), "{failed:?}");
    assert!(
        failed
            .iter()
            .any(|result| matches!(result, Err(IoError::Disk(DiskError::Io { .. })))),
        "{failed:?}"
    );
    assert_eq!((results[&0], results[&3]), (Ok(()), Ok(())));
    rig.knobs.fails_writes.store(false, Ordering::SeqCst);
    rig.handle.submit(rig.small(4, Op::Write, 0)).unwrap();
    assert_eq!(rig.answer().result, Err(IoError::Poisoned));
    assert!(rig.settle().health.poisoned);
}

#[test]
fn after_a_failed_sync_there_are_no_writes() {
    let rig = rig();
    rig.handle.poison();
    rig.handle.submit(rig.small(1, Op::Write, 0)).unwrap();
    assert_eq!(rig.answer().result, Err(IoError::Poisoned));
}

#[test]
fn a_disk_that_is_torn_off_fails_everything_queued() {
    let rig = rig();
    rig.freeze();
    for token in 1..20 {
        rig.handle
            .submit(rig.small(token, Op::Read, token))
            .unwrap();
    }
    rig.knobs.vanished.store(true, Ordering::SeqCst);
    rig.thaw();
    let results = rig.results(20);
    let gone = Err(IoError::Disk(DiskError::Gone {
        errno: libc::ENODEV,
    }));
    assert!((1..20).all(|token| results[&token] == gone), "{results:?}");
    rig.handle.submit(rig.small(30, Op::Read, 0)).unwrap();
    assert_eq!(rig.answer().result, gone);
}

#[test]
fn a_disk_that_cannot_be_waited_for_is_gone() {
    let rig = rig();
    rig.freeze();
    rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    rig.knobs.deaf.store(true, Ordering::SeqCst);
    rig.settle();
    let results = rig.results(2);
    assert!(
        results
            .values()
            .all(|result| matches!(result, Err(IoError::Disk(DiskError::Gone { .. })))),
        "{results:?}"
    );
    rig.handle.submit(rig.small(2, Op::Read, 0)).unwrap();
    assert!(rig.answer().result.is_err());
}

#[test]
fn a_stalled_disk_lets_its_clients_go_and_may_come_back() {
    let rig = rig_with(Places::default(), LITTLE);
    let other = rig_with(Places::default(), LITTLE);
    rig.freeze();
    rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    let results = rig.results(2);
    assert!(
        results
            .values()
            .all(|result| *result == Err(IoError::Stalled)),
        "{results:?}"
    );
    rig.handle.submit(rig.small(2, Op::Read, 0)).unwrap();
    assert_eq!(rig.answer().result, Err(IoError::Stalled));
    let health = rig.settle().health;
    assert!(health.stalled && health.given_up && !health.poisoned && health.stalls == 1);
    other.handle.submit(other.small(7, Op::Read, 0)).unwrap();
    assert_eq!(other.answer().result, Ok(()), "other disks go on");
    rig.thaw();
    until("the disk goes on", || !rig.settle().health.stalled);
    rig.handle.submit(rig.small(3, Op::Read, 0)).unwrap();
    let answer = rig.answer();
    assert_eq!(
        (answer.token, answer.result),
        (3, Ok(())),
        "what was given up is not answered again"
    );
}

#[test]
fn a_stall_is_no_error_until_the_disk_is_given_up() {
    let patience = Patience {
        stalled_after: Nanos::from_millis(1),
        ..NEVER
    };
    let rig = rig_with(Places::default(), patience);
    rig.freeze();
    rig.handle.submit(rig.small(1, Op::Write, 0)).unwrap();
    until("the disk has stalled", || rig.settle().health.stalled);
    let report = rig.settle();
    assert!(report.silent >= patience.stalled_after && !report.health.given_up);
    rig.handle.submit(rig.small(2, Op::Write, 64)).unwrap();
    assert_eq!((rig.settle().requests, rig.queue.poll()), (3, None));
    rig.thaw();
    assert!(rig.results(3).values().all(Result::is_ok));
    let health = rig.settle().health;
    assert!(!health.stalled && !health.poisoned && health.stalls == 1);
}

#[test]
fn who_stops_in_a_hurry_does_not_wait_for_a_stalled_disk() {
    let patience = Patience {
        stalled_after: Nanos::from_millis(1),
        ..NEVER
    };
    let mut rig = rig_with(Places::default(), patience);
    rig.freeze();
    rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    rig.dispatcher.take().unwrap().stop(false);
    let results = rig.results(2);
    assert_eq!(
        (results[&0], results[&1]),
        (Err(IoError::Stalled), Err(IoError::Stopped))
    );
}

#[test]
fn a_write_given_up_poisons_because_nobody_knows_what_became_of_it() {
    let rig = rig_with(Places::default(), LITTLE);
    rig.knobs.frozen.store(true, Ordering::SeqCst);
    rig.handle.submit(rig.small(1, Op::Write, 0)).unwrap();
    assert_eq!(rig.answer().result, Err(IoError::Stalled));
    assert!(rig.settle().health.poisoned);
}

#[test]
fn a_thread_that_panics_leaves_nobody_waiting() {
    let rig = rig();
    rig.freeze();
    rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    rig.knobs.panics.store(true, Ordering::SeqCst);
    rig.knobs.frozen.store(false, Ordering::SeqCst);
    // Wakes the disk; whether it still answers does not matter.
    let _ = rig.handle.report();
    assert_eq!(rig.results(2)[&1], Err(IoError::Stopped));
    assert_eq!(
        rig.handle
            .try_submit(rig.small(2, Op::Read, 0))
            .unwrap_err()
            .reason,
        Reason::Stopped
    );
}
