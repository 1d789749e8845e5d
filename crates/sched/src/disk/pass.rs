//! A request that nothing stands in the way of: decided at once, without being queued.
//!
//! Queueing a request, finding it again as the only one and taking it out costs more than a disk in memory takes
//! to serve a few kilobytes. Where nothing is queued, nothing is on the disk and nobody has been promised
//! anything, there is only one decision to be made of it, and whatever its order names has been served.
//!
//! The core makes that decision and is told of the start and of the end, as of everything that the disk is
//! given: whoever joins meanwhile begins when the disk is free in time.

use super::report::Completed;
use super::{DiskScheduler, TaskKind};
use crate::core::{Choice, Service};
use crate::request::{Class, Dispatch, Request, RequestId};
use crate::units::{SectorCount, Time};

/// A service on the disk that was not queued first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    dispatch: Dispatch,
    class: Class,
    issued: Time,
}

impl Passing {
    pub(super) fn id(&self) -> RequestId {
        self.dispatch.id
    }
}

impl DiskScheduler {
    /// Decides for a best-effort request in one piece that it goes next, if nothing else could be decided: it is not
    /// to be submitted then, and ends as one that was. `None`: it is to be submitted.
    pub fn pass(&mut self, now: Time, request: &Request) -> Option<Dispatch> {
        let nothing_else = self.is_empty()
            && self.passing.is_none()
            && self.lent.is_none()
            && self.linger.is_none()
            && self.tasks.iter().all(|task| task.kind == TaskKind::Floor);
        let class = request.class;
        if !nothing_else || !matches!(class, Class::BestEffort(_)) || self.check(request).is_err() {
            return None;
        }
        let dispatch = self.piece_of(request, SectorCount::ZERO);
        let need = Some(self.need(&dispatch));
        if dispatch.count != request.count || self.core.choose(now, need) != Choice::BestEffort {
            return None;
        }
        let (service, away) = (
            Service::BestEffort(dispatch.predicted),
            self.away_after(&dispatch),
        );
        self.core.start_ending_away(now, service, away);
        self.passing = Some(Passing {
            dispatch,
            class,
            issued: now,
        });
        Some(dispatch)
    }

    /// The request that passed has ended on the disk, if it was this one.
    pub(super) fn passed(
        &mut self,
        now: Time,
        id: RequestId,
        succeeded: bool,
    ) -> Option<Completed> {
        let Passing {
            dispatch,
            class,
            issued,
        } = self.passing.take_if(|passing| passing.dispatch.id == id)?;
        self.advance(now);
        self.core
            .finish_one(now, Service::BestEffort(dispatch.predicted), issued);
        self.note_head(Some(dispatch.last()));
        if let Some(floor) = self.floor.and_then(|floor| self.task_mut(floor)) {
            floor.completed += u64::from(succeeded);
        }
        let outcome = self.tally(now, issued, &dispatch, None);
        Some(outcome.of(class, issued, true))
    }
}
