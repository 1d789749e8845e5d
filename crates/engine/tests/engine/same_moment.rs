//! Concurrent operations of which one must fail or wait.

use std::sync::atomic::Ordering;
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use engine::disk::Durability;
use engine::volume_io::{VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::Bytes;
use testkit::disks::{MIB, Rig, WRITE, client, filled, stream_spec, volume};
use testkit::until::{PATIENCE, until};

const BLOCK: u64 = 64 << 10;

/// In either order: a stream reserves only existing parts of a volume, and no reserved part is cut off.
#[test]
fn volume_shrinks_or_stream_is_reserved_but_never_both() {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    // The duration of the shrink; the reservation waits for it.
    let delay = Duration::from_millis(20).as_nanos() as u64;
    for (round, to) in (0..).zip([3 * MIB + BLOCK, MIB].repeat(8)) {
        let name = format!("v{round}");
        let volume = volume(&pool, &name, 4 * MIB);
        let spec = stream_spec(&volume, Op::Read, BLOCK, BLOCK);
        rig.platters[0].delay_ns.store(delay, Ordering::SeqCst);
        let together = Barrier::new(2);
        let reserved = std::thread::scope(|scope| {
            let shrinking = scope.spawn(|| {
                together.wait();
                pool.shrink(&name, Bytes(to)).is_ok()
            });
            together.wait();
            // At different times within the shrink.
            std::thread::park_timeout(Duration::from_millis(round % 4 * 5));
            let reserved = pool.reserve(spec);
            (reserved, shrinking.join().unwrap())
        });
        rig.platters[0].delay_ns.store(0, Ordering::SeqCst);
        match reserved {
            (Ok(stream), _) => assert!(stream.range().end <= volume.size().0, "{round}"),
            (Err(refusal), true) => assert!(refusal.to_string().contains("end"), "{refusal}"),
            (Err(refusal), false) => panic!("neither: {refusal}"),
        }
        drop(volume);
        pool.delete_volume(&name).unwrap();
    }
}

#[test]
fn a_pool_that_is_dropped_while_a_flush_is_under_way_ends() {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::Host);
    let volume = volume(&pool, "v", 4 * MIB);
    let client = client(&pool);
    let data = vec![1; BLOCK as usize];
    client.write_at(&volume, Bytes(0), &data).unwrap();
    rig.platters[0].hold_syncs(true);
    let before = rig.platters[0].syncs_begun.load(Ordering::SeqCst);
    let flush = VolumeRequest::command(&volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
    client.submit(flush).unwrap();
    until("the flush is under way", || {
        rig.platters[0].syncs_begun.load(Ordering::SeqCst) > before
    });
    let (tell, told) = mpsc::channel();
    let dropping = std::thread::spawn(move || {
        drop(pool);
        tell.send(()).unwrap();
    });
    // Long enough for the drop to have begun in most runs; in the others the test proves nothing.
    std::thread::park_timeout(Duration::from_millis(200));
    rig.platters[0].hold_syncs(false);
    told.recv_timeout(Duration::from_secs(60))
        .expect("the pool ends");
    dropping.join().unwrap();
}

/// Requests to a pool that is being closed are refused or answered.
#[test]
fn requests_that_come_while_the_pool_is_closed_are_answered() {
    for round in 0..200u64 {
        let (_rig, pool) = Rig::fresh(1, 16 * MIB, MIB, Durability::Host);
        let volume = volume(&pool, "v", 4 * MIB);
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for number in 0..3u64 {
                let (pool, volume, together) = (&pool, &volume, &together);
                scope.spawn(move || {
                    let client = client(pool);
                    let data = vec![1; BLOCK as usize];
                    together.wait();
                    for at in (0..).map(|block| (number * 8 + block % 8) * BLOCK) {
                        let (_buffer, segments) = filled(&client, &data);
                        let write = VolumeRequest::transfer(volume, WRITE, Bytes(at), segments);
                        let mut flush =
                            VolumeRequest::command(volume, VolumeOp::Flush, Bytes(0), Bytes(0));
                        flush.barrier = number == 0;
                        let submitted = [client.submit(write), client.submit(flush)];
                        for _ in submitted.iter().flatten() {
                            let answer = client.wait(Some(PATIENCE));
                            assert!(answer.is_some(), "one is not answered in round {round}");
                        }
                        if submitted.iter().any(Result::is_err) {
                            return;
                        }
                    }
                });
            }
            together.wait();
            // At a different moment in each round.
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            pool.close().unwrap();
        });
    }
}
