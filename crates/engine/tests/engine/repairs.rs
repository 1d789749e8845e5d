//! Bad and slow places: writes go elsewhere before anyone is told, extents move away, and the pool remembers.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use engine::disk::Durability;
use engine::pool::{Pool, Volume};
use engine::status::DiskStatus;
use engine::stream::{Recorder, Stop};
use engine::volume_io::{Client, IoFailure, SyncError, VolumeRequest};
use sched::request::Op;
use sched::units::{Bytes, Nanos};
use testkit::disks::platter::PlaceFault;
use testkit::disks::{MIB, OnDrop, Rig, WRITE, client, filled, stream_spec, volume_on};
use testkit::until;

const SECTOR: u64 = 512;

/// The block of a stream, in bytes.
const BLOCK: u64 = 65_536;

/// Much longer than a request takes.
const PATIENCE: Duration = Duration::from_secs(30);

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

fn assert_lost<T>(done: Result<T, SyncError>) {
    let is_lost = matches!(done, Err(SyncError::Io(IoFailure::Lost)));
    assert!(is_lost, "{:?}", done.err());
}

/// A region fails for writes while a ring is recorded over it, and a block cannot be read either: its old data is lost
/// with the place. The recording is not, not one block of it. What is made again takes nothing of the stream's
/// reservation.
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
                let region = sectors(2 * MIB + 5 * BLOCK, 4 * MIB + 13 * BLOCK);
                fault(rig, region, Some(Op::Write));
                fault(rig, sectors(6 * MIB + 3 * BLOCK, 6 * MIB + 4 * BLOCK), None);
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
        assert!(told.failed.is_none() && told.errors >= 4, "{told:?}");
        let disk = disk(&pool);
        assert!((4..7).contains(&disk.bad_places), "{disk:?}");
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

/// The error of a write at a bad place that has not been made elsewhere.
fn assert_failed_on_disk(written: Result<(), SyncError>) {
    let is_of_disk = matches!(
        written,
        Err(SyncError::Io(IoFailure::Disk { op: "write", .. }))
    );
    assert!(is_of_disk, "{written:?}");
}

/// A write of seven: platters can be told to fail those.
fn write_sevens(
    client: &Client,
    volume: &Arc<Volume>,
    at: u64,
    bytes: u64,
) -> Result<(), SyncError> {
    client.write_at(volume, Bytes(at), &vec![7; bytes as usize])
}

/// A write takes its extent away from the bad place if it replaces all that cannot be read there. Otherwise it fails, and
/// leaves what can be read.
#[test]
fn a_write_leaves_behind_only_what_it_replaces() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let writer = client(&pool);
    let (from, to) = (MIB + BLOCK, MIB + 3 * BLOCK);
    fault(&rig, sectors(from, to), None);
    for bytes in [512, 4096, BLOCK] {
        assert_failed_on_disk(write_sevens(&writer, &volume, from, bytes));
        assert_failed_on_disk(write_sevens(&writer, &volume, to - bytes, bytes));
    }
    assert_eq!(disk(&pool).places_to_leave, 1);
    let failed = read(&writer, &volume, MIB, MIB);
    let is_of_disk = matches!(failed, Err(SyncError::Io(IoFailure::Disk { .. })));
    assert!(is_of_disk, "not lost: {:?}", failed.map(|data| data.len()));
    assert_eq!(read(&writer, &volume, MIB, BLOCK).unwrap(), ones(BLOCK));
    write_sevens(&writer, &volume, from, to - from).unwrap();
    assert_eq!(disk(&pool).places_to_leave, 0);
    let mut expected = ones(8 * MIB);
    expected[from as usize..to as usize].fill(7);
    assert_eq!(read(&writer, &volume, 0, 8 * MIB).unwrap(), expected);
}

