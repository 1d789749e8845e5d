//! Flush rounds: requests of a volume that are made durable together.

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

/// One flush round of a volume.
pub(crate) struct Round {
    pub(crate) io: Arc<IoCore>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) volume: Arc<VolumeCore>,
    pub(crate) ops: Mutex<Vec<Arc<Op>>>,
    pub(crate) mark: Mark,
    pub(crate) began: Time,
    /// Number of disks whose sync has not ended.
    pub(crate) pending: AtomicUsize,
    /// Indices of these disks.
    pub(crate) unsynced: Mutex<Vec<usize>>,
    pub(crate) failure: Mutex<Option<IoFailure>>,
}

impl Round {
    /// A disk's sync has ended.
    pub(crate) fn disk_done(self: &Arc<Self>, result: Result<(), IoFailure>) {
        if let Err(failure) = result {
            self.volume.record_sync_failure(&failure);
            self.failure.lock().get_or_insert(failure);
        }
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.worker.post(Job::Synced(Arc::clone(self)));
        }
    }

    /// The metadata of this round could not be written because a disk failed. The volume is affected only if
    /// that disk holds data of it.
    pub(crate) fn record_sync_failure(&self, failure: &IoFailure) {
        let IoFailure::Disk { disk: failed, .. } = failure else {
            return;
        };
        let is_on = |place: Place| self.io.disks[usize::from(place.disk.0)].name == *failed;
        if self.volume.with_map(|map| map.places().any(is_on)) {
            self.volume.record_sync_failure(failure);
        }
    }

    /// When it began.
    pub(crate) fn began(&self) -> Time {
        self.began
    }

    /// Disks whose sync has not ended; empty once the metadata is being written.
    pub(crate) fn unsynced(&self) -> Vec<usize> {
        self.unsynced.lock().clone()
    }

    /// True if bits and places up to the mark are durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.volume.map().is_durable(self.mark)
    }
}
