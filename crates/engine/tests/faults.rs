//! Disks that fill up, disappear or stop answering, the real ones: other disks go on, streams are told, and
//! nothing that was acknowledged by a flush is lost.

mod common;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::host::{Loop, Tmpfs};
use common::skip::is_root;
use common::{MIB, Rig, client, filled, on_disk, volume};
use engine::buffer::{Memory, MemoryConfig};
use engine::clock;
use engine::disk::Durability;
use engine::front::{SubmitError, VolumeOp, VolumeRequest};
use engine::pool::{
    CreateOptions, OpenOptions, Patience, Placement, Pool, PoolDisk, PoolError, Volume, VolumeSpec,
};
use engine::stream::{PaceError, Player, Recorder, Stop, Stream, StreamSpec};
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile};
use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, SectorCount};

/// Rates in bytes per second: what a file of unknown speed is trusted with, and a disk in memory.
const SLOW: u64 = 512 << 10;
const FAST: u64 = 4 << 20;

const WRITE: VolumeOp = VolumeOp::Write { durable: false };

fn memory() -> Memory {
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(32))
    };
    Memory::new(&config).unwrap()
}

fn disk(memory: &Memory, name: &str, path: &Path) -> PoolDisk {
    let disk = UringDisk::open(path, memory, 1).unwrap();
    let sectors = SectorCount(engine::disk::Disk::capacity(&disk).0);
    PoolDisk {
        name: name.into(),
        disk: Box::new(disk),
        profile: Arc::new(DriveProfile::conservative(DriveKind::File, sectors).unwrap()),
        profile_is_measured: false,
    }
}

fn disks(memory: &Memory, paths: [&Path; 2]) -> Vec<PoolDisk> {
    let named = paths.iter().enumerate();
    named
        .map(|(index, path)| disk(memory, &format!("disk{index}"), path))
        .collect()
}

fn create(memory: &Memory, paths: [&Path; 2]) -> Arc<Pool> {
    let options = CreateOptions {
        extent_bytes: Some(Bytes(MIB)),
        ..CreateOptions::default()
    };
    Pool::create(memory, disks(memory, paths), &options).unwrap();
    open(memory, paths)
}

fn open(memory: &Memory, paths: [&Path; 2]) -> Arc<Pool> {
    let options = OpenOptions {
        realtime: false,
        ..OpenOptions::default()
    };
    Pool::open(memory.clone(), disks(memory, paths), options).unwrap()
}

fn volume_on(pool: &Pool, name: &str, disk: usize, bytes: u64) -> Arc<Volume> {
    let spec = VolumeSpec {
        name: name.into(),
        size: Bytes(bytes),
        placement: on_disk(disk),
    };
    pool.create_volume(&spec).unwrap();
    pool.open_volume(name).unwrap()
}

fn stream(pool: &Pool, volume: &Arc<Volume>, op: Op, rate: u64) -> Stream {
    let spec = StreamSpec {
        name: "camera".into(),
        volume: Arc::clone(volume),
        range: None,
        rate: BytesPerSecond(rate),
        block: Bytes(65536),
        op,
        span: None,
        wraps: true,
    };
    pool.reserve(spec).unwrap()
}

/// Records zeros until it fails, calling `at_block` after each block; what it failed with.
fn record_until_it_fails(stream: &Stream, mut at_block: impl FnMut(u64)) -> PaceError {
    let zeros = File::open("/dev/zero").unwrap();
    Recorder::new(stream, Bytes::ZERO)
        .run(zeros, &Stop::new().unwrap(), &mut |block| {
            at_block(block.index)
        })
        .unwrap_err()
}

/// That a volume on a disk which is well takes, keeps and gives back data.
fn works(pool: &Pool, volume: &Arc<Volume>, fill: u8) {
    let client = client(pool);
    client.write_at(volume, Bytes(0), &[fill; 65536]).unwrap();
    client.flush(volume).unwrap();
    let mut back = [0; 65536];
    client.read_at(volume, Bytes(0), &mut back).unwrap();
    assert!(back == [fill; 65536]);
}

