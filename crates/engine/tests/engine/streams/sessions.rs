//! Sessions that record and play: with other load, while extents move, and when a disk fails.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::disk::Durability;
use engine::pool::{Placement, Pool, PoolError, Volume};
use engine::stream::{BlockReport, PaceError, Player, Recorder, Stop, Stream, StreamSpec};
use sched::request::Op;
use sched::units::Bytes;

use testkit::disks::{MIB, OnDrop, Rig, client, on_disk, stream_spec, volume, volume_on};
use testkit::until;

/// A stream of 16 MiB/s over a whole volume.
fn reserved(pool: &Pool, volume: &Arc<Volume>, op: Op, wraps: bool) -> Stream {
    let rate = 16 << 20;
    pool.reserve(StreamSpec {
        wraps,
        ..stream_spec(volume, op, rate, 65536)
    })
    .unwrap()
}

fn contiguous(blocks: &[BlockReport]) {
    let mut by_index = blocks.to_vec();
    by_index.sort_unstable_by_key(|block| block.index);
    for (index, block) in by_index.iter().enumerate() {
        assert_eq!(block.index, index as u64);
        assert!(block.completed >= block.submitted, "{block:?}");
        assert_eq!(
            block.late,
            block.completed.saturating_since(block.deadline.unwrap())
        );
    }
}

#[test]
fn recording_is_played_byte_for_byte_beside_other_load() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let video = volume(&pool, "video", 12 * MIB);
    let other = volume(&pool, "other", 12 * MIB);
    let data: Vec<u8> = (0..9 * MIB + 12345)
        .map(|at| (at * 31 % 253) as u8)
        .collect();
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    // Waits for other load while a session is at its first block.
    let load_goes_on = |first: bool| {
        let before = written.load(Ordering::SeqCst);
        if first {
            until("the other load goes on", || {
                written.load(Ordering::SeqCst) > before
            });
        }
    };
    std::thread::scope(|scope| {
        let guard = OnDrop(&stop, true);
        scope.spawn(|| {
            let client = client(&pool);
            while !stop.load(Ordering::SeqCst) {
                let at = written.load(Ordering::SeqCst) % (12 * MIB);
                client.write_at(&other, Bytes(at), &[3; 4096]).unwrap();
                written.fetch_add(4096, Ordering::SeqCst);
            }
        });
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let recorder = reserved(&pool, &video, Op::Write, false);
        let source = scope.spawn(|| {
            sender.write_all(&data).unwrap();
            drop(sender);
        });
        let mut blocks = Vec::new();
        let never = Stop::new().unwrap();
        let report = Recorder::new(&recorder, Bytes::ZERO)
            .run(&receiver, &never, &mut |block| {
                load_goes_on(blocks.is_empty());
                blocks.push(*block);
            })
            .unwrap();
        source.join().unwrap();
        assert_eq!(report.bytes, data.len() as u64);
        assert_eq!(report.blocks, data.len().div_ceil(65536) as u64);
        contiguous(&blocks);
        assert_eq!(recorder.close().blocks, report.blocks);

        let player = reserved(&pool, &video, Op::Read, false);
        let (mut far, near) = UnixStream::pair().unwrap();
        let sink = scope.spawn(move || {
            let mut got = Vec::new();
            far.read_to_end(&mut got).unwrap();
            got
        });
        blocks.clear();
        let report = Player::new(&player, Bytes::ZERO)
            .limit(Bytes(data.len() as u64))
            .run(&near, &never, &mut |block| {
                load_goes_on(blocks.is_empty());
                blocks.push(*block);
            })
            .unwrap();
        drop(near);
        let got = sink.join().unwrap();
        assert!(got == data);
        assert_eq!(report.bytes, data.len() as u64);
        contiguous(&blocks);
        drop(guard);
    });
    let status = pool.status();
    assert!(status.best_effort.count > 0 && status.best_effort.max_ns >= status.best_effort.p50_ns);
    assert!(served(&pool) >= 2 * (data.len() / 65536) as u64);
    pool.reset_window();
    assert!(pool.status().best_effort.count < status.best_effort.count);
}

#[test]
fn a_recording_that_wraps_overwrites_itself_and_ends_when_told() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let video = volume(&pool, "video", 3 * MIB);
    let stream = reserved(&pool, &video, Op::Write, true);
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let stop = Stop::new().unwrap();
    let report = std::thread::scope(|scope| {
        let source = scope.spawn(move || {
            let mut sent = 0u64;
            // Until the recorder closes its end.
            while sender.write_all(&[9; 65536]).is_ok() {
                sent += 65536;
            }
            sent
        });
        let signal = stop.clone();
        let mut blocks = 0;
        let report = Recorder::new(&stream, Bytes::ZERO)
            .run(&receiver, &stop, &mut |_| {
                blocks += 1;
                if blocks == 60 {
                    signal.stop();
                }
            })
            .unwrap();
        drop(receiver);
        assert!(source.join().unwrap() >= report.bytes);
        report
    });
    assert!(report.blocks >= 60 && report.bytes > 3 * MIB);
    assert_eq!(pool.volume_info("video").unwrap().written_bytes, 3 * MIB);
}

