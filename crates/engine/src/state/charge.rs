//! The reservation that pays for a request, and the statistics that it updates.

use std::sync::Arc;

use sched::request::{Class, Urgency};
use sched::task::TaskId;
use sched::units::Nanos;

use super::disk::core::DiskCore;
use super::pool::io::IoCore;
use super::request::{IoFailure, Timeliness};
use super::stream::core::StreamCore;
use crate::completion::Completion;

/// The reservation that pays for a request.
#[derive(Clone)]
pub(crate) enum Charge {
    /// None: the request uses slack and the best-effort floor.
    BestEffort,
    /// Reserved disk time of a best-effort client: its task on each disk.
    Reserved(Arc<[TaskId]>),
    /// A stream's reservation.
    Stream(Arc<StreamCore>),
}

impl Charge {
    /// The class of the `lane`th request of an op to a disk; `None` if nothing is reserved there.
    pub(crate) fn class(&self, disk: usize, lane: usize, urgency: Urgency) -> Option<Class> {
        match self {
            Self::BestEffort => Some(Class::BestEffort(urgency)),
            Self::Reserved(tasks) => Some(Class::Reserved(tasks[disk], urgency)),
            Self::Stream(stream) => stream.task(disk, lane).map(Class::Stream),
        }
    }

    /// Records one disk request that has completed.
    pub(crate) fn answered(&self, disk: &DiskCore, completion: &Completion) {
        match self {
            Self::BestEffort | Self::Reserved(_) => {
                let timing = &completion.timing;
                disk.latency
                    .record(timing.completed.saturating_since(timing.submitted));
            }
            Self::Stream(stream) => stream.stats.answered(completion),
        }
    }

    /// Records a complete volume request. Returns its stream if nothing of it is in flight any more and a
    /// thread waits for that.
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
