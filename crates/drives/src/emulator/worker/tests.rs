//! When a request of which the drive's thread is done is over.

use super::*;
use crate::plant::Breakdown;

/// A drive with two requests of which the thread is done: due at 100 and at 300.
fn two_done() -> State {
    let mut state = State::new(Lead::new(None));
    state.held = 2;
    state.finished.extend([100, 300].map(|due| Finished {
        tag: due,
        op: Op::Read,
        start: Sector(0),
        count: SectorCount(1),
        result: Ok(()),
        host_failed: false,
        issued: Time(1),
        service: Service {
            begun: Time(1),
            completed: Time(due),
            breakdown: Breakdown::default(),
        },
        due: Time(due),
        moved: Time(2),
        posted: Time(50),
        called_at: Some(Time(40)),
        crossing: None,
    }));
    state
}

fn taken(state: &mut State, now: u64) -> (Vec<(u64, bool)>, Option<Time>) {
    let mut out = Vec::new();
    let next = state.take_finished(Time(now), &mut out);
    let over = out.iter().map(|one| (one.due.get(), one.result.is_ok()));
    (over.collect(), next)
}

#[test]
fn nothing_is_over_before_it_is_due() {
    let mut state = two_done();
    assert_eq!(taken(&mut state, 99), (vec![], Some(Time(100))));
    assert_eq!(taken(&mut state, 100), (vec![(100, true)], Some(Time(300))));
    assert_eq!(taken(&mut state, 400), (vec![(300, true)], None));
    assert_eq!(state.held, 0);
}

#[test]
fn waiter_is_called_earlier_by_the_time_it_needs_to_wake() {
    let first = Lead::new(None).get().get();
    let mut state = two_done();
    // The waiter looks for both at once, 10 and 1,000 us after they were to be called.
    state.finished[1].called_at = Some(Time(1_000_040 - 10_000));
    assert_eq!(taken(&mut state, 1_000_040).0.len(), 2);
    assert_eq!(state.lead.get().get(), first + 40_000 - 200 - 200);
    // Looking again at what is not over is no news.
    let mut state = two_done();
    (0..9).for_each(|_| drop(taken(&mut state, 60)));
    assert_eq!(state.lead.get().get(), first - 400);
}

#[test]
fn a_stall_holds_what_was_not_due_when_it_began() {
    let mut state = two_done();
    state.stalled = Some(Time(200));
    assert_eq!(taken(&mut state, 1000), (vec![(100, true)], None));
    state.resume(Time(2000));
    assert_eq!(taken(&mut state, 1999), (vec![], Some(Time(2000))));
    assert_eq!(taken(&mut state, 2000), (vec![(2000, true)], None));
}

#[test]
fn a_drive_that_goes_fails_what_is_not_due() {
    let mut state = two_done();
    state.fail_unfinished(Time(200), Errno::NODEV.raw_os_error());
    let over = vec![(100, true), (200, false)];
    assert_eq!(taken(&mut state, 200), (over, None));
    let mut state = two_done();
    state.stalled = Some(Time(50));
    state.fail_unfinished(Time(200), Errno::NODEV.raw_os_error());
    let over = vec![(200, false), (200, false)];
    assert_eq!(
        taken(&mut state, 200),
        (over, None),
        "not held by the stall"
    );
}
