//! What the dispatchers are told of delta-L.

use sched::book::Span;
use sched::core::Policy;
use sched::units::{Nanos, Time};

use super::Admission;
use crate::state::disk::core::DiskCore;

/// Delta-L that a dispatcher is to go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Told {
    pub(super) corrected: Nanos,
    /// Of the scheduler that goes by it; for the others the corrected one, which may be found sooner.
    pub(super) published: Nanos,
}

impl Admission {
    /// Tells every dispatcher whose tasks have changed the delta-L that holds from now on, whoever joins
    /// or leaves as planned.
    pub(crate) fn tell_delta_l(&mut self, disks: &[DiskCore], now: Time) {
        for disk in 0..disks.len() {
            self.tell_one(disks, disk, now);
        }
    }

    pub(super) fn tell_one(&mut self, disks: &[DiskCore], disk: usize, now: Time) {
        if let Some(Told {
            corrected,
            published,
        }) = self.news(disk, now)
        {
            disks[disk].handle.set_delta_l(corrected, published);
        }
    }

    /// The smallest delta-L of all sets of tasks from now on, so that nobody has to be told when a planned
    /// task begins. `None`: its dispatcher has been told of all that the book says.
    pub(super) fn news(&mut self, disk: usize, now: Time) -> Option<Told> {
        let book = &mut self.books[disk];
        let version = Some(book.version());
        if std::mem::replace(&mut self.told[disk], version) == version {
            return None;
        }
        let ever = Span::since(now);
        let corrected = book.delta_l_min(ever).value;
        let published = match self.policy {
            Policy::DeltaLPublished => book.delta_l_published_min(ever).value,
            _ => corrected,
        };
        Some(Told {
            corrected,
            published,
        })
    }
}
