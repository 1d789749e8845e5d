//! SCAN-EDF: sweeps over equal deadlines.

use sched::units::Time;

use super::elevator::Elevator;
use super::{ArmRequest, ArmScheduler};

/// SCAN-EDF of Reddy and Wyllie (IEEE Computer 27(3), 1994).
///
/// Earliest deadline first, and requests with the same deadline in the order of an elevator. The elevator keeps its
/// direction from one deadline to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ScanEdf {
    elevator: Elevator,
}

impl ArmScheduler for ScanEdf {
    fn choose(&mut self, _now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let earliest = queue[0].deadline;
        let equal = queue.partition_point(|request| request.deadline <= earliest);
        let next = self.elevator.next(arm, &queue[..equal], |_| true);
        next.unwrap_or(0)
    }
}
