//! A disk to schedule: the drive that the runs in virtual time have, and requests to it.

use std::sync::Arc;

use sched::disk::{DiskScheduler, SchedulerConfig};
use sched::profile::DriveProfile;
use sched::request::{Class, Op, Order, Request, RequestId};
use sched::units::{Sector, SectorCount};

/// The scheduler of an idle Atlas-II.
pub(crate) fn atlas(config: SchedulerConfig) -> DiskScheduler {
    scheduler("quantum-atlas-ii", config)
}

/// The scheduler of an idle disk with this profile.
pub(crate) fn scheduler(drive: &str, config: SchedulerConfig) -> DiskScheduler {
    let profile = DriveProfile::shipped(drive).expect("shipped");
    DiskScheduler::new(Arc::new(profile), config)
}

/// A request under the next id, in any order with others.
pub(crate) fn request(
    next_id: &mut u64,
    class: Class,
    op: Op,
    start: Sector,
    count: u64,
) -> Request {
    let id = RequestId(*next_id);
    *next_id += 1;
    Request {
        id,
        op,
        start,
        count: SectorCount(count),
        class,
        order: Order::default(),
    }
}