#[test]
fn a_stream_is_told_of_a_disk_that_fails() {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let video = volume(&pool, "video", 3 * MIB);
    let recorder = reserved(&pool, &video, Op::Write, false);
    let player = reserved(&pool, &video, Op::Read, true);
    let wrong = Recorder::new(&player, Bytes::ZERO).run(
        std::fs::File::open("/dev/zero").unwrap(),
        &Stop::new().unwrap(),
        &mut |_| {},
    );
    assert!(matches!(wrong, Err(PaceError::Direction { .. })));
    let mut blocks = 0;
    let failed = Recorder::new(&recorder, Bytes::ZERO).run(
        std::fs::File::open("/dev/zero").unwrap(),
        &Stop::new().unwrap(),
        &mut |_| {
            blocks += 1;
            rig.platters[0]
                .fail_writes
                .store(blocks >= 5, Ordering::SeqCst);
        },
    );
    assert!(
        matches!(failed, Err(PaceError::Io { .. } | PaceError::Submit(_))),
        "{failed:?}"
    );
    let status = recorder.close();
    assert!(status.errors > 0 && status.failed.unwrap().contains("disk0"));
    let sink = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .unwrap();
    let played = Player::new(&player, Bytes::ZERO)
        .limit(Bytes(MIB))
        .run(sink, &Stop::new().unwrap(), &mut |_| {})
        .unwrap();
    assert_eq!(played.bytes, MIB);
}

/// Each block is one request per extent, as reserved, however many of its chunks were never written.
#[test]
fn scattered_writes_are_played_with_zeros_between() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let sparse = volume_on(&pool, "sparse", 0, 6 * MIB);
    let mut wanted = vec![0; 6 * MIB as usize];
    let client = client(&pool);
    // By chunks of 64 KiB. In the second block only the second of its two extents has data.
    for (number, chunk) in (1..).zip([0, 2, 8, 9, 15, 17, 19, 49, 55, 64, 95]) {
        let bytes = [number; 65536];
        client
            .write_at(&sparse, Bytes(chunk * 65536), &bytes)
            .unwrap();
        wanted[chunk as usize * 65536..][..65536].copy_from_slice(&bytes);
    }
    let player = pool
        .reserve(stream_spec(&sparse, Op::Read, 16 << 20, 2 * MIB))
        .unwrap();
    let (sink, mut got) = (UnixStream::pair().unwrap(), Vec::new());
    let (near, mut far) = sink;
    let before = served(&pool);
    std::thread::scope(|scope| {
        scope.spawn(|| far.read_to_end(&mut got).unwrap());
        let stop = Stop::new().unwrap();
        let played = Player::new(&player, Bytes::ZERO).run(&near, &stop, &mut |_| {});
        drop(near);
        assert_eq!(played.unwrap().bytes, 6 * MIB);
    });
    assert!(got == wanted);
    assert_eq!(served(&pool) - before, 5);
}

/// Number of streams' requests that the disks have served.
fn served(pool: &Pool) -> u64 {
    let disks = pool.status().disks.into_iter();
    disks
        .map(|disk| disk.served.real_time + disk.served.early)
        .sum()
}

#[test]
fn moving_under_a_stream_keeps_what_it_records() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let video = volume_on(&pool, "video", 0, 8 * MIB);
    let data: Vec<u8> = (0..8 * MIB).map(|at| (at * 17 % 251) as u8).collect();
    let stream = reserved(&pool, &video, Op::Write, false);
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let ended = AtomicBool::new(false);
    let extents = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let guard = OnDrop(&ended, true);
        scope.spawn(|| {
            let (first, last) = data.split_at(data.len() - 65536);
            sender.write_all(first).unwrap();
            until("extents are moved under the stream", || {
                extents.load(Ordering::SeqCst) > 0
            });
            sender.write_all(last).unwrap();
            drop(sender);
        });
        let mover = scope.spawn(|| {
            let mut rounds = 0;
            while !ended.load(Ordering::SeqCst) {
                let half = if rounds % 2 == 0 {
                    24 * MIB..63 * MIB
                } else {
                    MIB..23 * MIB
                };
                let within = Placement {
                    bytes: Some(half),
                    ..on_disk(0)
                };
                // All extents are in the other half, or at first in front of both halves.
                let mut done = 0;
                let moved = pool.move_extents("video", &within, &mut |at| {
                    done = at.done;
                    !ended.load(Ordering::SeqCst)
                });
                assert!(
                    matches!(moved, Ok(_) | Err(PoolError::Stopped)),
                    "{moved:?}"
                );
                rounds += 1;
                extents.fetch_add(done, Ordering::SeqCst);
            }
        });
        let report = Recorder::new(&stream, Bytes::ZERO)
            .run(&receiver, &Stop::new().unwrap(), &mut |_| {})
            .unwrap();
        assert_eq!(report.bytes, data.len() as u64);
        drop(guard);
        mover.join().unwrap();
    });
    let mut back = vec![0; data.len()];
    client(&pool).read_at(&video, Bytes(0), &mut back).unwrap();
    assert!(back == data);
}
