//! Reservations of best-effort clients and the floor: a task on each disk, from now on.

use std::sync::Arc;

use sched::book::Span;
use sched::disk::TaskKind;
use sched::task::{TaskId, TaskParams};
use sched::units::Time;

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

impl Admission {
    /// Joins a task on one disk from `now` on, in the book and at the dispatcher.
    ///
    /// # Errors
    /// Why the disk cannot carry it.
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
            let misfit = Misfit {
                disk,
                id,
                service: params.service(),
                period: params.period(),
                why: Why::Span(error),
            };
            let refusal = self.describe(disks, &misfit, now);
            self.names.remove(&id);
            return Err(Refusal::Load {
                disk: Box::new(refusal),
                rate_that_fits: None,
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
                reason,
                remedy: RETRY_REMEDY,
            });
        }
        Ok(id)
    }

    /// Reserves (slice, period) for a best-effort client on all disks.
    ///
    /// # Errors
    /// Why a disk cannot carry it; nothing is reserved then.
    pub(crate) fn reserve_server(
        &mut self,
        disks: &[DiskCore],
        name: &str,
        params: TaskParams,
        now: Time,
    ) -> Result<(u64, Arc<[TaskId]>), Refusal> {
        self.prune(now);
        let mut tasks = Vec::with_capacity(disks.len());
        for disk in 0..disks.len() {
            match self.join_now(disks, disk, name, params, TaskKind::Server, now) {
                Ok(id) => tasks.push(id),
                Err(refusal) => {
                    self.leave_all(disks, &tasks);
                    return Err(refusal);
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
