//! A reservation that waits for the admission lock while the pool or its stream is closed is refused.

use std::sync::Arc;
use std::sync::mpsc;

use sched::request::Op;
use sched::units::{BytesPerSecond, Nanos};

use super::failing::{assert_invalid, is_bare, rig, share};
use crate::pool::{Pool, PoolError};
use crate::stream::Refusal;
use crate::test_rig::disks::{stream_spec, volume_on_two};
use testkit::until;

/// True if a thread of this process sleeps.
fn sleeps(thread: rustix::thread::Pid) -> bool {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap();
    // The state follows the name, which is in parentheses.
    let (_, after) = stat.rsplit_once(") ").unwrap();
    after.starts_with('S')
}

/// The result of a call if `meanwhile` runs while the call waits for the admission lock.
fn overtaken<T: Send>(pool: &Pool, call: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
    std::thread::scope(|scope| {
        let held = pool.core.admission.lock();
        let (sender, receiver) = mpsc::channel();
        let caller = scope.spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            call()
        });
        let thread = receiver.recv().unwrap();
        until("it waits for the lock", || sleeps(thread));
        meanwhile();
        drop(held);
        caller.join().unwrap()
    })
}

fn assert_closed<T: std::fmt::Debug>(result: &Result<T, Refusal>) {
    assert!(
        matches!(result, Err(Refusal::Pool(PoolError::Closed))),
        "{result:?}"
    );
}

/// The first step of [`Pool::close`].
fn begin_close(pool: &Arc<Pool>) {
    assert!(pool.core.io.begin_close());
}

#[test]
fn a_pool_that_has_just_been_closed_reserves_nothing() {
    let (_rig, pool) = rig();
    let volume = volume_on_two(&pool, "v");
    let spec = stream_spec(&volume, Op::Write, 1 << 20, 65536);
    let reserved = overtaken(&pool, || pool.reserve(spec), || begin_close(&pool));
    assert_closed(&reserved);
    is_bare(&pool);
    pool.core.shut_down();
}

#[test]
fn a_pool_that_has_just_been_closed_reserves_no_disk_time() {
    let (_rig, pool) = rig();
    let reserve = || share(&pool, Nanos::from_millis(50));
    let reserved = overtaken(&pool, reserve, || begin_close(&pool));
    assert_closed(&reserved);
    is_bare(&pool);
    pool.core.shut_down();
}

#[test]
fn a_stream_that_has_just_been_closed_keeps_its_rate() {
    let (_rig, pool) = rig();
    let volume = volume_on_two(&pool, "v");
    let spec = stream_spec(&volume, Op::Write, 1 << 20, 65536);
    let stream = pool.reserve(spec).unwrap();
    let changed = overtaken(
        &pool,
        || stream.change_rate(BytesPerSecond(1 << 19)),
        || pool.core.keeper.begin_close(stream.core()),
    );
    assert_invalid(&changed, "the stream");
    assert_eq!(stream.rate(), BytesPerSecond(1 << 20));
    stream.close();
    is_bare(&pool);
}
