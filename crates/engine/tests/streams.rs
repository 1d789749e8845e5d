//! Reservations: what is admitted, what is refused and why, what they keep others from doing, and
//! sessions that record and play through them.

mod common;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{MIB, Rig, SetOnDrop, client, filled, on_disk, seeded, volume};
use engine::clock;
use engine::disk::Durability;
use engine::front::{BestEffortReservation, ClientOptions, SubmitError, VolumeOp, VolumeRequest};
use engine::pool::{Floor, Placement, Pool, PoolError, Volume, VolumeSpec};
use engine::stream::{
    BlockReport, PaceError, Player, Recorder, Refusal, Span, Stop, Stream, StreamSpec,
};
use rand::Rng;
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos};

const WRITE: VolumeOp = VolumeOp::Write { durable: false };

fn spec(volume: &Arc<Volume>, op: Op, rate: u64, block: u64) -> StreamSpec {
    StreamSpec {
        name: "camera".into(),
        volume: Arc::clone(volume),
        range: None,
        rate: BytesPerSecond(rate),
        block: Bytes(block),
        op,
        span: None,
        wraps: false,
    }
}

fn refused(pool: &Pool, spec: StreamSpec) -> Refusal {
    match pool.reserve(spec) {
        Ok(stream) => panic!("{stream:?} was admitted"),
        Err(refusal) => refusal,
    }
}

fn rate_that_fits(refusal: &Refusal) -> u64 {
    match refusal {
        Refusal::Load { rate_that_fits, .. } => rate_that_fits.unwrap().0,
        other => panic!("{other}"),
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 16 * MIB);
    let refusal = refused(&pool, spec(&volume, Op::Write, 1 << 40, MIB));
    let Refusal::Load { disk, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert!(disk.disk.starts_with("disk") && disk.utilization > 0.0);
    let fits = rate_that_fits(&refusal);
    let all = pool.reserve(spec(&volume, Op::Write, fits, MIB)).unwrap();
    let promised: Vec<f64> = pool
        .status()
        .disks
        .iter()
        .map(|disk| disk.utilization_promised)
        .collect();
    assert!(
        promised.iter().all(|load| (0.5..=1.0).contains(load)),
        "{promised:?}"
    );
    // Nothing is left for another one of that rate; its own, and no other's, comes back with it.
    let left = refused(&pool, spec(&volume, Op::Read, fits, MIB));
    if let Refusal::Load { rate_that_fits, .. } = &left {
        assert!(rate_that_fits.is_none_or(|rate| rate.0 < fits));
    }
    let status = all.close();
    assert_eq!((status.blocks, status.misses), (0, 0));
    pool.reserve(spec(&volume, Op::Read, fits, MIB)).unwrap();
}

#[test]
fn with_the_rate_that_fits_it_fits_and_with_more_it_does_not() {
    let mut rng = seeded("rates");
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 30 * MIB);
    let mut held = Vec::new();
    for _ in 0..12 {
        let block = MIB >> rng.random_range(0..6);
        let op = if rng.random_bool(0.5) {
            Op::Read
        } else {
            Op::Write
        };
        let refusal = refused(&pool, spec(&volume, op, 1 << 42, block));
        let Refusal::Load {
            rate_that_fits: Some(fits),
            ..
        } = refusal
        else {
            break;
        };
        let more = fits.0 + fits.0 / 1000 + 1;
        refused(&pool, spec(&volume, op, more, block));
        let some = (fits.0 / 6).max(1);
        held.push(pool.reserve(spec(&volume, op, some, block)).unwrap());
    }
    assert!(!held.is_empty());
    let status = pool.status();
    assert_eq!(status.streams.len(), held.len());
    assert!(
        status
            .disks
            .iter()
            .all(|disk| disk.utilization_promised <= 1.0)
    );
}

