//! Virtual time: the server's scheduler against a plant, as fast as the processor goes.
//!
//! # What it is for
//!
//! A guarantee is only worth what it was tried against. A run takes the very
//! [`DiskScheduler`] that the server runs, admits streams to it by the
//! server's admission test with the predictor's worst cases, gives it best-effort load beside them,
//! and lets a plant that it knows nothing about serve what it decides. Ten minutes of a drive take a fraction
//! of a second, and the same seed gives the same run to the nanosecond; [`DiskAccount::hash`] covers every
//! dispatch and completion.
//!
//! # Model
//!
//! Discrete events in a heap; those of one instant are all delivered before the scheduler is asked
//! what to do, as a dispatcher drains its inbox before it decides. The time that decisions take is
//! not modelled.
//!
//! # Deliberately absent
//!
//! Several disks and volumes: a run is one disk. Tasks that join or leave on the way.

mod account;
pub mod experiments;
mod heap;
mod link;
mod machine;
mod outcome;
mod sources;
mod workload;

use std::sync::Arc;

use sched::admission::{Admission, Refusal};
use sched::delta_l::{delta_l, delta_l_published};
use sched::disk::{DiskScheduler, JoinError, SchedulerConfig, TaskKind};
use sched::profile::DriveProfile;
use sched::request::{Order, Request, RequestId};
use sched::task::{TaskError, TaskId, TaskParams};
use sched::units::{Nanos, Sector, Time};

use drives::plant::{Plant, PlantSpec};

pub(crate) use account::Hash;
pub use account::{Bursts, DiskAccount, Use};
pub use heap::EventHeap;
pub use link::{LinkedError, LinkedOutcome, LinkedRun};
pub use machine::{Decider, Machine};
pub(crate) use outcome::Latencies;
use outcome::Tally;
pub use outcome::{LatencySummary, Outcome, StreamOutcome};
use sources::Sources;
pub use sources::{Script, Wanted};
pub(crate) use workload::ArrivalProcess;
pub use workload::{Access, Arrivals, BestEffortLoad, StreamLoad};

/// A share of the disk that best effort without a reservation keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    /// The time it gets in every period.
    pub slice: Nanos,
    /// The period.
    pub period: Nanos,
}

/// Specification of a run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The drive as it is.
    pub plant: PlantSpec,
    /// The drive as the scheduler knows it.
    pub profile: Arc<DriveProfile>,
    /// Options of its scheduler.
    pub config: SchedulerConfig,
    /// The streams; all are admitted, or the run is refused.
    pub streams: Vec<StreamLoad>,
    /// Best effort beside them.
    pub best_effort: Vec<BestEffortLoad>,
    /// The floor, if there is one.
    pub floor: Option<Floor>,
    /// No request is issued after this; those that were are served.
    pub duration: Nanos,
    /// Decides everything that is random, the drive's luck included.
    pub seed: u64,
}

/// Why an experiment was not run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RunError {
    /// A stream needs more than the whole disk.
    #[error("stream {index}: {error}")]
    Task {
        /// Its index.
        index: usize,
        /// Why.
        error: TaskError,
    },
    /// A stream is not admitted beside those before it.
    #[error("stream {index} is refused: {refusal}")]
    Refused {
        /// Its index.
        index: usize,
        /// Why.
        refusal: Refusal,
    },
    /// The scheduler does not take a task that was admitted.
    #[error("stream {index}: {error}")]
    Join {
        /// Its index.
        index: usize,
        /// Why.
        error: JoinError,
    },
}

enum Event {
    Stream(usize),
    BestEffort(usize),
}

/// On whose account a request in the run is: an index of streams or of best-effort sources, in the
/// upper half of its id, so that an id says it.
const BEST_EFFORT_ID: u64 = 1 << 63;
const SOURCE_SHIFT: u32 = 40;

struct Run<'a> {
    experiment: &'a Experiment,
    machine: Machine,
    heap: EventHeap<Event>,
    sources: Sources<'a>,
    issued: u64,
    end: Time,
    tally: Tally,
}

/// Runs an experiment.
///
/// # Errors
/// When its streams are not admitted.
pub fn run(experiment: &Experiment) -> Result<Outcome, RunError> {
    let mut run = Run::new(experiment)?;
    run.seed_events();
    let mut now = Time::ZERO;
    while let Some(next) = run.next_at() {
        now = next;
        run.completions(now);
        while let Some((_, event)) = run.heap.pop_until(now) {
            run.deliver(now, event);
        }
        run.machine.decide(now);
    }
    let report = run.machine.report(now);
    Ok(run
        .tally
        .outcome(now, run.machine.into_account(now), report))
}

impl<'a> Run<'a> {
    fn new(experiment: &'a Experiment) -> Result<Self, RunError> {
        let plant = Plant::new(experiment.plant.clone(), experiment.seed);
        let mut scheduler =
            DiskScheduler::new(Arc::clone(&experiment.profile), experiment.config.clone());
        admit(experiment, &mut scheduler)?;
        Ok(Self {
            experiment,
            machine: Machine::new(plant, scheduler),
            heap: EventHeap::default(),
            sources: Sources::new(experiment),
            issued: 0,
            end: Time::ZERO + experiment.duration,
            tally: Tally::new(experiment.streams.len()),
        })
    }

