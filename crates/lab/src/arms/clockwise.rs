//! The server's scheduler as a rule for the arm.

use std::sync::Arc;

use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::predict::Predictor;
use sched::profile::DriveProfile;
use sched::request::{Class, Decision, Op, Order, Request, RequestId};
use sched::task::{TaskError, TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};

use super::{ArmRequest, ArmScheduler};

/// The server's scheduler. Each stream is a task with the longest time of a request, and a period in which it asks for
/// one.
///
/// It is told of arrivals and completions in their order. A request counts as done at the next decision. Where it would
/// leave the disk idle until some time, it is asked what it would serve then, and its clock goes on from there: the
/// disk serves that request at once.
#[derive(Debug)]
pub struct Clockwise {
    scheduler: DiskScheduler,
    block: SectorCount,
    /// The first sector of each cylinder.
    starts: Vec<Sector>,
    clock: Time,
    /// The last arrival that it was told of.
    last_told: Option<(Time, u64)>,
    on_disk: Option<RequestId>,
}

impl Clockwise {
    /// The scheduler of a drive of this profile. Streams of the numbers below `streams` ask for blocks of this size, each for one a
    /// period. It is not tested if they may.
    ///
    /// # Errors
    /// A block takes longer than the period.
    ///
    /// # Panics
    /// With more streams than `config` allows.
    pub fn new(
        profile: Arc<DriveProfile>,
        config: SchedulerConfig,
        block: SectorCount,
        period: Nanos,
        streams: u32,
    ) -> Result<Self, TaskError> {
        let mut scheduler = DiskScheduler::new(profile, config);
        let predictor = scheduler.predictor();
        let anywhere = Sector(0)..Sector(predictor.capacity().get());
        let params = TaskParams::new(predictor.worst_case(anywhere, Op::Read, block), period)?;
        let starts = cylinder_starts(predictor, block);
        for stream in 0..streams {
            let (task, kind) = (TaskId(stream.into()), TaskKind::Stream);
            let joined = scheduler.join(Time::ZERO, task, params, kind, Time::ZERO);
            joined.expect("each stream joins once");
        }
        Ok(Self {
            scheduler,
            block,
            starts,
            clock: Time::ZERO,
            last_told: None,
            on_disk: None,
        })
    }

    fn tell(&mut self, request: &ArmRequest) {
        self.clock = self.clock.max(request.arrived);
        let cylinder = (request.cylinder as usize).min(self.starts.len() - 1);
        let submitted = self.scheduler.submit(
            self.clock,
            Request {
                id: RequestId(request.number),
                op: Op::Read,
                start: self.starts[cylinder],
                count: self.block,
                class: Class::Stream(TaskId(request.stream.into())),
                order: Order::default(),
            },
        );
        submitted.expect("it is a stream of the server, and a block like all others");
    }
}

/// The first sector of each cylinder on which a block fits.
pub(crate) fn cylinder_starts(predictor: &Predictor, block: SectorCount) -> Vec<Sector> {
    let last = predictor.capacity().get().saturating_sub(block.get());
    let first_of = |cylinder: u64| {
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = u64::midpoint(low, high);
            if predictor.cylinder(Sector(middle)) < cylinder {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Sector(low)
    };
    (0..=predictor.cylinder(Sector(last)))
        .map(first_of)
        .collect()
}

impl ArmScheduler for Clockwise {
    fn choose(&mut self, now: Time, _arm: u32, queue: &[ArmRequest]) -> usize {
        let key = |request: &ArmRequest| (request.arrived, request.number);
        let mut new: Vec<_> = queue
            .iter()
            .filter(|request| self.last_told.is_none_or(|told| key(request) > told))
            .collect();
        new.sort_by_key(|request| key(request));
        for request in new {
            self.tell(request);
            self.last_told = Some(key(request));
        }
        self.clock = self.clock.max(now);
        if let Some(id) = self.on_disk.take() {
            self.scheduler.completed(self.clock, id);
        }
        let next = loop {
            match self.scheduler.decide(self.clock) {
                Decision::Issue(dispatch) => break dispatch.id,
                Decision::Wait { until } => {
                    let until = until.expect("it was told of requests");
                    self.clock = until.max(self.clock + Nanos(1));
                }
            }
        };
        self.on_disk = Some(next);
        let place = queue.iter().position(|request| request.number == next.0);
        place.expect("it was told of nothing else")
    }
}