#[test]
fn a_disk_whose_file_system_is_full_fails_writes_and_keeps_what_it_acknowledged() {
    if !is_root("a file system that is full") {
        return;
    }
    let (Some(full), Some(roomy)) = (Tmpfs::mount(16 * MIB), Tmpfs::mount(64 * MIB)) else {
        return;
    };
    let memory = memory();
    let files = [roomy.file("disk0", 64 * MIB), full.file("disk1", 64 * MIB)];
    let paths = [files[0].as_path(), files[1].as_path()];
    let pool = create(&memory, paths);
    let well = volume_on(&pool, "well", 0, 4 * MIB);
    let video = volume_on(&pool, "video", 1, 40 * MIB);
    let writer = client(&pool);
    writer.write_at(&video, Bytes(0), &[7; 65536]).unwrap();
    writer.flush(&video).unwrap();
    full.fill_up(MIB);

    let recorder = stream(&pool, &video, Op::Write, SLOW);
    let error = record_until_it_fails(&recorder, |_| {}).to_string();
    assert!(
        error.contains("disk1") && error.contains("No space left"),
        "{error}"
    );
    let told = recorder.status();
    assert!(told.failed.unwrap().contains("No space left") && told.errors > 0);
    let (_buffer, segments) = filled(&writer, &[1; 512]);
    let refused = writer.submit(VolumeRequest::transfer(&video, WRITE, Bytes(0), segments));
    assert!(
        matches!(refused, Err(SubmitError::Poisoned { .. })),
        "{refused:?}"
    );
    let status = pool.status();
    assert!(status.disks[0].failed.is_none());
    assert!(
        status.disks[1]
            .failed
            .as_ref()
            .unwrap()
            .contains("No space left")
    );
    works(&pool, &well, 3);
    let mut back = [0; 512];
    writer.read_at(&video, Bytes(0), &mut back).unwrap();

    // Room is made, and the pool is opened anew: what was flushed is there, and it takes writes again.
    drop((recorder, writer, well, video, pool));
    full.resize(128 * MIB);
    let pool = open(&memory, paths);
    let (well, video) = (
        pool.open_volume("well").unwrap(),
        pool.open_volume("video").unwrap(),
    );
    let mut back = [0; 65536];
    client(&pool).read_at(&well, Bytes(0), &mut back).unwrap();
    assert!(back == [3; 65536]);
    // The recording has gone over the first block, or has not: it is one or the other.
    client(&pool).read_at(&video, Bytes(0), &mut back).unwrap();
    assert!(back == [7; 65536] || back == [0; 65536]);
    works(&pool, &video, 9);
}

#[test]
fn a_device_that_loses_its_medium_is_told_of_and_holds_up_nobody() {
    if !is_root("a device that is torn off") {
        return;
    }
    let Some(host) = Tmpfs::mount(96 * MIB) else {
        return;
    };
    let files = [host.file("disk0", 32 * MIB), host.file("disk1", 32 * MIB)];
    let (Some(well), Some(torn)) = (Loop::attach(&files[0], 512), Loop::attach(&files[1], 512))
    else {
        return;
    };
    let memory = memory();
    let pool = create(&memory, [well.path(), torn.path()]);
    let good = volume_on(&pool, "good", 0, 8 * MIB);
    let bad = volume_on(&pool, "bad", 1, 8 * MIB);
    let (playing, recording) = (
        stream(&pool, &good, Op::Write, SLOW),
        stream(&pool, &bad, Op::Write, SLOW),
    );
    works(&pool, &good, 1);
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let zeros = File::open("/dev/zero").unwrap();
            Recorder::new(&playing, Bytes::ZERO)
                .limit(Bytes(10 * 65536))
                .run(zeros, &Stop::new().unwrap(), &mut |_| {})
                .unwrap()
        });
        let error = record_until_it_fails(&recording, |block| {
            if block == 4 {
                torn.tear_off();
            }
        });
        assert!(error.to_string().contains("disk1"), "{error}");
        assert_eq!(beside.join().unwrap().blocks, 10);
    });
    assert!(recording.close().failed.unwrap().contains("disk1"));
    assert!(playing.close().failed.is_none());
    let reader = client(&pool);
    let mut back = [0; 4096];
    assert!(reader.read_at(&bad, Bytes(0), &mut back).is_err());
    assert!(reader.write_at(&bad, Bytes(0), &back).is_err());
    works(&pool, &good, 2);
    let status = pool.status();
    assert!(status.disks[0].failed.is_none() && status.disks[0].errors == 0);
    assert!(status.disks[1].failed.is_some() && status.disks[1].errors > 0);
}

