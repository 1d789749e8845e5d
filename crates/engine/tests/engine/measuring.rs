//! A disk is measured while its pool runs.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::clock;
use engine::disk::Durability;
use engine::pool::{
    MeasuredIo, MeasuredTimes, MeasuredWrites, Measuring, MeasuringError, Pool, VolumeSpec,
};
use engine::stream::{Recorder, Refusal, Stop, StreamSpec};
use rand::Rng;
use rand::rngs::StdRng;
use sched::profile::DriveProfile;
use sched::request::Op;
use sched::units::{Bytes, Nanos, Sector, SectorCount, Time};
use testkit::disks::{MIB, Rig, client, seeded, stream_spec, volume};

fn io(op: Op, start: u64, count: u64) -> MeasuredIo {
    MeasuredIo {
        op,
        start: Sector(start),
        count: SectorCount(count),
        not_before: Time::ZERO,
    }
}

/// Reads anywhere, and writes where they are permitted, each after a short wait.
fn serve(
    measuring: &mut Measuring,
    rng: &mut StdRng,
    requests: u32,
) -> Result<Vec<MeasuredTimes>, MeasuringError> {
    let mut served = Vec::new();
    for _ in 0..requests {
        let count = measuring.unit().0 * rng.random_range(1..=64);
        let count = count.min(measuring.request_max().0);
        let request = if rng.random_bool(0.5) {
            let end = measuring.capacity().0 - count;
            io(Op::Read, rng.random_range(0..end) / 8 * 8, count)
        } else {
            let range = rng.random_range(0..measuring.writable().len());
            let range = &measuring.writable()[range];
            let room = range.end.0 - range.start.0 - count;
            let start = range.start.0 + rng.random_range(0..=room) / 8 * 8;
            io(Op::Write, start, count)
        };
        served.push(measuring.serve(&MeasuredIo {
            not_before: clock::now() + Nanos(rng.random_range(0..2_000_000)),
            ..request
        })?);
    }
    Ok(served)
}

/// The largest rate of a stream of such blocks that is admitted.
fn full_rate(pool: &Pool, spec: StreamSpec) -> u64 {
    match pool.reserve(spec) {
        Err(Refusal::Load { rate_that_fits, .. }) => rate_that_fits.expect("some rate fits").0,
        other => panic!("{other:?}"),
    }
}

/// Every transfer takes 4 ms, less than the profile of the drive says, and the stream has all that can be promised.
#[test]
fn measurement_beside_a_stream_at_its_full_rate_costs_no_deadline_and_no_byte() {
    let mut rng = seeded("measurement_beside_a_stream");
    let profile = DriveProfile::shipped("hdd-8tb-7200").unwrap();
    let rig = Rig::of_drives(1, profile, Durability::WriteThrough);
    rig.create(8 * MIB);
    let pool = rig.open();
    let kept = volume(&pool, "kept", 8 * MIB);
    let data: Vec<u8> = (0..8 * MIB).map(|at| (at * 31 % 253) as u8).collect();
    client(&pool).write_at(&kept, Bytes(0), &data).unwrap();
    let video = volume(&pool, "video", 16 * MIB);
    rig.platters[0].delay_ns.store(4_000_000, Ordering::SeqCst);
    let free = pool.free();
    let rate = full_rate(&pool, stream_spec(&video, Op::Write, 1 << 40, MIB));
    let stream = pool
        .reserve(StreamSpec {
            wraps: true,
            ..stream_spec(&video, Op::Write, rate, MIB)
        })
        .unwrap();
    let mut measuring = pool.measure_disk(0, MeasuredWrites::ToFreeExtents).unwrap();
    let writable = measuring.writable().to_vec();
    assert_eq!(writable.len(), 64);
    assert_eq!(pool.free().0, free.0 - 64 * 8 * MIB);
    let (sender, receiver) = UnixStream::pair().unwrap();
    let stop = Stop::new().unwrap();
    let recorded = AtomicU64::new(0);
    // Nothing panics within the scope before its threads have been told to end.
    let (served, blocks) = std::thread::scope(|scope| {
        scope.spawn(move || {
            use std::io::Write;
            let mut sender = sender;
            while sender.write_all(&[9; 65_536]).is_ok() {}
        });
        let recording = scope.spawn(|| {
            let count = &mut |_: &_| {
                recorded.fetch_add(1, Ordering::SeqCst);
            };
            let report = Recorder::new(&stream, Bytes::ZERO).run(&receiver, &stop, count);
            // The source ends.
            receiver.shutdown(Shutdown::Both).unwrap();
            report
        });
        let mut served = serve(&mut measuring, &mut rng, 300);
        while let Ok(all) = &mut served
            && recorded.load(Ordering::SeqCst) < 40
            && !recording.is_finished()
        {
            match serve(&mut measuring, &mut rng, 50) {
                Ok(more) => all.extend(more),
                Err(error) => served = Err(error),
            }
        }
        stop.stop();
        (served, recording.join().unwrap().unwrap().blocks)
    });
    let served = served.unwrap();
    let status = stream.close();
    assert!(blocks >= 40, "{blocks}");
    assert_eq!((status.misses, status.errors), (0, 0), "{status:?}");
    let disk = &pool.status().disks[0];
    assert_eq!(disk.misses, 0, "{disk:?}");
    assert!(disk.completed.asynchronous >= 300, "{disk:?}");
    // Some came after blocks of the stream, and some did not.
    let alone = served.iter().filter(|times| times.alone).count();
    assert!((1..served.len()).contains(&alone), "{alone}");
    assert!(
        served
            .iter()
            .all(|times| times.issued < times.completed && times.errno.is_none())
    );
    drop(measuring);
    assert_eq!(pool.free(), free);
    all_is_as_before(&pool, &data);
}

