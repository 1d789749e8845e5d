//! Properties of a reservation: its requests, rate, span, and extents, which stay in place.

use std::fs::File;
use std::sync::mpsc;
use std::time::Duration;

use engine::clock;
use engine::disk::Durability;
use engine::pool::{Placement, PoolError};
use engine::stream::{BlockReport, Player, Recorder, Refusal, Span, Stop, Stream, StreamSpec};
use engine::volume_io::{SubmitError, VolumeRequest};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::{rate_that_fits, refused};
use testkit::disks::{MIB, Rig, WRITE, filled, on_disk, stream_spec, volume, volume_on};
use testkit::until;

#[test]
fn a_stream_takes_only_what_it_has_reserved() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let stream = pool
        .reserve(StreamSpec {
            range: Some(MIB..3 * MIB),
            ..stream_spec(&volume, Op::Write, 1 << 20, 65536)
        })
        .unwrap();
    let submit = |offset: u64, len: usize| {
        let (_buffer, memory) = filled(stream.client(), &vec![1; len]);
        let request = VolumeRequest::transfer(&volume, WRITE, Bytes(offset), memory);
        stream.client().submit(request.on(&stream))
    };
    assert!(matches!(
        submit(0, 65536),
        Err(SubmitError::NotOfStream { .. })
    ));
    assert!(matches!(
        submit(MIB + 512, 65536),
        Err(SubmitError::NotOfStream { .. })
    ));
    assert!(matches!(
        submit(3 * MIB - 65536, 65536 + 512),
        Err(SubmitError::NotOfStream { .. })
    ));
    submit(MIB, 65536).unwrap();
    let done = stream.client().wait(None).unwrap();
    assert!(done.result.is_ok() && done.timeliness.is_some());
    let status = stream.close();
    assert_eq!(
        (status.blocks, status.errors, status.recent_blocks_ns.len()),
        (1, 0, 1)
    );
}

/// The fixed memory of the account with this name.
fn fixed_of(rig: &Rig, name: &str) -> Bytes {
    let usage = rig.memory.usage();
    usage.iter().find(|usage| usage.name == name).unwrap().fixed
}

#[test]
fn a_stream_has_two_buffers_for_each_disk_that_it_touches() {
    let (rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let wide = volume(&pool, "wide", 12 * MIB);
    let narrow = volume_on(&pool, "narrow", 1, 2 * MIB);
    let rate = BytesPerSecond(1 << 20);
    let reserved = |volume, block: Bytes| {
        let spec = stream_spec(volume, Op::Read, rate.0, block.0);
        let name = spec.name.clone();
        let stream = pool.reserve(spec).unwrap();
        let fixed = fixed_of(&rig, &name);
        stream.close();
        fixed
    };
    for (volume, disks) in [(&wide, 3), (&narrow, 1)] {
        for block in [Bytes(64 << 10), Bytes(MIB)] {
            assert_eq!(reserved(volume, block), Bytes(2 * disks * block.0));
        }
        // The proposed block is the largest whose buffers fit the memory.
        let memory = Bytes(disks * (700 << 10));
        let block = pool.proposed_block(volume, &(0..volume.size().0), rate, memory);
        let fixed = reserved(volume, block);
        assert!(fixed <= memory && fixed.0 * 2 > memory.0, "{fixed}");
    }
}

#[test]
fn rate_changes_or_stays_if_it_does_not_fit() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 16 * MIB);
    let fits = rate_that_fits(&refused(
        &pool,
        stream_spec(&volume, Op::Write, 1 << 40, MIB),
    ));
    let stream = pool
        .reserve(stream_spec(&volume, Op::Write, fits / 4, MIB))
        .unwrap();
    for rate in [fits / 2, fits / 3, fits * 9 / 10, fits / 8] {
        let (_buffer, memory) = filled(stream.client(), &vec![1; 1 << 20]);
        let request = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
        stream.client().submit(request.on(&stream)).unwrap();
        stream.change_rate(BytesPerSecond(rate)).unwrap();
        assert_eq!(stream.rate(), BytesPerSecond(rate));
        assert!(stream.client().wait(None).unwrap().result.is_ok());
    }
    let refusal = stream.change_rate(BytesPerSecond(fits * 2)).unwrap_err();
    assert!(matches!(refusal, Refusal::Load { .. }), "{refusal}");
    assert_eq!(stream.rate(), BytesPerSecond(fits / 8));
    assert!(stream.change_rate(BytesPerSecond(0)).is_err());
    let (_buffer, memory) = filled(stream.client(), &vec![1; 1 << 20]);
    let request = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
    stream.client().submit(request.on(&stream)).unwrap();
    assert!(stream.client().wait(None).unwrap().result.is_ok());
    assert_eq!(stream.close().blocks, 5);
}

#[test]
fn a_span_ends_by_itself() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let fits = rate_that_fits(&refused(
        &pool,
        stream_spec(&volume, Op::Write, 1 << 40, MIB),
    ));
    let now = clock::now();
    let span = Span {
        from: now,
        until: Some(now + Nanos::from_millis(100)),
    };
    let stream = pool
        .reserve(StreamSpec {
            span: Some(span),
            ..stream_spec(&volume, Op::Write, fits, MIB)
        })
        .unwrap();
    until("the stream has ended", || pool.status().streams.is_empty());
    assert!(clock::now() >= span.until.unwrap());
    let (_buffer, memory) = filled(stream.client(), &[1; 512]);
    let request = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
    assert!(stream.client().submit(request.on(&stream)).is_err());
    stream.close();
}

