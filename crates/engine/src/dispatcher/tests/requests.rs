//! Requests from submission to answer: refusal, queueing, and cancellation.

use super::*;

#[test]
fn written_data_is_read_back_and_timed() {
    let rig = rig();
    let mut buffer = rig.account.allocate(8192).unwrap();
    buffer.with_mut(|bytes| bytes.fill(5)).unwrap();
    rig.handle
        .submit(rig.io(
            1,
            Op::Write,
            8,
            buffer.segments(Op::Write, 0..8192).unwrap(),
        ))
        .unwrap();
    let written = rig.answer();
    assert_eq!((written.token, written.result), (1, Ok(())));
    let timing = written.timing;
    assert!(timing.submitted <= timing.issued && timing.issued <= timing.completed);
    buffer.with_mut(|bytes| bytes.fill(0)).unwrap();
    rig.handle
        .submit(rig.io(2, Op::Read, 8, buffer.segments(Op::Read, 0..8192).unwrap()))
        .unwrap();
    assert_eq!(rig.answer().result, Ok(()));
    assert!(buffer.with(|bytes| bytes == [5; 8192]).unwrap());
    let report = rig.settle();
    assert_eq!(
        (report.requests, report.on_disk, report.counters.completed),
        (0, 0, 2)
    );
    assert_eq!(report.counters.sync_latency.count(), 2);
    assert_eq!(report.health, Health::default());
}

#[test]
fn impossible_transfer_is_refused_and_returned() {
    let rig = rig();
    let buffer = rig.account.allocate(8192).unwrap();
    let reason = |io: Io| {
        let rejected = rig.handle.try_submit(io).unwrap_err();
        // Its target is unanswered until the request is dropped.
        assert_eq!(rig.queue.poll(), None);
        let reason = rejected.reason;
        drop(rejected);
        assert_eq!(rig.answer().result, Err(IoError::Stopped));
        reason
    };
    let segments = |range| buffer.segments(Op::Read, range).unwrap();
    assert_eq!(
        reason(rig.io(1, Op::Read, SECTORS.0, segments(0..512))),
        RejectReason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Read, u64::MAX, segments(0..512))),
        RejectReason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Read, 0, segments(0..0))),
        RejectReason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Read, 0, segments(0..700))),
        RejectReason::Invalid
    );
    assert_eq!(
        reason(rig.io(1, Op::Write, 0, segments(0..512))),
        RejectReason::Invalid
    );
    let theirs = Io {
        account: AccountId(77),
        ..rig.io(1, Op::Read, 0, segments(0..512))
    };
    assert_eq!(reason(theirs), RejectReason::Foreign);
    let stranger = Io {
        class: Class::Stream(TaskId(5)),
        ..rig.io(1, Op::Read, 0, segments(0..512))
    };
    rig.handle.submit(stranger).unwrap();
    let refused = IoError::Refused(SubmitError::NoSuchTask(TaskId(5)));
    assert_eq!(rig.answer().result, Err(refused));
}

#[test]
fn a_full_queue_refuses_or_makes_wait_and_leaves_room_for_streams() {
    let rig = rig_with(FEW, NEVER);
    rig.join_stream().unwrap();
    rig.freeze();
    for token in 1..4 {
        rig.handle
            .try_submit(rig.small(token, Op::Read, 0))
            .unwrap();
    }
    assert_eq!(
        rig.handle
            .try_submit(rig.small(4, Op::Read, 0))
            .unwrap_err()
            .reason,
        RejectReason::Full
    );
    assert_eq!(rig.answer().token, 4, "the refused one, dropped");
    rig.handle.try_submit(rig.of_stream(5)).unwrap();
    std::thread::scope(|scope| {
        for token in 6..10 {
            let io = rig.small(token, Op::Read, 0);
            let handle = &rig.handle;
            scope.spawn(move || handle.submit(io).unwrap());
        }
        rig.thaw();
    });
    let results = rig.results(9);
    assert_eq!(results.len(), 9);
    assert!(results.values().all(Result::is_ok));
}

