//! Sessions for whose buffers there is no room.

use std::fs::File;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sched::request::Op;
use sched::units::Bytes;

use crate::buffer::{Account, Buffer, MemoryError};
use crate::disk::Durability;
use crate::pool::Pool;
use crate::stream::{BlockReport, PaceError, PaceReport, Recorder, Refusal, Stop, Stream};
use crate::test_rig::disks::{MIB, Rig, stream_spec, volume};
use crate::volume_io::{Client, ClientOptions, stream};
use testkit::until;

/// More than the reserve that memory keeps for accounts below their fair share.
const BLOCK: u64 = 4 * MIB;

/// A stream with two buffers.
fn reserved(pool: &Pool) -> Stream {
    let volume = pool.open_volume("v").unwrap();
    pool.reserve(stream_spec(&volume, Op::Write, 16 << 20, BLOCK))
        .unwrap()
}

fn rig() -> (Rig, Arc<Pool>) {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    drop(volume(&pool, "v", 16 * MIB));
    (rig, pool)
}

/// A client that holds all memory that is not reserved, in pieces of a quarter of a block.
fn crowd(pool: &Pool) -> (Account, Vec<Buffer>) {
    let options = ClientOptions {
        fixed: Bytes::ZERO,
        ..ClientOptions::default()
    };
    let client = pool.client("greedy", options).unwrap();
    let account = client.account().clone();
    let held = std::iter::from_fn(|| account.allocate(BLOCK as usize / 4).ok()).collect();
    (account, held)
}

/// Records a block.
fn record(stream: &Stream) -> Result<PaceReport, PaceError> {
    let source = File::open("/dev/zero").unwrap();
    let recorder = Recorder::new(stream, Bytes::ZERO).limit(Bytes(BLOCK));
    recorder.run(source, &Stop::new().unwrap(), &mut |_: &BlockReport| {})
}

/// Records on a thread of its own, which is abandoned if it does not end.
fn recorded(stream: Stream) -> Result<PaceReport, PaceError> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // After the timeout nobody receives the result.
        let _ = sender.send(record(&stream));
    });
    receiver
        .recv_timeout(Duration::from_secs(60))
        .expect("it has ended")
}

#[test]
fn a_session_whose_stream_has_no_room_for_its_blocks_ends() {
    let (_rig, pool) = rig();
    let stream = reserved(&pool);
    let (greedy, _held) = crowd(&pool);
    // A client whose account has no fixed part for a block.
    let account = greedy.memory().open_account("poor", Bytes::ZERO).unwrap();
    let client = Client::new("poor", stream.pool(), account, None, 3).unwrap();
    let poor = stream::stream(
        Arc::clone(stream.pool()),
        Arc::clone(stream.core()),
        client,
        Arc::clone(stream.volume()),
    );
    let ended = recorded(poor);
    assert!(
        matches!(ended, Err(PaceError::Memory(MemoryError::NotNow))),
        "{ended:?}"
    );
}

#[test]
fn a_session_waits_for_buffers_of_its_stream_that_are_out() {
    let (_rig, pool) = rig();
    let stream = reserved(&pool);
    let (_greedy, _held) = crowd(&pool);
    let account = stream.client().account().clone();
    let own = account.allocate(BLOCK as usize).unwrap();
    let is_out = |count| {
        let usage = account.memory().usage();
        usage
            .iter()
            .any(|usage| usage.account == account.id() && usage.buffers == count)
    };
    std::thread::scope(|scope| {
        let session = scope.spawn(|| record(&stream));
        // One of the two buffers is held here, so the session lacks its second.
        until("the session has its first", || is_out(2));
        drop(own);
        let report = session.join().unwrap().unwrap();
        assert_eq!(report.bytes, BLOCK);
    });
}

#[test]
fn stream_is_refused_if_memory_is_too_fragmented_for_its_blocks() {
    let (rig, pool) = rig();
    let (_greedy, held) = crowd(&pool);
    // The free memory is many times as much as a stream needs, but has no room for a block.
    let (kept, dropped): (Vec<_>, Vec<_>) = held
        .into_iter()
        .enumerate()
        .partition(|(at, _)| at % 2 == 0);
    drop(dropped);
    assert!(rig.memory.free() >= Bytes(4 * BLOCK));
    let volume = pool.open_volume("v").unwrap();
    let refused = pool.reserve(stream_spec(&volume, Op::Write, 16 << 20, BLOCK));
    let Err(Refusal::Memory { needed, available }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(needed, 2 * BLOCK);
    assert!(available < needed, "{available}");
    drop(kept);
    let report = recorded(reserved(&pool)).unwrap();
    assert_eq!(report.bytes, BLOCK);
}
