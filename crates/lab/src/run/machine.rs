//! One disk in virtual time: who decides, the plant that is served, and what went on between them.

use drives::plant::{Breakdown, Plant};
use sched::disk::{Completed, DiskReport, DiskScheduler, SubmitError};
use sched::request::{Decision, Dispatch, Request, RequestId};
use sched::units::{Nanos, Time};

use super::account::{Account, DiskAccount};

/// The plant's present service.
#[derive(Clone, Copy, Debug)]
struct Busy {
    until: Time,
    dispatch: Dispatch,
    breakdown: Breakdown,
}

/// Decides what a disk does next: the server's scheduler, or something in its place.
pub trait Decider {
    /// Queues a request.
    ///
    /// # Errors
    /// A refusal; nothing is queued then.
    fn submit(&mut self, now: Time, request: Request) -> Result<(), SubmitError>;

    /// The disk has completed the piece of this request that was on it. `None`: none was.
    fn completed(&mut self, now: Time, id: RequestId) -> Option<Completed>;

    /// The action for the disk, which is free.
    fn decide(&mut self, now: Time) -> Decision;

    /// The longest best-effort request that may start now; `None`: no limit.
    fn slack(&mut self, now: Time) -> Option<Nanos>;
}

impl Decider for DiskScheduler {
    fn submit(&mut self, now: Time, request: Request) -> Result<(), SubmitError> {
        Self::submit(self, now, request)
    }

    fn completed(&mut self, now: Time, id: RequestId) -> Option<Completed> {
        Self::completed(self, now, id)
    }

    fn decide(&mut self, now: Time) -> Decision {
        Self::decide(self, now)
    }

    fn slack(&mut self, now: Time) -> Option<Nanos> {
        self.report(now).slack
    }
}

/// A scheduler with its disk. The caller delivers all events of an instant, completions too, before it asks
/// for a [decision](Self::decide), as a dispatcher drains its inbox before it decides.
pub struct Machine<D = DiskScheduler> {
    plant: Plant,
    scheduler: D,
    busy: Option<Busy>,
    look_at: Option<Time>,
    account: Account,
}

impl<D: Decider> Machine<D> {
    /// An idle disk.
    #[must_use]
    pub fn new(plant: Plant, scheduler: D) -> Self {
        Self {
            plant,
            scheduler,
            busy: None,
            look_at: None,
            account: Account::default(),
        }
    }

    /// When something happens next by itself.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        match (&self.busy, self.look_at) {
            (Some(busy), _) => Some(busy.until),
            (None, look_at) => look_at,
        }
    }

    /// Queues a request.
    ///
    /// # Errors
    /// The scheduler's refusal; nothing is queued then.
    pub fn submit(&mut self, now: Time, request: Request) -> Result<(), SubmitError> {
        self.scheduler.submit(now, request)
    }

    /// The request that the disk completes at `now`, if there is one.
    pub fn completed(&mut self, now: Time) -> Option<(Dispatch, Completed)> {
        let busy = self.busy.take_if(|busy| busy.until <= now)?;
        let Busy {
            dispatch,
            breakdown,
            ..
        } = busy;
        let completed = self
            .scheduler
            .completed(now, dispatch.id)
            .expect("the scheduler knows what it has dispatched");
        self.account
            .completed(now, &dispatch, &breakdown, &completed);
        Some((dispatch, completed))
    }

    /// Asks what to do, if the disk is free, and does it.
    pub fn decide(&mut self, now: Time) {
        if self.busy.is_some() {
            return;
        }
        self.look_at = None;
        match self.scheduler.decide(now) {
            Decision::Issue(dispatch) => {
                let Dispatch {
                    op, start, count, ..
                } = dispatch;
                let service = self.plant.service(now, op, start, count);
                self.account.dispatched(now, &dispatch);
                self.busy = Some(Busy {
                    until: service.completed,
                    dispatch,
                    breakdown: service.breakdown,
                });
            }
            Decision::Wait { until } => {
                self.look_at = until.map(|until| until.max(now + Nanos(1)));
            }
        }
    }

    /// The longest best-effort request that may start now; `None`: no limit.
    pub fn slack(&mut self, now: Time) -> Option<Nanos> {
        self.scheduler.slack(now)
    }

    /// The account until `ended`.
    #[must_use]
    pub fn into_account(self, ended: Time) -> DiskAccount {
        self.account.ended(ended)
    }
}

impl Machine {
    /// The scheduler's report.
    pub fn report(&mut self, now: Time) -> DiskReport {
        self.scheduler.report(now)
    }
}

impl<D> std::fmt::Debug for Machine<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("busy", &self.busy)
            .field("look_at", &self.look_at)
            .finish_non_exhaustive()
    }
}
