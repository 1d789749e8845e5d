//! What everything that belongs to an open pool shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use sched::core::Policy;
use sched::units::{Bytes, SECTOR_BYTES, Time};
use volume::{Committed, Geometry, PoolState};

use super::admission::Admission;
use super::frozen::MetaWatch;
use crate::background::keeper::Keeper;
use crate::background::metadata::{Committer, Meta};
use crate::background::ownership::Ownership;
use crate::background::raw;
use crate::buffer::Memory;
use crate::clock;
use crate::latency::Histogram;
use crate::state::disk::core::DiskCore;
use crate::state::volume::VolumeCore;
use crate::state::warning::Warning;
use crate::volume_io::worker::Worker;

/// What everything that belongs to an open pool shares.
///
/// Locks, in the order in which they may be taken: `meta`, `admission`, `volumes`, then the small
/// ones of volumes, clients and ops.
pub(crate) struct PoolCore {
    pub(crate) name: String,
    pub(crate) memory: Memory,
    /// By number.
    pub(crate) disks: Box<[DiskCore]>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) committer: Committer,
    pub(crate) keeper: Keeper,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) meta_watch: MetaWatch,
    pub(crate) admission: Mutex<Admission>,
    /// By name.
    pub(crate) volumes: RwLock<BTreeMap<String, Arc<VolumeCore>>>,
    /// Latency of best-effort volume requests in the window.
    pub(crate) latency: Histogram,
    pub(crate) opened: Time,
    window: AtomicU64,
    closed: AtomicBool,
    pub(crate) ownership: Ownership,
    pub(crate) policy: Policy,
    pub(crate) warnings: Mutex<Vec<Warning>>,
    pub(crate) geometry: Geometry,
    free_bytes: Mutex<u64>,
    /// The largest block of a disk: what requests must be multiples of.
    pub(crate) block_bytes: u64,
}

/// What a pool's core is made of.
pub(crate) struct CoreParts {
    pub(crate) name: String,
    pub(crate) memory: Memory,
    pub(crate) disks: Box<[DiskCore]>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) meta: Meta,
    pub(crate) policy: Policy,
    pub(crate) warnings: Vec<Warning>,
}

impl PoolCore {
    pub(crate) fn new(parts: CoreParts) -> Arc<Self> {
        let now = clock::now();
        let geometry = parts.meta.state.geometry();
        let block_bytes = parts.disks.iter().map(|disk| disk.block_bytes).max();
        let core = Self {
            geometry,
            free_bytes: Mutex::new(parts.meta.state.available().0),
            block_bytes: block_bytes.unwrap_or(SECTOR_BYTES),
            name: parts.name,
            memory: parts.memory,
            admission: Mutex::new(Admission::new(parts.disks.len(), parts.policy)),
            disks: parts.disks,
            worker: parts.worker,
            committer: Committer::default(),
            keeper: Keeper::default(),
            meta: Mutex::new(parts.meta),
            meta_watch: MetaWatch::default(),
            volumes: RwLock::default(),
            latency: Histogram::new(),
            opened: now,
            window: AtomicU64::new(now.0),
            closed: AtomicBool::new(false),
            ownership: Ownership::default(),
            policy: parts.policy,
            warnings: Mutex::new(parts.warnings),
        };
        {
            let meta = core.meta.lock();
            let mut volumes = core.volumes.write();
            for (name, map) in meta.state.volumes() {
                let id = map.volume();
                let volume = VolumeCore::new(id, name, Arc::clone(map), core.disks.len());
                volumes.insert(name.to_owned(), volume);
            }
        }
        Arc::new(core)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Makes the maps of a committed change the ones that requests use.
    pub(crate) fn install(&self, state: &PoolState, committed: &Committed) {
        let mut volumes = self.volumes.write();
        for (id, map) in &committed.maps {
            let existing = volumes.values().find(|volume| volume.id == *id).cloned();
            match (existing, map) {
                (Some(volume), Some(map)) => volume.install(Arc::clone(map)),
                (Some(volume), None) => {
                    volumes.remove(&volume.name);
                }
                (None, Some(map)) => {
                    if let Ok((name, _)) = state.volume(*id) {
                        let disks = self.disks.len();
                        let volume = VolumeCore::new(*id, name, Arc::clone(map), disks);
                        volumes.insert(name.to_owned(), volume);
                    }
                }
                (None, None) => {}
            }
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<VolumeCore>> {
        self.volumes.read().get(name).cloned()
    }

    pub(crate) fn window(&self) -> Time {
        Time(self.window.load(Ordering::Relaxed))
    }

    pub(crate) fn reset_window(&self) {
        self.latency.reset();
        for disk in &self.disks {
            disk.reset_window();
        }
        self.window.store(clock::now().0, Ordering::Relaxed);
    }

    /// Takes no more requests from now on. Whether this call is the one that has to shut down.
    pub(crate) fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Ends all threads. What is queued fails.
    pub(crate) fn shut_down(&self) {
        self.keeper.stop();
        for disk in &self.disks {
            disk.stop();
        }
        // Everything under way now fails at the disks, in its turn; whoever waits is answered.
        let volumes: Vec<_> = self.volumes.read().values().cloned().collect();
        let disks: Vec<&DiskCore> = self.disks.iter().collect();
        while !volumes.iter().all(|volume| volume.is_quiet()) {
            self.worker.fence();
            // What a sync says has been told to the requests that wait for it.
            drop(raw::sync_all(&disks));
            self.committer.fence();
        }
        self.committer.stop();
        self.worker.stop();
    }

    /// What volumes could still have. While the metadata is being changed, what it was before: nobody
    /// who asks for the status waits for a disk.
    pub(crate) fn free_bytes(&self) -> u64 {
        let mut known = self.free_bytes.lock();
        if let Some(meta) = self.meta.try_lock() {
            *known = meta.state.available().0;
        }
        *known
    }

    /// The extent size.
    pub(crate) fn extent_bytes(&self) -> Bytes {
        self.geometry.extent_bytes()
    }
}
