//! A disk of a farm for which a rule for the arm decides, in place of the server's scheduler.

use sched::disk::{Completed, SubmitError};
use sched::predict::Predictor;
use sched::request::{Decision, Dispatch, Op, Request, RequestId, Served};
use sched::units::{Nanos, Sector, SectorCount, Time};

use super::feed::{BEST_EFFORT_ID, Feed};
use super::{FarmRun, Stream};
use crate::arms::{ArmRequest, ArmScheduler, GScan, cylinder_starts};
use crate::run::Decider;

/// The stream of best effort in the queue of a disk.
const BEST_EFFORT: u32 = u32::MAX;

/// The queue of a disk, and the rule that chooses from it.
///
/// A block is due a period after its release, as in [`sched::core`]: it is released when it comes, but not before the
/// one before it is due. Sweeps are not known: a block that the server would serve in one is due as any other. Best
/// effort has the deadline [`Time::MAX`], with a reservation too. Requests go to the drive whole. The disk does not
/// rest while anything waits.
pub(super) struct ArmDisk<A> {
    rule: A,
    predictor: Predictor,
    queue_max: usize,
    /// By deadline, then by arrival.
    queue: Vec<ArmRequest>,
    /// The requests of `queue`.
    requests: Vec<Request>,
    /// The period of each lane, and when its last block was due.
    lanes: Vec<(Nanos, Time)>,
    on_disk: Option<OnDisk>,
    head: Option<Sector>,
}

struct OnDisk {
    request: Request,
    dispatch: Dispatch,
    submitted: Time,
    issued: Time,
}

impl<A: ArmScheduler> ArmDisk<A> {
    /// Disk `number`, with nothing in its queue.
    pub(super) fn new(of: &FarmRun<'_>, number: usize, rule: A) -> Self {
        let lanes = lanes(of, number);
        let period = |(stream, lane): (&Stream, usize)| {
            let gap = stream.track.lanes[lane].need.gap;
            Nanos(stream.period.get().saturating_mul(gap))
        };
        Self {
            rule,
            predictor: of.disks.predictor(),
            queue_max: of.config.queue_max,
            queue: Vec::new(),
            requests: Vec::new(),
            lanes: lanes.map(|lane| (period(lane), Time::ZERO)).collect(),
            on_disk: None,
            head: None,
        }
    }
}

impl<A: ArmScheduler> Decider for ArmDisk<A> {
    fn submit(&mut self, now: Time, request: Request) -> Result<(), SubmitError> {
        let max = self.queue_max;
        if self.queue.len() + usize::from(self.on_disk.is_some()) >= max {
            return Err(SubmitError::Full { max });
        }
        let lane = Feed::lane_of(request.id);
        let (stream, deadline) = if request.id.0 & BEST_EFFORT_ID == 0 {
            let (period, due) = &mut self.lanes[lane];
            *due = now.max(*due).saturating_add(*period);
            (lane as u32, *due)
        } else {
            (BEST_EFFORT, Time::MAX)
        };
        let place = self.queue.partition_point(|of| of.deadline <= deadline);
        let queued = ArmRequest {
            deadline,
            arrived: now,
            cylinder: self.predictor.cylinder(request.start) as u32,
            stream,
            number: request.id.0,
        };
        self.queue.insert(place, queued);
        self.requests.insert(place, request);
        Ok(())
    }

    fn completed(&mut self, now: Time, id: RequestId) -> Option<Completed> {
        let OnDisk {
            request,
            dispatch,
            submitted,
            issued,
        } = self.on_disk.take_if(|on_disk| on_disk.request.id == id)?;
        let actual = now - issued;
        Some(Completed {
            finished: true,
            class: request.class,
            served: dispatch.served,
            deadline: dispatch.deadline,
            lateness: dispatch
                .deadline
                .map_or(Nanos::ZERO, |deadline| now - deadline.min(now)),
            submitted,
            predicted: dispatch.predicted,
            actual,
            overrun: actual.saturating_sub(dispatch.predicted),
        })
    }

    fn decide(&mut self, now: Time) -> Decision {
        if self.queue.is_empty() || self.on_disk.is_some() {
            return Decision::Wait { until: None };
        }
        let arm = self.head.map_or(0, |head| self.predictor.cylinder(head));
        let place = self.rule.choose(now, arm as u32, &self.queue);
        let (queued, request) = (self.queue.remove(place), self.requests.remove(place));
        let Request {
            id,
            op,
            start,
            count,
            ..
        } = request;
        let is_block = queued.stream != BEST_EFFORT;
        let dispatch = Dispatch {
            id,
            op,
            start,
            count,
            offset: SectorCount(0),
            predicted: self.predictor.predict(self.head, op, start, count),
            served: if is_block {
                Served::RealTime
            } else {
                Served::Slack
            },
            deadline: is_block.then_some(queued.deadline),
        };
        self.head = Some(dispatch.last());
        self.on_disk = Some(OnDisk {
            request,
            dispatch,
            submitted: queued.arrived,
            issued: now,
        });
        Decision::Issue(dispatch)
    }