#[test]
fn reservations_keep_their_extents_where_they_are() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume_on(&pool, "v", 0, 8 * MIB);
    let stream = pool
        .reserve(stream_spec(&volume, Op::Write, 1 << 20, 65536))
        .unwrap();
    let moved = pool.move_extents("v", &on_disk(1), &mut |_| true);
    assert!(
        matches!(moved, Err(PoolError::Reserved { .. })),
        "{moved:?}"
    );
    let within = Placement {
        bytes: Some(32 * MIB..64 * MIB),
        ..on_disk(0)
    };
    pool.move_extents("v", &within, &mut |_| true).unwrap();
    assert!(matches!(
        pool.shrink("v", Bytes(4 * MIB)),
        Err(PoolError::Reserved { .. })
    ));
    for elsewhere in [on_disk(1), within] {
        let grown = pool.grow("v", Bytes(10 * MIB), &elsewhere);
        assert!(
            matches!(grown, Err(PoolError::Reserved { .. })),
            "{grown:?}"
        );
    }
    let grown = pool.grow("v", Bytes(10 * MIB), &Placement::default());
    let grown = grown.unwrap();
    assert_eq!(grown.extents_by_disk, [("disk0".to_owned(), 10)]);
    assert!(matches!(
        pool.delete_volume("v"),
        Err(PoolError::InUse { .. })
    ));
    stream.close();
    pool.move_extents("v", &on_disk(1), &mut |_| true).unwrap();
    assert_eq!(
        pool.volume_info("v").unwrap().extents_by_disk,
        [("disk1".to_owned(), 10)]
    );
}

const BLOCK: u64 = 65_536;

/// One block a second, and sixteen.
const SLOWLY: BytesPerSecond = BytesPerSecond(BLOCK);
const FAST: BytesPerSecond = BytesPerSecond(BLOCK * 16);

/// Records from an endless source, or plays to a sink that takes everything, until stopped.
fn move_without_end(stream: &Stream, stop: &Stop, on_block: &mut dyn FnMut(&BlockReport)) {
    match stream.op() {
        Op::Write => {
            let source = File::open("/dev/zero").unwrap();
            Recorder::new(stream, Bytes::ZERO).run(source, stop, on_block)
        }
        Op::Read => {
            let sink = File::options().write(true).open("/dev/null").unwrap();
            Player::new(stream, Bytes::ZERO).run(sink, stop, on_block)
        }
    }
    .unwrap();
}

/// Submission times of a session's blocks. The rate is changed after `at` blocks, and the session ends after
/// `more` further blocks.
fn handed_over(op: Op, rates: [BytesPerSecond; 2], at: usize, more: usize) -> Vec<Time> {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 16 * MIB);
    let stream = pool
        .reserve(stream_spec(&volume, op, rates[0].0, BLOCK))
        .unwrap();
    let (stop, mut submitted) = (Stop::new().unwrap(), Vec::new());
    let mut on_block = |block: &BlockReport| {
        submitted.push(block.submitted);
        if submitted.len() == at {
            stream.change_rate(rates[1]).unwrap();
        } else if submitted.len() == at + more {
            stop.stop();
        }
    };
    move_without_end(&stream, &stop, &mut on_block);
    submitted.sort_unstable();
    submitted
}

#[test]
fn a_session_under_way_goes_on_at_a_rate_that_is_raised() {
    for op in [Op::Write, Op::Read] {
        let times = handed_over(op, [SLOWLY, FAST], 1, 20);
        // At the old rate blocks are a second apart. A late host may cause a few such gaps.
        let gaps = times[1..]
            .windows(2)
            .map(|pair| pair[1].saturating_since(pair[0]));
        let slow = gaps.filter(|gap| *gap >= Nanos::from_secs(1)).count();
        assert!(slow < 10, "{op:?}: {times:?}");
    }
}

#[test]
fn a_session_under_way_goes_on_at_a_rate_that_is_lowered() {
    for op in [Op::Write, Op::Read] {
        let times = handed_over(op, [FAST, SLOWLY], 6, 4);
        // At the time of the change at most two blocks are in flight.
        let took = times[9].saturating_since(times[7]);
        assert!(took >= Nanos::from_secs(1), "{op:?}: {took}");
    }
}

struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[test]
fn a_session_that_sleeps_goes_on_when_its_rate_is_raised() {
    for op in [Op::Write, Op::Read] {
        let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
        let volume = volume(&pool, "v", 16 * MIB);
        // More than an hour from one block to the next.
        let stream = pool
            .reserve(stream_spec(&volume, op, BLOCK / 4_000, BLOCK))
            .unwrap();
        let (stop, (tell, told)) = (Stop::new().unwrap(), mpsc::channel());
        std::thread::scope(|scope| {
            let (theirs, end) = (&stream, StopOnDrop(&stop));
            scope.spawn(move || {
                // Ends the session when this thread ends for any reason.
                let _end = end;
                // A call from another thread at any point of the session.
                told.recv().unwrap();
                theirs.change_rate(FAST).unwrap();
                // More blocks than buffers, so that the player has to play some.
                for _ in 0..5 {
                    told.recv_timeout(Duration::from_secs(60))
                        .expect("another block");
                }
            });
            let mut on_block = |_: &BlockReport| {
                // The receiver may have gone after the last block that it waits for.
                let _ = tell.send(());
            };
            move_without_end(&stream, &stop, &mut on_block);
        });
    }
}
