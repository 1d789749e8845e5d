//! The end of a planned span: requests within the reservation are still served, and requests beyond it are
//! cancelled.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use engine::buffer::Buffer;
use engine::clock;
use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::stream::{
    BlockReport, PaceError, PaceReport, Player, Recorder, Span, Stop, Stream, StreamSpec,
};
use engine::volume_io::{IoFailure, VolumeOp, VolumeRequest};
use sched::request::Op;
use sched::units::{Bytes, Nanos};
use testkit::disks::{MIB, Rig, WRITE, client, filled, stream_spec, volume};
use testkit::until;

/// A stream of one block a minute for the next 3 s, which is long enough to submit a few blocks.
fn reserve(pool: &Pool, volume: &Arc<Volume>) -> Stream {
    let now = clock::now();
    let spec = StreamSpec {
        span: Some(Span {
            from: now,
            until: Some(now + Nanos::from_secs(3)),
        }),
        wraps: true,
        ..stream_spec(volume, Op::Write, MIB / 60, MIB)
    };
    pool.reserve(spec).unwrap()
}

fn ask(stream: &Stream, block: u64) -> Buffer {
    let (buffer, memory) = filled(stream.client(), &vec![block as u8; MIB as usize]);
    let request = VolumeRequest::transfer(stream.volume(), WRITE, Bytes(block * MIB), memory);
    let request = request.on(stream).user_data(block);
    stream.client().submit(request).unwrap();
    buffer
}

/// Waits until the stream accepts no more blocks.
fn wait_closed(stream: &Stream) {
    let buffer = stream.client().account().allocate_wait(512, None).unwrap();
    let refused = || {
        let memory = buffer.segments(Op::Read, 0..512).unwrap();
        let request = VolumeRequest::transfer(stream.volume(), VolumeOp::Read, Bytes(0), memory);
        // Always refused, because the stream writes. The message tells if the stream is closed.
        let error = stream.client().submit(request.on(stream)).unwrap_err();
        error.to_string().contains("is closed")
    };
    until("the stream is closed", refused);
}

#[test]
fn requests_beyond_the_span_are_cancelled() {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 8 * MIB);
    let stream = reserve(&pool, &volume);
    // Early, and served at once: the next one is due after two minutes.
    drop(ask(&stream, 0));
    stream.client().wait(None).unwrap().result.unwrap();
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let held = [ask(&stream, 1), ask(&stream, 2)];
    // The first is on the disk, which does not answer. The second would be due 57 s after the last deadline
    // that a span of 3 s permits.
    let cancelled = stream.client().wait(None).unwrap();
    assert_eq!(cancelled.user_data, 2);
    assert!(
        matches!(cancelled.result, Err(IoFailure::Cancelled { .. })),
        "{:?}",
        cancelled.result
    );
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    let on_disk = stream.client().wait(None).unwrap();
    assert_eq!((on_disk.user_data, on_disk.result), (1, Ok(())));
    drop(held);
    let status = stream.close();
    assert_eq!((status.blocks, status.errors), (2, 0));
    let told = status.failed.unwrap();
    assert!(told.contains("time span of its stream ended"), "{told}");
    assert!(pool.status().streams.is_empty());
    // A write that never began leaves no doubt about the disk's content, so the volume still works.
    let writer = client(&pool);
    writer
        .write_at(&volume, Bytes(2 * MIB), &[7; 4096])
        .unwrap();
    let mut read = [0; 8192];
    writer.read_at(&volume, Bytes(2 * MIB), &mut read).unwrap();
    assert_eq!(
        (read[..4096] == [7; 4096], read[4096..] == [0; 4096]),
        (true, true)
    );
    assert_eq!(pool.status().disks[0].errors, 0);
}

#[test]
fn reserved_requests_are_served_after_the_span() {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 8 * MIB);
    let stream = reserve(&pool, &volume);
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let held = [ask(&stream, 0), ask(&stream, 1)];
    wait_closed(&stream);
    // A report is made after all earlier control calls to the disk.
    assert_eq!(pool.status().streams.len(), 1);
    assert!(stream.client().poll().is_none());
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    for block in 0..2 {
        let done = stream.client().wait(None).unwrap();
        assert_eq!((done.user_data, done.result), (block, Ok(())));
    }
    drop(held);
    assert_eq!(stream.close().blocks, 2);
}

/// A stream of 64 KiB blocks with a span from `from` to `until`, relative to the current time.
fn planned(pool: &Pool, volume: &Arc<Volume>, op: Op, from: Nanos, until: Option<Nanos>) -> Stream {
    let now = clock::now();
    let spec = StreamSpec {
        span: Some(Span {
            from: now + from,
            until: until.map(|until| now + until),
        }),
        wraps: true,
        ..stream_spec(volume, op, 16 * 65536, 65536)
    };
    pool.reserve(spec).unwrap()
}

