//! Tasks whose reservation has ended. Each keeps its share until the last deadline of its requests.

use sched::task::TaskId;
use sched::units::Time;

use super::Admission;

/// The part of a disk's time that ended reservations still hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Leaving {
    /// The share, as a fraction of 1.
    pub(crate) utilization: f64,
    /// When the last of it is free.
    pub(crate) until: Time,
}

impl Admission {
    /// Ends a task whose stream or export has ended or whose stream has changed its rate. The dispatcher has
    /// returned the time from which its share is free.
    pub(crate) fn ended(&mut self, disk: usize, id: TaskId, free_from: Time) {
        self.left(disk, id, free_from);
        self.leaving.push((disk, id));
    }

    /// The share of a disk that ended reservations hold at `at`; `None` if there is none.
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

    /// Forgets tasks whose span has ended.
    pub(super) fn prune_leaving(&mut self) {
        let books = &self.books;
        self.leaving
            .retain(|(disk, id)| books[*disk].get(*id).is_some());
    }
}