#[test]
fn numbers_that_make_no_stream_are_refused() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let good = || spec(&volume, Op::Write, 1 << 20, 65536);
    let bad: [StreamSpec; 6] = [
        StreamSpec {
            rate: BytesPerSecond(0),
            ..good()
        },
        StreamSpec {
            block: Bytes(0),
            ..good()
        },
        StreamSpec {
            block: Bytes(1000),
            ..good()
        },
        StreamSpec {
            block: Bytes(3 * 65536),
            ..good()
        },
        StreamSpec {
            range: Some(0..4 * MIB + 512),
            ..good()
        },
        StreamSpec {
            range: Some(MIB..MIB),
            ..good()
        },
    ];
    for spec in bad {
        let shown = format!("{spec:?}");
        assert!(
            matches!(refused(&pool, spec), Refusal::Invalid { .. }),
            "{shown}"
        );
    }
    let past = Span {
        from: sched::units::Time(1),
        until: Some(sched::units::Time(2)),
    };
    let late = StreamSpec {
        span: Some(past),
        ..good()
    };
    assert!(matches!(refused(&pool, late), Refusal::Invalid { .. }));
    assert!(pool.status().streams.is_empty());
}

#[test]
fn a_stream_takes_only_what_it_has_reserved() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let stream = pool
        .reserve(StreamSpec {
            range: Some(MIB..3 * MIB),
            ..spec(&volume, Op::Write, 1 << 20, 65536)
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

#[test]
fn a_rate_is_changed_or_kept() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 16 * MIB);
    let fits = rate_that_fits(&refused(&pool, spec(&volume, Op::Write, 1 << 40, MIB)));
    let stream = pool
        .reserve(spec(&volume, Op::Write, fits / 4, MIB))
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
    let now = clock::now();
    let span = Span {
        from: now,
        until: Some(now + Nanos::from_millis(30)),
    };
    let fits = rate_that_fits(&refused(&pool, spec(&volume, Op::Write, 1 << 40, MIB)));
    let stream = pool
        .reserve(StreamSpec {
            span: Some(span),
            ..spec(&volume, Op::Write, fits, MIB)
        })
        .unwrap();
    while !pool.status().streams.is_empty() {
        std::thread::yield_now();
    }
    assert!(clock::now() >= span.until.unwrap());
    let (_buffer, memory) = filled(stream.client(), &[1; 512]);
    let request = VolumeRequest::transfer(&volume, WRITE, Bytes(0), memory);
    assert!(stream.client().submit(request.on(&stream)).is_err());
    stream.close();
}

