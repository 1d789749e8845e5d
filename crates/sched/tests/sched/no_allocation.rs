//! A dispatcher allocates nothing per request: neither may its scheduler, once it has been as full as it
//! gets.

use sched::disk::{DiskScheduler, SchedulerConfig, TaskKind};
use sched::profile::DriveProfile;
use sched::request::{Class, Decision, Op, Order, Request, RequestId, Urgency};
use sched::task::{TaskId, TaskParams};
use sched::units::{Nanos, Sector, SectorCount, Time};
use std::sync::Arc;

/// Fills the queue with requests of every kind, and serves until few are left.
fn round(disk: &mut DiskScheduler, now: &mut Time, next: &mut u64) {
    for _ in 0..150 {
        let number = *next;
        *next += 1;
        let urgency = if number.is_multiple_of(3) {
            Urgency::Async
        } else {
            Urgency::Sync
        };
        let class = match number % 5 {
            0 => Class::Stream(TaskId(number / 5 % 20)),
            1 => Class::Reserved(TaskId(100), urgency),
            _ => Class::BestEffort(urgency),
        };
        let mut order = Order {
            space: (number % 7) as u32,
            barrier: number.is_multiple_of(31),
            ..Order::default()
        };
        order.after[0] = number.checked_sub(3).map(RequestId);
        let start = Sector(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 8_000_000);
        let count = SectorCount(if number % 50 == 2 { 4_000 } else { 16 });
        let request = Request {
            id: RequestId(number),
            op: Op::Write,
            start,
            count,
            class,
            order,
        };
        disk.submit(*now, request).unwrap();
    }
    while disk.len() > 10 {
        match disk.decide(*now) {
            Decision::Issue(dispatch) => {
                *now += dispatch.predicted;
                disk.completed(*now, dispatch.id).unwrap();
            }
            Decision::Wait { until } => *now = until.unwrap().max(*now + Nanos(1)),
        }
    }
}

#[test]
fn nothing_is_allocated_per_request() {
    let profile = Arc::new(DriveProfile::shipped("quantum-atlas-ii").unwrap());
    let config = SchedulerConfig {
        queue_max: 256,
        ..SchedulerConfig::default()
    };
    let mut disk = DiskScheduler::new(profile, config);
    let mut join = |id, service, period, kind| {
        let params =
            TaskParams::new(Nanos::from_millis(service), Nanos::from_millis(period)).unwrap();
        disk.join(Time(0), TaskId(id), params, kind, Time(0))
            .unwrap();
    };
    for id in 0..20 {
        join(id, 60, 4_000, TaskKind::Stream);
    }
    join(100, 90, 2_000, TaskKind::Server);
    join(101, 90, 2_000, TaskKind::Floor);
    let (mut now, mut next) = (Time(0), 0);
    for _ in 0..20 {
        round(&mut disk, &mut now, &mut next);
    }
    let before = next;
    let counted = allocation_counter::measure(|| {
        for _ in 0..50 {
            round(&mut disk, &mut now, &mut next);
        }
    });
    assert_eq!(
        counted.count_total,
        0,
        "in {} requests: {counted:?}",
        next - before
    );
}
