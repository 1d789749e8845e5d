//! A drive that is well: data, model time, room on the host.

use std::io;
use std::os::unix::fs::PermissionsExt;

use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::{Plant, PlantSpec};
use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Durability};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use super::{Bench, spec};

#[test]
fn completions_are_the_plants_to_the_nanosecond_but_for_what_the_host_was_late() {
    let dir = tempfile::tempdir().unwrap();
    let options = DriveOptions {
        seed: 4,
        ..DriveOptions::default()
    };
    let mut bench = Bench::create(&dir.path().join("disk"), &options);
    let control = bench.drive.control();
    control.keep_log(1_000);
    let sectors = bench.drive.capacity().get();
    let mut dones = Vec::new();
    for i in 0..60_u64 {
        let (start, count) = (i * 7_919_113 % (sectors - 2_048), 1 + i * 37 % 2_048);
        let done = if i % 3 == 0 {
            bench.write(start, count, i as u8, false)
        } else {
            bench.read(start, count).0
        };
        dones.push(done);
    }
    let mut plant = Plant::new(spec(), options.seed);
    let log = control.take_log();
    assert_eq!(log.len(), dones.len());
    for (entry, done) in log.iter().zip(&dones) {
        let service = plant.service(entry.issued, entry.op, entry.start, entry.count);
        assert_eq!(entry.service, service);
        assert_eq!(entry.due, service.completed);
        assert!(done.at >= entry.due, "no completion is early");
        assert_eq!(done.at - done.host_late, entry.due);
    }
    let stats = control.stats();
    assert_eq!(stats.completed, 60);
    assert_eq!(stats.host_errors + stats.faults, 0);
    let worst = dones.iter().map(|done| done.host_late).max().unwrap();
    // The distribution is kept to three digits.
    assert!(
        stats.lateness.max >= worst
            && stats.lateness.max.get() <= worst.get() + worst.get() / 500 + 1
    );
}

#[test]
fn data_survives_the_drive_and_its_file_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let options = DriveOptions::default();
    let mut bench = Bench::create(&path, &options);
    assert_eq!(bench.drive.durability(), Durability::WriteThrough);
    assert_eq!(bench.write(1_000, 300, 7, false).result, Ok(()));
    assert_eq!(bench.marks(999, 302)[..2], [0, 7]);

    let taken = EmulatedDrive::open(&path, spec(), &options).err().unwrap();
    assert!(
        taken.to_string().contains("another drive is running"),
        "{taken}"
    );
    drop(bench);
    let exists = EmulatedDrive::create(&path, spec(), &options)
        .err()
        .unwrap();
    assert_eq!(exists.kind(), io::ErrorKind::AlreadyExists);
    let other = PlantSpec::built_in("hdd-8tb-7200").unwrap();
    let wrong = EmulatedDrive::open(&path, other, &options).err().unwrap();
    assert!(wrong.to_string().contains("is not this drive"), "{wrong}");

    let mut bench = Bench::open(&path, &options);
    assert_eq!(bench.marks(1_299, 2), [7, 0]);
}

#[test]
fn eight_terabytes_take_no_room_until_they_are_written_and_can_be_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let spec = PlantSpec::built_in("hdd-8tb-7200").unwrap();
    let sectors = spec.sectors();
    let drive =
        EmulatedDrive::create(&dir.path().join("disk"), spec, &DriveOptions::default()).unwrap();
    let mut bench = Bench::new(drive);
    let control = bench.drive.control();
    assert_eq!(bench.drive.capacity(), sectors);
    assert!(control.host_bytes().unwrap() < 1 << 20);
    let start = sectors.get() - 4_096;
    for part in 0..2 {
        assert_eq!(
            bench.write(start + part * 2_048, 2_048, 9, false).result,
            Ok(())
        );
    }
    assert!(control.host_bytes().unwrap() >= 2 << 20);
    control.discard(Sector(start), SectorCount(4_096)).unwrap();
    assert!(control.host_bytes().unwrap() < 1 << 20);
    assert_eq!(bench.marks(start, 1), [0]);
}

#[test]
fn impossible_transfers_are_refused_and_a_full_drive_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::create(&dir.path().join("disk"), &DriveOptions::default());
    let sectors = bench.drive.capacity().get();
    let buffer = bench.buffer(8);
    for start in [sectors, sectors - 7, u64::MAX] {
        let refused = bench.submit(Op::Read, start, &buffer, 8, false);
        assert!(
            matches!(refused, Err(DiskError::Invalid { .. })),
            "{refused:?}"
        );
    }
    let segments = buffer.segments(Op::Read, 0..512).unwrap();
    let (start, count) = (Sector(0), SectorCount(2));
    let short = DiskIo {
        tag: 0,
        op: Op::Read,
        start,
        count,
        segments,
        durable: false,
    };
    assert_eq!(
        bench.drive.submit(short),
        Err(DiskError::Invalid { start, count })
    );

    let control = bench.drive.control();
    control.stall();
    for _ in 0..bench.drive.places() {
        bench.submit(Op::Read, 0, &buffer, 1, false).unwrap();
    }
    assert_eq!(
        bench.submit(Op::Read, 0, &buffer, 1, false),
        Err(DiskError::Busy)
    );
    control.resume();
    let ends = bench.ends(bench.drive.places());
    let tags: Vec<u64> = ends.iter().map(|done| done.tag).collect();
    assert!(tags.is_sorted(), "in order of issue: {tags:?}");
    bench.submit(Op::Read, 0, &buffer, 1, false).unwrap();
    bench.finish();
}

#[test]
fn a_wait_ends_at_its_instant_and_at_a_wake_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::create(&dir.path().join("disk"), &DriveOptions::default());
    let mut out = bench.wait_until(clock::now() + Nanos::from_millis(5));
    bench
        .drive
        .wait(Some(Time::ZERO), &bench.wake, &mut out)
        .unwrap();
    bench.wake.signal();
    bench.drive.wait(None, &bench.wake, &mut out).unwrap();
    assert!(!bench.wake.drain(), "the signal has been taken");
    assert!(out.is_empty());
}

#[test]
fn nobody_else_reads_what_a_drive_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let _bench = Bench::create(&path, &DriveOptions::default());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