#[test]
fn a_request_can_be_taken_back_until_it_is_on_the_disk() {
    let rig = rig();
    rig.faults.frozen.store(true, Ordering::SeqCst);
    let running = rig.handle.submit(rig.small(0, Op::Read, 0)).unwrap();
    until("it is on the disk", || rig.settle().on_disk > 0);
    let queued = rig.handle.submit(rig.small(1, Op::Read, 0)).unwrap();
    rig.handle.cancel(running);
    rig.handle.cancel(queued);
    rig.handle.cancel(RequestId(u64::MAX));
    let answer = rig.answer();
    assert_eq!((answer.token, answer.result), (1, Err(IoError::Cancelled)));
    rig.thaw();
    assert_eq!(rig.answer().result, Ok(()));
}

#[test]
fn failed_or_cancelled_predecessor_releases_its_successors() {
    let rig = rig();
    let after = |id| Order {
        after: [Some(id), None, None, None],
        ..Order::default()
    };
    rig.freeze();
    let named = rig.handle.submit(rig.small(1, Op::Read, 1024)).unwrap();
    let second = Io {
        order: after(named),
        ..rig.small(2, Op::Read, 512)
    };
    let second = rig.handle.submit(second).unwrap();
    let third = Io {
        order: after(second),
        ..rig.small(3, Op::Read, 64)
    };
    rig.handle.submit(third).unwrap();
    rig.handle.cancel(named);
    let answer = rig.answer();
    assert_eq!((answer.token, answer.result), (1, Err(IoError::Cancelled)));
    rig.thaw();
    let tokens: Vec<u64> = (0..3).map(|_| rig.answer().token).collect();
    assert_eq!(tokens, [0, 2, 3]);

    rig.freeze();
    let failing = rig.handle.submit(rig.small(4, Op::Write, 1024)).unwrap();
    let last = Io {
        order: after(failing),
        ..rig.small(5, Op::Read, 64)
    };
    rig.handle.submit(last).unwrap();
    rig.faults.fails_writes.store(true, Ordering::SeqCst);
    rig.thaw();
    let answers: Vec<_> = (0..3).map(|_| rig.answer()).collect();
    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.token)
            .collect::<Vec<_>>(),
        [0, 4, 5]
    );
    assert!(answers[1].result.is_err() && answers[2].result.is_ok());
}

#[test]
fn leaving_waits_for_the_block_on_the_disk_and_cancels_the_others() {
    let rig = rig();
    rig.join_stream().unwrap();
    assert!(matches!(
        rig.join_stream(),
        Err(ControlError::Join(JoinError::DuplicateTask(_)))
    ));
    assert_eq!(rig.handle.leave(TaskId(9)), Ok(None));
    rig.faults.frozen.store(true, Ordering::SeqCst);
    for token in 0..2 {
        rig.handle.submit(rig.of_stream(token)).unwrap();
    }
    until("it is on the disk", || rig.settle().on_disk > 0);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| rig.handle.leave(TaskId(1)));
        let cancelled = rig.answer();
        assert_eq!(
            (cancelled.token, cancelled.result),
            (1, Err(IoError::Cancelled))
        );
        assert!(!leaving.is_finished());
        rig.thaw();
        assert!(leaving.join().unwrap().unwrap().is_some());
    });
    let block = rig.answer();
    assert_eq!((block.token, block.result), (0, Ok(())));
    assert!(block.timing.deadline.is_some());
}

#[test]
fn stopping_serves_or_fails_what_is_queued_and_answers_everybody() {
    for drain in [true, false] {
        let mut rig = rig();
        rig.freeze();
        for token in 1..10 {
            rig.handle
                .submit(rig.small(token, Op::Read, token))
                .unwrap();
        }
        let dispatcher = rig.dispatcher.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || dispatcher.stop(drain));
            if !drain {
                let failed = rig.results(9);
                assert!(
                    failed
                        .values()
                        .all(|result| *result == Err(IoError::Stopped))
                );
            }
            rig.faults.frozen.store(false, Ordering::SeqCst);
            // Wakes the disk, which does not poll; it may have stopped already.
            let _ = rig.handle.report();
        });
        let served = rig.results(if drain { 10 } else { 1 });
        assert!(served.values().all(Result::is_ok), "{served:?}");
        let late = rig.handle.submit(rig.small(50, Op::Read, 0)).unwrap_err();
        assert_eq!(late.reason, RejectReason::Stopped);
        assert_eq!(rig.handle.report().unwrap_err(), Stopped);
        assert_eq!(rig.served.lock().unwrap().len(), if drain { 10 } else { 1 });
    }
}
