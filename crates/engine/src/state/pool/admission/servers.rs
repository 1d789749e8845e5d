//! Reservations of best-effort clients, and the floor: one task on each disk, without an end.

use std::sync::Arc;

use sched::book::{Book, Span};
use sched::disk::TaskKind;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Time};

use super::{Admission, RefusedTask, TaskRefusal};
use crate::state::disk::core::DiskCore;
use crate::state::refusal::{DiskRefusal, RETRY_REMEDY, Refusal, unfit};

/// A reservation of a best-effort client in force.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) params: TaskParams,
    /// By disk.
    pub(crate) tasks: Arc<[TaskId]>,
}

/// The reason why a task has not joined a disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinRefusal {
    /// The disk cannot carry it.
    #[error("{}", unfit(.0, "a slice of"))]
    NoRoom(Box<DiskRefusal>),
    /// The dispatcher does not accept it.
    #[error("disk {disk:?}: {reason}")]
    NotAccepted { disk: String, reason: String },
}

/// A failed reservation of disk time.
pub(crate) struct ReservationFailure {
    reason: JoinRefusal,
    params: TaskParams,
    /// When all shares that had been reserved by then are free. Delta-L has to be published again then.
    pub(crate) free_from: Time,
    /// For lack of disk time: a copy of the books (see [`AdmissionRefusal`](super::AdmissionRefusal)), each with the
    /// longest piece of its disk.
    books: Vec<(Book, Nanos)>,
}

impl ReservationFailure {
    /// Searches the shortest period that would fit, and adds it to the refusal.
    pub(crate) fn into_refusal(self) -> Refusal {
        match self.reason {
            JoinRefusal::NoRoom(disk) => Refusal::Share {
                disk,
                period_that_fits: period_that_fits(&self.books, self.params, self.free_from),
            },
            not_accepted @ JoinRefusal::NotAccepted { .. } => Refusal::Invalid {
                what: "the reservation",
                reason: not_accepted.to_string(),
                remedy: RETRY_REMEDY,
            },
        }
    }
}

/// The shortest period, from `from` on, in which all disks could carry the slice; rounded up for the
/// message.
fn period_that_fits(books: &[(Book, Nanos)], params: TaskParams, from: Time) -> Option<Nanos> {
    let ever = Span::since(from);
    let mut period = params.period();
    for (book, piece_max) in books {
        let of_disk = book.smallest_period_in_pieces(params.service(), *piece_max, ever);
        period = period.max(of_disk?);
    }
    let said = if period < Nanos::from_secs(1) {
        Nanos::from_micros(1)
    } else {
        Nanos::from_millis(1)
    };
    Some(Nanos(period.0.div_ceil(said.0) * said.0))
}

impl Admission {
    /// Joins a task on one disk from `now` on, in the book and at the dispatcher.
    ///
    /// # Errors
    /// The disk cannot carry it, or does not accept it.
    pub(crate) fn join_now(
        &mut self,
        disks: &[DiskCore],
        disk: usize,
        name: &str,
        params: TaskParams,
        kind: TaskKind,
        now: Time,
    ) -> Result<TaskId, JoinRefusal> {
        let id = self.next_task(name, kind);
        let joined = self.books[disk].join(id, params, Span::since(now));
        if let Err(error) = joined {
            self.names.remove(&id);
            let refused = RefusedTask {
                disk,
                id,
                service: params.service(),
                period: params.period(),
                reason: TaskRefusal::Span(error),
            };
            let refusal = self.describe(disks, &refused, now);
            return Err(JoinRefusal::NoRoom(Box::new(refusal)));
        }
        // From the first request of the new task on, the previous delta-L would be too large.
        self.publish_delta_l_of(disks, disk, now);
        if let Err(reason) = disks[disk].join(id, params, kind, now) {
            self.books[disk].leave(id, Time::ZERO);
            self.publish_delta_l_of(disks, disk, now);
            self.names.remove(&id);
            return Err(JoinRefusal::NotAccepted {
                disk: disks[disk].name.clone(),
                reason: reason.to_string(),
            });
        }
        Ok(id)
    }

    /// Reserves (slice, period) for a best-effort client on all disks.
    ///
    /// # Errors
    /// A disk cannot carry it, or does not accept it; then nothing is reserved.
    pub(crate) fn reserve_server(
        &mut self,
        disks: &[DiskCore],
        name: &str,
        params: TaskParams,
        now: Time,
    ) -> Result<(u64, Arc<[TaskId]>), ReservationFailure> {
        self.prune(now);
        let mut tasks = Vec::with_capacity(disks.len());
        for disk in 0..disks.len() {
            let in_pieces = params.in_pieces(disks[disk].piece_max());
            match self.join_now(disks, disk, name, in_pieces, TaskKind::Server, now) {
                Ok(id) => tasks.push(id),
                Err(reason) => {
                    let free_from = self.leave_all(disks, &tasks, Self::left).max(now);
                    self.publish_delta_l(disks, now);
                    let books = match reason {
                        JoinRefusal::NoRoom(_) => {
                            let pieces = disks.iter().map(DiskCore::piece_max);
                            self.books.iter().cloned().zip(pieces).collect()
                        }
                        JoinRefusal::NotAccepted { .. } => Vec::new(),
                    };
                    return Err(ReservationFailure {
                        reason,
                        params,
                        free_from,
                        books,
                    });
                }
            }
        }
        let tasks: Arc<[TaskId]> = Arc::from(tasks);
        let key = self.next_key();
        let server = Server {
            name: name.to_owned(),
            params,
            tasks: Arc::clone(&tasks),
        };
        self.servers.insert(key, server);
        self.publish_delta_l(disks, now);
        Ok((key, tasks))
    }

    /// Ends a best-effort client's reservation. Returns the time from which all of it is free; delta-L has to
    /// be published again then.
    pub(crate) fn release_server(&mut self, disks: &[DiskCore], key: u64, now: Time) -> Time {
        let Some(server) = self.servers.remove(&key) else {
            return now;
        };
        let free_from = self.leave_all(disks, &server.tasks, Self::ended);
        self.publish_delta_l(disks, now);
        free_from.max(now)
    }

    /// Removes tasks, the first on disk 0 and so on. Returns the time from which all their shares are free.
    fn leave_all(
        &mut self,
        disks: &[DiskCore],
        tasks: &[TaskId],
        left: fn(&mut Self, usize, TaskId, Time),
    ) -> Time {
        let mut latest = Time::ZERO;
        for (disk, id) in tasks.iter().enumerate() {
            if let Some(free_from) = disks[disk].leave(*id) {
                left(self, disk, *id, free_from);
                latest = latest.max(free_from);
            }
        }
        latest
    }
}
