//! A drive that is not: bad sectors, stalls, torn off, without power, on a host that is full.

use std::io;

use drives::emulator::{DriveOptions, RangeFault};
use engine::clock;
use engine::disk::{Disk, DiskError, Durability};
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount};
use testkit::{host, skip};

use super::Bench;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[test]
fn a_bad_sector_costs_rotations_and_fails_what_touches_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::create(&dir.path().join("disk"), &DriveOptions::default());
    let control = bench.drive.control();
    control.keep_log(10);
    let bad = RangeFault {
        start: Sector(105),
        count: SectorCount(1),
        op: None,
        rotations: 3,
        errno: Some(EIO),
    };
    let id = control.inject(bad);
    let failed = bench.write(100, 10, 5, false);
    assert_eq!(
        failed.result,
        Err(DiskError::Io {
            errno: EIO,
            start: Sector(100)
        })
    );
    assert_eq!(
        bench.read(105, 1).0.result,
        Err(DiskError::Io {
            errno: EIO,
            start: Sector(105)
        })
    );
    assert_eq!(bench.marks(90, 15)[9..12], [0, 5, 5]);
    let log = control.take_log();
    assert_eq!(log[0].due, log[0].service.completed + Nanos(3 * 8_333_333));
    assert!(log[1].service.begun >= log[0].due);
    assert_eq!(log[2].due, log[2].service.completed);
    assert!(control.heal(id));
    assert_eq!(bench.marks(100, 10), [5, 5, 5, 5, 5, 0, 0, 0, 0, 0]);
    let soft = RangeFault { errno: None, ..bad };
    control.inject(soft);
    assert_eq!(bench.read(105, 1).0.result, Ok(()));
    assert_eq!(control.stats().faults, 2);
}

#[test]
fn a_stalled_drive_completes_nothing_until_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::create(&dir.path().join("disk"), &DriveOptions::default());
    let control = bench.drive.control();
    control.keep_log(1);
    control.stall();
    let buffer = bench.buffer(1);
    bench
        .submit(Op::Read, 8_000_000, &buffer, 1, false)
        .unwrap();
    // Longer than any request takes.
    let until = clock::now() + Nanos::from_millis(100);
    assert!(bench.wait_until(until).is_empty());
    control.resume();
    let done = bench.finish();
    let log = control.take_log();
    assert!(log[0].service.completed < until && log[0].due >= until);
    assert_eq!(done.at - done.host_late, log[0].due);
}

#[test]
fn a_drive_that_is_torn_off_fails_everything_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::create(&dir.path().join("disk"), &DriveOptions::default());
    let control = bench.drive.control();
    bench.write(50, 1, 1, false);
    control.stall();
    let buffer = bench.buffer(1);
    for _ in 0..2 {
        bench.submit(Op::Read, 50, &buffer, 1, false).unwrap();
    }
    control.tear_off();
    let ends = bench.ends(2);
    assert!(
        ends.iter()
            .all(|done| matches!(done.result, Err(DiskError::Gone { .. }))),
        "{ends:?}"
    );
    let refused = bench.submit(Op::Read, 50, &buffer, 1, false).unwrap_err();
    assert!(refused.is_gone());
    control.resume();
    control.reattach();
    assert_eq!(bench.marks(50, 1), [1]);
}

#[test]
fn a_power_cut_loses_only_what_was_not_forced_sector_by_sector() {
    let dir = tempfile::tempdir().unwrap();
    let options = DriveOptions {
        seed: 11,
        volatile_cache: Some(SectorCount(4_096)),
        ..DriveOptions::default()
    };
    let path = dir.path().join("disk");
    let mut bench = Bench::create(&path, &options);
    assert_eq!(bench.drive.durability(), Durability::Fua);
    let control = bench.drive.control();
    bench.write(0, 64, 1, true);
    bench.write(64, 64, 2, true);
    bench.write(64, 64, 3, false);
    assert_eq!(bench.marks(63, 3), [1, 3, 3], "reads see the cache");
    // In service when the power fails.
    control.stall();
    let mut buffer = bench.buffer(64);
    buffer.with_mut(|bytes| bytes.fill(4)).unwrap();
    bench.submit(Op::Write, 0, &buffer, 64, true).unwrap();
    control.power_cut();
    assert!(matches!(bench.finish().result, Err(DiskError::Gone { .. })));
    drop(bench);

    let mut bench = Bench::open(&path, &options);
    let marks = bench.marks(0, 128);
    let count = |part: &[u8], mark| part.iter().filter(|&&m| m == mark).count();
    let (first, second) = marks.split_at(64);
    assert_eq!(count(second, 2) + count(second, 3), 64);
    assert!(count(second, 2) > 0 && count(second, 3) > 0, "{second:?}");
    assert_eq!(count(first, 1) + count(first, 4), 64);
}

#[test]
fn a_cache_that_overflows_or_is_shut_down_reaches_the_medium() {
    let dir = tempfile::tempdir().unwrap();
    let options = DriveOptions {
        volatile_cache: Some(SectorCount(16)),
        ..DriveOptions::default()
    };
    let path = dir.path().join("disk");
    let mut bench = Bench::create(&path, &options);
    let control = bench.drive.control();
    bench.write(0, 64, 1, false);
    control.power_cut();
    control.reattach();
    assert_eq!(
        bench.marks(0, 48),
        [1; 48],
        "all but sixteen sectors had been destaged"
    );
    bench.write(100, 8, 2, false);
    assert_eq!(
        control
            .discard(Sector(100), SectorCount(8))
            .unwrap_err()
            .kind(),
        io::ErrorKind::Unsupported
    );
    drop(bench);
    let mut bench = Bench::open(&path, &options);
    assert_eq!(bench.marks(100, 8), [2; 8]);
}

#[test]
fn a_host_without_room_fails_the_write_and_the_drive_goes_on() {
    if !skip::is_root("an emulated drive on a full file system") {
        return;
    }
    let Some(full) = host::Tmpfs::mount(16 << 20) else {
        return;
    };
    let mut bench = Bench::create(&full.path().join("disk"), &DriveOptions::default());
    assert_eq!(bench.write(0, 64, 1, false).result, Ok(()));
    full.fill_up(0);
    let start = 1 << 20;
    let failed = bench.write(start, 64, 2, false).result.unwrap_err();
    let no_room = DiskError::Io {
        errno: ENOSPC,
        start: Sector(start),
    };
    assert_eq!(failed, no_room);
    assert!(failed.to_string().contains("No space left"), "{failed}");
    assert_eq!(bench.drive.control().stats().host_errors, 1);
    assert_eq!(bench.marks(0, 64), [1; 64]);
    assert_eq!(bench.write(0, 64, 3, false).result, Ok(()));
    full.resize(32 << 20);
    assert_eq!(bench.write(start, 64, 4, false).result, Ok(()));
}
