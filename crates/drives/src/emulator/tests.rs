//! A request that the drive's thread is done with and that is not over: its owner sleeps or spins, and
//! has to hear of whatever becomes of it.

mod link;

use engine::buffer::{Account, Memory, MemoryConfig};
use sched::request::Op;
use sched::units::Bytes;

use super::*;
use crate::plant::PlantSpec;

/// Retries of a request that is not to be over while the test runs: a minute of them.
const MANY_ROTATIONS: u32 = 7_200;

/// Retries of one that is to be over soon, but not before the test has stopped the drive: a second.
const SOME_ROTATIONS: u32 = 120;

/// So that a drive's thread is done with a request at once, long before it is over.
const LONG_LEAD: Option<Nanos> = Some(Nanos::from_secs(1_000));

const FEW_SECTORS: SectorCount = SectorCount(8);

fn atlas() -> PlantSpec {
    PlantSpec::built_in("quantum-atlas-ii").unwrap()
}

fn account() -> Account {
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(8))
    };
    let memory = Memory::new(&config).unwrap();
    memory.open_account("test", Bytes(0)).unwrap()
}

fn request(memory: &Account, op: Op, start: Sector, count: SectorCount) -> DiskIo {
    let bytes = count.bytes().get() as usize;
    let buffer = memory.allocate(bytes).unwrap();
    DiskIo {
        tag: 1,
        op,
        start,
        count,
        segments: buffer.segments(op, 0..bytes).unwrap(),
        durable: false,
    }
}

/// Retries of the first sectors.
fn retries(rotations: u32) -> RangeFault {
    RangeFault {
        start: Sector(0),
        count: FEW_SECTORS,
        op: None,
        rotations,
        errno: None,
    }
}

/// A drive that is done with its request, which takes so many rotations longer, long before it is over.
struct Posted {
    drive: EmulatedDrive,
    control: DriveControl,
    due: Time,
    wake: EventFd,
    _folder: tempfile::TempDir,
}

impl Posted {
    fn new(rotations: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = DriveOptions {
            lead: LONG_LEAD,
            ..DriveOptions::default()
        };
        let path = folder.path().join("drive");
        let mut drive = EmulatedDrive::create(&path, atlas(), &options).unwrap();
        let control = drive.control();
        control.inject(retries(rotations));
        drive
            .submit(request(&account(), Op::Read, Sector(0), FEW_SECTORS))
            .unwrap();
        assert!(drive.shared.finished.wait(None));
        let due = lock(&drive.shared.state).finished[0].due;
        Self {
            drive,
            control,
            due,
            wake: EventFd::new().unwrap(),
            _folder: folder,
        }
    }

    fn wait(&mut self, until: Option<Time>) -> Vec<Done> {
        let mut out = Vec::new();
        self.drive.wait(until, &self.wake, &mut out).unwrap();
        out
    }
}

#[test]
fn request_is_completed_at_its_end_and_not_before() {
    let ended = Posted::new(MANY_ROTATIONS).wait(Some(clock::now()));
    assert!(ended.is_empty(), "{ended:?}");
    let mut posted = Posted::new(SOME_ROTATIONS);
    let done = posted.wait(None).remove(0);
    assert!(clock::now() >= posted.due);
    assert_eq!(done.result, Ok(()));
    assert!(done.at >= posted.due);
}

#[test]
fn a_stall_holds_it_back_and_who_sleeps_hears_of_its_end() {
    let mut posted = Posted::new(SOME_ROTATIONS);
    posted.control.stall();
    let later = posted.due + Nanos::from_millis(1);
    let ended = posted.wait(Some(later));
    assert!(ended.is_empty() && clock::now() >= later, "{ended:?}");
    posted.control.resume();
    let resumed = clock::now();
    assert!(posted.drive.shared.finished.drain(), "whoever sleeps wakes");
    let done = posted.wait(None).remove(0);
    assert_eq!(done.result, Ok(()));
    assert!(done.at >= later && done.host_late <= done.at.saturating_since(later));
    assert!(resumed >= later);
}

#[test]
fn request_fails_at_once_when_the_drive_goes() {
    for go in [DriveControl::tear_off, DriveControl::power_cut] {
        let mut posted = Posted::new(MANY_ROTATIONS);
        go(&posted.control);
        assert!(posted.drive.shared.finished.drain(), "whoever sleeps wakes");
        let done = posted.wait(None).remove(0);
        assert!(
            matches!(done.result, Err(DiskError::Gone { .. })),
            "{done:?}"
        );
        assert!(clock::now() < posted.due, "and does not wait for it");
    }
}
