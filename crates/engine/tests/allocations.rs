//! A disk's thread allocates nothing per request.

#[path = "common/counting.rs"]
mod counting;

use std::fs::File;
use std::sync::Arc;

use counting::{Counted, counted};
use engine::buffer::{Memory, MemoryConfig};
use engine::completion::CompletionQueue;
use engine::disk::Disk;
use engine::dispatcher::{Dispatcher, DispatcherConfig, Io, Patience, Places};
use engine::rt::ThreadParams;
use engine::uring::UringDisk;
use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::{Class, Op, Order, Urgency};
use sched::units::{Bytes, Sector, SectorCount};

const BLOCK: usize = 4096;
const DEPTH: usize = 16;

fn allocations_per_thousand(folder: &std::path::Path) -> (u64, u64) {
    let path = folder.join("disk");
    File::create(&path).unwrap().set_len(8 << 20).unwrap();
    let config = MemoryConfig {
        lock: false,
        ..MemoryConfig::new(Bytes::from_mib(4))
    };
    let memory = Memory::new(&config).unwrap();
    let disk = UringDisk::open(&path, &memory, 8).unwrap();
    let capacity = disk.capacity();
    let profile = DriveProfile::conservative(DriveKind::File, capacity).unwrap();
    let (dispatcher, _) = Dispatcher::start(DispatcherConfig {
        name: "counted".into(),
        disk: Box::new(Counted(disk)),
        scheduler: DiskScheduler::new(Arc::new(profile), SchedulerConfig::default()),
        thread: ThreadParams::ordinary("counted"),
        places: Places::default(),
        patience: Patience::default(),
    })
    .unwrap();
    let account = memory.open_account("test", Bytes(0)).unwrap();
    let queue = CompletionQueue::new(DEPTH).unwrap();
    let handle = dispatcher.handle();
    let buffers: Vec<_> = (0..DEPTH)
        .map(|_| account.allocate(BLOCK).unwrap())
        .collect();
    let submit = |slot: usize, round: u64| {
        let op = if round.is_multiple_of(2) {
            Op::Write
        } else {
            Op::Read
        };
        let half = BLOCK / 2;
        // Two pieces, so that vectored transfers are among them.
        let mut segments = buffers[slot].segments(op, half..BLOCK).unwrap();
        segments.push(&buffers[slot], 0..half).unwrap();
        let io = Io {
            account: account.id(),
            op,
            start: Sector(round * 8 % (capacity.0 - 8)),
            count: SectorCount(8),
            class: Class::BestEffort(Urgency::Sync),
            order: Order::default(),
            durable: false,
            segments,
            target: queue.target(slot as u64).unwrap(),
        };
        handle.submit(io).unwrap();
    };
    let run = |rounds: u64| {
        for slot in 0..DEPTH {
            submit(slot, slot as u64);
        }
        for round in 0..rounds {
            let answer = queue.wait(None).unwrap();
            answer.result.unwrap();
            submit(answer.token as usize, round);
        }
        for _ in 0..DEPTH {
            queue.wait(None).unwrap().result.unwrap();
        }
    };
    // What grows to its size once is grown.
    run(2000);
    let before = counted();
    assert!(before > 0, "the counter counts");
    run(1000);
    let once = counted() - before;
    run(2000);
    let twice = counted() - before - once;
    dispatcher.stop(true);
    (once, twice)
}

#[test]
fn a_disk_thread_allocates_nothing_per_request() {
    let target = env!("CARGO_TARGET_TMPDIR");
    let folders = [
        tempfile::tempdir_in(target).ok(),
        tempfile::tempdir_in("/dev/shm").ok(),
    ];
    for folder in folders.into_iter().flatten() {
        assert_eq!(
            allocations_per_thousand(folder.path()),
            (0, 0),
            "{}",
            folder.path().display()
        );
    }
}