    /// Nothing is promised that would limit it.
    fn slack(&mut self, _now: Time) -> Option<Nanos> {
        None
    }
}

/// The lanes on disk `number`, each as its stream and its place in the stream's track.
fn lanes<'a>(of: &FarmRun<'a>, number: usize) -> impl Iterator<Item = (&'a Stream, usize)> {
    let streams = of.admitted.streams();
    let on_disk = of.admitted.on_disk[number].streams.iter();
    on_disk.map(|of| (&streams[of.stream], of.lane))
}

impl FarmRun<'_> {
    /// G-SCAN for disk `number`. It estimates from what the server's scheduler knows: a seek takes the profile's bound, a
    /// block as long as it has reserved without the longest seek, and best effort the bound for a request of mean
    /// length.
    pub(crate) fn g_scan(&self, number: usize) -> impl ArmScheduler + use<> {
        let predictor = self.disks.predictor();
        let one = SectorCount(1);
        let first = |head: Sector| predictor.predict(Some(head), Op::Read, Sector::ZERO, one);
        let stay = first(Sector::ZERO);
        let starts = cylinder_starts(&predictor, one);
        let seeks: Vec<Nanos> = starts
            .iter()
            .map(|start| first(*start).saturating_sub(stay))
            .collect();
        let longest = seeks.last().copied().unwrap_or_default();
        let blocks: Vec<Nanos> = lanes(self, number)
            .map(|(stream, lane)| stream.track.lanes[lane].need.service)
            .map(|reserved| reserved.saturating_sub(longest))
            .collect();
        let load = self.load.disks.get(number).map_or(&[][..], Vec::as_slice);
        let sectors: u64 = load.iter().map(|request| u64::from(request.count)).sum();
        let mean = SectorCount(sectors.div_ceil(load.len().max(1) as u64).max(1));
        let middle = load.get(load.len() / 2).map_or(Sector::ZERO, |of| of.start);
        let best_effort = predictor.predict(Some(middle), Op::Read, middle, mean);
        let cylinders = seeks.len() as u32;
        GScan::new(
            move |distance: u32| seeks[(distance as usize).min(seeks.len() - 1)],
            move |request: &ArmRequest| {
                let block = blocks.get(request.stream as usize);
                block.copied().unwrap_or(best_effort)
            },
            cylinders,
        )
    }
}

#[cfg(test)]
mod tests {
    use sched::disk::SchedulerConfig;

    use super::*;
    use crate::arms::Edf;
    use crate::cello::Period;
    use crate::thesis::{Layout, Thesis, Times};

    /// By EDF, blocks go first: each is due a period after its release, which is not before the one before it is due.
    #[test]
    fn best_effort_waits_for_all_blocks_of_edf() {
        let thesis = Thesis::new(Layout::MemoryOptimized, Times::Bound, 1).unwrap();
        let (admitted, ..) = thesis.admit(1);
        let load = thesis.cello(&Period::busy(), 1);
        let config = SchedulerConfig::default();
        let run = FarmRun {
            disks: &thesis.disks,
            admitted: &admitted,
            load: &load,
            config: &config,
            end: Time(3_600_000_000_000),
            seed: 1,
            slot: None,
            slack_every: None,
        };
        // The last disk has the video.
        let mut feed = Feed::new(&run, 2);
        let block = feed.next(Time::ZERO).unwrap();
        let next = Request {
            id: RequestId(block.id.0 + 1),
            ..block
        };
        let other = feed.best_effort(0);
        let mut disk = ArmDisk::new(&run, 2, Edf);
        let (period, _) = disk.lanes[Feed::lane_of(block.id)];
        for request in [other, block, next] {
            disk.submit(Time::ZERO, request).unwrap();
        }
        let due = Time::ZERO + period;
        let late = Nanos(7);
        let expected = [
            (block, Some(due), due, Nanos::ZERO),
            (next, Some(due + period), due + period + late, late),
            (other, None, due + period * 3, Nanos::ZERO),
        ];
        let mut now = Time::ZERO;
        for (request, deadline, end, lateness) in expected {
            let Decision::Issue(dispatch) = disk.decide(now) else {
                panic!("something waits");
            };
            assert_eq!((dispatch.id, dispatch.deadline), (request.id, deadline));
            assert_eq!(disk.decide(now), Decision::Wait { until: None });
            let completed = disk.completed(end, request.id).unwrap();
            assert_eq!(
                (completed.lateness, completed.actual),
                (lateness, end - now)
            );
            now = end;
        }
        assert_eq!(disk.decide(now), Decision::Wait { until: None });
    }
}
