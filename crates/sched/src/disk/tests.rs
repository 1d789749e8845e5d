//! Decisions one by one, and the disk, the requests and the tasks that they are about; long random runs
//! are in `tests/sched/disk_runs.rs`.

mod best_effort;
mod passing;
mod refused;
mod servers;
mod streams;

use super::*;
use crate::core::Policy;
use crate::request::{Class, Decision, Dispatch, Op, Order, Request, RequestId, Served, Urgency};
use crate::task::TaskParams;

const MS: u64 = 1_000_000;

fn atlas(config: SchedulerConfig) -> DiskScheduler {
    DiskScheduler::new(
        Arc::new(DriveProfile::shipped("quantum-atlas-ii").unwrap()),
        config,
    )
}

fn at(ms: u64) -> Time {
    Time(ms * MS)
}

fn request(id: u64, start: u64, count: u64, class: Class) -> Request {
    Request {
        id: RequestId(id),
        op: Op::Read,
        start: Sector(start),
        count: SectorCount(count),
        class,
        order: Order::default(),
    }
}

fn sync(id: u64, start: u64) -> Request {
    request(id, start, 8, Class::BestEffort(Urgency::Sync))
}

fn async_(id: u64, start: u64) -> Request {
    request(id, start, 8, Class::BestEffort(Urgency::Async))
}

/// Half a megabyte of a stream.
fn block(id: u64, stream: u64) -> Request {
    request(id, 0, 1_024, Class::Stream(TaskId(stream)))
}

fn task(service_ms: u64, period_ms: u64) -> TaskParams {
    TaskParams::new(
        Nanos::from_millis(service_ms),
        Nanos::from_millis(period_ms),
    )
    .unwrap()
}

/// A task joins an idle disk at 0.
fn join(
    disk: &mut DiskScheduler,
    id: u64,
    params: TaskParams,
    kind: TaskKind,
) -> Result<(), JoinError> {
    disk.join(at(0), TaskId(id), params, kind, at(0)).map(drop)
}

fn issued(disk: &mut DiskScheduler, now: Time) -> Dispatch {
    match disk.decide(now) {
        Decision::Issue(dispatch) => dispatch,
        wait => panic!("{wait:?} at {now:?}"),
    }
}

/// Serves all that is queued, each piece as long as predicted; the ids in order of completion.
fn drain(disk: &mut DiskScheduler, mut now: Time) -> Vec<u64> {
    let mut order = Vec::new();
    while !disk.is_empty() {
        match disk.decide(now) {
            Decision::Issue(dispatch) => {
                now += dispatch.predicted;
                if disk.completed(now, dispatch.id).unwrap().finished {
                    order.push(dispatch.id.0);
                }
            }
            Decision::Wait { until } => {
                now = until.expect("something will change").max(now + Nanos(1))
            }
        }
    }
    order
}