#[test]
fn blocks_of_4096_bytes_are_what_requests_are_multiples_of() {
    if !is_root("a device with blocks of 4096 bytes") {
        return;
    }
    let Some(host) = Tmpfs::mount(96 * MIB) else {
        return;
    };
    let files = [host.file("disk0", 32 * MIB), host.file("disk1", 32 * MIB)];
    let (Some(small), Some(large)) = (Loop::attach(&files[0], 512), Loop::attach(&files[1], 4096))
    else {
        return;
    };
    let memory = memory();
    let paths = [small.path(), large.path()];
    let pool = create(&memory, paths);
    // Wherever a volume lies now, it may be moved to the disk with the larger blocks.
    let volume = volume(&pool, "v", 6 * MIB);
    assert_eq!(volume.alignment(), Bytes(4096));
    let writer = client(&pool);
    for (offset, len) in [(512, 4096), (0, 512), (4096, 4608)] {
        let (_buffer, segments) = filled(&writer, &vec![1; len]);
        let request = VolumeRequest::transfer(&volume, WRITE, Bytes(offset), segments);
        let error = writer.submit(request).unwrap_err();
        assert!(matches!(
            error,
            SubmitError::Misaligned {
                alignment: 4096,
                ..
            }
        ));
        assert!(error.to_string().contains("multiple of 4 KiB"), "{error}");
    }
    let data: Vec<u8> = (0..3 * MIB).map(|at| (at / 4096 % 251) as u8).collect();
    writer.write_at(&volume, Bytes(4096), &data).unwrap();
    writer.flush(&volume).unwrap();
    drop((writer, volume, pool));
    let pool = open(&memory, paths);
    let volume = pool.open_volume("v").unwrap();
    let mut back = vec![0; data.len()];
    client(&pool)
        .read_at(&volume, Bytes(4096), &mut back)
        .unwrap();
    assert!(back == data);
    drop(volume);
    pool.close().unwrap();
}

/// A pool of two disks in memory, its metadata on the first, of which a stall shows at once and never ends
/// by itself.
fn patient() -> (Rig, Arc<Pool>) {
    let mut rig = Rig::new(2, 32 * MIB, Durability::WriteThrough);
    rig.options.patience = Patience {
        stalled_after: Nanos::from_millis(1),
        give_up_after: Nanos::from_secs(100_000),
    };
    rig.create(MIB);
    let pool = rig.open();
    (rig, pool)
}

#[test]
fn a_stalled_disk_with_the_metadata_is_waited_for_and_others_go_on() {
    let (rig, pool) = patient();
    let other = volume_on(&pool, "other", 1, 4 * MIB);
    works(&pool, &other, 1);
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let making = scope.spawn(|| volume_on(&pool, "new", 0, MIB));
        while pool.status().disks[0].stalled_ns == 0 {}
        // Data on the other disk, also made durable, as long as the map does not change.
        for fill in 2..50 {
            works(&pool, &other, fill);
        }
        let status = pool.status();
        assert!(status.disks[0].failed.is_none() && status.disks[0].stalls == 1);
        assert!(status.disks[1].stalled_ns == 0 && !making.is_finished());
        rig.platters[0].stalled.store(false, Ordering::SeqCst);
        works(&pool, &making.join().unwrap(), 3);
    });
    assert_eq!(pool.status().disks[0].stalled_ns, 0);
    let more = pool.create_volume(&VolumeSpec {
        name: "more".into(),
        size: Bytes(MIB),
        placement: Placement::default(),
    });
    more.unwrap();
}

/// Lets a disk answer again when it goes out of scope, also by a panic, so that who waits for it ends.
struct GoesOn<'a>(&'a AtomicBool);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_flush_whose_record_lies_on_a_stalled_disk_says_what_it_waits_for() {
    let (rig, pool) = patient();
    let other = volume_on(&pool, "other", 1, 4 * MIB);
    works(&pool, &other, 1);
    assert_eq!(pool.status().waits, []);
    rig.platters[0].stalled.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let _goes_on = GoesOn(&rig.platters[0].stalled);
        let flushing = scope.spawn(|| {
            let client = client(&pool);
            // A chunk that has not been written to, so that the log has something to record.
            client
                .write_at(&other, Bytes(2 * MIB), &[2; 65536])
                .unwrap();
            client.flush(&other).unwrap();
        });
        let waits = loop {
            let waits = pool.waits();
            if !waits.is_empty() {
                break waits;
            }
        };
        let [wait] = waits.as_slice() else {
            panic!("{waits:?}");
        };
        assert_eq!(
            (wait.volume.as_str(), wait.disk.as_str()),
            ("other", "disk0")
        );
        assert!(wait.stalled_ns > 0 && wait.waits_ns > 0);
        let line = wait.to_string();
        assert!(
            line.starts_with("flush of volume \"other\" waits for disk \"disk0\" (stalled for ")
        );
        assert_eq!(pool.status().waits.len(), 1);
        // Data goes on meanwhile.
        client(&pool)
            .write_at(&other, Bytes(0), &[3; 65536])
            .unwrap();
        assert!(!flushing.is_finished());
        rig.platters[0].stalled.store(false, Ordering::SeqCst);
        flushing.join().unwrap();
    });
    assert_eq!(pool.status().waits, []);
}