#[test]
fn reservations_keep_their_extents_where_they_are() {
    let (_rig, pool) = Rig::fresh(2, 64 * MIB, MIB, Durability::WriteThrough);
    let spec_on = VolumeSpec {
        name: "v".into(),
        size: Bytes(8 * MIB),
        placement: on_disk(0),
    };
    pool.create_volume(&spec_on).unwrap();
    let volume = pool.open_volume("v").unwrap();
    let stream = pool
        .reserve(spec(&volume, Op::Write, 1 << 20, 65536))
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

#[test]
fn best_effort_with_a_reservation_is_admitted_like_a_stream() {
    let mut rig = Rig::new(2, 64 * MIB, Durability::WriteThrough);
    // A slice is not interrupted, and the floor's period is shorter than these.
    rig.options.floor = Floor::None;
    rig.create(MIB);
    let pool = rig.open();
    let volume = volume(&pool, "v", 4 * MIB);
    let ask = |slice, period| {
        let reservation = BestEffortReservation { slice, period };
        let options = ClientOptions {
            reservation: Some(reservation),
            ..ClientOptions::default()
        };
        pool.client("file system", options)
    };
    let before = pool.status().disks[0].utilization_promised;
    let reserved = ask(Nanos::from_millis(15), Nanos::from_millis(50)).unwrap();
    assert!(pool.status().disks[0].utilization_promised > before + 0.29);
    reserved
        .write_at(&volume, Bytes(0), &vec![7; 2 << 20])
        .unwrap();
    assert!(matches!(
        ask(Nanos::from_millis(40), Nanos::from_millis(50)),
        Err(Refusal::Load { .. })
    ));
    assert!(matches!(
        ask(Nanos(1), Nanos::from_millis(100)),
        Err(Refusal::Invalid { .. })
    ));
    assert!(matches!(
        ask(Nanos(2), Nanos(1)),
        Err(Refusal::Invalid { .. })
    ));
    drop(reserved);
    ask(Nanos::from_millis(12), Nanos::from_millis(50)).unwrap();
}

#[test]
fn the_floor_is_what_was_asked_for() {
    for (floor, expected) in [(Floor::None, 0.0), (Floor::Share { permille: 100 }, 0.1)] {
        let mut rig = Rig::new(1, 64 * MIB, Durability::WriteThrough);
        rig.options.floor = floor;
        rig.create(MIB);
        let pool = rig.open();
        let status = pool.status();
        assert!((status.disks[0].floor - expected).abs() < 1e-6);
        assert_eq!(
            status
                .warnings
                .iter()
                .any(|warning| warning.what.contains("floor")),
            expected == 0.0
        );
    }
}

/// A reservation over a whole volume of three extents on three disks.
fn three_disks(pool: &Pool, volume: &Arc<Volume>, op: Op, wraps: bool) -> Stream {
    let rate = 16 << 20;
    pool.reserve(StreamSpec {
        wraps,
        ..spec(volume, op, rate, 65536)
    })
    .unwrap()
}

fn contiguous(blocks: &[BlockReport]) {
    let mut by_index = blocks.to_vec();
    by_index.sort_unstable_by_key(|block| block.index);
    for (index, block) in by_index.iter().enumerate() {
        assert_eq!(block.index, index as u64);
        assert!(block.completed >= block.submitted, "{block:?}");
        assert_eq!(block.late, block.completed.saturating_since(block.deadline));
    }
}

#[test]
fn what_is_recorded_is_played_byte_for_byte_beside_other_load() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let video = volume(&pool, "video", 12 * MIB);
    let other = volume(&pool, "other", 12 * MIB);
    let data: Vec<u8> = (0..9 * MIB + 12345)
        .map(|at| (at * 31 % 253) as u8)
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = SetOnDrop(&stop);
        let load = scope.spawn(|| {
            let client = client(&pool);
            let mut written = 0u64;
            while !stop.load(Ordering::SeqCst) {
                client
                    .write_at(&other, Bytes(written % (12 * MIB)), &[3; 4096])
                    .unwrap();
                written += 4096;
            }
            written
        });
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        let recorder = three_disks(&pool, &video, Op::Write, false);
        let source = scope.spawn(|| {
            sender.write_all(&data).unwrap();
            drop(sender);
        });
        let mut blocks = Vec::new();
        let never = Stop::new().unwrap();
        let report = Recorder::new(&recorder, Bytes::ZERO)
            .run(&receiver, &never, &mut |block| blocks.push(*block))
            .unwrap();
        source.join().unwrap();
        assert_eq!(report.bytes, data.len() as u64);
        assert_eq!(report.blocks, data.len().div_ceil(65536) as u64);
        contiguous(&blocks);
        assert_eq!(recorder.close().blocks, report.blocks);

        let player = three_disks(&pool, &video, Op::Read, false);
        let (mut far, near) = UnixStream::pair().unwrap();
        let sink = scope.spawn(move || {
            let mut got = Vec::new();
            far.read_to_end(&mut got).unwrap();
            got
        });
        blocks.clear();
        let report = Player::new(&player, Bytes::ZERO)
            .limit(Bytes(data.len() as u64))
            .run(&near, &never, &mut |block| blocks.push(*block))
            .unwrap();
        drop(near);
        let got = sink.join().unwrap();
        assert!(got == data);
        assert_eq!(report.bytes, data.len() as u64);
        contiguous(&blocks);
        drop(guard);
        assert!(load.join().unwrap() > 0);
    });
    let status = pool.status();
    assert!(status.best_effort.count > 0 && status.best_effort.max_ns >= status.best_effort.p50_ns);
    let served: u64 = status
        .disks
        .iter()
        .map(|disk| disk.served.real_time + disk.served.early)
        .sum();
    assert!(served >= 2 * (data.len() / 65536) as u64);
    pool.reset_window();
    assert!(pool.status().best_effort.count < status.best_effort.count);
}

