//! What a request follows on its disk.

use sched::request::{ORDER_AFTER_MAX, Order, RequestId};
use smallvec::SmallVec;

use crate::dispatcher::Io;

/// Disk requests that are ready to be handed over, each with its disk. Few requests lie in more than
/// two extents; those that do allocate.
pub(crate) type Ready = SmallVec<[(usize, Io); 2]>;

/// What a request follows on one disk.
#[derive(Default)]
pub(crate) struct Follow {
    disk: usize,
    after: [Option<RequestId>; ORDER_AFTER_MAX],
    named: usize,
    /// Parts for other disks.
    pub(crate) withheld: Ready,
}

/// Where all that is left of an earlier request is queued.
pub(crate) struct Queued {
    pub(crate) disk: usize,
    pub(crate) ids: SmallVec<[RequestId; ORDER_AFTER_MAX]>,
}

impl Follow {
    /// Takes up what is left of an earlier request, if it fits.
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

    /// Keeps back what goes to other disks.
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
