//! The drive emulator: data, model time, faults, power. No assertion is on a wall clock: what the
//! model says is compared exactly, and how late the host was is only counted.

#[allow(dead_code, unreachable_pub, reason = "shared with the engine's tests")]
#[path = "../../engine/tests/common/host.rs"]
mod host;
#[path = "../../engine/tests/common/skip.rs"]
mod skip;

use std::io;
use std::path::Path;

use engine::buffer::{Account, Buffer, Memory, MemoryConfig};
use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability};
use engine::event::EventFd;
use sched::request::Op;
use sched::units::{Bytes, Nanos, SECTOR_BYTES, Sector, SectorCount, Time};
use sim::emulator::{DriveOptions, EmulatedDrive, RangeFault};
use sim::plant::{Plant, PlantSpec};

const EIO: i32 = 5;

fn spec() -> PlantSpec {
    PlantSpec::built_in("quantum-atlas-ii").unwrap()
}

/// A drive with its owner's side: memory, and a wake-up that nobody rings.
struct Bench {
    drive: EmulatedDrive,
    account: Account,
    wake: EventFd,
    next_tag: u64,
}

impl Bench {
    fn new(drive: EmulatedDrive) -> Self {
        let config = MemoryConfig {
            size: Bytes::from_mib(8),

            reserve: Bytes::ZERO,
            lock: false,
            give_back_within: Nanos::from_millis(500),
        };
        let memory = Memory::new(&config).unwrap();
        let account = memory.open_account("test", Bytes::from_mib(4)).unwrap();
        Self {
            drive,
            account,
            wake: EventFd::new().unwrap(),
            next_tag: 0,
        }
    }

    fn create(path: &Path, options: &DriveOptions) -> Self {
        Self::new(EmulatedDrive::create(path, spec(), options).unwrap())
    }

    fn buffer(&self, count: u64) -> Buffer {
        self.account
            .allocate((count * SECTOR_BYTES) as usize)
            .unwrap()
    }

    fn submit(
        &mut self,
        op: Op,
        start: u64,
        buffer: &Buffer,
        count: u64,
        durable: bool,
    ) -> Result<(), DiskError> {
        self.next_tag += 1;
        let segments = buffer
            .segments(op, 0..(count * SECTOR_BYTES) as usize)
            .unwrap();
        self.drive.submit(DiskIo {
            tag: self.next_tag,
            op,
            start: Sector(start),
            count: SectorCount(count),
            segments,
            durable,
        })
    }

    fn finish(&mut self) -> Done {
        let mut out = Vec::new();
        while out.is_empty() {
            self.drive.wait(None, &self.wake, &mut out).unwrap();
        }
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].tag, self.next_tag);
        out.remove(0)
    }

    fn write(&mut self, start: u64, count: u64, fill: u8, durable: bool) -> Done {
        let mut buffer = self.buffer(count);
        buffer.with_mut(|bytes| bytes.fill(fill)).unwrap();
        self.submit(Op::Write, start, &buffer, count, durable)
            .unwrap();
        self.finish()
    }

    fn read(&mut self, start: u64, count: u64) -> (Done, Vec<u8>) {
        let mut buffer = self.buffer(count);
        buffer.with_mut(|bytes| bytes.fill(0xEE)).unwrap();
        self.submit(Op::Read, start, &buffer, count, false).unwrap();
        let done = self.finish();
        let bytes = buffer
            .with(|bytes| bytes[..(count * SECTOR_BYTES) as usize].to_vec())
            .unwrap();
        (done, bytes)
    }

    /// The first byte of each sector.
    fn marks(&mut self, start: u64, count: u64) -> Vec<u8> {
        let (done, bytes) = self.read(start, count);
        assert_eq!(done.result, Ok(()));
        bytes
            .chunks(SECTOR_BYTES as usize)
            .map(|sector| sector[0])
            .collect()
    }
}

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

    let mut bench = Bench::new(EmulatedDrive::open(&path, spec(), &options).unwrap());
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
    let mut out = Vec::new();
    while out.len() < bench.drive.places() {
        bench.drive.wait(None, &bench.wake, &mut out).unwrap();
    }
    let tags: Vec<u64> = out.iter().map(|done| done.tag).collect();
    assert!(tags.is_sorted(), "in order of issue: {tags:?}");
    bench.submit(Op::Read, 0, &buffer, 1, false).unwrap();
    bench.finish();
}

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
    let mut out = Vec::new();
    while clock::now() < until {
        bench
            .drive
            .wait(Some(until), &bench.wake, &mut out)
            .unwrap();
    }
    assert!(out.is_empty());
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
    let mut out = Vec::new();
    while out.len() < 2 {
        bench.drive.wait(None, &bench.wake, &mut out).unwrap();
    }
    assert!(
        out.iter()
            .all(|done| matches!(done.result, Err(DiskError::Gone { .. }))),
        "{out:?}"
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

    let mut bench = Bench::new(EmulatedDrive::open(&path, spec(), &options).unwrap());
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
    let mut bench = Bench::new(EmulatedDrive::open(&path, spec(), &options).unwrap());
    assert_eq!(bench.marks(100, 8), [2; 8]);
}

#[test]
fn a_wait_ends_at_its_instant_and_at_a_wake_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Bench::create(&dir.path().join("disk"), &DriveOptions::default());
    let mut out = Vec::new();
    let until = clock::now() + Nanos::from_millis(5);
    while clock::now() < until {
        bench
            .drive
            .wait(Some(until), &bench.wake, &mut out)
            .unwrap();
    }
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
fn a_host_without_room_fails_the_write_and_the_drive_goes_on() {
    const ENOSPC: i32 = 28;
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
