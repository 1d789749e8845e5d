//! Tasks of those that have ended. Each keeps its share until the last deadline of what it was asked.

use sched::task::TaskId;
use sched::units::Time;

use super::Admission;

/// What is still being given back of a disk's time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Leaving {
    /// The share of the disk's time.
    pub(crate) utilization: f64,
    /// When the last of it is free.
    pub(crate) until: Time,
}

impl Admission {
    /// A task ends with its stream or its export, or with the stream's rate: the dispatcher said from when on
    /// its share is free.
    pub(crate) fn ended(&mut self, disk: usize, id: TaskId, free_from: Time) {
        self.left(disk, id, free_from);
        self.leaving.push((disk, id));
    }

    /// What those that have ended hold of a disk at `at`; `None` if that is nothing.
    pub(crate) fn leaving(&self, disk: usize, at: Time) -> Option<Leaving> {
        let of_disk = self.leaving.iter().filter(|(on, _)| *on == disk);
        let held = of_disk
            .filter_map(|(_, id)| self.books[disk].get(*id))
            .filter(|(_, span)| span.from <= at && at < span.until);
        held.fold(None, |sum: Option<Leaving>, (params, span)| {
            let share = params.service().0 as f64 / params.period().0 as f64;
            Some(Leaving {
                utilization: sum.map_or(0.0, |sum| sum.utilization) + share,
                until: sum.map_or(span.until, |sum| sum.until.max(span.until)),
            })
        })
    }

    /// Forgets those whose time is over.
    pub(super) fn prune_leaving(&mut self) {
        let books = &self.books;
        self.leaving
            .retain(|(disk, id)| books[*disk].get(*id).is_some());
    }
}