/// The volume has its bytes, and a volume on all that is free reads as zeros.
fn all_is_as_before(pool: &Arc<Pool>, data: &[u8]) {
    let kept = pool.open_volume("kept").unwrap();
    let client = client(pool);
    let mut back = vec![0; data.len()];
    client.read_at(&kept, Bytes(0), &mut back).unwrap();
    assert!(back == data);
    let spec = VolumeSpec {
        name: "rest".to_owned(),
        size: Bytes(64 * MIB),
        placement: Default::default(),
    };
    pool.create_volume(&spec).unwrap();
    let rest = pool.open_volume("rest").unwrap();
    let mut zeros = vec![1; 1 << 20];
    for at in 0..64 {
        client.read_at(&rest, Bytes(at * MIB), &mut zeros).unwrap();
        assert!(zeros.iter().all(|byte| *byte == 0));
    }
}

fn refused(result: Result<MeasuredTimes, MeasuringError>) -> String {
    match result {
        Err(MeasuringError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn measurement_keeps_to_what_it_was_lent() {
    let (rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    drop(volume(&pool, "v", 16 * MIB));
    let mut measuring = pool.measure_disk(0, MeasuredWrites::ToFreeExtents).unwrap();
    // An eighth of what is free.
    let lent = measuring.writable().len();
    assert!((3..=6).contains(&lent), "{lent}");
    let range = measuring.writable()[0].clone();
    let longest = measuring.request_max().0;
    assert!(
        longest < 2_048,
        "a piece is shorter than an extent: {longest}"
    );
    let writes = rig.platters[0].writes.load(Ordering::SeqCst);
    for (start, count) in [
        (range.start.0 - 1, 2),
        (range.end.0 - 1, 2),
        (0, 1),
        (131_071, 1),
    ] {
        let why = refused(measuring.serve(&io(Op::Write, start, count)));
        assert!(why.contains("not lent"), "{why}");
    }
    for (start, count) in [(0, 0), (0, longest + 1), (131_071, 2), (u64::MAX, 1)] {
        refused(measuring.serve(&io(Op::Read, start, count)));
    }
    let late = MeasuredIo {
        not_before: clock::now() + Nanos::from_secs(3_600),
        ..io(Op::Read, 0, 1)
    };
    assert!(refused(measuring.serve(&late)).contains("waits"));
    assert_eq!(rig.platters[0].writes.load(Ordering::SeqCst), writes);
    let first = measuring.serve(&io(Op::Write, range.start.0, 8)).unwrap();
    let second = measuring.serve(&io(Op::Read, 0, longest)).unwrap();
    assert_eq!((first.alone, second.alone), (false, true));
    // A request of someone else comes between.
    let volume = pool.open_volume("v").unwrap();
    client(&pool)
        .write_at(&volume, Bytes(0), &[1; 512])
        .unwrap();
    assert!(!measuring.serve(&io(Op::Read, 0, 1)).unwrap().alone);
    // Reads alone are lent nothing.
    let mut reads = pool.measure_disk(0, MeasuredWrites::Nowhere).unwrap();
    assert!(reads.writable().is_empty());
    refused(reads.serve(&io(Op::Write, range.start.0, 8)));
    assert!(pool.measure_disk(1, MeasuredWrites::Nowhere).is_err());
}

#[test]
fn measurement_ends_when_it_is_stopped_and_with_the_pool() {
    let (_rig, pool) = Rig::fresh(1, 64 * MIB, MIB, Durability::WriteThrough);
    let mut measuring = pool.measure_disk(0, MeasuredWrites::Nowhere).unwrap();
    let stop = measuring.stop_handle();
    let soon = MeasuredIo {
        not_before: clock::now() + Nanos::from_secs(50),
        ..io(Op::Read, 0, 1)
    };
    let waiting = std::thread::spawn(move || measuring.serve(&soon));
    stop.stop();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(MeasuringError::Ended(_))), "{ended:?}");
    let mut measuring = pool.measure_disk(0, MeasuredWrites::ToFreeExtents).unwrap();
    pool.close().unwrap();
    let ended = measuring.serve(&io(Op::Read, 0, 1));
    assert!(matches!(ended, Err(MeasuringError::Ended(_))), "{ended:?}");
    assert!(pool.measure_disk(0, MeasuredWrites::Nowhere).is_err());
}

/// A write that the disk still holds may reach its extent later, so that is not given to a volume.
#[test]
fn extents_of_a_write_that_was_given_up_stay_lent() {
    let (stalled, given_up) = (Nanos::from_millis(20), Nanos::from_millis(60));
    let (rig, pool) = Rig::with_patience(1, Durability::WriteThrough, stalled, given_up);
    let free = pool.free();
    let mut measuring = pool.measure_disk(0, MeasuredWrites::ToFreeExtents).unwrap();
    let start = measuring.writable()[0].start.0;
    let lent = measuring.writable().len() as u64;
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    let ended = measuring.serve(&io(Op::Write, start, 1));
    assert!(matches!(ended, Err(MeasuringError::Ended(_))), "{ended:?}");
    drop(measuring);
    rig.platters[0].stalled.store(false, Ordering::SeqCst);
    assert_eq!(pool.free().0, free.0 - lent * MIB);
}
