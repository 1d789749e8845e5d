//! Predecessors of a request in its disk's queue.

use sched::request::{ORDER_AFTER_MAX, Order, RequestId};
use smallvec::SmallVec;

use crate::dispatcher::Io;

/// Disk requests ready for hand-over, each with its disk. Requests in more than two extents are rare
/// and allocate.
pub(crate) type ReadyRequests = SmallVec<[(usize, Io); 2]>;

/// Requests that precede a request on one disk.
#[derive(Default)]
pub(crate) struct DiskPredecessors {
    disk: usize,
    after: [Option<RequestId>; ORDER_AFTER_MAX],
    named: usize,
    /// Parts for other disks, kept back until the predecessors are complete.
    pub(crate) withheld: ReadyRequests,
}

/// The unfinished parts of an earlier request, all queued at one disk.
pub(crate) struct QueuedParts {
    pub(crate) disk: usize,
    pub(crate) ids: SmallVec<[RequestId; ORDER_AFTER_MAX]>,
}

impl DiskPredecessors {
    /// Adds the ids of an earlier request. Returns false if they are on another disk or too many.
    pub(crate) fn add(predecessors: &mut Option<Box<Self>>, queued: &QueuedParts) -> bool {
        let named = predecessors.as_ref().map_or(0, |found| found.named);
        let fits = named + queued.ids.len() <= ORDER_AFTER_MAX
            && predecessors
                .as_ref()
                .is_none_or(|found| found.disk == queued.disk);
        if fits {
            let predecessors = predecessors.get_or_insert_default();
            predecessors.disk = queued.disk;
            for id in &queued.ids {
                predecessors.after[predecessors.named] = Some(*id);
                predecessors.named += 1;
            }
        }
        fits
    }

    /// The order of a part that goes to `disk`.
    pub(crate) fn order(&self, disk: usize) -> Order {
        if disk != self.disk {
            return Order::default();
        }
        Order {
            after: self.after,
            ..Order::default()
        }
    }

    /// Keeps back the parts that go to other disks.
    pub(crate) fn withhold(&mut self, planned: &mut ReadyRequests) {
        if planned.iter().all(|(disk, _)| *disk == self.disk) {
            return;
        }
        let (ours, others): (ReadyRequests, ReadyRequests) =
            planned.drain(..).partition(|(disk, _)| *disk == self.disk);
        *planned = ours;
        self.withheld.extend(others);
    }
}
