//! Bad and slow places: writes go elsewhere before anyone is told, extents move away, and the pool remembers.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::status::DiskStatus;
use engine::stream::{Recorder, Stop};
use engine::volume_io::{Client, IoFailure, SyncError};
use sched::request::Op;
use sched::units::{Bytes, Nanos};
use testkit::disks::platter::PlaceFault;
use testkit::disks::{MIB, Rig, client, stream_spec, volume_on};
use testkit::until;

const SECTOR: u64 = 512;

/// The block of a stream, in bytes.
const BLOCK: u64 = 65_536;

/// A pool of one disk with extents of a mebibyte, and a volume of eight of them, full of ones.
fn full_volume(durability: Durability) -> (Rig, Arc<Pool>, Arc<Volume>) {
    let (rig, pool) = Rig::fresh(1, 48 * MIB, MIB, durability);
    let volume = volume_on(&pool, "v", 0, 8 * MIB);
    let writer = client(&pool);
    writer.write_at(&volume, Bytes(0), &ones(8 * MIB)).unwrap();
    writer.flush(&volume).unwrap();
    (rig, pool, volume)
}

fn ones(bytes: u64) -> Vec<u8> {
    vec![1; bytes as usize]
}

/// The sectors of bytes of the volume: its extents are the first of the disk, behind its header.
fn sectors(from: u64, to: u64) -> std::ops::Range<u64> {
    (MIB + from) / SECTOR..(MIB + to) / SECTOR
}

fn fault(rig: &Rig, sectors: std::ops::Range<u64>, op: Option<Op>) {
    let fault = PlaceFault {
        sectors,
        op,
        fails: true,
        longer_ns: 0,
    };
    rig.platters[0].faults.lock().unwrap().push(fault);
}

fn disk(pool: &Pool) -> DiskStatus {
    pool.status().disks.remove(0)
}

fn read(client: &Client, volume: &Arc<Volume>, at: u64, bytes: u64) -> Result<Vec<u8>, SyncError> {
    let mut data = vec![0; bytes as usize];
    client.read_at(volume, Bytes(at), &mut data).map(|()| data)
}

fn assert_lost(read: Result<Vec<u8>, SyncError>) {
    let is_lost = matches!(read, Err(SyncError::Io(IoFailure::Lost)));
    assert!(is_lost, "{:?}", read.map(|data| data.len()));
}

/// The region fails for reads and writes while a ring is recorded over it. Old data there is lost with the place; the
/// recording is not, not one block of it. What is made again takes nothing of the stream's reservation.
#[test]
fn a_region_fails_under_a_recording() {
    for durability in [Durability::WriteThrough, Durability::Host] {
        let (rig, pool, volume) = full_volume(durability);
        let spec = stream_spec(&volume, Op::Write, 16 * MIB, BLOCK);
        let stream = pool.reserve(spec).unwrap();
        let data: Vec<u8> = (0..8 * MIB).map(|at| (at / BLOCK + 2) as u8).collect();
        let (mut source, near) = UnixStream::pair().unwrap();
        let mut blocks = 0;
        let report = std::thread::scope(|scope| {
            let (rig, data) = (&rig, &data);
            scope.spawn(move || {
                let (first, rest) = data.split_at(2 << 20);
                source.write_all(first).unwrap();
                // Two and a half extents, from the middle of one.
                fault(
                    rig,
                    sectors(2 * MIB + 5 * BLOCK, 4 * MIB + 13 * BLOCK),
                    None,
                );
                source.write_all(rest).unwrap();
            });
            let stop = Stop::new().unwrap();
            let recorder = Recorder::new(&stream, Bytes(0));
            recorder.run(&near, &stop, &mut |_| blocks += 1).unwrap()
        });
        let all = 8 * MIB / BLOCK;
        assert_eq!((report.blocks, blocks), (all, all));
        assert_eq!(report.durable_bytes, 8 * MIB);
        let told = stream.status();
        assert!(told.failed.is_none() && told.errors >= 3, "{told:?}");
        let disk = disk(&pool);
        assert!((3..6).contains(&disk.bad_places), "{disk:?}");
        // Blocks at bad places failed as the stream's requests and were made again as best effort: the stream's task
        // has served each block once.
        assert_eq!(disk.completed.streams + told.errors, all, "{disk:?}");
        assert!(disk.completed.sync >= told.errors);
        drop(stream);
        assert_eq!(read(&client(&pool), &volume, 0, 8 * MIB).unwrap(), data);
        until("all have left", || self::disk(&pool).places_to_leave == 0);
        drop(volume);
        pool.close().unwrap();
        drop(pool);
        // The places stay known, and nothing is put there.
        let pool = rig.open();
        assert_eq!(self::disk(&pool).bad_places, disk.bad_places);
        let volume = pool.open_volume("v").unwrap();
        assert_eq!(read(&client(&pool), &volume, 0, 8 * MIB).unwrap(), data);
        let more = volume_on(&pool, "more", 0, 8 * MIB);
        client(&pool).write_at(&more, Bytes(0), &data).unwrap();
        assert_eq!(self::disk(&pool).write_errors, 0);
    }
}

