//! Admission over time: tasks that begin later, and end.
//!
//! The admission test must hold at every instant. The set of tasks grows only where a span begins,
//! and a schedulable set stays schedulable when a task is taken out, so a new task is tested at the
//! beginning of its own span and at every beginning within it, and nowhere else.
//!
//! A task that leaves keeps its share until its last deadline, an instant that the disk's scheduler
//! knows ([`crate::core::Core::leave`]) and the book is told. A change of rate is a leave and a join, both
//! or neither.
//!
//! Deliberately absent: slack given away before a join, which no test of a set can know of;
//! [`crate::core::Core::join`] takes care of that.

use crate::admission::{Admission, Refusal};
use crate::delta_l::{self, DeltaL};
use crate::task::{TaskId, TaskParams};
use crate::units::{Nanos, Time};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// From when until when a task holds its share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// The first instant at which it may release a request.
    pub from: Time,
    /// The instant from which its share is free; [`Time::MAX`] for a task without an end.
    pub until: Time,
}

impl Span {
    /// From `from` on, without an end.
    #[must_use]
    pub const fn since(from: Time) -> Self {
        Self {
            from,
            until: Time::MAX,
        }
    }

    fn holds(self, at: Time) -> bool {
        self.from <= at && at < self.until
    }

    fn and(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            until: self.until.min(other.until),
        }
    }

    fn is_empty(self) -> bool {
        self.from >= self.until
    }
}

/// Why a task is not admitted for a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpanError {
    /// The set would not be schedulable.
    #[error("{refusal} (from {} on)", Nanos(.at.0))]
    Refused {
        /// The first instant at which that is so.
        at: Time,
        /// Why not.
        refusal: Refusal,
    },
    /// The span ends before it begins.
    #[error("the time span is empty")]
    Empty,
    /// The id names a task in the book, or the one to change is not there.
    #[error("task {} is {}in the book", .id.0, if *.there { "already " } else { "not " })]
    Id {
        /// The task.
        id: TaskId,
        /// True if the task exists.
        there: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    params: TaskParams,
    span: Span,
}

/// The set of tasks of a stretch of time in which none begins or ends.
#[derive(Clone, Debug)]
struct Steady {
    stretch: Span,
    set: Admission,
    /// Corrected delta-L of the set, once it was asked for.
    delta_l: Option<DeltaL>,
}

impl Steady {
    /// A task of the book has come for `span`.
    fn add(&mut self, id: TaskId, params: TaskParams, span: Span) {
        let both = self.stretch.and(span);
        if !both.is_empty() {
            self.stretch = both;
            self.set.insert_untested(id, params);
            self.delta_l = None;
        }
    }

    /// A task of the book that held its share for `span` does so no more from `until` on.
    fn shorten(&mut self, id: TaskId, span: Span, until: Time) {
        if self.stretch.and(span).is_empty() {
            return;
        }
        if until > self.stretch.from {
            self.stretch.until = self.stretch.until.min(until);
        } else {
            self.set.remove(id);
            self.delta_l = None;
        }
    }
}

/// The tasks admitted to one disk, with their time spans.
#[derive(Clone, Debug, Default)]
pub struct Book {
    entries: BTreeMap<TaskId, Entry>,
    /// The set where it was last changed, so that one more task costs no new set.
    steady: Option<Steady>,
    /// Number of changes so far.
    version: u64,
}