#[test]
fn a_disk_that_is_given_up_fails_what_it_was_asked_and_its_streams_are_told() {
    let mut rig = Rig::new(2, 32 * MIB, Durability::WriteThrough);
    rig.options.patience = Patience {
        stalled_after: Nanos::from_millis(500),
        give_up_after: Nanos::from_millis(500),
    };
    rig.create(MIB);
    let pool = rig.open();
    let (good, bad) = (
        volume_on(&pool, "good", 0, 4 * MIB),
        volume_on(&pool, "bad", 1, 4 * MIB),
    );
    let recorder = stream(&pool, &bad, Op::Write, FAST);
    let error = record_until_it_fails(&recorder, |block| {
        rig.platters[1].stalled.store(block >= 2, Ordering::SeqCst);
    });
    assert!(
        error.to_string().contains("did not answer in time"),
        "{error}"
    );
    assert!(recorder.close().failed.unwrap().contains("disk1"));
    assert!(pool.status().disks[1].failed.is_some());
    works(&pool, &good, 5);
    rig.platters[1].stalled.store(false, Ordering::SeqCst);
    drop((good, bad));
    // What became of the writes that were given up nobody knows.
    let closed = pool.close();
    assert!(
        matches!(closed, Err(PoolError::Io(_) | PoolError::Metadata(_))),
        "{closed:?}"
    );
}

#[test]
fn a_listener_that_is_owed_a_block_is_an_underrun_and_a_late_source_is_one() {
    let rig = Rig::new(1, 32 * MIB, Durability::WriteThrough);
    rig.create(MIB);
    let pool = rig.open();
    let video = volume(&pool, "video", 2 * MIB);
    client(&pool)
        .write_at(&video, Bytes(0), &vec![5; 2 << 20])
        .unwrap();
    let player = stream(&pool, &video, Op::Read, FAST);
    // Each transfer takes longer than three blocks may: whatever the host does, some are not there in time.
    let period = Nanos(65536 * 1_000_000_000 / FAST);
    rig.platters[0]
        .delay_ns
        .store(4 * period.0, Ordering::SeqCst);
    let sink = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .unwrap();
    let played = Player::new(&player, Bytes::ZERO)
        .limit(Bytes(10 * 65536))
        .run(sink, &Stop::new().unwrap(), &mut |_| {})
        .unwrap();
    assert!(
        played.underruns > 0 && played.underruns <= played.blocks,
        "{played:?}"
    );
    // The blocks were late as well, for the disk took longer than its profile allows.
    assert_eq!(played.misses, played.blocks, "{played:?}");
    let (told, disk) = (player.status(), &pool.status().disks[0]);
    assert!(told.overruns == played.blocks && disk.overruns >= told.overruns);
    rig.platters[0].delay_ns.store(0, Ordering::SeqCst);
    drop(player);

    let recorder = stream(&pool, &video, Op::Write, FAST);
    let (mut source, near) = std::os::unix::net::UnixStream::pair().unwrap();
    let stop = Stop::new().unwrap();
    let report = std::thread::scope(|scope| {
        let mut blocks = 0;
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        scope.spawn(move || {
            use std::io::Write as _;
            source.write_all(&[1; 65536]).unwrap();
            // The next one comes only when the time for it has long gone by.
            let completed: sched::units::Time = may_go_on.recv().unwrap();
            engine::rt::sleep_until(completed + Nanos(4 * period.0));
            source.write_all(&[2; 65536]).unwrap();
        });
        Recorder::new(&recorder, Bytes::ZERO)
            .run(&near, &stop, &mut |_| {
                blocks += 1;
                if blocks == 1 {
                    go_on.send(clock::now()).unwrap();
                }
            })
            .unwrap()
    });
    assert_eq!(
        (report.blocks, report.underruns, report.waited_for_peer),
        (2, 1, 1)
    );
}