    fn seed_events(&mut self) {
        for (index, load) in self.experiment.streams.iter().enumerate() {
            self.heap.push(load.first, Event::Stream(index));
        }
        for index in 0..self.experiment.best_effort.len() {
            self.arm_best_effort(index, Time::ZERO);
        }
    }

    fn arm_best_effort(&mut self, index: usize, last: Time) {
        let at = self.sources.next_best_effort(index, last);
        if at < self.end {
            self.heap.push(at, Event::BestEffort(index));
        }
    }

    fn deliver(&mut self, now: Time, event: Event) {
        match event {
            Event::Stream(index) => self.stream_request(now, index),
            Event::BestEffort(index) => self.best_effort_request(now, index),
        }
    }

    fn stream_request(&mut self, now: Time, index: usize) {
        let wanted = self.sources.stream(index);
        self.submit(now, wanted, index, 0);
        let next = now + self.experiment.streams[index].period;
        if next < self.end {
            self.heap.push(next, Event::Stream(index));
        }
    }

    fn best_effort_request(&mut self, now: Time, index: usize) {
        let wanted = self.sources.best_effort(index);
        let queued = self.submit(now, wanted, index, BEST_EFFORT_ID);
        let arrivals = self.experiment.best_effort[index].arrivals;
        let closed = matches!(arrivals, Arrivals::Closed { .. });
        if !(closed && queued) {
            self.arm_best_effort(index, now);
        }
    }

    fn next_id(&mut self, source: usize, kind: u64) -> RequestId {
        self.issued += 1;
        RequestId(kind | (source as u64) << SOURCE_SHIFT | self.issued)
    }

    fn submit(&mut self, now: Time, wanted: Wanted, source: usize, kind: u64) -> bool {
        let request = Request {
            id: self.next_id(source, kind),
            op: wanted.op,
            start: wanted.start,
            count: wanted.count,
            class: wanted.class,
            order: Order::default(),
        };
        match self.machine.submit(now, request) {
            Ok(()) => {
                self.tally.taken(request.class);
                true
            }
            Err(error) => {
                self.tally.refused(error);
                false
            }
        }
    }

    fn completions(&mut self, now: Time) {
        let Some((dispatch, completed)) = self.machine.completed(now) else {
            return;
        };
        self.tally.completed(now, &completed);
        let id = dispatch.id.0;
        if completed.finished && id & BEST_EFFORT_ID != 0 {
            let index = ((id & !BEST_EFFORT_ID) >> SOURCE_SHIFT) as usize;
            let arrivals = self.experiment.best_effort[index].arrivals;
            if matches!(arrivals, Arrivals::Closed { .. }) {
                self.arm_best_effort(index, now);
            }
        }
    }

    fn next_at(&self) -> Option<Time> {
        let (source, disk) = (self.heap.next_at(), self.machine.next_at());
        [source, disk].into_iter().flatten().min()
    }
}

/// True if the experiment's streams are admitted.
pub(crate) fn fits(experiment: &Experiment) -> bool {
    let profile = Arc::clone(&experiment.profile);
    let mut scheduler = DiskScheduler::new(profile, experiment.config.clone());
    admit(experiment, &mut scheduler).is_ok()
}

/// Admits the floor and the streams, and lets them join.
fn admit(experiment: &Experiment, scheduler: &mut DiskScheduler) -> Result<(), RunError> {
    let mut admission = Admission::new();
    let mut join = |index: usize, id, params, kind, scheduler: &mut DiskScheduler| {
        admission
            .insert(id, params)
            .map_err(|refusal| RunError::Refused { index, refusal })?;
        scheduler
            .join(Time::ZERO, id, params, kind, Time::ZERO)
            .map(drop)
            .map_err(|error| RunError::Join { index, error })
    };
    for (index, load) in experiment.streams.iter().enumerate() {
        let service = worst_case(scheduler, load);
        let params = TaskParams::new(service, load.period)
            .map_err(|error| RunError::Task { index, error })?;
        join(
            index,
            TaskId(index as u64),
            params,
            TaskKind::Stream,
            scheduler,
        )?;
    }
    if let Some(Floor { slice, period }) = experiment.floor {
        let index = experiment.streams.len();
        let params =
            TaskParams::new(slice, period).map_err(|error| RunError::Task { index, error })?;
        let in_pieces = params.in_pieces(scheduler.piece_max());
        join(
            index,
            TaskId(index as u64),
            in_pieces,
            TaskKind::Floor,
            scheduler,
        )?;
    }
    let (corrected, published) = (
        delta_l(&admission).value,
        delta_l_published(&admission).value,
    );
    scheduler.set_delta_l(Time::ZERO, corrected, published);
    Ok(())
}

/// The service time that is reserved for a block of a stream.
fn worst_case(scheduler: &DiskScheduler, load: &StreamLoad) -> Nanos {
    let region: std::ops::Range<Sector> = load.region.clone();
    scheduler
        .predictor()
        .worst_case(region, load.op, load.block)
}