impl Book {
    /// No tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tests if the task could hold its share throughout the span.
    ///
    /// # Errors
    /// The reason why it could not.
    pub fn test(&self, id: TaskId, params: TaskParams, span: Span) -> Result<(), SpanError> {
        if self.entries.contains_key(&id) {
            return Err(SpanError::Id { id, there: true });
        }
        if span.from >= span.until {
            return Err(SpanError::Empty);
        }
        self.each_larger_set(span, |at, set| match set.test(id, params) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(SpanError::Refused { at, refusal }),
        })
    }

    /// Calls `visit` with the set at the beginning of the span and at each beginning within it.
    fn each_larger_set<E>(
        &self,
        span: Span,
        mut visit: impl FnMut(Time, &Admission) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut set = self.set_at(span.from);
        visit(span.from, &set)?;
        let within = |at: Time| span.from < at && at < span.until;
        let mut changes: Vec<(Time, bool, TaskId, TaskParams)> = Vec::new();
        for (&id, entry) in &self.entries {
            for (at, begins) in [(entry.span.from, true), (entry.span.until, false)] {
                if within(at) {
                    changes.push((at, begins, id, entry.params));
                }
            }
        }
        // At equal times an end comes before a beginning: the share that ends is free from there on.
        changes.sort_unstable_by_key(|change| (change.0, change.1, change.2));
        let mut grown = None;
        for (at, begins, id, params) in changes {
            if let Some(since) = grown
                && since != at
            {
                visit(since, &set)?;
                grown = None;
            }
            if begins {
                set.to_mut().insert_untested(id, params);
                grown = Some(at);
            } else {
                set.to_mut().remove(id);
            }
        }
        grown.map_or(Ok(()), |since| visit(since, &set))
    }

    /// Admits the task for the span.
    ///
    /// # Errors
    /// Why not; the book is then as before.
    pub fn join(&mut self, id: TaskId, params: TaskParams, span: Span) -> Result<(), SpanError> {
        self.settle(span.from);
        self.test(id, params, span)?;
        self.insert(id, Entry { params, span });
        Ok(())
    }

    fn insert(&mut self, id: TaskId, entry: Entry) {
        self.version += 1;
        self.entries.insert(id, entry);
        if let Some(steady) = &mut self.steady {
            steady.add(id, entry.params, entry.span);
        }
    }

    /// Ends a task's span at `free_from` at the latest; false if there is no such task. A task whose
    /// span had not begun by then is forgotten.
    pub fn leave(&mut self, id: TaskId, free_from: Time) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else {
            return false;
        };
        if free_from < entry.span.until {
            self.version += 1;
            if let Some(steady) = &mut self.steady {
                steady.shorten(id, entry.span, free_from);
            }
            entry.span.until = free_from;
        }
        if entry.span.is_empty() {
            self.entries.remove(&id);
        }
        true
    }

    /// A task changes its rate: `old` ends at `free_from`, and `new` takes its place until the old
    /// one would have ended.
    ///
    /// # Errors
    /// Why the new one does not fit; the book is then as before.
    pub fn change(
        &mut self,
        old: TaskId,
        free_from: Time,
        new: TaskId,
        params: TaskParams,
    ) -> Result<(), SpanError> {
        let before = *self.entries.get(&old).ok_or(SpanError::Id {
            id: old,
            there: false,
        })?;
        self.leave(old, free_from);
        let span = Span {
            from: free_from.max(before.span.from),
            until: before.span.until,
        };
        let joined = self.join(new, params, span);
        if joined.is_err() {
            self.leave(old, Time::ZERO);
            self.insert(old, before);
        }
        joined
    }

    /// The shortest period with which a task of this service time could hold its share throughout the
    /// span, if there is one.
    #[must_use]
    pub fn smallest_period(&self, service: Nanos, span: Span) -> Option<Nanos> {
        self.smallest_period_in_pieces(service, service, span)
    }

    /// As [`Book::smallest_period`], for a task in pieces no longer than `longest`.
    #[must_use]
    pub fn smallest_period_in_pieces(
        &self,
        service: Nanos,
        longest: Nanos,
        span: Span,
    ) -> Option<Nanos> {
        let mut period = Nanos::ZERO;
        self.each_larger_set(span, |_, set| {
            let of_set = set.smallest_period_in_pieces(service, longest);
            period = period.max(of_set.ok_or(())?);
            Ok::<(), ()>(())
        })
        .ok()?;
        Some(period)
    }

    /// Forgets the tasks whose span ended at or before `now`.
    pub fn prune(&mut self, now: Time) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.span.until > now);
        if self.entries.len() < before {
            self.version += 1;
            self.steady.take_if(|steady| steady.stretch.until <= now);
        }
    }

    /// Another number after everything that changes what the book says of the time to come.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A task and its span.
    #[must_use]
    pub fn get(&self, id: TaskId) -> Option<(TaskParams, Span)> {
        self.entries
            .get(&id)
            .map(|entry| (entry.params, entry.span))
    }

    /// The tasks that hold a share at `at`, in order of id.
    pub fn tasks(&self, at: Time) -> impl Iterator<Item = (TaskId, TaskParams)> + '_ {
        self.entries
            .iter()
            .filter(move |(_, entry)| entry.span.holds(at))
            .map(|(&id, entry)| (id, entry.params))
    }

    /// The set at `at`.
    #[must_use]
    pub fn at(&self, at: Time) -> Admission {
        self.set_at(at).into_owned()
    }

    fn steady_at(&self, at: Time) -> Option<&Steady> {
        self.steady
            .as_ref()
            .filter(|steady| steady.stretch.holds(at))
    }

    fn set_at(&self, at: Time) -> Cow<'_, Admission> {
        match self.steady_at(at) {
            Some(steady) => Cow::Borrowed(&steady.set),
            None => Cow::Owned(Admission::of_untested(self.tasks(at))),
        }
    }

    /// Keeps the set at `at`, and changes it with the book.
    fn settle(&mut self, at: Time) {
        if self.steady_at(at).is_some() {
            return;
        }
        let mut stretch = Span::since(Time::ZERO);
        for Entry { span, .. } in self.entries.values() {
            for bound in [span.from, span.until] {
                if bound <= at {
                    stretch.from = stretch.from.max(bound);
                } else {
                    stretch.until = stretch.until.min(bound);
                }
            }
        }
        self.steady = Some(Steady {
            stretch,
            set: Admission::of_untested(self.tasks(at)),
            delta_l: None,
        });
    }

    /// The share of the disk that is promised at `at`, for people.
    #[must_use]
    pub fn utilization(&self, at: Time) -> f64 {
        self.tasks(at)
            .map(|(_, params)| params.service().0 as f64 / params.period().0 as f64)
            .sum()
    }

    /// Corrected delta-L of the tasks at `at`. It is searched for once until they change.
    pub fn delta_l(&mut self, at: Time) -> DeltaL {
        self.settle(at);
        match &mut self.steady {
            Some(steady) => *steady
                .delta_l
                .get_or_insert_with(|| delta_l::delta_l(&steady.set)),
            None => DeltaL::UNBOUNDED,
        }
    }

    /// Delta-L as published of the tasks at `at`.
    #[must_use]
    pub fn delta_l_published(&self, at: Time) -> DeltaL {
        delta_l::delta_l_published(&self.set_at(at))
    }

    /// The smallest corrected delta-L at any instant of the span.
    pub fn delta_l_min(&mut self, span: Span) -> DeltaL {
        let mut least = self.delta_l(span.from);
        let visited: Result<(), ()> = self.each_larger_set(span, |at, set| {
            if at > span.from {
                least = least.min(delta_l::delta_l(set));
            }
            Ok(())
        });
        debug_assert!(visited.is_ok());
        least
    }

    /// The smallest delta-L as published at any instant of the span. The papers know of no spans; that of a
    /// larger set is never larger, so no planned task finds more given away than it was told of.
    #[must_use]
    pub fn delta_l_published_min(&self, span: Span) -> DeltaL {
        let mut least = DeltaL::UNBOUNDED;
        let visited: Result<(), ()> = self.each_larger_set(span, |_, set| {
            least = least.min(delta_l::delta_l_published(set));
            Ok(())
        });
        debug_assert!(visited.is_ok());
        least
    }
}
