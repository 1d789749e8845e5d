//! Requests of a volume that are made durable together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sched::units::Time;
use volume::{Mark, Place};

use crate::state::op::Op;
use crate::state::pool::io::IoCore;
use crate::state::request::IoFailure;
use crate::state::volume::VolumeCore;
use crate::state::worker::{Job, Worker};

/// One round of a volume.
pub(crate) struct Round {
    pub(crate) io: Arc<IoCore>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) volume: Arc<VolumeCore>,
    pub(crate) ops: Mutex<Vec<Arc<Op>>>,
    pub(crate) mark: Mark,
    pub(crate) began: Time,
    /// How many disks have not said that the data is durable.
    pub(crate) pending: AtomicUsize,
    /// Which.
    pub(crate) unsynced: Mutex<Vec<usize>>,
    pub(crate) failure: Mutex<Option<IoFailure>>,
}

impl Round {
    /// A disk's data is durable, or cannot be made so.
    pub(crate) fn disk_done(self: &Arc<Self>, result: Result<(), IoFailure>) {
        if let Err(failure) = result {
            self.volume.not_durable(&failure);
            self.failure.lock().get_or_insert(failure);
        }
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.worker.post(Job::Synced(Arc::clone(self)));
        }
    }

    /// The metadata that speaks of its data could not be written for a failure of a disk, which may be one
    /// that holds other data.
    pub(crate) fn not_durable(&self, failure: &IoFailure) {
        let IoFailure::Disk { disk: failed, .. } = failure else {
            return;
        };
        let is_on = |place: Place| self.io.disks[usize::from(place.disk.0)].name == *failed;
        if self.volume.with_map(|map| map.places().any(is_on)) {
            self.volume.not_durable(failure);
        }
    }

    /// Since when it has been under way.
    pub(crate) fn began(&self) -> Time {
        self.began
    }

    /// The disks that have yet to say that its data is durable; none when it has come to the metadata.
    pub(crate) fn unsynced(&self) -> Vec<usize> {
        self.unsynced.lock().clone()
    }

    /// Whether bits and places up to the mark are durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.volume.map().is_durable(self.mark)
    }
}
