//! Real file systems and block devices: full, removed, and with large blocks.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use engine::buffer::{Memory, MemoryConfig};
use engine::pool::{CreateOptions, OpenOptions, Pool, PoolDisk, PoolError, VolumeSpec};
use engine::stream::{Recorder, Stop};
use engine::uring::UringDisk;
use engine::volume_io::{SubmitError, VolumeRequest};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::Op;
use sched::units::{Bytes, SectorCount};

use super::{record_until_it_fails, stream, works};
use testkit::disks::{MIB, WRITE, client, filled, on_disk, volume, volume_on};
use testkit::host::{Indirect, Loop, Tmpfs};
use testkit::skip::is_root;
use testkit::until;

/// The rate of streams on a file of unknown speed, in bytes per second.
const SLOW: u64 = 512 << 10;

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
    let status = pool.status();
    assert_eq!(status.disks[0].last_error, None);
    let told = status.disks[1].last_error.as_ref().unwrap();
    assert!(
        told.starts_with("write: ") && told.contains("No space left"),
        "{told}"
    );
    assert!(status.disks[1].write_errors > 0 && status.disks[1].failed.is_none());
    works(&pool, &well, 3);
    let mut back = [0; 512];
    writer.read_at(&video, Bytes(0), &mut back).unwrap();

    // With room again, it accepts writes again.
    full.resize(128 * MIB);
    writer
        .write_at(&video, Bytes(30 * MIB), &[8; 65536])
        .unwrap();
    writer.flush(&video).unwrap();

    // After reopening the pool, flushed data is there.
    drop((recorder, writer, well, video, pool));
    let pool = open(&memory, paths);
    let (well, video) = (
        pool.open_volume("well").unwrap(),
        pool.open_volume("video").unwrap(),
    );
    let mut back = [0; 65536];
    client(&pool).read_at(&well, Bytes(0), &mut back).unwrap();
    assert!(back == [3; 65536]);
    // The recording has overwritten the first block, or has not; no mixture.
    client(&pool).read_at(&video, Bytes(0), &mut back).unwrap();
    assert!(back == [7; 65536] || back == [0; 65536]);
    let mut later = [0; 65536];
    client(&pool)
        .read_at(&video, Bytes(30 * MIB), &mut later)
        .unwrap();
    assert!(later == [8; 65536]);
    works(&pool, &video, 9);
}

#[test]
fn metadata_on_a_full_file_system_is_frozen_until_there_is_room() {
    if !is_root("a file system that is full") {
        return;
    }
    let (Some(full), Some(roomy)) = (Tmpfs::mount(16 * MIB), Tmpfs::mount(64 * MIB)) else {
        return;
    };
    let memory = memory();
    let files = [full.file("disk0", 64 * MIB), roomy.file("disk1", 64 * MIB)];
    let paths = [files[0].as_path(), files[1].as_path()];
    let pool = create(&memory, paths);
    let well = volume_on(&pool, "well", 1, 4 * MIB);
    works(&pool, &well, 1);
    full.fill_up(0);
    let spec = |number: u32| VolumeSpec {
        name: format!("v{number}"),
        size: Bytes(MIB),
        placement: on_disk(1),
    };
    let made = |number| pool.create_volume(&spec(number)).map(drop);
    let (last, frozen) = (0..64)
        .map(|number| (number, made(number)))
        .find(|(_, made)| made.is_err())
        .expect("the log comes to where the file has no room");
    let Err(PoolError::MetadataFrozen { reason, is_pending }) = frozen else {
        panic!("{frozen:?}");
    };
    assert!(
        is_pending && reason.contains("disk0") && reason.contains("No space left"),
        "{reason}"
    );
    works(&pool, &well, 2);
    let metadata = pool.status().metadata;
    assert!(metadata.goes_on && metadata.freezes == 1, "{metadata:?}");
    full.resize(128 * MIB);
    until("the metadata goes on", || {
        pool.status().metadata.frozen.is_none()
    });
    assert_eq!(pool.status().metadata.resumes, 1);
    made(last + 1).unwrap();
    drop(well);
    pool.close().unwrap();
    drop(pool);
    let pool = open(&memory, paths);
    assert_eq!(pool.volumes().len() as u32, 1 + last + 2);
    works(&pool, &pool.open_volume("well").unwrap(), 3);
}

