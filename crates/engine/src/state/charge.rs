//! On whose account a request is served, and where that is noted.

use std::sync::Arc;

use sched::request::{Class, Urgency};
use sched::task::TaskId;
use sched::units::Nanos;

use super::disk::core::DiskCore;
use super::pool::io::IoCore;
use super::request::{IoFailure, Timeliness};
use super::stream::core::StreamCore;
use crate::completion::Completion;

/// On whose account a request is served.
#[derive(Clone)]
pub(crate) enum Charge {
    /// Nobody's: slack and the floor.
    BestEffort,
    /// A client's with a reservation: its task on each disk.
    Reserved(Arc<[TaskId]>),
    /// A stream's.
    Stream(Arc<StreamCore>),
}

impl Charge {
    /// The class of the `lane`th request of an op to a disk; `None`: nothing is reserved there.
    pub(crate) fn class(&self, disk: usize, lane: usize, urgency: Urgency) -> Option<Class> {
        match self {
            Self::BestEffort => Some(Class::BestEffort(urgency)),
            Self::Reserved(tasks) => Some(Class::Reserved(tasks[disk], urgency)),
            Self::Stream(stream) => stream.task(disk, lane).map(Class::Stream),
        }
    }

    /// A disk has answered one request.
    pub(crate) fn answered(&self, disk: &DiskCore, completion: &Completion) {
        match self {
            Self::BestEffort | Self::Reserved(_) => {
                let timing = &completion.timing;
                disk.latency
                    .record(timing.completed.saturating_since(timing.submitted));
            }
            Self::Stream(stream) => stream.evidence.answered(completion),
        }
    }

    /// A whole volume request is complete. Returns a stream of which nothing is in flight now, if somebody
    /// wants to know that.
    pub(crate) fn finished(
        &self,
        io: &IoCore,
        latency: Nanos,
        timeliness: Option<&Timeliness>,
        failure: Option<&IoFailure>,
    ) -> Option<&Arc<StreamCore>> {
        match self {
            Self::BestEffort | Self::Reserved(_) => {
                io.latency.record(latency);
                None
            }
            Self::Stream(stream) => stream.finished(timeliness, failure).then_some(stream),
        }
    }
}
