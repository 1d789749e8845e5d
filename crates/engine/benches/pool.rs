//! Cost of a volume request from a client to a disk and back: 4 KiB random reads and writes at depth 32 on a
//! file in memory. The difference to `--bench dispatcher` is the cost of the pool's part.
//!
//! `cargo bench -p clockwise-engine --bench pool [-- SECONDS]` prints IOPS and processor time per
//! request, of the whole process.

use std::fs::File;
use std::sync::Arc;

use engine::buffer::{Memory, MemoryConfig};
use engine::clock;
use engine::disk::Disk;
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::uring::UringDisk;
use engine::volume_io::{ClientOptions, VolumeOp, VolumeRequest};
use rustix::time::{ClockId, clock_gettime};
use sched::profile::{DriveKind, DriveProfile, ProfileSpec};
use sched::request::Op;
use sched::units::{Bytes, Nanos};

const BLOCK: usize = 4096;
const DEPTH: usize = 32;
const SIZE: u64 = 192 << 20;

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn disks(memory: &Memory, path: &std::path::Path) -> Vec<PoolDisk> {
    let disk = UringDisk::open(path, memory, DEPTH).unwrap();
    let conservative = DriveProfile::conservative(DriveKind::File, disk.capacity()).unwrap();
    let spec = ProfileSpec {
        outstanding: DEPTH as u32,
        ..conservative.spec().clone()
    };
    vec![PoolDisk {
        name: "disk".into(),
        disk: Box::new(disk),
        profile: Arc::new(DriveProfile::new(spec).unwrap()),
        profile_is_measured: false,
    }]
}

#[expect(clippy::print_stdout, reason = "a report is what this program is for")]
fn measure(pool: &Pool, direction: Op, seconds: u64) {
    let volume = pool.open_volume("v").unwrap();
    let client = pool.client("bench", ClientOptions::default()).unwrap();
    let buffers: Vec<_> = (0..DEPTH)
        .map(|_| client.account().allocate(BLOCK).unwrap())
        .collect();
    let op = match direction {
        Op::Read => VolumeOp::Read,
        Op::Write => VolumeOp::Write { durable: false },
    };
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut submit = |slot: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let offset = Bytes(random % (SIZE / BLOCK as u64) * BLOCK as u64);
        let memory = buffers[slot].segments(direction, 0..BLOCK).unwrap();
        let request = VolumeRequest::transfer(&volume, op, offset, memory);
        client.submit(request.user_data(slot as u64)).unwrap();
    };
    (0..DEPTH).for_each(&mut submit);
    let (begin, processor) = (clock::now(), processor_ns());
    let end = begin.saturating_add(Nanos::from_secs(seconds));
    let mut count = 0u64;
    while clock::now() < end {
        let done = client.wait(None).unwrap();
        done.result.unwrap();
        count += 1;
        submit(done.user_data as usize);
    }
    let (elapsed, processor) = (clock::now() - begin, processor_ns() - processor);
    for _ in 0..DEPTH {
        client.wait(None).unwrap().result.unwrap();
    }
    println!(
        "in memory {direction:>5?}: {:>8.0} IOPS, {:>6.2} us of processor a request",
        count as f64 / elapsed.as_secs_f64(),
        processor as f64 / 1e3 / count as f64,
    );
}

fn main() {
    let words = std::env::args().skip(1);
    let seconds = words
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(2);
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("disk");
    File::create(&path)
        .unwrap()
        .set_len(SIZE + (32 << 20))
        .unwrap();
    let memory = Memory::new(&MemoryConfig::new(Bytes::from_mib(32))).unwrap();
    let options = CreateOptions {
        extent_bytes: Some(Bytes(1 << 20)),
        ..CreateOptions::default()
    };
    Pool::create(&memory, disks(&memory, &path), &options).unwrap();
    let pool = Pool::open(
        memory.clone(),
        disks(&memory, &path),
        OpenOptions::default(),
    )
    .unwrap();
    let spec = VolumeSpec {
        name: "v".into(),
        size: Bytes(SIZE),
        placement: Placement::default(),
    };
    pool.create_volume(&spec).unwrap();
    let volume = pool.open_volume("v").unwrap();
    let client = pool.client("fill", ClientOptions::default()).unwrap();
    for at in (0..SIZE).step_by(1 << 20) {
        client
            .write_at(&volume, Bytes(at), &[0x5a; 1 << 20])
            .unwrap();
    }
    client.flush(&volume).unwrap();
    for direction in [Op::Read, Op::Write] {
        measure(&pool, direction, seconds);
    }
    drop((client, volume));
    pool.close().unwrap();
}
