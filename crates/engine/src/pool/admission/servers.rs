//! Reservations of best-effort clients and the floor: a task on each disk, from now on.

use std::sync::Arc;

use sched::book::Span;
use sched::disk::TaskKind;
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Time};

use super::{Admission, Misfit, Why};
use crate::pool::disks::DiskCore;
use crate::stream::Refusal;
use crate::stream::reserve::RETRY_REMEDY;

/// A reservation of a best-effort client in force.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) params: TaskParams,
    /// By disk.
    pub(crate) tasks: Arc<[TaskId]>,
}

/// A reservation that came to nothing.
pub(crate) struct Unreserved {
    pub(crate) refusal: Refusal,
    /// From when on all is free that had been reserved by then, which the dispatchers are to be told then.
    pub(crate) free_from: Time,
}

impl Admission {
    /// Joins a task on one disk from `now` on, in the book and at the dispatcher.
    ///
    /// # Errors
    /// Why the disk cannot carry it, or does not take it.
    pub(crate) fn join_now(
        &mut self,
        disks: &[DiskCore],
        disk: usize,
        name: &str,
        params: TaskParams,
        kind: TaskKind,
        now: Time,
    ) -> Result<TaskId, Refusal> {
        let id = self.next_task(name);
        let joined = self.books[disk].join(id, params, Span::since(now));
        if let Err(error) = joined {
            self.names.remove(&id);
            let misfit = Misfit {
                disk,
                id,
                service: params.service(),
                period: params.period(),
                why: Why::Span(error),
            };
            return Err(Refusal::Share {
                disk: Box::new(self.describe(disks, &misfit, now)),
                period_that_fits: self.period_that_fits(disk..disk + 1, params, now),
            });
        }
        // What was allowed before is too much from the first request of the task on.
        self.tell_one(disks, disk, now);
        if let Err(reason) = disks[disk].join(id, params, kind, now) {
            self.books[disk].leave(id, Time::ZERO);
            self.tell_one(disks, disk, now);
            self.names.remove(&id);
            return Err(Refusal::Invalid {
                what: "the reservation",
                reason: format!("disk {:?}: {reason}", disks[disk].name),
                remedy: RETRY_REMEDY,
            });
        }
        Ok(id)
    }

    /// The shortest period in which all of these disks could carry as long a slice from now on, rounded up
    /// to a number that is said in full.
    fn period_that_fits(
        &self,
        disks: std::ops::Range<usize>,
        params: TaskParams,
        now: Time,
    ) -> Option<Nanos> {
        let ever = Span::since(now);
        let mut longest = params.period();
        for book in &self.books[disks] {
            longest = longest.max(book.smallest_period(params.service(), ever)?);
        }
        let said = if longest < Nanos::from_secs(1) {
            Nanos::from_micros(1)
        } else {
            Nanos::from_millis(1)
        };
        Some(Nanos(longest.0.div_ceil(said.0) * said.0))
    }

    /// Reserves (slice, period) for a best-effort client on all disks.
    ///
    /// # Errors
    /// Why a disk cannot carry it, or does not take it; nothing is reserved then.
    pub(crate) fn reserve_server(
        &mut self,
        disks: &[DiskCore],
        name: &str,
        params: TaskParams,
        now: Time,
    ) -> Result<(u64, Arc<[TaskId]>), Unreserved> {
        self.prune(now);
        let mut tasks = Vec::with_capacity(disks.len());
        for disk in 0..disks.len() {
            match self.join_now(disks, disk, name, params, TaskKind::Server, now) {
                Ok(id) => tasks.push(id),
                Err(refusal) => {
                    let free_from = self.leave_all(disks, &tasks).max(now);
                    self.tell_delta_l(disks, now);
                    let refusal = match refusal {
                        Refusal::Share { disk, .. } => Refusal::Share {
                            disk,
                            period_that_fits: self.period_that_fits(
                                0..disks.len(),
                                params,
                                free_from,
                            ),
                        },
                        other => other,
                    };
                    return Err(Unreserved { refusal, free_from });
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
        self.tell_delta_l(disks, now);
        Ok((key, tasks))
    }

    /// A best-effort client's reservation ends. Returns from when on all of it is free, which the
    /// dispatchers are to be told then.
    pub(crate) fn release_server(&mut self, disks: &[DiskCore], key: u64, now: Time) -> Time {
        let Some(server) = self.servers.remove(&key) else {
            return now;
        };
        let free_from = self.leave_all(disks, &server.tasks);
        self.tell_delta_l(disks, now);
        free_from.max(now)
    }

    /// Tasks, the first on disk 0 and so on, leave. Returns from when on all of their shares are free.
    fn leave_all(&mut self, disks: &[DiskCore], tasks: &[TaskId]) -> Time {
        let mut latest = Time::ZERO;
        for (disk, id) in tasks.iter().enumerate() {
            if let Some(free_from) = disks[disk].leave(*id) {
                self.left(disk, *id, free_from);
                latest = latest.max(free_from);
            }
        }
        latest
    }
}
