//! The drive emulator: data, model time, faults, power. No assertion is on a wall clock: what the
//! model says is compared exactly, and how late the host was is only counted.

mod faults;
mod service;

use std::path::Path;

use drives::emulator::{DriveOptions, EmulatedDrive};
use drives::plant::PlantSpec;
use engine::buffer::{Account, Buffer, Memory, MemoryConfig};
use engine::clock;
use engine::disk::{Disk, DiskError, DiskIo, Done};
use engine::event::EventFd;
use sched::request::Op;
use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount, Time};

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
            lock: false,
            ..MemoryConfig::new(Bytes::from_mib(8))
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

    fn open(path: &Path, options: &DriveOptions) -> Self {
        Self::new(EmulatedDrive::open(path, spec(), options).unwrap())
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

    /// The ends of so many transfers.
    fn ends(&mut self, count: usize) -> Vec<Done> {
        let mut out = Vec::new();
        while out.len() < count {
            self.drive.wait(None, &self.wake, &mut out).unwrap();
        }
        assert_eq!(out.len(), count);
        out
    }

    /// The end of the transfer that was submitted last, nothing else being under way.
    fn finish(&mut self) -> Done {
        let done = self.ends(1).remove(0);
        assert_eq!(done.tag, self.next_tag);
        done
    }

    /// Waits till that instant; what ends until then.
    fn wait_until(&mut self, until: Time) -> Vec<Done> {
        let mut out = Vec::new();
        while clock::now() < until {
            self.drive.wait(Some(until), &self.wake, &mut out).unwrap();
        }
        out
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