#[test]
fn a_session_keeps_to_the_span_of_its_stream() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 8 * MIB);
    let [from, until] = [100, 2_000].map(Nanos::from_millis);
    // A source and a sink without end, so that only the span ends the sessions.
    let endless = || std::fs::File::open("/dev/zero").unwrap();
    let sink = || std::fs::File::create("/dev/null").unwrap();
    for op in [Op::Write, Op::Read] {
        let stream = planned(&pool, &volume, op, from, Some(until));
        let span = stream.span().expect("a span");
        let mut blocks = Vec::new();
        let mut on_block = |block: &BlockReport| blocks.push((block.submitted, block.bytes));
        let stop = Stop::new().unwrap();
        let report = match op {
            Op::Write => Recorder::new(&stream, Bytes::ZERO).run(endless(), &stop, &mut on_block),
            Op::Read => Player::new(&stream, Bytes::ZERO).run(sink(), &stop, &mut on_block),
        };
        let report = report.unwrap();
        assert!(Some(clock::now()) >= span.until, "{op:?} ended too soon");
        assert_eq!(report.blocks, blocks.len() as u64);
        assert!(!blocks.is_empty());
        assert_eq!(
            report.bytes,
            blocks.iter().map(|(_, bytes)| bytes).sum::<u64>()
        );
        for (submitted, _) in blocks {
            assert!(span.from <= submitted, "{op:?} {submitted:?}");
        }
        let status = stream.close();
        assert_eq!((status.errors, status.failed), (0, None));
    }
}

#[test]
fn a_session_that_is_stopped_before_its_time_ends_at_once_with_nothing() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 8 * MIB);
    let stream = planned(&pool, &volume, Op::Write, Nanos::from_secs(86_400), None);
    let stop = Stop::new().unwrap();
    stop.stop();
    let source = std::fs::File::open("/dev/zero").unwrap();
    let report = Recorder::new(&stream, Bytes::ZERO).run(source, &stop, &mut |_| {});
    assert_eq!(report.unwrap(), PaceReport::default());
    assert_eq!(stream.close().blocks, 0);
}

/// Processor time that this thread has used.
fn processor_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[test]
fn a_player_whose_sink_does_not_read_sleeps_past_the_end_of_its_span() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 8 * MIB);
    let now = clock::now();
    let end = now + Nanos::from_secs(3);
    let spec = StreamSpec {
        span: Some(Span {
            from: now,
            until: Some(end),
        }),
        ..stream_spec(&volume, Op::Read, 16 * MIB, MIB)
    };
    let stream = pool.reserve(spec).unwrap();
    // A block is larger than the socket pair's buffers.
    let (sink, listener) = UnixStream::pair().unwrap();
    let stop = Stop::new().unwrap();
    std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            let before = processor_time();
            // All blocks are submitted long before the end of the span.
            let player = Player::new(&stream, Bytes::ZERO).limit(Bytes(MIB));
            let report = player.run(&sink, &stop, &mut |_| {}).unwrap();
            (report, processor_time().saturating_sub(before))
        });
        let watched = Nanos::from_secs(2);
        until("the span has been over for a while", || {
            clock::now() >= end + watched
        });
        stop.stop();
        let (report, took) = player.join().unwrap();
        assert_eq!(report.blocks, 1);
        assert!(report.bytes < MIB, "the sink took all of it");
        // A thread that polled in a loop would use much of a processor during that time, on any host.
        assert!(took < Nanos(watched.0 / 10), "{took}");
    });
    drop(listener);
}

#[test]
fn a_planned_player_that_nobody_listens_to_ends_at_once() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 8 * MIB);
    let stream = planned(&pool, &volume, Op::Read, Nanos::from_secs(86_400), None);
    let (sink, listener) = UnixStream::pair().unwrap();
    drop(listener);
    let stop = Stop::new().unwrap();
    let ended = std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (player, stop) = (Player::new(&stream, Bytes::ZERO), &stop);
        let sink = &sink;
        scope.spawn(move || tell.send(player.run(sink, stop, &mut |_| {})).unwrap());
        told.recv_timeout(Duration::from_secs(60)).or_else(|_| {
            // It did not end by itself.
            stop.stop();
            told.recv()
        })
    });
    let ended = ended.unwrap();
    assert!(
        matches!(&ended, Err(PaceError::Peer(error)) if error.kind() == ErrorKind::BrokenPipe),
        "{ended:?}"
    );
    assert_eq!(stream.close().blocks, 0);
}
