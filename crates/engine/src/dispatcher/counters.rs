//! What has come of a disk's requests, gross and net of the host's own lateness.
//!
//! Kept by the dispatcher's thread alone, copied out on request. The scheduler counts as well
//! ([`sched::disk::DiskReport`]), in the disk's time, in which a late host is a late disk; here the
//! two are told apart.
//!
//! How much of a miss is the host's is found out in `host_debt`; an overrun is the host's as far as it
//! delayed that one piece.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use sched::disk::Completed;
use sched::request::{Class, Urgency};
use sched::task::TaskId;
use sched::units::{Nanos, Time};

/// Latencies are kept from a microsecond to this, at two significant digits; longer ones count as
/// this long.
const LATENCY_MAX: Nanos = Nanos::from_secs(1000);

/// A delay of more than this is the host being late; every timer is late by some microseconds.
pub const HOST_LATE_LIMIT: Nanos = Nanos::from_micros(200);

/// A number of events and the worst of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// The worst.
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

/// What has come of the requests of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskCounters {
    /// Requests completed.
    pub completed: u64,
    /// Requests failed.
    pub failed: u64,
    /// Deadlines missed, whoever was to blame.
    pub missed_gross: Tally,
    /// Deadlines missed net of the host's lateness.
    pub missed: Tally,
    /// Requests that took longer than predicted, net of the host's lateness.
    pub overruns: Tally,
}

/// What has come of a disk's requests.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Latency of synchronous best-effort requests, from submission to completion, in microseconds.
    pub sync_latency_us: Histogram<u64>,
    /// Latency of asynchronous best-effort requests.
    pub async_latency_us: Histogram<u64>,
    /// Latency of streams' requests.
    pub stream_latency_us: Histogram<u64>,
    /// Pieces completed.
    pub pieces: u64,
    /// Requests completed, of all classes.
    pub completed: u64,
    /// Requests failed, of all classes.
    pub failed: u64,
    /// Deadlines missed, whoever was to blame.
    pub missed_gross: Tally,
    /// Deadlines missed net of the host's lateness.
    pub missed: Tally,
    /// Pieces that took longer than predicted, whoever was to blame.
    pub overruns_gross: Tally,
    /// Pieces that took longer than predicted, net of the host's lateness.
    pub overruns: Tally,
    /// The longest that a piece took of what was predicted for it, net of the host's lateness, in
    /// thousandths; more than 1,000 is an overrun.
    pub took_permille_max: u64,
    /// Delays by the host of more than [`HOST_LATE_LIMIT`]: late completions, late timers and late issues.
    pub host_late: Tally,
    /// Time in which at least one piece was on the disk.
    pub busy: Nanos,
    /// Per task that has joined and not left.
    pub tasks: HashMap<TaskId, TaskCounters>,
}

/// How a request went, for the counters.
pub(super) struct Outcome {
    pub(super) class: Class,
    pub(super) submitted: Time,
    pub(super) completed: Time,
    pub(super) lateness_gross: Nanos,
    pub(super) lateness: Nanos,
    pub(super) overrun: Nanos,
    pub(super) failed: bool,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.0 / 1000, 2)
        .expect("bounds and digits that the library takes")
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            sync_latency_us: histogram(),
            async_latency_us: histogram(),
            stream_latency_us: histogram(),
            pieces: 0,
            completed: 0,
            failed: 0,
            missed_gross: Tally::default(),
            missed: Tally::default(),
            overruns_gross: Tally::default(),
            overruns: Tally::default(),
            took_permille_max: 0,
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

    /// A piece has completed; returns its overrun net of the host's lateness.
    pub(super) fn piece(&mut self, piece: &Completed, host_late: Nanos) -> Nanos {
        let net = piece.overrun.saturating_sub(host_late);
        self.pieces += 1;
        self.overruns_gross.note(piece.overrun);
        self.overruns.note(net);
        let took = piece.actual.saturating_sub(host_late).0;
        // Rounded up: a profile that is widened by it has room for the piece.
        let permille = took.saturating_mul(1000).div_ceil(piece.predicted.0.max(1));
        self.took_permille_max = self.took_permille_max.max(permille);
        net
    }

    /// A request has ended.
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
        if !outcome.failed {
            let latency = outcome.completed.saturating_since(outcome.submitted);
            self.latency_of(outcome.class)
                .saturating_record(latency.0.div_ceil(1000).max(1));
        }
    }

    fn latency_of(&mut self, class: Class) -> &mut Histogram<u64> {
        match class {
            Class::Stream(_) | Class::Swept(..) => &mut self.stream_latency_us,
            Class::Reserved(_, Urgency::Sync) | Class::BestEffort(Urgency::Sync) => {
                &mut self.sync_latency_us
            }
            Class::Reserved(_, Urgency::Async) | Class::BestEffort(Urgency::Async) => {
                &mut self.async_latency_us
            }
        }
    }
}
