//! Counters of a disk's requests, gross and net of delays that the host caused.
//!
//! Only the dispatcher's thread updates them; reports get copies. The scheduler has counters of its own
//! ([`sched::disk::DiskReport`]), in disk time, where a late host looks like a late disk. These counters
//! tell the two apart.
//!
//! `host_debt` computes the host's part of a deadline miss. The host's part of an overrun is the delay of
//! that one piece.

use std::collections::HashMap;

use sched::disk::Completed;
use sched::request::Class;
use sched::task::TaskId;
use sched::units::{Nanos, Time};

use super::service_times::{Piece, RequestUser, ServiceTimes, permille};
use crate::latency::BucketCounts;

/// A delay above this limit counts as the host being late; every timer is late by some microseconds.
pub const HOST_LATE_LIMIT: Nanos = Nanos::from_micros(200);

/// Number and maximum of some kind of delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Number of events.
    pub count: u64,
    /// The longest delay.
    pub max: Nanos,
}

impl Tally {
    fn note(&mut self, by: Nanos) {
        if !by.is_zero() {
            self.count += 1;
            self.max = self.max.max(by);
        }
    }
}

/// Counters of one task's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskCounters {
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Deadlines missed, whatever the cause.
    pub missed_gross: Tally,
    /// Deadlines missed net of the host's lateness.
    pub missed: Tally,
    /// Requests that took longer than predicted, net of the host's lateness.
    pub overruns: Tally,
}

/// Counters of a disk's requests.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Latency of completed synchronous best-effort requests, from submission to completion.
    pub sync_latency: BucketCounts,
    /// Latency of completed asynchronous best-effort requests.
    pub async_latency: BucketCounts,
    /// Latency of completed requests of streams.
    pub stream_latency: BucketCounts,
    /// Lateness of all requests of streams, net of the host's; that of a request in time is 0.
    pub stream_lateness: BucketCounts,
    /// Pieces completed.
    pub pieces: u64,
    /// Requests completed, of all classes.
    pub completed: u64,
    /// Requests failed, of all classes.
    pub failed: u64,
    /// Deadlines missed, whatever the cause.
    pub missed_gross: Tally,
    /// Deadlines missed net of the host's lateness.
    pub missed: Tally,
    /// Pieces that took longer than predicted, whatever the cause.
    pub overruns_gross: Tally,
    /// Pieces that took longer than predicted, net of the host's lateness.
    pub overruns: Tally,
    /// The largest ratio of actual to predicted service time of a piece, net of the host's lateness, in
    /// thousandths; more than 1,000 is an overrun.
    pub took_permille_max: u64,
    /// Actual against predicted times by kind of request, and the last overruns.
    pub service_times: ServiceTimes,
    /// Delays by the host above [`HOST_LATE_LIMIT`]: late completions, late timers and late issues.
    pub host_late: Tally,
    /// Time during which at least one piece was on the disk.
    pub busy: Nanos,
    /// Per task that has joined and not left.
    pub tasks: HashMap<TaskId, TaskCounters>,
}

/// Results of a request that the counters need.
pub(super) struct Outcome {
    pub(super) class: Class,
    pub(super) submitted: Time,
    pub(super) completed: Time,
    pub(super) lateness_gross: Nanos,
    pub(super) lateness: Nanos,
    pub(super) overrun: Nanos,
    pub(super) failed: bool,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            sync_latency: BucketCounts::default(),
            async_latency: BucketCounts::default(),
            stream_latency: BucketCounts::default(),
            stream_lateness: BucketCounts::default(),
            pieces: 0,
            completed: 0,
            failed: 0,
            missed_gross: Tally::default(),
            missed: Tally::default(),
            overruns_gross: Tally::default(),
            overruns: Tally::default(),
            took_permille_max: 0,
            service_times: ServiceTimes::new(),
            host_late: Tally::default(),
            busy: Nanos::ZERO,
            tasks: HashMap::new(),
        }
    }

    pub(super) fn host_was_late(&mut self, by: Nanos) {
        if by > HOST_LATE_LIMIT {
            self.host_late.note(by);
        }
    }

    /// Counts a piece that completed at `at`; returns its overrun net of the host's lateness.
    pub(super) fn piece(
        &mut self,
        at: Time,
        piece: Piece,
        completed: &Completed,
        host_late: Nanos,
    ) -> Nanos {
        let net = completed.overrun.saturating_sub(host_late);
        self.pieces += 1;
        self.overruns_gross.note(completed.overrun);
        self.overruns.note(net);
        let took = completed.actual.saturating_sub(host_late);
        let ratio = permille(took, completed.predicted);
        self.took_permille_max = self.took_permille_max.max(ratio);
        self.service_times.note(at, piece, completed, host_late);
        net
    }

    /// Counts a request that has ended.
    pub(super) fn request(&mut self, outcome: &Outcome) {
        let counter = if outcome.failed {
            &mut self.failed
        } else {
            &mut self.completed
        };
        *counter += 1;
        if let Class::Stream(task) | Class::Swept(task, _) | Class::Reserved(task, _) =
            outcome.class
            && let Some(task) = self.tasks.get_mut(&task)
        {
            let counter = if outcome.failed {
                &mut task.failed
            } else {
                &mut task.completed
            };
            *counter += 1;
            task.missed_gross.note(outcome.lateness_gross);
            task.missed.note(outcome.lateness);
            task.overruns.note(outcome.overrun);
        }
        self.missed_gross.note(outcome.lateness_gross);
        self.missed.note(outcome.lateness);
        let user = RequestUser::of(outcome.class);
        if user == RequestUser::Stream {
            self.stream_lateness.record(outcome.lateness);
        }
        if !outcome.failed {
            let latency = outcome.completed.saturating_since(outcome.submitted);
            self.latency_of(user).record(latency);
        }
    }

    fn latency_of(&mut self, user: RequestUser) -> &mut BucketCounts {
        match user {
            RequestUser::Stream => &mut self.stream_latency,
            RequestUser::Sync => &mut self.sync_latency,
            RequestUser::Async => &mut self.async_latency,
        }
    }
}