/// A write moves its extent away from the bad place. Chunks that cannot be read are lost, and say so until they are
/// written.
#[test]
fn data_that_cannot_be_moved_is_lost_and_says_so() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let writer = client(&pool);
    fault(&rig, sectors(MIB + BLOCK, MIB + 3 * BLOCK), None);
    assert!(read(&writer, &volume, MIB + BLOCK, 4096).is_err());
    until("the place is known and cannot be left", || {
        let disk = disk(&pool);
        (disk.bad_places, disk.places_to_leave) == (1, 1) && disk.read_errors > 1
    });
    writer
        .write_at(&volume, Bytes(MIB + BLOCK), &[7; 4096])
        .unwrap();
    assert_eq!(disk(&pool).places_to_leave, 0);
    assert_eq!(read(&writer, &volume, MIB, BLOCK).unwrap(), ones(BLOCK));
    assert_eq!(
        read(&writer, &volume, MIB + BLOCK, 4096).unwrap(),
        [7; 4096]
    );
    assert_lost(read(&writer, &volume, MIB + BLOCK + 4096, 4096));
    assert_lost(read(&writer, &volume, MIB, MIB));
    let after = MIB + 3 * BLOCK;
    assert_eq!(read(&writer, &volume, after, BLOCK).unwrap(), ones(BLOCK));
    drop(volume);
    pool.close().unwrap();
    drop(pool);
    let report = Pool::check(&rig.memory, rig.disks()).unwrap();
    let texts: Vec<&str> = report.findings.iter().map(|of| of.what.as_str()).collect();
    assert_eq!(texts[0], "1 extent is bad");
    assert!(
        texts[1].contains("chunks of its extent 1 are lost"),
        "{texts:?}"
    );
    assert!(report.findings.iter().all(|finding| !finding.is_error));
    let pool = rig.open();
    let volume = pool.open_volume("v").unwrap();
    let writer = client(&pool);
    assert_lost(read(&writer, &volume, MIB + BLOCK + 4096, 4096));
    writer.write_at(&volume, Bytes(MIB), &ones(MIB)).unwrap();
    assert_eq!(read(&writer, &volume, 0, 8 * MIB).unwrap(), ones(8 * MIB));
}

#[test]
fn a_write_fails_where_there_is_no_other_place() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let left = pool.free().0;
    drop(volume_on(&pool, "rest", 0, left));
    fault(&rig, sectors(0, MIB), Some(Op::Write));
    let writer = client(&pool);
    let failed = writer.write_at(&volume, Bytes(0), &[7; 4096]).unwrap_err();
    let text = failed.to_string();
    assert!(
        text.contains("disk0") && text.contains("Input/output"),
        "{text}"
    );
    until("the place is known", || disk(&pool).bad_places == 1);
    assert_eq!(read(&writer, &volume, 4096, 4096).unwrap(), [1; 4096]);
    // With room, the next write moves it.
    pool.delete_volume("rest").unwrap();
    writer.write_at(&volume, Bytes(0), &[7; 4096]).unwrap();
    assert_eq!(read(&writer, &volume, 0, 4096).unwrap(), [7; 4096]);
    assert_eq!(disk(&pool).places_to_leave, 0);
}

