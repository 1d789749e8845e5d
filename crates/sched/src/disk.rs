//! The scheduler of one disk: event in, typed action out.
//!
//! # What it is for
//!
//! A dispatcher tells it what has happened ([`submit`](DiskScheduler::submit),
//! [`completed`](DiskScheduler::completed), tasks joining and leaving) and asks it what to do
//! ([`decide`](DiskScheduler::decide)). The server and the simulator run this same object.
//!
//! # Parts
//!
//! [`Core`] decides between real-time requests and best effort, and is all that the guarantee
//! rests on. Around it:
//!
//! | part | decides |
//! |---|---|
//! | [`Predictor`] | how long a request takes from where the head is |
//! | [`best_effort`](crate::best_effort) | which best-effort request is next |
//! | `ordering` | which ones have to wait for others |
//! | [`server`](crate::server) | when best effort with a reservation has a turn of its own |
//!
//! A stream's request arrives at the core with the longest that it can take, which must not be
//! more than its task was admitted with. A best-effort request is served in pieces that are predicted
//! to take no longer than a limit from wherever the head is; between two pieces others may come,
//! and the rest of the request takes its place by position again.
//!
//! Nothing is allocated once the queue has been as full as it may be; everything is
//! O(log n) in the requests queued, plus one look at each periodic server.
//!
//! Deliberately absent: latencies of best effort (whoever queues requests knows when they came),
//! retries, and what a failure means.

mod complete;
mod config;
mod decide;
mod held_up;
mod lend;
mod pass;
mod report;
mod slow;
mod submit;
mod table;
mod tasks;

pub use config::{JoinError, OverPrediction, SchedulerConfig, SubmitError, TaskKind};
pub use report::{Completed, DiskReport, ServedCounts, TaskReport};

use crate::best_effort::BestEffortQueue;
use crate::core::{Core, CoreOptions, Service};
use crate::delta_l::DeltaL;
use crate::ordering::Ordering;
use crate::predict::Predictor;
use crate::profile::DriveProfile;
use crate::request::Dispatch;
use crate::server::Servers;
use crate::sweep::Sweeps;
use crate::task::TaskId;
use crate::units::{Nanos, Sector, SectorCount, Time};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use lend::Lent;
use pass::Passing;
use slow::SlowStretches;
use table::{Table, TaskState};

/// A piece of a request that the disk is busy with.
#[derive(Clone, Copy, Debug)]
struct Flight {
    slot: u32,
    service: Service,
    dispatch: Dispatch,
    /// On whose account: a stream's or a server's task.
    task: Option<TaskId>,
    issued: Time,
}

/// A container that waits for its client's next request, at its own cost.
#[derive(Clone, Copy, Debug)]
struct Linger {
    service: Service,
    account: u32,
    since: Time,
    until: Time,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    served: ServedCounts,
    missed: u64,
    lateness_max: Nanos,
    overruns: u64,
    predicted: Nanos,
    actual: Nanos,
}

/// The scheduler of one disk.
#[derive(Debug)]
pub struct DiskScheduler {
    profile: Arc<DriveProfile>,
    predictor: Predictor,
    config: SchedulerConfig,
    piece_sectors: Vec<SectorCount>,
    piece_max: Nanos,
    physical_sectors: u64,
    core: Core,
    table: Table,
    queue: BestEffortQueue,
    ordering: Ordering,
    servers: Servers,
    sweeps: Sweeps,
    tasks: Vec<TaskState>,
    floor: Option<TaskId>,
    delta_l: Nanos,
    flights: Vec<Flight>,
    /// A service on the disk that was not queued first.
    passing: Option<Passing>,
    /// The place on the link, lent to another disk.
    lent: Option<Lent>,
    /// True if that was the last best effort.
    lent_last: bool,
    linger: Option<Linger>,
    /// The last sector that was transferred, if that is known.
    head: Option<Sector>,
    /// Sectors of all streams, if admission relied on them.
    streams_within: Option<Range<Sector>>,
    slow: SlowStretches,
    sequence: u64,
    /// Slots still to be promoted; kept to not allocate.
    to_promote: Vec<u32>,
    counters: Counters,
}