/// A chunk is longer than a sector. What the write does not replace of it stays.
#[test]
fn the_rest_of_a_chunk_outlives_a_write_to_its_bad_sector() {
    let (rig, pool) = Rig::fresh(1, 128 * MIB, 4 * MIB, Durability::WriteThrough);
    let volume = volume_on(&pool, "v", 0, 4 * MIB);
    let writer = client(&pool);
    writer.write_at(&volume, Bytes(0), &ones(MIB)).unwrap();
    writer.flush(&volume).unwrap();
    // Chunks are of 8 KiB.
    fault(&rig, sectors(BLOCK, BLOCK + 4096), None);
    assert_failed_on_disk(write_sevens(&writer, &volume, BLOCK, 4096));
    let rest = read(&writer, &volume, BLOCK + 4096, MIB - BLOCK - 4096).unwrap();
    assert_eq!(rest, ones(MIB - BLOCK - 4096));
    rig.platters[0].faults.lock().unwrap().clear();
    assert_eq!(read(&writer, &volume, 0, MIB).unwrap(), ones(MIB));
    fault(&rig, sectors(BLOCK, BLOCK + 4096), None);
    write_sevens(&writer, &volume, BLOCK, 8192).unwrap();
    let mut expected = ones(MIB);
    expected[BLOCK as usize..BLOCK as usize + 8192].fill(7);
    assert_eq!(read(&writer, &volume, 0, MIB).unwrap(), expected);
}

/// A disk fails at everything for a while. Nothing that was written before is lost, though writes that replace whole
/// chunks fail meanwhile, and the pool could record that their extents have moved.
#[test]
fn a_disk_that_is_out_for_a_while_loses_nothing() {
    const SOME: u64 = 4 * 4096;
    let (rig, pool) = Rig::fresh(2, 48 * MIB, MIB, Durability::WriteThrough);
    let volume = volume_on(&pool, "v", 1, 3 * MIB);
    let writer = client(&pool);
    let size = 2 * MIB + SOME;
    writer.write_at(&volume, Bytes(0), &ones(size)).unwrap();
    writer.flush(&volume).unwrap();
    let out = PlaceFault {
        sectors: 0..u64::MAX,
        op: None,
        fails: true,
        longer_ns: 0,
    };
    rig.platters[1].faults.lock().unwrap().push(out);
    assert_failed_on_disk(write_sevens(&writer, &volume, BLOCK, 4096));
    // All that this extent has.
    assert_failed_on_disk(write_sevens(&writer, &volume, 2 * MIB, SOME));
    rig.platters[1].faults.lock().unwrap().clear();
    assert_eq!(read(&writer, &volume, 0, size).unwrap(), ones(size));
    drop(volume);
    pool.close().unwrap();
    drop(pool);
    let pool = rig.open();
    let volume = pool.open_volume("v").unwrap();
    assert_eq!(read(&client(&pool), &volume, 0, size).unwrap(), ones(size));
}

/// A write that replaces more bad chunks than a move leaves behind fails.
#[test]
fn few_chunks_are_left_behind() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let writer = client(&pool);
    fault(&rig, sectors(MIB, MIB + 65 * 4096), None);
    assert_failed_on_disk(write_sevens(&writer, &volume, MIB, 65 * 4096));
    rig.platters[0].faults.lock().unwrap().clear();
    fault(&rig, sectors(MIB, MIB + 64 * 4096), None);
    write_sevens(&writer, &volume, MIB, 64 * 4096).unwrap();
}

