//! The part of an open pool that requests need.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sched::units::{Bytes, SECTOR_BYTES, Sector, Time};
use volume::Geometry;

use crate::buffer::Memory;
use crate::clock;
use crate::latency::Histogram;
use crate::state::disk::core::DiskCore;

/// The part of an open pool that requests need: its memory and its disks.
pub(crate) struct IoCore {
    pub(crate) memory: Memory,
    /// By disk number.
    pub(crate) disks: Box<[DiskCore]>,
    pub(crate) geometry: Geometry,
    /// The largest logical block of the disks; requests must be multiples of it.
    pub(crate) block_bytes: u64,
    /// Latency of best-effort volume requests in the window.
    pub(crate) latency: Histogram,
    window: AtomicU64,
    closed: AtomicBool,
}

impl IoCore {
    /// The alignment of offsets and lengths of requests.
    pub(crate) fn alignment(&self) -> Bytes {
        Bytes(self.block_bytes.max(SECTOR_BYTES))
    }

    pub(crate) fn new(memory: Memory, disks: Box<[DiskCore]>, geometry: Geometry) -> Self {
        let block_bytes = disks.iter().map(|disk| disk.block_bytes).max();
        Self {
            memory,
            block_bytes: block_bytes.unwrap_or(SECTOR_BYTES),
            disks,
            geometry,
            latency: Histogram::new(),
            window: AtomicU64::new(clock::now().0),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Rejects all further requests. Returns true if this call is the one that has to shut down.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// When the window for latencies began.
    pub(crate) fn window(&self) -> Time {
        Time(self.window.load(Ordering::Relaxed))
    }

    /// Begins a new window.
    pub(crate) fn reset_window(&self) {
        self.latency.reset();
        for disk in &self.disks {
            disk.reset_window();
        }
        self.window.store(clock::now().0, Ordering::Relaxed);
    }

    /// The number of extents that a disk has room for.
    pub(crate) fn extents_on(&self, disk: &DiskCore) -> usize {
        let end = self.geometry.extent_at(Sector(disk.capacity.0));
        end.unwrap_or(0) as usize
    }

    /// The extent size.
    pub(crate) fn extent_bytes(&self) -> Bytes {
        self.geometry.extent_bytes()
    }
}