impl DiskScheduler {
    /// The scheduler of an idle disk.
    #[must_use]
    pub fn new(profile: Arc<DriveProfile>, config: SchedulerConfig) -> Self {
        let predictor = Predictor::new(&profile);
        let limit = config
            .piece_limit
            .unwrap_or_else(|| predictor.piece_limit());
        let zones = 0..predictor.zone_count();
        let core = Core::new(CoreOptions {
            policy: config.policy,
            burst_threshold: config
                .burst_threshold
                .unwrap_or_else(|| predictor.burst_threshold()),
            best_effort_share_percent: 100 - config.early_share_percent.min(100),
            outstanding: profile.outstanding(),
            gives_over_prediction: config.over_prediction == OverPrediction::Given,
        });
        let streams_within = config.streams_within.clone();
        let streams_within = streams_within.filter(|_| profile.outstanding() == 1);
        let serves_sweeps = config.sweeps && profile.outstanding() == 1;
        let everywhere = Sector::ZERO..Sector::ZERO + profile.capacity();
        let streams_within = streams_within.or_else(|| serves_sweeps.then_some(everywhere));
        let (way_back_max, way) = match &streams_within {
            None => (Nanos::ZERO, Nanos::ZERO),
            Some(within) if serves_sweeps => {
                (predictor.way_into(within, None), predictor.way_over(within))
            }
            Some(within) => (predictor.way_back(within, None), Nanos::ZERO),
        };
        let slots = config.queue_max;
        let mut idle = Self {
            piece_sectors: zones
                .map(|zone| predictor.piece_sectors(zone, limit))
                .collect(),
            piece_max: predictor.piece_max(limit) + way_back_max,
            physical_sectors: profile
                .physical_sector()
                .sectors()
                .map_or(1, SectorCount::get),
            table: Table::new(slots),
            queue: BestEffortQueue::new(
                slots,
                config.order,
                config.sync_age_limit,
                config.async_age_limit,
            ),
            ordering: Ordering::new(slots),
            servers: Servers::new(),
            sweeps: Sweeps::new(way, config.over_prediction == OverPrediction::Unused),
            tasks: Vec::new(),
            floor: None,
            delta_l: Nanos::ZERO,
            flights: Vec::with_capacity(profile.outstanding() as usize),
            passing: None,
            lent: None,
            lent_last: false,
            linger: None,
            head: None,
            streams_within,
            slow: SlowStretches::default(),
            sequence: 0,
            to_promote: Vec::with_capacity(slots),
            counters: Counters::default(),
            core,
            predictor,
            profile,
            config,
        };
        // Nobody has been promised anything yet.
        let unbounded = DeltaL::UNBOUNDED.value;
        idle.set_delta_l(Time::ZERO, unbounded, unbounded);
        idle.note_head(None);
        idle
    }

    /// The profile it was made with.
    #[must_use]
    pub fn profile(&self) -> &Arc<DriveProfile> {
        &self.profile
    }

    /// The predictor it uses.
    #[must_use]
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// The longest that a piece of a best-effort request can be predicted to take; no slice of a
    /// periodic server may be shorter.
    #[must_use]
    pub fn piece_max(&self) -> Nanos {
        self.piece_max
    }

    /// Requests that are queued or on the disk.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if nothing is queued or on the disk.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Since when at every instant some released real-time request has been queued or on the disk; `None`:
    /// there is none now.
    pub fn busy_since(&mut self, now: Time) -> Option<Time> {
        self.advance(now);
        self.core.busy_since(now)
    }

    /// By how much a real-time request may be late at most, now or later, if from now on the disk is kept
    /// from nothing and takes no longer than predicted. `None`: the scheduler in use cannot tell.
    pub fn shortfall(&mut self, now: Time) -> Option<Nanos> {
        self.advance(now);
        self.core.shortfall(now)
    }

    /// True if streams are served in sweeps.
    #[must_use]
    pub fn serves_sweeps(&self) -> bool {
        self.config.sweeps && self.profile.outstanding() == 1
    }

    /// Sweeps whose time came before this instant are released, and containers whose time has come.
    fn advance(&mut self, now: Time) {
        self.release_sweeps(now, now);
        self.servers.advance(now, &mut self.core);
    }

    /// Sweeps whose time came before `until` are released. When the next one will be.
    fn release_sweeps(&mut self, now: Time, until: Time) -> Option<Time> {
        self.sweeps
            .advance(now, until, &self.predictor, &mut self.core)
    }

    /// Counters so far, and the present state.
    pub fn report(&mut self, now: Time) -> DiskReport {
        self.advance(now);
        let utilization: u128 = self.tasks.iter().map(|task| task.utilization_ppb()).sum();
        let slack = self.core.slack(now);
        let [queued_sync, queued_async] = self.queue.queued();
        let streams = self
            .tasks
            .iter()
            .filter(|task| matches!(task.kind, TaskKind::Stream | TaskKind::Sweep));
        let Counters {
            served,
            missed,
            lateness_max,
            overruns,
            predicted,
            actual,
            ..
        } = self.counters;
        DiskReport {
            utilization_ppm: u64::try_from(utilization.div_ceil(1_000)).unwrap_or(u64::MAX),
            delta_l: self.delta_l,
            slack: (slack != Nanos::MAX).then_some(slack),
            floor: self.floor,
            queued_stream: streams.map(|task| task.queued).sum(),
            queued_sync,
            queued_async,
            served,
            missed,
            lateness_max,
            overruns,
            predicted,
            actual,
            tasks: self.tasks.iter().map(TaskState::report).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
