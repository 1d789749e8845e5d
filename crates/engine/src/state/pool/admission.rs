//! Admission: one book per disk, and the reservations in force.
//!
//! A reservation is admitted on all disks that it touches, or on none. The admission test runs only here.
//! Dispatchers learn of admitted tasks and test nothing.

mod delta_l;
mod leaving;
pub(crate) mod need;
mod servers;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use sched::admission::RefusedBy;
use sched::book::{Book, Span, SpanError};
use sched::core::Policy;
use sched::disk::TaskKind;
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};
use volume::VolumeId;

use crate::clock;
use crate::state::disk::core::DiskCore;
use crate::state::refusal::{Culprit, CulpritKind, DiskRefusal, Refusal};
use crate::state::stream::core::{StreamCore, StreamTask};

use need::Need;
use servers::Server;

/// Rates tried by the search for the largest one that fits; enough for a precision of a millionth.
const RATE_STEPS: u32 = 20;

/// The books of all disks and the reservations in force.
pub(crate) struct Admission {
    policy: Policy,
    books: Vec<Book>,
    /// The version of each book from which its dispatcher's delta-L was computed.
    published_versions: Vec<Option<u64>>,
    next_task: u64,
    next_key: u64,
    names: HashMap<TaskId, (String, TaskKind)>,
    /// Tasks, each with its disk, that hold a share although their reservation has ended.
    leaving: Vec<(usize, TaskId)>,
    pub(crate) streams: BTreeMap<u64, Arc<StreamCore>>,
    pub(crate) servers: BTreeMap<u64, Server>,
    /// The floor's task on each disk that has one.
    pub(crate) floors: Vec<Option<TaskParams>>,
}

/// The refusal of a stream, with the data to search for a rate that fits.
pub(crate) struct AdmissionRefusal {
    disk: Box<DiskRefusal>,
    /// A copy of the books. The search takes dozens of admission tests per disk, and only the requester
    /// should wait for it.
    books: Admission,
}

impl AdmissionRefusal {
    /// Searches the largest rate that would fit, and adds it to the refusal.
    pub(crate) fn into_refusal(self, request: StreamRequest<'_>) -> Refusal {
        Refusal::Load {
            disk: self.disk,
            rate_that_fits: self.books.into_rate_that_fits(request),
        }
    }
}

/// A task that a disk cannot carry.
struct RefusedTask {
    disk: usize,
    id: TaskId,
    service: Nanos,
    period: Nanos,
    reason: TaskRefusal,
}

enum TaskRefusal {
    /// The service time exceeds the period.
    ExceedsPeriod,
    Span(SpanError),
}

/// A stream's parameters as admission needs them.
#[derive(Clone, Copy)]
pub(crate) struct StreamRequest<'a> {
    pub(crate) name: &'a str,
    pub(crate) needs: &'a [Need],
    pub(crate) block: Bytes,
    pub(crate) rate: BytesPerSecond,
    pub(crate) span: Span,
}

impl Admission {
    pub(crate) fn new(disks: usize, policy: Policy) -> Self {
        Self {
            policy,
            books: vec![Book::new(); disks],
            published_versions: vec![None; disks],
            next_task: 1,
            next_key: 1,
            names: HashMap::new(),
            leaving: Vec::new(),
            streams: BTreeMap::new(),
            servers: BTreeMap::new(),
            floors: vec![None; disks],
        }
    }

    /// Name of a stream that reserves part of `range` of a volume (`None`: any part of the volume).
    pub(crate) fn reserver(&self, volume: VolumeId, range: Option<Range<u64>>) -> Option<String> {
        self.reservers(volume, range)
            .next()
            .map(|stream| stream.name.clone())
    }

    /// The streams that reserve part of `range` of a volume.
    pub(crate) fn reservers(
        &self,
        volume: VolumeId,
        range: Option<Range<u64>>,
    ) -> impl Iterator<Item = &Arc<StreamCore>> {
        self.streams.values().filter(move |stream| {
            let reserved = stream.range();
            let meets =
                |range: &Range<u64>| reserved.start < range.end && range.start < reserved.end;
            stream.volume == volume && range.as_ref().is_none_or(meets)
        })
    }