#[test]
fn removed_device_is_reported_and_delays_no_other_disk() {
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
    assert!(status.disks[1].last_error.is_some() && status.disks[1].errors > 0);
}

#[test]
fn file_system_without_direct_transfers_is_used_with_a_warning() {
    let Some(host) = Indirect::mount() else {
        return;
    };
    let memory = memory();
    let options = CreateOptions {
        extent_bytes: Some(Bytes(MIB)),
        ..CreateOptions::default()
    };
    let tempfile = tempfile::tempdir().unwrap();
    for (folder, is_told) in [(host.path(), true), (tempfile.path().to_owned(), false)] {
        let path = folder.join("disk");
        File::create(&path).unwrap().set_len(64 * MIB).unwrap();
        let given = || vec![disk(&memory, "disk", &path)];
        Pool::create(&memory, given(), &options).unwrap();
        let pool = Pool::open(memory.clone(), given(), OpenOptions::default()).unwrap();
        let volume = volume(&pool, "v", MIB);
        works(&pool, &volume, 5);
        let told = pool.status().warnings;
        let told = told
            .iter()
            .any(|warning| warning.what.contains("no direct I/O"));
        assert_eq!(told, is_told, "{}", path.display());
        drop(volume);
        pool.close().unwrap();
    }
}

/// A file's profile with sectors of 512 bytes, with which long requests are cut into many pieces.
fn in_small_pieces() -> DriveProfile {
    let mut spec = DriveProfile::shipped("conservative-file")
        .unwrap()
        .spec()
        .clone();
    spec.physical_sector_bytes = 512;
    let flat = spec.flat.as_mut().unwrap();
    (flat.read_overhead_us, flat.write_overhead_us) = (1_000, 1_000);
    DriveProfile::new(spec).unwrap()
}

#[test]
fn profile_with_smaller_sectors_than_the_disks_cuts_no_request_within_one() {
    if !is_root("a device with blocks of 4096 bytes") {
        return;
    }
    let Some(host) = Tmpfs::mount(64 * MIB) else {
        return;
    };
    let Some(device) = Loop::attach(&host.file("disk", 32 * MIB), 4096) else {
        return;
    };
    let memory = memory();
    let given = || PoolDisk {
        profile: Arc::new(in_small_pieces()),
        ..disk(&memory, "disk", device.path())
    };
    Pool::create(&memory, vec![given()], &CreateOptions::default()).unwrap();
    let options = OpenOptions {
        realtime: false,
        ..OpenOptions::default()
    };
    let pool = Pool::open(memory.clone(), vec![given()], options).unwrap();
    let volume = volume(&pool, "v", 4 * MIB);
    let data: Vec<u8> = (0..2 * MIB).map(|at| (at / 4096 % 251) as u8).collect();
    let before = pool.status().disks[0].served.slack;
    client(&pool).write_at(&volume, Bytes(0), &data).unwrap();
    let pieces = pool.status().disks[0].served.slack - before;
    assert!(pieces > 16, "{pieces} pieces");
    let mut back = vec![0; data.len()];
    client(&pool).read_at(&volume, Bytes(0), &mut back).unwrap();
    assert!(back == data);
    let status = pool.status();
    assert_eq!(
        (status.disks[0].errors, status.disks[0].failed.is_some()),
        (0, false)
    );
    let told: Vec<_> = status.warnings.iter().map(ToString::to_string).collect();
    for part in ["sectors of 512 B; the disk's, of 4 KiB, are used", "no FUA"] {
        assert!(
            told.iter().any(|line| line.contains(part)),
            "{part}: {told:?}"
        );
    }
    drop(volume);
    pool.close().unwrap();
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
    // The volume may be moved to the disk with the larger blocks, wherever it lies.
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
