//! Reservations that fail after the books have admitted them leave nothing behind, in the books or at the
//! dispatchers.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use sched::disk::TaskKind;
use sched::request::Op;
use sched::task::TaskParams;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::clock;
use crate::disk::Durability;
use crate::pool::{Floor, Pool, PoolError};
use crate::state::pool::admission::servers::JoinRefusal;
use crate::stream::Refusal;
use crate::test_rig::disks::{MIB, Rig, client, stream_spec, volume_on, volume_on_two};
use crate::volume_io::{BestEffortReservation, ReservedShare, VolumeOp, VolumeRequest};
use testkit::until;

/// A pool of two disks without reservations.
pub(super) fn rig() -> (Rig, Arc<Pool>) {
    rig_of(Durability::WriteThrough)
}

fn rig_of(durability: Durability) -> (Rig, Arc<Pool>) {
    let mut rig = Rig::new(2, 64 * MIB, durability);
    rig.options.floor = Floor::None;
    rig.create(MIB);
    let pool = rig.open();
    (rig, pool)
}

/// Delta-L and number of tasks at a disk's dispatcher.
fn known(pool: &Pool, disk: usize) -> (Nanos, usize) {
    let report = pool.core.io.disks[disk].handle.report().unwrap();
    (report.scheduler.delta_l, report.scheduler.tasks.len())
}

/// Waits until the keeper has had delta-L published after the release of shares.
fn wait_until(pool: &Pool, disk: usize, wanted: (Nanos, usize)) {
    until("the dispatcher knows of it", || known(pool, disk) == wanted);
}

pub(super) fn is_bare(pool: &Pool) {
    let mut admission = pool.core.admission.lock();
    admission.prune(clock::now());
    for disk in 0..2 {
        assert_eq!(admission.utilization(disk, clock::now()), 0.0);
    }
    assert!(admission.streams.is_empty() && admission.servers.is_empty());
}

/// Asserts a refusal because of the disks' state at that moment, not for lack of capacity.
pub(super) fn assert_invalid<T: Debug>(result: &Result<T, Refusal>, part: &str) {
    assert!(
        matches!(result, Err(Refusal::Invalid { what, .. }) if *what == part),
        "{result:?}"
    );
}

#[test]
fn stream_refused_by_one_disk_leaves_nothing_on_the_others() {
    let (_rig, pool) = rig();
    let volume = volume_on_two(&pool, "v");
    let before = known(&pool, 0);
    pool.core.io.disks[1].stop();
    let refused = pool.reserve(stream_spec(&volume, Op::Write, 1 << 20, 65536));
    assert_invalid(&refused, "the reservation");
    assert_eq!(known(&pool, 0), before);
    is_bare(&pool);
}

#[test]
fn stream_whose_change_is_refused_by_one_disk_is_closed_and_leaves_nothing() {
    let (_rig, pool) = rig();
    let volume = volume_on_two(&pool, "v");
    let before = known(&pool, 0);
    let stream = pool
        .reserve(stream_spec(&volume, Op::Write, 1 << 20, 65536))
        .unwrap();
    assert!(known(&pool, 0).0 < before.0);
    pool.core.io.disks[1].stop();
    let changed = stream.change_rate(BytesPerSecond(1 << 19));
    assert!(
        matches!(changed, Err(Refusal::Invalid { .. })),
        "{changed:?}"
    );
    wait_until(&pool, 0, before);
    let again = stream.change_rate(BytesPerSecond(1 << 19));
    assert_invalid(&again, "the stream");
    stream.close();
}

#[test]
fn a_stream_whose_change_fails_holds_what_it_had_to_its_last_deadline() {
    let (_rig, pool) = rig();
    let volume = volume_on_two(&pool, "v");
    // A block a minute.
    let stream = pool
        .reserve(stream_spec(&volume, Op::Write, 65_536 / 60, 65_536))
        .unwrap();
    let held = pool.core.admission.lock().utilization(0, clock::now());
    let buffer = stream
        .client()
        .account()
        .allocate_wait(65_536, None)
        .unwrap();
    let memory = buffer.segments(Op::Write, 0..65_536).unwrap();
    let write = VolumeOp::Write { durable: false };
    let request = VolumeRequest::transfer(&volume, write, Bytes::ZERO, memory).on(&stream);
    stream.client().submit(request).unwrap();
    stream.client().wait(None).unwrap().result.unwrap();
    pool.core.io.disks[1].stop();
    let changed = stream.change_rate(BytesPerSecond(1 << 19));
    assert!(changed.is_err(), "{changed:?}");
    stream.close();
    let now = clock::now();
    let mut admission = pool.core.admission.lock();
    admission.prune(now);
    assert!(held > 0.0);
    assert_eq!(admission.utilization(0, now), held);
}

