//! Disks that fail, stall or vanish, and a dispatcher that panics.

use super::*;

#[test]
fn failed_write_fails_only_writes_ordered_after_it() {
    let rig = rig();
    let after = |mut io: Io, ids: [Option<RequestId>; 2]| {
        (io.order.after[0], io.order.after[1]) = (ids[0], ids[1]);
        rig.handle.submit(io).unwrap()
    };
    rig.freeze();
    rig.faults.fails_writes.store(true, Ordering::SeqCst);
    let failed = rig.handle.submit(rig.small(1, Op::Write, 0)).unwrap();
    let read = after(rig.small(2, Op::Read, 64), [Some(failed), None]);
    let write = after(rig.small(3, Op::Write, 64), [Some(read), Some(failed)]);
    after(rig.small(4, Op::Write, 128), [Some(write), None]);
    rig.thaw();
    let results = rig.results(5);
    assert!(
        matches!(results[&1], Err(IoError::Disk(DiskError::Io { .. }))),
        "{results:?}"
    );
    assert_eq!((results[&0], results[&2]), (Ok(()), Ok(())));
    let predecessor_failed = Err(IoError::PredecessorFailed);
    assert_eq!(
        (results[&3], results[&4]),
        (predecessor_failed, predecessor_failed)
    );
    rig.faults.fails_writes.store(false, Ordering::SeqCst);
    // A write that is submitted only after the failure.
    after(rig.small(5, Op::Write, 0), [None, Some(write)]);
    assert_eq!(rig.answer().result, predecessor_failed);
    rig.handle.submit(rig.small(6, Op::Write, 0)).unwrap();
    assert_eq!(rig.answer().result, Ok(()));
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
    rig.faults.vanished.store(true, Ordering::SeqCst);
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
    rig.faults.wait_failed.store(true, Ordering::SeqCst);
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
    assert!(health.stalled && health.given_up && health.stalls == 1 && health.comebacks == 0);
    other.handle.submit(other.small(7, Op::Read, 0)).unwrap();
    assert_eq!(other.answer().result, Ok(()), "other disks go on");
    rig.thaw();
    until("the disk goes on", || !rig.settle().health.stalled);
    let health = rig.settle().health;
    assert!(!health.given_up && health.given_ups == 1 && health.comebacks == 1);
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
    let patience = StallLimits {
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
    assert!(!health.stalled && health.stalls == 1 && health.given_ups == 0);
}

#[test]
fn stop_without_drain_does_not_wait_for_a_stalled_disk() {
    let patience = StallLimits {
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

/// The abandoned write may still reach the disk, and must not overwrite newer data.
#[test]
fn given_up_disk_gets_no_requests_before_it_has_answered_all_old_ones() {
    let queue = CompletionQueue::new(8).unwrap();
    let little = StallLimits {
        stalled_after: Nanos::from_secs(1),
        give_up_after: Nanos::from_secs(3),
    };
    let mut spec = DriveProfile::conservative(DriveKind::File, SECTORS)
        .unwrap()
        .spec()
        .clone();
    // One slot of the drive is reserved for real-time requests.
    spec.outstanding = 3;
    let profile = Arc::new(DriveProfile::new(spec).unwrap());
    let scheduler = DiskScheduler::new(profile, SchedulerConfig::default());
    let mut state = DispatcherState::new(scheduler, Places::default(), 3, little);
    let submit = |state: &mut DispatcherState, now, token| {
        let id = state.reserve(SYNC).unwrap();
        let io = Io {
            account: AccountId(1),
            op: Op::Write,
            start: Sector(token * 64),
            count: SectorCount(8),
            class: SYNC,
            order: Order::default(),
            durable: false,
            segments: Segments::empty(Op::Write),
            target: queue.target(token).unwrap(),
        };
        state.submit(now, id, io);
    };
    let next = |state: &mut DispatcherState, now| loop {
        match state.next_action(now) {
            Action::Answer(answer) => drop(answer.target.complete(answer.result, answer.timing)),
            Action::Issue(io) => return Some(io.tag),
            Action::Sleep { .. } => return None,
        }
    };
    let done = |tag, at| Done {
        tag,
        result: Ok(()),
        at,
        host_late: Nanos::ZERO,
    };
    let mut now = Time(1);
    submit(&mut state, now, 1);
    submit(&mut state, now, 2);
    let tags = [next(&mut state, now), next(&mut state, now)].map(Option::unwrap);
    now = now.saturating_add(Nanos::from_secs(4));
    assert_eq!(next(&mut state, now), None);
    let given_up = [queue.poll(), queue.poll()].map(|answer| answer.unwrap().result);
    assert_eq!(given_up, [Err(IoError::Stalled); 2]);
    state.done(now, &done(tags[0], now));
    submit(&mut state, now, 3);
    assert_eq!(next(&mut state, now), None);
    assert_eq!(queue.poll().unwrap().result, Err(IoError::Stalled));
    state.done(now, &done(tags[1], now));
    submit(&mut state, now, 4);
    let tag = next(&mut state, now).expect("the disk is served again");
    state.done(now, &done(tag, now));
    assert_eq!(next(&mut state, now), None);
    assert_eq!(
        queue.poll().map(|answer| (answer.token, answer.result)),
        Some((4, Ok(())))
    );
    assert_eq!(state.health(now).0.comebacks, 1);
}

#[test]
fn a_thread_that_panics_leaves_nobody_waiting() {
    let rig = rig();
    rig.freeze();
    rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    rig.faults.panics.store(true, Ordering::SeqCst);
    rig.faults.frozen.store(false, Ordering::SeqCst);
    // Wakes the disk; the reply may not come.
    let _ = rig.handle.report();
    assert_eq!(rig.results(2)[&1], Err(IoError::Stopped));
    assert_eq!(
        rig.handle
            .try_submit(rig.small(2, Op::Read, 0))
            .unwrap_err()
            .reason,
        RejectReason::Stopped
    );
}
