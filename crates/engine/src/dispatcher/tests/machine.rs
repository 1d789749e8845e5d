//! Tests of the dispatcher's state without a thread.

use super::*;

/// A step of a random sequence: the kind of event, and its parameters.
fn step() -> impl Strategy<Value = (u8, u64, u64)> {
    (0u8..13, 0u64..SECTORS.0 - 64, 1u64..64)
}

#[test]
fn a_late_issue_is_the_hosts_and_not_the_disks() {
    let ms = Nanos::from_millis;
    for (late, overruns) in [(ms(500), 0), (Nanos::ZERO, 1)] {
        let queue = CompletionQueue::new(1).unwrap();
        let patience = StallLimits {
            stalled_after: ms(1_000),
            give_up_after: ms(3_000),
        };
        let mut state = DispatcherState::new(scheduler(), FEW, 1, patience);
        let id = state.reserve(SYNC).unwrap();
        let io = Io {
            account: AccountId(1),
            op: Op::Read,
            start: Sector(0),
            count: SectorCount(8),
            class: SYNC,
            order: Order::default(),
            durable: false,
            segments: Segments::empty(Op::Read),
            target: queue.target(0).unwrap(),
        };
        state.submit(Time(1), id, io);
        let Action::Issue(io) = state.next_action(Time(1)) else {
            panic!("an idle disk is given its first request");
        };
        state.issued_late(io.tag, late);
        // The excess over the prediction is less than the host's delay.
        let at = Time(1).saturating_add(ms(501));
        let done = Done {
            tag: io.tag,
            result: Ok(()),
            at,
            host_late: Nanos::ZERO,
        };
        state.done(at, &done);
        let counters = state.report(at).counters;
        assert_eq!(counters.overruns_gross.count, 1);
        assert_eq!(counters.overruns.count, overruns, "late by {late}");
        assert_eq!(counters.took_permille_max > 1000, overruns > 0);
        assert_eq!(counters.host_late.max, late);
        let Action::Answer(answer) = state.next_action(at) else {
            panic!("what is done is answered");
        };
        drop(answer.target.complete(answer.result, answer.timing));
    }
}

proptest! {
    #![proptest_config(testkit::cases(300))]

    /// Under any sequence of events, in virtual time: every request is answered exactly once, the disk never
    /// holds more than it has room for, and nothing is left at the end.
    #[test]
    fn every_request_is_answered_once(steps in proptest::collection::vec(step(), 1..120), disk_places in 1usize..4) {
        let queue = CompletionQueue::new(512).unwrap();
        let mut state = DispatcherState::new(scheduler(), FEW, disk_places, StallLimits { stalled_after: Nanos::from_secs(1), give_up_after: Nanos::from_secs(3) });
        let task = TaskParams::new(Nanos::from_millis(500), Nanos::from_secs(5)).unwrap();
        state.join(Time(1), TaskId(1), task, TaskKind::Stream, Time(1)).unwrap();
        let mut now = Time(1);
        let mut on_disk: Vec<DiskIo> = Vec::new();
        let (mut asked, mut answered) = (0u64, std::collections::HashSet::new());
        let mut ids = vec![RequestId(0)];
        for (kind, start, count) in steps {
            now = now.saturating_add(Nanos::from_millis(start % 50));
            match kind {
                0..5 => {
                    let class = if kind == 0 { Class::Stream(TaskId(1)) } else { SYNC };
                    if let Some(id) = state.reserve(class) {
                        let op = if kind % 2 == 0 { Op::Read } else { Op::Write };
                        let (start, count, order) = (Sector(start), SectorCount(count), Order::default());
                        let (target, segments) = (queue.target(asked).unwrap(), Segments::empty(op));
                        let account = AccountId(1);
                        state.submit(now, id, Io { account, op, start, count, class, order, durable: false, segments, target });
                        asked += 1;
                        ids.push(id);
                    }
                }
                5..8 if !on_disk.is_empty() => {
                    let io = on_disk.swap_remove(start as usize % on_disk.len());
                    let failed = Err(DiskError::Io { errno: libc::EIO, start: io.start });
                    let result = if kind == 7 && count < 8 { failed } else { Ok(()) };
                    state.done(now, &Done { tag: io.tag, result, at: now, host_late: Nanos(count) });
                }
                8 => state.cancel(now, ids[start as usize % ids.len()]),
                9 => now = now.saturating_add(Nanos::from_millis(count * 100)),
                12 => state.end_span(now, TaskId(1), now.saturating_add(Nanos::from_millis(start * 10))),
                11 if count < 2 => state.gone(now, DiskError::Gone { errno: libc::ENODEV }),
                _ => {}
            }
            drain(&mut state, now, &mut on_disk, disk_places)?;
        }
        state.stop(now, false);
        drain(&mut state, now, &mut on_disk, disk_places)?;
        for io in on_disk.drain(..) {
            state.done(now, &Done { tag: io.tag, result: Ok(()), at: now, host_late: Nanos::ZERO });
        }
        drain(&mut state, now, &mut on_disk, disk_places)?;
        prop_assert!(state.is_finished(), "{state:?}");
        while let Some(answer) = queue.poll() {
            prop_assert!(answered.insert(answer.token), "answered twice");
        }
        prop_assert_eq!(answered.len() as u64, asked);
        prop_assert_eq!(queue.taken(), 0);
    }
}

fn drain(
    state: &mut DispatcherState,
    now: Time,
    on_disk: &mut Vec<DiskIo>,
    places: usize,
) -> Result<(), TestCaseError> {
    loop {
        match state.next_action(now) {
            Action::Issue(io) => on_disk.push(io),
            Action::Answer(answer) => drop(answer.target.complete(answer.result, answer.timing)),
            Action::Sleep { until } => {
                prop_assert!(
                    until.is_none_or(|until| until > now),
                    "it would sleep until {until:?} at {now:?}"
                );
                prop_assert!(on_disk.len() <= places);
                return Ok(());
            }
        }
    }
}
