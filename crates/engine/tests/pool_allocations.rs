//! A request to a volume allocates nothing, neither in its client's thread nor in a disk's.
//!
//! The allocator of this program counts what the threads do that say so.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::buffer::{Memory, MemoryConfig};
use engine::disk::{Disk, DiskError, DiskIo, Done, Durability, HostSync};
use engine::event::EventFd;
use engine::front::{ClientOptions, VolumeOp, VolumeRequest};
use engine::pool::{CreateOptions, OpenOptions, Placement, Pool, PoolDisk, VolumeSpec};
use engine::rt::Denied;
use engine::uring::UringDisk;
use sched::profile::{DriveKind, DriveProfile};
use sched::request::Op;
use sched::units::{Bytes, SectorCount, Time};

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
    fn host_sync(&self) -> Option<Arc<dyn HostSync>> {
        self.0.host_sync()
    }
    fn block_bytes(&self) -> u32 {
        self.0.block_bytes()
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
    let before = COUNTED.load(Ordering::Relaxed);
    assert!(before > 0, "the counter counts");
    COUNTS.set(true);
    run(2000);
    COUNTS.set(false);
    let counted = COUNTED.load(Ordering::Relaxed) - before;
    // Where the disk's thread and another meet at a lock, the worker takes over; its queue grows
    // by a block of 31 places now and then.
    assert!(
        counted < 2000 / 31,
        "{counted} allocations in 2000 requests"
    );
}
