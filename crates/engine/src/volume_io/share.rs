//! Reserved disk time of best-effort clients.

use std::sync::Arc;

use sched::task::TaskId;
use sched::units::Nanos;

use crate::clock;
use crate::state::pool::core::PoolCore;

/// A best-effort reservation: `slice` of disk time in each `period`, on every disk of the pool. Its clients are
/// also served in slack, earlier than guaranteed, where that harms no deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BestEffortReservation {
    /// Disk time in each period.
    pub slice: Nanos,
    /// The period.
    pub period: Nanos,
}

/// Disk time reserved for best effort. All clients opened with it share it. It is released when all clients and
/// the requester have dropped it.
pub struct ReservedShare {
    pub(crate) pool: Arc<PoolCore>,
    /// Its entry in the admission books.
    pub(crate) key: u64,
    /// Its task on each disk.
    pub(crate) tasks: Arc<[TaskId]>,
}

impl Drop for ReservedShare {
    fn drop(&mut self) {
        let mut admission = self.pool.admission.lock();
        let free_from = admission.release_server(&self.pool.io.disks, self.key, clock::now());
        drop(admission);
        self.pool.keeper.freed_at(free_from);
    }
}

impl std::fmt::Debug for ReservedShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReservedShare")
            .field("tasks", &self.tasks)
            .finish_non_exhaustive()
    }
}
