//! A disk's thread allocates nothing per request.
//!
//! The allocator of this program counts what the threads do that say so; a disk's thread says so when
//! its disk is attached.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::buffer::{Memory, MemoryConfig};
use engine::completion::CompletionQueue;
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability};
use engine::dispatcher::{Dispatcher, DispatcherConfig, Io, Patience, Places};
use engine::event::EventFd;
use engine::rt::{Denied, ThreadParams};
use engine::uring::UringDisk;
use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::{DriveKind, DriveProfile};
use sched::request::{Class, Op, Order, Urgency};
use sched::units::{Bytes, Sector, SectorCount, Time};

static COUNTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.get() {
            COUNTED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A disk whose thread counts what it allocates.
struct Counted(UringDisk);

impl Disk for Counted {
    fn capacity(&self) -> SectorCount {
        self.0.capacity()
    }
    fn places(&self) -> usize {
        self.0.places()
    }
    fn durability(&self) -> Durability {
        self.0.durability()
    }
    fn attach(&mut self) -> io::Result<Denied> {
        let denied = self.0.attach()?;
        COUNTS.set(true);
        Ok(denied)
    }
    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        self.0.submit(io)
    }
    fn has_ready(&self) -> bool {
        self.0.has_ready()
    }
    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        self.0.wait(until, wake, out)
    }
}

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
    let before = COUNTED.load(Ordering::Relaxed);
    assert!(before > 0, "the counter counts");
    run(1000);
    let once = COUNTED.load(Ordering::Relaxed) - before;
    run(2000);
    let twice = COUNTED.load(Ordering::Relaxed) - before - once;
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
