//! Starts and ends of services on the disk.

use super::{Core, InService, JobKey, Service, signed};
use crate::task::TaskId;
use crate::units::{Nanos, Time};

impl Core {
    /// The disk is given this, at the instant of the choice.
    ///
    /// # Panics
    /// When the job is not the first of its task, or a piece is longer than what is left of it.
    pub fn start(&mut self, now: Time, service: Service) {
        self.start_ending_away(now, service, Nanos::ZERO);
    }

    /// As [`Core::start`], for a service that leaves the arm where the next job takes `away` longer than its
    /// cost. A best-effort request was offered with `away` included; a piece of a job pays for the increase
    /// from its job.
    ///
    /// # Panics
    /// As [`Core::start`].
    pub fn start_ending_away(&mut self, now: Time, service: Service, away: Nanos) {
        let way_back = core::mem::replace(&mut self.away, away);
        let waiting = !self.released.is_empty();
        let credited = core::mem::take(&mut self.credited);
        let is_paid = core::mem::replace(&mut self.away_is_paid, credited);
        let (cost, release) = match service {
            Service::BestEffort(cost) => {
                if credited {
                    self.charge_first(now, cost + away);
                } else {
                    self.account_best_effort(cost, waiting);
                }
                (cost, None)
            }
            Service::Job(id, job) | Service::Piece(id, job, _) | Service::Swept(id, job, _) => {
                let (slot, index) = self.find(id, job).expect("a queued job is started");
                assert_eq!(index, 0, "a task's jobs are served in order");
                let task = &mut self.tasks[slot as usize];
                let release = task.queue[0].window.release;
                let cost = match service {
                    Service::Piece(_, _, cost) => {
                        task.queue[0].take(cost + away.saturating_sub(way_back));
                        cost
                    }
                    Service::Swept(_, _, cost) => {
                        let head = &mut task.queue[0];
                        head.take(cost);
                        head.is_sweep = true;
                        head.comes_back = Nanos::ZERO;
                        cost + way_back
                    }
                    _ => {
                        let cost = task.queue[0].remaining;
                        task.in_service += 1;
                        task.spend_first();
                        cost + way_back
                    }
                };
                if !is_paid && !matches!(service, Service::Piece(..)) {
                    self.allowance.left -= signed(way_back);
                }
                self.refresh(slot, now);
                if release > now {
                    self.account_early(cost, waiting);
                }
                (cost, Some(release))
            }
        };
        if waiting && self.released.is_empty() {
            self.allowance.published_left = self.allowance.published;
        }
        let in_slack = release.is_none_or(|release| release > now);
        let delays_since = (in_slack && waiting && !credited).then_some(now);
        self.in_service.push(InService {
            service,
            started: now,
            until: now + cost,
            delays_since,
            in_slack,
            release,
        });
        self.last_start = Some(now);
    }

    /// The first released job pays for what goes before it, and for the way back.
    fn charge_first(&mut self, now: Time, cost: Nanos) {
        if let Some((_, slot)) = self.released.first() {
            self.tasks[slot as usize].queue[0].charge(cost);
            self.refresh(slot, now);
        }
    }

    /// Best effort that goes while no released job waits pays what it is owed; it pays in advance only
    /// where it went in its turn and an early job had to wait for that.
    pub(super) fn account_best_effort(&mut self, cost: Nanos, waiting: bool) {
        let part = 100 - i64::from(self.options.best_effort_share_percent.min(100));
        let paid = self.owed - cost.0 as i64 * part;
        if self.contended {
            self.owed = paid;
        } else if !waiting && self.owed > 0 {
            self.owed = paid.max(0);
        }
        if waiting {
            self.allowance.published_left -= cost.0 as i64;
        }
    }

    /// Accounts for an early job that goes ahead.
    pub(super) fn account_early(&mut self, cost: Nanos, waiting: bool) {
        let part = i64::from(self.options.best_effort_share_percent.min(100));
        let paid = self.owed + cost.0 as i64 * part;
        if self.contended {
            self.owed = paid;
        } else if !waiting && self.owed < 0 {
            self.owed = paid.min(0);
        }
        if waiting {
            self.allowance.published_left -= cost.0 as i64;
        }
    }

    /// The disk is done with the only service like this that is on it.
    ///
    /// # Panics
    /// When it was not started, or two that are alike are on the disk: see [`Core::finish_one`].
    pub fn finish(&mut self, now: Time, service: Service) {
        let mut alike = self.in_service.iter().filter(|one| one.service == service);
        let started = alike.next().map_or(now, |one| one.started);
        assert!(
            alike.next().is_none(),
            "one of several is told by its start"
        );
        self.finish_one(now, service, started);
    }

    /// The disk is done with the service that was started then. Two that are alike and were started at the
    /// same instant are due at the same instant, so either may be meant.
    ///
    /// # Panics
    /// When it was not started then.
    pub fn finish_one(&mut self, now: Time, service: Service, started: Time) {
        self.note_busy(now);
        let place = self
            .in_service
            .iter()
            .position(|entry| entry.service == service && entry.started == started)
            .expect("what finishes was started");
        let done = self.in_service.swap_remove(place);
        if let Some(since) = done.delays_since {
            self.allowance.charge(since, now);
        }
        match service {
            Service::BestEffort(_) => {}
            Service::Job(id, _) => {
                if let Some(slot) = self.slot(id) {
                    self.tasks[slot as usize].in_service -= 1;
                }
            }
            Service::Piece(id, job, cost) => {
                self.finish_piece(now, id, job, cost, now.saturating_since(done.started))
            }
            Service::Swept(id, job, _) => {
                if let Some((slot, 0)) = self.find(id, job) {
                    self.tasks[slot as usize].queue[0].pieces -= 1;
                }
            }
        }
        self.rest(now);
    }

    /// The unused part of a piece's predicted time stays with its job.
    pub(super) fn finish_piece(
        &mut self,
        now: Time,
        id: TaskId,
        job: JobKey,
        cost: Nanos,
        taken: Nanos,
    ) {
        let Some((slot, 0)) = self.find(id, job) else {
            return;
        };
        let task = &mut self.tasks[slot as usize];
        let head = &mut task.queue[0];
        head.pieces -= 1;
        // The bound of S found while the piece was in service assumed that the disk is free at its predicted
        // end and that demand falls by this much. It did not count the deadline at all if nothing was left of
        // the job.
        self.known.bound = match self.known.bound {
            Some((value, free)) if !head.remaining.is_zero() => Some((value, free.min(now.0))),
            _ => None,
        };
        head.remaining += cost.saturating_sub(taken);
        if head.remaining.is_zero() && head.pieces == 0 {
            task.spend_first();
        }
        self.refresh(slot, now);
    }
}