    pub(crate) fn next_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key - 1
    }

    fn next_task(&mut self, name: &str, kind: TaskKind) -> TaskId {
        let id = TaskId(self.next_task);
        self.next_task += 1;
        self.names.insert(id, (name.to_owned(), kind));
        id
    }

    pub(crate) fn utilization(&self, disk: usize, at: Time) -> f64 {
        // The sum of nothing is -0.
        self.books[disk].utilization(at) + 0.0
    }

    /// The corrected delta-L from `now` on.
    pub(crate) fn delta_l(&mut self, disk: usize, now: Time) -> Nanos {
        self.books[disk].delta_l(now).value
    }

    /// Admits a stream in the books.
    ///
    /// # Errors
    /// The first disk that cannot carry it.
    pub(crate) fn admit(
        &mut self,
        disks: &[DiskCore],
        request: StreamRequest<'_>,
    ) -> Result<Vec<StreamTask>, Box<AdmissionRefusal>> {
        self.try_admit(request).map_err(|refused| {
            let disk = Box::new(self.describe(disks, &refused, request.span.from));
            let books = self.clone_books();
            Box::new(AdmissionRefusal { disk, books })
        })
    }

    fn try_admit(&mut self, request: StreamRequest<'_>) -> Result<Vec<StreamTask>, RefusedTask> {
        let mut tasks = Vec::with_capacity(request.needs.len());
        for need in request.needs {
            let id = self.next_task(request.name, TaskKind::Stream);
            let refused = |reason| RefusedTask {
                disk: need.disk,
                id,
                service: need.service,
                period: need.period(request.block, request.rate),
                reason,
            };
            let joined = match need.task(request.block, request.rate) {
                Ok(params) => self.books[need.disk]
                    .join(id, params, request.span)
                    .map(|()| params)
                    .map_err(|error| refused(TaskRefusal::Span(error))),
                Err(_) => Err(refused(TaskRefusal::ExceedsPeriod)),
            };
            match joined {
                Ok(params) => tasks.push(StreamTask {
                    disk: need.disk,
                    lane: need.lane,
                    id,
                    params,
                }),
                Err(refused) => {
                    self.forget(&tasks);
                    return Err(refused);
                }
            }
        }
        Ok(tasks)
    }

    /// The time from which a task holds its share.
    pub(crate) fn begins(&self, task: &StreamTask) -> Option<Time> {
        let (_, span) = self.books[task.disk].get(task.id)?;
        Some(span.from)
    }

    /// Removes tasks from the books that no dispatcher has been given.
    pub(crate) fn forget(&mut self, tasks: &[StreamTask]) {
        for task in tasks {
            self.books[task.disk].leave(task.id, Time::ZERO);
            self.names.remove(&task.id);
        }
    }

    /// Ends a task; the dispatcher has returned the time from which its share is free.
    pub(crate) fn left(&mut self, disk: usize, id: TaskId, free_from: Time) {
        self.books[disk].leave(id, free_from);
    }

    /// The largest rate at which the stream would be admitted, to a millionth. Consumes the books.
    pub(crate) fn into_rate_that_fits(
        mut self,
        request: StreamRequest<'_>,
    ) -> Option<BytesPerSecond> {
        let mut too_high = request.rate.0;
        for need in request.needs {
            let period = self.books[need.disk].smallest_period(need.service, request.span)?;
            too_high = too_high.min(need.rate(request.block, period).0.saturating_add(1));
        }
        let mut fits = 0;
        for step in 0..RATE_STEPS {
            // First the bound itself: it is the answer unless two tasks share a disk.
            let rate = if step == 0 {
                too_high - 1
            } else {
                fits + (too_high - fits) / 2
            };
            if rate <= fits {
                break;
            }
            let tried = StreamRequest {
                rate: BytesPerSecond(rate),
                ..request
            };
            match self.try_admit(tried) {
                Ok(tasks) => {
                    self.forget(&tasks);
                    fits = rate;
                }
                Err(_) => too_high = rate,
            }
        }
        (fits > 0).then_some(BytesPerSecond(fits))
    }

    fn describe(&self, disks: &[DiskCore], refused: &RefusedTask, at: Time) -> DiskRefusal {
        let mut refusal = DiskRefusal {
            disk: disks[refused.disk].name.clone(),
            utilization: self.books[refused.disk].utilization(at),
            service_ns: refused.service.0,
            period_ns: refused.period.0,
            refused_by: "utilization".to_owned(),
            interval_ns: None,
            short_by_ns: None,
            task: None,
            utilization_leaving: 0.0,
            leaving_ns: None,
        };
        let mut at = at;
        match refused.reason {
            TaskRefusal::ExceedsPeriod => {
                refusal.interval_ns = Some(refused.period.0);
                refusal.short_by_ns = Some(refused.service.saturating_sub(refused.period).0);
            }
            TaskRefusal::Span(SpanError::Refused {
                at: refused_at,
                refusal: cause,
            }) => {
                at = refused_at;
                refusal.utilization = self.books[refused.disk].utilization(at);
                refusal.interval_ns = Some(cause.interval.0);
                refusal.short_by_ns = Some(cause.short_by.0);
                if cause.by == RefusedBy::Blocking {
                    refusal.refused_by = "blocking".to_owned();
                }
                if cause.task != refused.id {
                    refusal.task = self.culprit(refused.disk, cause.task);
                }
            }
            TaskRefusal::Span(error) => refusal.refused_by = error.to_string(),
        }
        if let Some(leaving) = self.leaving(refused.disk, at) {
            refusal.utilization_leaving = leaving.utilization;
            refusal.leaving_ns = Some(leaving.until.saturating_since(clock::now()).0);
        }
        refusal
    }

    fn culprit(&self, disk: usize, id: TaskId) -> Option<Culprit> {
        let (name, kind) = self.names.get(&id)?;
        let kind = match kind {
            _ if self.leaving.contains(&(disk, id)) => CulpritKind::Leaving,
            TaskKind::Floor => CulpritKind::Floor,
            TaskKind::Server => CulpritKind::Share,
            TaskKind::Stream | TaskKind::Sweep => CulpritKind::Stream,
        };
        Some(Culprit {
            name: name.clone(),
            kind,
        })
    }

    /// Tests a change: every disk must be able to carry the new tasks in place of the old ones from `now` on.
    /// Then they fit from any later time at which the old ones have left, too.
    ///
    /// # Errors
    /// As [`Admission::admit`].
    pub(crate) fn test_change(
        &self,
        disks: &[DiskCore],
        request: StreamRequest<'_>,
        old: &[StreamTask],
    ) -> Result<(), Box<AdmissionRefusal>> {
        let mut without = self.clone_books();
        for task in old {
            without.books[task.disk].leave(task.id, Time::ZERO);
        }
        without.admit(disks, request).map(|_| ())
    }

    /// A copy of the books for trials.
    pub(crate) fn clone_books(&self) -> Self {
        Self {
            policy: self.policy,
            books: self.books.clone(),
            published_versions: self.published_versions.clone(),
            next_task: self.next_task,
            next_key: self.next_key,
            names: self.names.clone(),
            leaving: self.leaving.clone(),
            streams: BTreeMap::new(),
            servers: BTreeMap::new(),
            floors: self.floors.clone(),
        }
    }

    /// Removes tasks whose span has ended.
    pub(crate) fn prune(&mut self, now: Time) {
        for book in &mut self.books {
            book.prune(now);
        }
        let books = &self.books;
        self.names
            .retain(|id, _| books.iter().any(|book| book.get(*id).is_some()));
        self.prune_leaving();
    }
}

#[cfg(test)]
mod tests;
