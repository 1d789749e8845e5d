//! A request to a volume allocates nothing, neither in its client's thread nor in a disk's.

#[path = "common/counting.rs"]
mod counting;

use std::fs::File;
use std::sync::Arc;

use counting::{Counted, count_here, counted};
use engine::buffer::{Memory, MemoryConfig};
use engine::disk::Disk;
use engine::front::{ClientOptions, VolumeOp, VolumeRequest};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile};
use sched::request::Op;
use sched::units::Bytes;

const BLOCK: usize = 4096;
const DEPTH: usize = 16;
const SIZE: u64 = 4 << 20;

#[test]
fn a_volume_request_allocates_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("disk");
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
        extent_bytes: Some(Bytes(1 << 20)),
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
        // Some lie across two extents.
        let offset = Bytes(round * 4096 * 257 % (SIZE - 4096) / 512 * 512);
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
    // What grows to its size once is grown.
    run(2000);
    let before = counted();
    assert!(before > 0, "the counter counts");
    count_here(true);
    run(2000);
    count_here(false);
    let made = counted() - before;
    // A request that lies across two extents has room for one of its parts only, and where the disk's
    // thread and another meet at a lock, the worker gets a letter. Both are rare.
    assert!(made < 2000 / 8, "{made} allocations in 2000 requests");
}
