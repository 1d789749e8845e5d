//! A request to a volume that lies in one or two extents allocates nothing, neither on its client's thread
//! nor on a disk's, whichever of them completes it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use testkit::folders;
use testkit::own_process;

use crate::counting::{Counted, count_here, counted};
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::uring::UringDisk;
use engine::volume_io::{ClientOptions, VolumeOp, VolumeRequest};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::Op;
use sched::units::Bytes;

const BLOCK: usize = 4096;
const DEPTH: usize = 16;
const EXTENT: u64 = 1 << 20;
const SIZE: u64 = 4 * EXTENT;

/// Allocations of a client's and a disk's thread for 10,000 requests at the offsets that `place` returns.
fn allocations(folder: &Path, place: impl Fn(u64) -> u64) -> u64 {
    let path = folder.join("disk");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(16))
    };
    let memory = Memory::new(&config).unwrap();
    let disks = || {
        let disk = UringDisk::open(&path, &memory, 8).unwrap();
        let profile = DriveProfile::conservative(DriveKind::File, disk.capacity()).unwrap();
        vec![PoolDisk {
            name: "disk".into(),
            disk: Box::new(Counted(disk)),
            profile: Arc::new(profile),
            profile_is_measured: false,
        }]
    };
    let options = CreateOptions {
        extent_bytes: Some(Bytes(EXTENT)),
        ..CreateOptions::default()
    };
    Pool::create(&memory, disks(), &options).unwrap();
    let options = OpenOptions {
        realtime: false,
        ..OpenOptions::default()
    };
    let pool = Pool::open(memory.clone(), disks(), options).unwrap();
    let spec = VolumeSpec {
        name: "v".into(),
        size: Bytes(SIZE),
        placement: Placement::default(),
    };
    pool.create_volume(&spec).unwrap();
    let volume = pool.open_volume("v").unwrap();
    let client = pool.client("counted", ClientOptions::default()).unwrap();
    client
        .write_at(&volume, Bytes(0), &vec![1; SIZE as usize])
        .unwrap();
    client.flush(&volume).unwrap();
    let buffers: Vec<_> = (0..DEPTH)
        .map(|_| client.account().allocate(BLOCK).unwrap())
        .collect();
    let submit = |slot: usize, round: u64| {
        let (op, direction) = match round % 2 {
            0 => (VolumeOp::Write { durable: false }, Op::Write),
            _ => (VolumeOp::Read, Op::Read),
        };
        let segments = buffers[slot].segments(direction, 0..BLOCK).unwrap();
        let offset = Bytes(place(round));
        let request = VolumeRequest::transfer(&volume, op, offset, segments);
        client.submit(request.user_data(slot as u64)).unwrap();
    };
    let run = |rounds: u64| {
        (0..DEPTH).for_each(|slot| submit(slot, slot as u64));
        for round in 0..rounds {
            let done = client.wait(None).unwrap();
            done.result.unwrap();
            submit(done.user_data as usize, round);
        }
        for _ in 0..DEPTH {
            client.wait(None).unwrap().result.unwrap();
        }
    };
    // Structures that grow once have grown.
    run(2000);
    let before = counted();
    assert!(before > 0, "the counter counts");
    count_here(true);
    run(10_000);
    count_here(false);
    counted() - before
}

#[test]
fn a_volume_request_allocates_nothing() {
    own_process(|| {
        let (blocks, extents) = (SIZE / BLOCK as u64, SIZE / EXTENT);
        let in_one = |round| round * 7 % blocks * BLOCK as u64;
        let across = |round| (1 + round % (extents - 1)) * EXTENT - BLOCK as u64 / 2;
        for folder in folders::folders() {
            let folder = folder.path();
            // A table may grow once more when many requests wait; a request has none of its own.
            let (in_one, across) = (allocations(folder, in_one), allocations(folder, across));
            assert!(
                in_one.max(across) <= 2,
                "{folder:?}: {in_one} in one extent, {across} across two"
            );
        }
    });
}
