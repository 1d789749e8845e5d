//! An allocator that counts allocations of threads that ask for it. A disk's thread asks when its disk is
//! attached. A disk in memory may be served by a submitter, which has to ask as well.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::disk::{Disk, DiskError, DiskIo, Done, Durability, HostSync};
use engine::event::EventFd;
use engine::rt::DeniedResources;
use engine::uring::UringDisk;
use sched::units::{SectorCount, Time};

static COUNTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged.
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

/// The number of allocations counted so far.
pub(crate) fn counted() -> u64 {
    COUNTED.load(Ordering::Relaxed)
}

/// Sets if this thread's allocations are counted.
pub(crate) fn count_here(counts: bool) {
    COUNTS.set(counts);
}

/// A disk whose thread counts its allocations.
pub(crate) struct Counted(pub(crate) UringDisk);

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
    fn attach(&mut self) -> io::Result<DeniedResources> {
        let denied = self.0.attach()?;
        count_here(true);
        Ok(denied)
    }
    fn submit(&mut self, io: DiskIo) -> Result<(), DiskError> {
        self.0.submit(io)
    }
    fn has_ready(&self) -> bool {
        self.0.has_ready()
    }
    fn completes_at_once(&self) -> bool {
        self.0.completes_at_once()
    }
    fn ready_at(&self) -> Option<Time> {
        self.0.ready_at()
    }
    fn wait(&mut self, until: Option<Time>, wake: &EventFd, out: &mut Vec<Done>) -> io::Result<()> {
        self.0.wait(until, wake, out)
    }
}