/// A place that overruns three times is slow. A reservation leaves it, and then nothing of the stream overruns.
#[test]
fn slow_places_are_left_by_reservations() {
    const LONGER: Nanos = Nanos::from_millis(20);
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let slow = PlaceFault {
        sectors: sectors(2 * MIB, 3 * MIB),
        op: None,
        fails: false,
        longer_ns: LONGER.0,
    };
    rig.platters[0].faults.lock().unwrap().push(slow);
    let reader = client(&pool);
    for _ in 0..2 {
        read(&reader, &volume, 2 * MIB, 4096).unwrap();
    }
    assert_eq!(disk(&pool).slow_places, 0);
    read(&reader, &volume, 2 * MIB, 4096).unwrap();
    until("the place is known", || disk(&pool).slow_places == 1);
    let known = disk(&pool);
    let overrun_max_ns = known.overrun_max_ns.div_ceil(1_000) * 1_000;
    assert!(
        (LONGER.0 / 2..=overrun_max_ns).contains(&known.slow_extra_max_ns),
        "{} {overrun_max_ns}",
        known.slow_extra_max_ns
    );
    // Best effort stays.
    assert_eq!(known.places_to_leave, 0);
    let holds_slow = |name: &str| {
        let runs = pool.volume_places(name, 0, 100).unwrap();
        let at = 3 * MIB;
        runs.iter()
            .any(|run| run.from_byte <= at && at < run.to_byte)
    };
    assert!(holds_slow("v"));
    let stream = pool
        .reserve(stream_spec(&volume, Op::Read, MIB, BLOCK))
        .unwrap();
    until("the stream's range has left it", || !holds_slow("v"));
    until("nothing is left", || disk(&pool).places_to_leave == 0);
    drop(stream);
    // Others do not take it while there are good ones.
    drop(volume_on(&pool, "small", 0, 4 * MIB));
    assert!(!holds_slow("small"));
    pool.delete_volume("small").unwrap();
    // It stays known.
    drop(volume);
    pool.close().unwrap();
    drop(pool);
    let pool = rig.open();
    let again = disk(&pool);
    assert_eq!(again.slow_places, 1);
    assert_eq!(again.slow_extra_max_ns, known.slow_extra_max_ns);
}

/// A disk that fails everywhere does not lose its places one by one.
#[test]
fn a_disk_that_fails_altogether_keeps_its_places() {
    let (rig, pool) = Rig::fresh(1, 48 * MIB, MIB, Durability::WriteThrough);
    let volume = volume_on(&pool, "v", 0, 20 * MIB);
    let reader = client(&pool);
    reader.write_at(&volume, Bytes(0), &ones(20 * MIB)).unwrap();
    fault(&rig, sectors(0, 40 * MIB), Some(Op::Read));
    for extent in 0..20 {
        assert!(read(&reader, &volume, extent * MIB, 4096).is_err());
    }
    // A reservation makes the pool look at its places after all that it was told before.
    until("the first are known", || disk(&pool).bad_places > 0);
    rig.platters[0].faults.lock().unwrap().clear();
    drop(
        pool.reserve(stream_spec(&volume, Op::Read, MIB, BLOCK))
            .unwrap(),
    );
    until("they are left", || disk(&pool).places_to_leave == 0);
    let known = disk(&pool).bad_places;
    assert!(known <= 8, "{known}");
}

/// A recording goes on over flushes that need a superblock which cannot be read now.
#[test]
fn a_flush_waits_for_a_superblock_that_cannot_be_read() {
    let (rig, pool) = Rig::fresh(2, 32 * MIB, 65_536, Durability::WriteThrough);
    let volume = volume_on(&pool, "v", 1, 8 * MIB);
    let writer = client(&pool);
    // The log leaves its extent every few flushes, and looks at the superblock then.
    let mut refused = 0;
    for number in 0..40 {
        let fault = PlaceFault {
            sectors: 0..8,
            op: Some(Op::Read),
            fails: true,
            longer_ns: 0,
        };
        rig.platters[0].faults.lock().unwrap().push(fault);
        writer
            .write_at(&volume, Bytes(number * 4096), &[9; 4096])
            .unwrap();
        match writer.flush(&volume) {
            Ok(()) => {}
            Err(SyncError::Io(IoFailure::NotNow { reason })) => {
                assert!(reason.contains("superblock"), "{reason}");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
        rig.platters[0].faults.lock().unwrap().clear();
        writer.flush(&volume).unwrap();
    }
    assert!((1..20).contains(&refused), "{refused}");
    assert_eq!(volume.poisoned(), None);
}