#[test]
fn a_recording_that_wraps_overwrites_itself_and_ends_when_told() {
    let (_rig, pool) = Rig::fresh(3, 64 * MIB, MIB, Durability::WriteThrough);
    let video = volume(&pool, "video", 3 * MIB);
    let stream = three_disks(&pool, &video, Op::Write, true);
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let stop = Stop::new().unwrap();
    let report = std::thread::scope(|scope| {
        let source = scope.spawn(move || {
            let mut sent = 0u64;
            // Until the recorder hangs up.
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
    let recorder = three_disks(&pool, &video, Op::Write, false);
    let player = three_disks(&pool, &video, Op::Read, true);
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

#[test]
fn moving_under_a_stream_keeps_what_it_records() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let spec_on = VolumeSpec {
        name: "video".into(),
        size: Bytes(8 * MIB),
        placement: on_disk(0),
    };
    pool.create_volume(&spec_on).unwrap();
    let video = pool.open_volume("video").unwrap();
    let data: Vec<u8> = (0..8 * MIB).map(|at| (at * 17 % 251) as u8).collect();
    let stream = three_disks(&pool, &video, Op::Write, false);
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = SetOnDrop(&ended);
        scope.spawn(|| {
            sender.write_all(&data).unwrap();
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
                let moved =
                    pool.move_extents("video", &within, &mut |_| !ended.load(Ordering::SeqCst));
                assert!(
                    matches!(moved, Ok(_) | Err(PoolError::Stopped)),
                    "{moved:?}"
                );
                rounds += 1;
            }
            rounds
        });
        let report = Recorder::new(&stream, Bytes::ZERO)
            .run(&receiver, &Stop::new().unwrap(), &mut |_| {})
            .unwrap();
        assert_eq!(report.bytes, data.len() as u64);
        drop(guard);
        assert!(mover.join().unwrap() > 0);
    });
    let mut back = vec![0; data.len()];
    client(&pool).read_at(&video, Bytes(0), &mut back).unwrap();
    assert!(back == data);
}

#[test]
fn spans_that_do_not_meet_share_the_disk() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let volume = volume(&pool, "v", 4 * MIB);
    let fits = rate_that_fits(&refused(&pool, spec(&volume, Op::Write, 1 << 40, MIB)));
    let now = clock::now();
    let hours = |from: u64, until: u64| {
        let at = |hours: u64| now + Nanos::from_secs(3600 * hours);
        StreamSpec {
            span: Some(Span {
                from: at(from),
                until: Some(at(until)),
            }),
            ..spec(&volume, Op::Write, fits * 2 / 3, MIB)
        }
    };
    let evening = pool.reserve(hours(4, 6)).unwrap();
    let morning = pool.reserve(hours(0, 2)).unwrap();
    assert!(matches!(refused(&pool, hours(1, 3)), Refusal::Load { .. }));
    assert!(matches!(refused(&pool, hours(3, 5)), Refusal::Load { .. }));
    assert!(matches!(refused(&pool, hours(1, 7)), Refusal::Load { .. }));
    // What was reserved for later has not made anything forget what is reserved now.
    let noon = pool.reserve(hours(3, 4)).map(|_| ());
    assert!(
        matches!(noon, Err(Refusal::Load { .. })),
        "the tail of its last blocks meets the evening"
    );
    pool.reserve(hours(7, 8)).unwrap();
    assert!(matches!(refused(&pool, hours(1, 2)), Refusal::Load { .. }));
    evening.close();
    morning.close();
}