#[test]
fn refusal_before_admission_reserves_nothing() {
    let (rig, pool) = rig_of(Durability::Host);
    let volume = volume_on_two(&pool, "v");
    let before = [known(&pool, 0), known(&pool, 1)];
    let spec = |block| stream_spec(&volume, Op::Write, 1 << 20, block);
    let memory = pool.reserve(spec(16 * MIB));
    assert!(matches!(memory, Err(Refusal::Memory { .. })), "{memory:?}");
    rig.platters[1].fail_syncs.store(true, SeqCst);
    let writer = client(&pool);
    writer.write_at(&volume, Bytes(MIB), &[7; 512]).unwrap();
    let failed = writer.flush(&volume);
    assert!(failed.is_err(), "{failed:?}");
    let poisoned = pool.reserve(spec(65536));
    assert!(
        matches!(poisoned, Err(Refusal::Pool(PoolError::Poisoned { .. }))),
        "{poisoned:?}"
    );
    assert_eq!([known(&pool, 0), known(&pool, 1)], before);
    is_bare(&pool);
}

const SLICE: Nanos = Nanos::from_millis(15);

pub(super) fn share(pool: &Pool, period: Nanos) -> Result<Arc<ReservedShare>, Refusal> {
    let slice = SLICE;
    pool.reserve_share("export v", BestEffortReservation { slice, period })
}

#[test]
fn disk_time_that_one_disk_cannot_carry_is_left_with_the_others() {
    let (_rig, pool) = rig();
    let volume = volume_on(&pool, "v", 1, 4 * MIB);
    let before = known(&pool, 0);
    let refused = || {
        let Err(Refusal::Share {
            disk,
            period_that_fits,
        }) = share(&pool, Nanos::from_millis(20))
        else {
            panic!("it was admitted");
        };
        assert_eq!(disk.disk, "disk1");
        wait_until(&pool, 0, before);
        period_that_fits
    };
    let reserve = |rate: u64| {
        let spec = stream_spec(&volume, Op::Write, rate * MIB, MIB);
        pool.reserve(spec).unwrap()
    };
    // 1 MiB takes 2.3 ms of the second disk, every 8 ms; 15 ms in 20 ms fit on the first one only. In a longer
    // period they fit, although the stream cannot wait for 15 ms, because they are served in pieces.
    let stream = reserve(125);
    let period = refused().expect("a piece fits between two blocks");
    drop(share(&pool, period).unwrap());
    stream.close();
    // Every 2.5 ms: a piece does not fit in between.
    let stream = reserve(400);
    assert_eq!(refused(), None);
    stream.close();
    is_bare(&pool);
}

#[test]
fn disk_time_that_is_refused_fits_in_the_period_that_is_named() {
    let (_rig, pool) = rig();
    let volume = volume_on(&pool, "v", 1, 4 * MIB);
    // 1 MiB takes 2.3 ms of the second disk, every 40 ms.
    let stream = pool
        .reserve(stream_spec(&volume, Op::Write, 25 * MIB, MIB))
        .unwrap();
    let refused = share(&pool, SLICE).unwrap_err();
    let Refusal::Share {
        period_that_fits: Some(period),
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert!(
        refused
            .to_string()
            .ends_with(&format!("such a slice every {period} would fit"))
    );
    let less = share(&pool, period - Nanos::from_micros(1)).unwrap_err();
    let Refusal::Share {
        period_that_fits, ..
    } = less
    else {
        panic!("{less}");
    };
    assert_eq!(period_that_fits, Some(period));
    drop(share(&pool, period).unwrap());
    drop(stream);
}

/// The search for a fitting period needs neither the lock nor the current books, and is not made for
/// callers that only test whether the disks can carry a task.
#[test]
fn fitting_period_is_searched_in_the_books_of_the_refusal() {
    let (_rig, pool) = rig();
    let before = known(&pool, 1);
    let volume = volume_on(&pool, "v", 1, 4 * MIB);
    let stream = pool
        .reserve(stream_spec(&volume, Op::Write, 25 * MIB, MIB))
        .unwrap();
    let Refusal::Share {
        disk: told,
        period_that_fits: wanted @ Some(_),
    } = share(&pool, SLICE).unwrap_err()
    else {
        panic!("it was not refused for want of room");
    };
    assert!(wanted > Some(SLICE), "{wanted:?}");
    let params = TaskParams::new(SLICE, SLICE).unwrap();
    let disks = &pool.core.io.disks;
    let mut admission = pool.core.admission.lock();
    let reserved = admission.reserve_server(disks, "export v", params, clock::now());
    let Err(unreserved) = reserved else {
        panic!("it was admitted");
    };
    let floor = admission.join_now(disks, 1, "floor", params, TaskKind::Floor, clock::now());
    let Err(JoinRefusal::NoRoom(untold)) = floor else {
        panic!("{floor:?}");
    };
    assert_eq!(
        (&untold.disk, &untold.refused_by),
        (&told.disk, &told.refused_by)
    );
    drop(admission);
    stream.close();
    wait_until(&pool, 1, before);
    drop(share(&pool, SLICE).unwrap());
    let held = pool.core.admission.lock();
    let Refusal::Share {
        period_that_fits, ..
    } = unreserved.into_refusal()
    else {
        panic!("it was not refused for want of room");
    };
    assert_eq!(period_that_fits, wanted);
    drop(held);
}

#[test]
fn disk_time_refused_by_one_disk_leaves_nothing_on_the_others() {
    let (_rig, pool) = rig();
    let before = known(&pool, 0);
    pool.core.io.disks[1].stop();
    let refused = share(&pool, Nanos::from_millis(50));
    assert_invalid(&refused, "the reservation");
    wait_until(&pool, 0, before);
    is_bare(&pool);
}
