//! Cost of a request in a dispatcher: 4 KiB random reads and writes at depth 32 on a file in memory, and on a
//! file on disk.
//!
//! `cargo bench -p clockwise-engine --bench dispatcher [-- SECONDS]` prints IOPS and the
//! processor time of the whole process per request.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use engine::buffer::{Memory, MemoryConfig};
use engine::clock;
use engine::completion::CompletionQueue;
use engine::disk::Disk;
use engine::dispatcher::{Dispatcher, DispatcherConfig, Io, Places, StallLimits};
use engine::rt::ThreadParams;
use engine::uring::UringDisk;
use rustix::time::{ClockId, clock_gettime};
use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::{DriveKind, DriveProfile, ProfileSpec};
use sched::request::{Class, Op, Order, Urgency};
use sched::units::{Bytes, Nanos, Sector, SectorCount};

const BLOCK: usize = 4096;
const DEPTH: usize = 32;
const FILE_BYTES: u64 = 256 << 20;

fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A profile with as many outstanding requests as there are places.
fn profile(capacity: SectorCount) -> DriveProfile {
    let conservative = DriveProfile::conservative(DriveKind::File, capacity).unwrap();
    let spec = ProfileSpec {
        outstanding: DEPTH as u32,
        ..conservative.spec().clone()
    };
    DriveProfile::new(spec).unwrap()
}

#[expect(clippy::print_stdout, reason = "a report is what this program is for")]
fn measure(folder: &Path, op: Op, seconds: u64) {
    let path = folder.join("disk");
    // Written completely, because a file system answers reads of holes without its disk.
    let mut file = File::create(&path).unwrap();
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&[0x5a; 1 << 20]).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let memory = Memory::new(&MemoryConfig::new(Bytes::from_mib(16))).unwrap();
    let disk = UringDisk::open(&path, &memory, DEPTH).unwrap();
    let (capacity, in_memory) = (disk.capacity(), disk.is_in_memory());
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: "bench".into(),
        disk: Box::new(disk),
        scheduler: DiskScheduler::new(Arc::new(profile(capacity)), SchedulerConfig::default()),
        thread: ThreadParams::dispatcher("bench"),
        places: Places::default(),
        patience: StallLimits::default(),
        link: None,
    })
    .unwrap();
    let account = memory.open_account("bench", Bytes(0)).unwrap();
    let queue = CompletionQueue::new(DEPTH).unwrap();
    let handle = dispatcher.handle();
    let buffers: Vec<_> = (0..DEPTH)
        .map(|_| account.allocate(BLOCK).unwrap())
        .collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut submit = |slot: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let io = Io {
            account: account.id(),
            op,
            start: Sector(random % (capacity.0 / 8) * 8),
            count: SectorCount(8),
            class: Class::BestEffort(Urgency::Sync),
            order: Order::default(),
            durable: false,
            segments: buffers[slot].segments(op, 0..BLOCK).unwrap(),
            target: queue.target(slot as u64).unwrap(),
        };
        handle.submit(io).unwrap();
    };
    (0..DEPTH).for_each(&mut submit);
    let (begin, processor) = (clock::now(), processor_ns());
    let end = begin.saturating_add(Nanos::from_secs(seconds));
    let mut count = 0u64;
    while clock::now() < end {
        let answer = queue.wait(None).unwrap();
        answer.result.unwrap();
        count += 1;
        submit(answer.token as usize);
    }
    let (elapsed, processor) = (clock::now() - begin, processor_ns() - processor);
    for _ in 0..DEPTH {
        queue.wait(None).unwrap().result.unwrap();
    }
    dispatcher.stop(true);
    println!(
        "{:>9} {:>5?}: {:>8.0} IOPS, {:>6.2} us of processor a request",
        if in_memory { "in memory" } else { "on disk" },
        op,
        count as f64 / elapsed.as_secs_f64(),
        processor as f64 / 1e3 / count as f64,
    );
}

fn main() {
    let seconds = std::env::args()
        .skip(1)
        .find_map(|word| word.parse().ok())
        .unwrap_or(2);
    let target = env!("CARGO_TARGET_TMPDIR");
    for folder in [
        tempfile::tempdir_in("/dev/shm"),
        tempfile::tempdir_in(target),
    ] {
        let folder = folder.unwrap();
        measure(folder.path(), Op::Read, seconds);
        measure(folder.path(), Op::Write, seconds);
    }
}
