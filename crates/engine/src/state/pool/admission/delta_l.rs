//! Publication of delta-L to the dispatchers.

use sched::book::Span;
use sched::core::Policy;
use sched::units::{Nanos, Time};

use super::Admission;
use crate::state::disk::core::DiskCore;

/// The delta-L that a dispatcher uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeltaLUpdate {
    pub(super) corrected: Nanos,
    /// For the `delta-l-published` scheduler; for others it equals `corrected`, which is cheaper to compute.
    pub(super) published: Nanos,
}

impl Admission {
    /// Sends each dispatcher whose tasks have changed the delta-L that holds from `now` on, for all planned
    /// joins and departures.
    pub(crate) fn publish_delta_l(&mut self, disks: &[DiskCore], now: Time) {
        for disk in 0..disks.len() {
            self.publish_delta_l_of(disks, disk, now);
        }
    }

    pub(super) fn publish_delta_l_of(&mut self, disks: &[DiskCore], disk: usize, now: Time) {
        if let Some(DeltaLUpdate {
            corrected,
            published,
        }) = self.delta_l_update(disk, now)
        {
            disks[disk].handle.set_delta_l(corrected, published);
        }
    }

    /// The smallest delta-L of all task sets from `now` on, so nothing has to be published when a planned task
    /// begins. `None` if the dispatcher has the value of this version of the book.
    pub(super) fn delta_l_update(&mut self, disk: usize, now: Time) -> Option<DeltaLUpdate> {
        let book = &mut self.books[disk];
        let version = Some(book.version());
        if std::mem::replace(&mut self.published_versions[disk], version) == version {
            return None;
        }
        let ever = Span::since(now);
        let corrected = book.delta_l_min(ever).value;
        let published = match self.policy {
            Policy::DeltaLPublished => book.delta_l_published_min(ever).value,
            _ => corrected,
        };
        Some(DeltaLUpdate {
            corrected,
            published,
        })
    }
}