/// The extent moves, and its next places fail the write as well. What it was to replace is lost, and says so until it is
/// written.
#[test]
fn data_that_cannot_be_moved_is_lost_and_says_so() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let writer = client(&pool);
    let (from, to) = (MIB + BLOCK, MIB + 3 * BLOCK);
    fault(&rig, sectors(from, to), None);
    rig.platters[0].fail_filled.store(7, SeqCst);
    assert_failed_on_disk(write_sevens(&writer, &volume, from, to - from));
    rig.platters[0].fail_filled.store(0, SeqCst);
    assert_lost(read(&writer, &volume, from, 4096));
    assert_lost(read(&writer, &volume, MIB, MIB));
    assert_eq!(read(&writer, &volume, MIB, BLOCK).unwrap(), ones(BLOCK));
    assert_eq!(read(&writer, &volume, to, BLOCK).unwrap(), ones(BLOCK));
    // The rest of a chunk would read as zeros.
    assert_lost(write_sevens(&writer, &volume, from, 512));
    write_sevens(&writer, &volume, from, 4096).unwrap();
    assert_eq!(read(&writer, &volume, from, 4096).unwrap(), [7; 4096]);
    until("all that can has left", || disk(&pool).places_to_leave == 0);
    drop(volume);
    pool.close().unwrap();
    drop(pool);
    let report = Pool::check(&rig.memory, rig.disks()).unwrap();
    let texts: Vec<&str> = report.findings.iter().map(|of| of.what.as_str()).collect();
    assert!(texts[0].ends_with("extents are bad"), "{texts:?}");
    assert!(
        texts[1].contains("chunks of its extent 1 are lost"),
        "{texts:?}"
    );
    assert!(report.findings.iter().all(|finding| !finding.is_error));
    let pool = rig.open();
    let volume = pool.open_volume("v").unwrap();
    let writer = client(&pool);
    assert_lost(read(&writer, &volume, from + 4096, 4096));
    writer.write_at(&volume, Bytes(MIB), &ones(MIB)).unwrap();
    assert_eq!(read(&writer, &volume, 0, 8 * MIB).unwrap(), ones(8 * MIB));
}

/// A sector that cannot be read keeps its extent where it is. The pool tries once to move it, and not again because that
/// fails as before.
#[test]
fn a_place_that_is_known_is_no_news() {
    const READS: u64 = 50;
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let reader = client(&pool);
    fault(&rig, sectors(MIB, MIB + 512), Some(Op::Read));
    assert!(read(&reader, &volume, MIB, 4096).is_err());
    until("the move has been tried", || disk(&pool).read_errors >= 2);
    for _ in 1..READS {
        assert!(read(&reader, &volume, MIB, 4096).is_err());
        assert!(read(&reader, &volume, 0, 4096).is_ok());
    }
    drop(volume);
    // Ends the thread that moves.
    pool.close().unwrap();
    assert_eq!(disk(&pool).read_errors, READS + 1);
}

/// Each transfer at a failing place may take the drive seconds.
#[test]
fn few_transfers_are_tried_at_a_failing_place() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let writer = client(&pool);
    fault(&rig, sectors(MIB, 2 * MIB), None);
    assert_failed_on_disk(write_sevens(&writer, &volume, MIB, 4096));
    let errors = disk(&pool).read_errors;
    assert!((1..8).contains(&errors), "{errors}");
}

/// A pool that closes copies no extent for a write that failed.
#[test]
fn closing_ends_repairs() {
    let (rig, pool, volume) = full_volume(Durability::WriteThrough);
    let hole = volume_on(&pool, "hole", 0, MIB);
    fault(&rig, sectors(MIB, 2 * MIB), Some(Op::Write));
    let writer = client(&pool);
    let reader = client(&pool);
    let stalled = &rig.platters[0].stalled;
    stalled.store(true, SeqCst);
    let (_held, memory) = filled(&writer, &[7; 4096]);
    let request = VolumeRequest::transfer(&volume, WRITE, Bytes(MIB), memory);
    writer.submit(request).unwrap();
    std::thread::scope(|scope| {
        let _answer = OnDrop(stalled, false);
        let closer = scope.spawn(|| pool.close());
        until("requests are refused", || {
            read(&reader, &hole, 0, 512).is_err()
        });
        stalled.store(false, SeqCst);
        let written = writer.wait(Some(PATIENCE)).unwrap();
        assert_failed_on_disk(written.result.map_err(SyncError::Io));
        closer.join().unwrap().unwrap();
    });
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
