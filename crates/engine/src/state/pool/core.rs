//! State that all parts of an open pool share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use sched::core::Policy;
use sched::units::Time;
use volume::{Committed, Grade, Place, PoolState};

use super::admission::Admission;
use super::committer::Committer;
use super::frozen::MetaWatch;
use super::io::IoCore;
use super::keeper::Keeper;
use super::meta::Meta;
use super::repair::Repairs;
use crate::state::volume::VolumeCore;
use crate::state::warning::Warning;
use crate::state::worker::Worker;

/// State that all parts of an open pool share.
///
/// Locks, in the order in which they may be taken: `meta`, `admission`, `volumes`, then the small
/// ones of volumes, clients and ops.
pub(crate) struct PoolCore {
    pub(crate) name: String,
    pub(crate) io: Arc<IoCore>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) meta_watch: MetaWatch,
    pub(crate) admission: Mutex<Admission>,
    /// By name.
    pub(crate) volumes: RwLock<BTreeMap<String, Arc<VolumeCore>>>,
    pub(crate) opened: Time,
    /// The evidence that another server has taken over the disks, if it has.
    pub(crate) taken_over: OnceLock<String>,
    pub(crate) policy: Policy,
    pub(crate) warnings: Mutex<Vec<Warning>>,
    free_bytes: Mutex<u64>,
}

/// Parts of a new pool core.
pub(crate) struct CoreParts {
    pub(crate) name: String,
    pub(crate) io: IoCore,
    pub(crate) worker: Arc<Worker>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) meta: Meta,
    pub(crate) policy: Policy,
    pub(crate) warnings: Vec<Warning>,
}

impl PoolCore {
    pub(crate) fn new(parts: CoreParts) -> Arc<Self> {
        let disks = parts.io.disks.len();
        let opened = parts.io.window();
        let core = Self {
            free_bytes: Mutex::new(parts.meta.state.available().0),
            name: parts.name,
            io: Arc::new(parts.io),
            admission: Mutex::new(Admission::new(disks, parts.policy)),
            worker: parts.worker,
            committer: parts.committer,
            keeper: parts.keeper,
            repairs: parts.repairs,
            meta: Mutex::new(parts.meta),
            meta_watch: MetaWatch::default(),
            volumes: RwLock::default(),
            opened,
            taken_over: OnceLock::new(),
            policy: parts.policy,
            warnings: Mutex::new(parts.warnings),
        };
        {
            let meta = core.meta.lock();
            let mut volumes = core.volumes.write();
            for (name, map) in meta.state.volumes() {
                let id = map.volume();
                let volume = VolumeCore::new(id, name, Arc::clone(map), disks);
                volumes.insert(name.to_owned(), volume);
            }
            core.take_grades(meta.state.grades());
        }
        Arc::new(core)
    }

    /// Makes the maps of a committed change those that requests use.
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
                        let disks = self.io.disks.len();
                        let volume = VolumeCore::new(*id, name, Arc::clone(map), disks);
                        volumes.insert(name.to_owned(), volume);
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// Makes recorded grades known to the disks.
    pub(crate) fn take_grades(&self, grades: impl Iterator<Item = (Place, Grade)>) {
        for (place, grade) in grades {
            let disk = &self.io.disks[usize::from(place.disk.0)];
            disk.set_grade(self.io.geometry, place, grade);
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<VolumeCore>> {
        self.volumes.read().get(name).cloned()
    }

    /// Free space for volumes. While the metadata is being changed this is the previous value, so that a
    /// status request never waits for a disk.
    pub(crate) fn free_bytes(&self) -> u64 {
        let mut known = self.free_bytes.lock();
        if let Some(meta) = self.meta.try_lock() {
            *known = meta.state.available().0;
        }
        *known
    }
}
