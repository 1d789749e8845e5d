//! Predecessors of a request in its disk's queue.

use sched::request::{ORDER_AFTER_MAX, Order, RequestId};
use smallvec::SmallVec;

use crate::dispatcher::Io;

/// Disk requests ready for hand-over, each with its disk. Requests in more than two extents are rare
/// and allocate.
pub(crate) type Ready = SmallVec<[(usize, Io); 2]>;

/// Requests that precede a request on one disk.
#[derive(Default)]
pub(crate) struct Follow {
    disk: usize,
    after: [Option<RequestId>; ORDER_AFTER_MAX],
    named: usize,
    /// Parts for other disks, kept back until the predecessors are complete.
    pub(crate) withheld: Ready,
}

/// The unfinished parts of an earlier request, all queued at one disk.
pub(crate) struct Queued {
    pub(crate) disk: usize,
    pub(crate) ids: SmallVec<[RequestId; ORDER_AFTER_MAX]>,
}

impl Follow {
    /// Adds the ids of an earlier request. Returns false if they are on another disk or too many.
    pub(crate) fn take_up(follow: &mut Option<Box<Self>>, queued: &Queued) -> bool {
        let named = follow.as_ref().map_or(0, |follow| follow.named);
        let fits = named + queued.ids.len() <= ORDER_AFTER_MAX
            && follow
                .as_ref()
                .is_none_or(|follow| follow.disk == queued.disk);
        if fits {
            let follow = follow.get_or_insert_default();
            follow.disk = queued.disk;
            for id in &queued.ids {
                follow.after[follow.named] = Some(*id);
                follow.named += 1;
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
    pub(crate) fn withhold(&mut self, planned: &mut Ready) {
        if planned.iter().all(|(disk, _)| *disk == self.disk) {
            return;
        }
        let (ours, others): (Ready, Ready) =
            planned.drain(..).partition(|(disk, _)| *disk == self.disk);
        *planned = ours;
        self.withheld.extend(others);
    }
}
