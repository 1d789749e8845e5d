//! Unwritten parts of a volume read as zeros at no cost: making and growing a volume does not write them,
//! reading them does not use the disks, and a stream's first write costs no more than was admitted.
//!
//! The disks hold 0xEE wherever nothing was written, as data of an earlier owner.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::disk::Durability;
use engine::pool::{Placement, Pool, Volume};
use engine::stream::Stream;
use engine::volume_io::{VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::platter::Platter;
use testkit::disks::{MIB, Rig, client, filled, stream_spec, volume};

const EXTENT: u64 = 32 * MIB;
const CHUNK: u64 = 64 << 10;

fn fresh_pool() -> (Rig, Arc<Pool>) {
    Rig::fresh(2, 1 << 30, EXTENT, Durability::WriteThrough)
}

/// Requests that the disks have served, and bytes written to them.
fn work(rig: &Rig, pool: &Pool) -> (u64, u64, u64) {
    let sum = |of: fn(&Platter) -> u64| rig.platters.iter().map(|one| of(one)).sum();
    let status = pool.status();
    let written = status.disks.iter().map(|disk| disk.written_bytes);
    (
        sum(|one| one.reads.load(Ordering::SeqCst)),
        sum(|one| one.writes.load(Ordering::SeqCst)),
        written.sum(),
    )
}

fn stream(pool: &Pool, volume: &Arc<Volume>, op: Op, block: u64) -> Stream {
    pool.reserve(stream_spec(volume, op, block * 100, block))
        .unwrap()
}

#[test]
fn making_and_growing_a_volume_writes_the_same_however_large_it_is() {
    let (rig, pool) = fresh_pool();
    let cost = |change: &dyn Fn()| {
        let (reads, writes, _) = work(&rig, &pool);
        change();
        let (reads_after, writes_after, _) = work(&rig, &pool);
        (reads_after - reads, writes_after - writes)
    };
    let small = cost(&|| drop(volume(&pool, "small", EXTENT)));
    let large = cost(&|| drop(volume(&pool, "large", 20 * EXTENT)));
    assert_eq!(small, large);
    let grow = |name: &str, extents: u64| {
        let size = Bytes(extents * EXTENT);
        cost(&|| drop(pool.grow(name, size, &Placement::default()).unwrap()))
    };
    assert_eq!(grow("small", 2), grow("small", 20));
    assert!(small.1 <= 2, "{small:?} reads and writes for a volume");
}

#[test]
fn unwritten_data_is_read_without_the_disks() {
    let (rig, pool) = fresh_pool();
    let volume = volume(&pool, "v", 2 * EXTENT);
    let client = client(&pool);
    let before = work(&rig, &pool);
    let mut all = vec![1; 2 * EXTENT as usize];
    for (at, part) in all.chunks_mut(MIB as usize).enumerate() {
        client
            .read_at(&volume, Bytes(at as u64 * MIB), part)
            .unwrap();
    }
    assert!(all.iter().all(|byte| *byte == 0));
    let player = stream(&pool, &volume, Op::Read, CHUNK);
    for block in 0..16 {
        let buffer = player
            .client()
            .account()
            .allocate_wait(CHUNK as usize, None)
            .unwrap();
        let memory = buffer.segments(Op::Read, 0..CHUNK as usize).unwrap();
        let read = VolumeRequest::transfer(&volume, VolumeOp::Read, Bytes(block * CHUNK), memory);
        player.client().submit(read.on(&player)).unwrap();
        assert!(player.client().wait(None).unwrap().result.is_ok());
    }
    assert_eq!(work(&rig, &pool), before);
    assert_eq!(player.close().blocks, 16);
}

/// The first write to a chunk fills all of it: with one request, without a read, and no longer than admission
/// has assumed.
#[test]
fn first_write_of_a_stream_is_one_request_of_the_admitted_length() {
    let (rig, pool) = fresh_pool();
    let volume = volume(&pool, "v", 2 * EXTENT);
    assert_eq!(volume.chunk(), Bytes(CHUNK));
    let promised = || {
        pool.status()
            .disks
            .iter()
            .map(|disk| disk.utilization_promised)
            .sum::<f64>()
    };
    let floor = promised();
    let block = 4096;
    let recorder = stream(&pool, &volume, Op::Write, block);
    let write = |at: u64| {
        let (_buffer, memory) = filled(recorder.client(), &[5; 4096]);
        let op = VolumeOp::Write { durable: false };
        let request = VolumeRequest::transfer(&volume, op, Bytes(at), memory);
        recorder.client().submit(request.on(&recorder)).unwrap();
        assert!(recorder.client().wait(None).unwrap().result.is_ok());
    };
    for (at, length) in [(0, CHUNK), (3 * CHUNK + 8192, CHUNK), (4096, block)] {
        let (reads, writes, written) = work(&rig, &pool);
        write(at);
        assert_eq!(
            work(&rig, &pool),
            (reads, writes + 1, written + length),
            "at {at}"
        );
    }
    let mut back = vec![1; 4 * CHUNK as usize];
    client(&pool).read_at(&volume, Bytes(0), &mut back).unwrap();
    let written = [0..8192, 3 * CHUNK + 8192..3 * CHUNK + 12288];
    let is_written = |at: u64| written.iter().any(|range| range.contains(&at));
    for (sector, bytes) in back.chunks(512).enumerate() {
        let expected = if is_written(sector as u64 * 512) {
            5
        } else {
            0
        };
        assert!(
            bytes.iter().all(|byte| *byte == expected),
            "sector {sector}"
        );
    }
    // Admission assumed that it writes whole chunks at the same frequency.
    let admitted = promised() - floor;
    let whole = stream(&pool, &volume, Op::Write, CHUNK);
    assert!((promised() - floor - 2.0 * admitted).abs() < 1e-9);
    drop((recorder, whole));
}
