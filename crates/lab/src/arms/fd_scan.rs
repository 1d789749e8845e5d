//! FD-SCAN: scans towards deadlines that can still be met.

use sched::units::{Nanos, Time};

use super::{ArmRequest, ArmScheduler, first_on_the_way};

/// FD-SCAN of Abbott and Garcia-Molina (RTSS 1990).
///
/// The arm scans towards the request with the earliest feasible deadline, and serves what it meets first. A deadline is
/// feasible if the request, served at once, would be done by it. The direction is chosen anew at each decision.
///
/// Assumed here: if no deadline is feasible, the nearest request is served.
#[derive(Clone, Copy, Debug)]
pub struct FdScan<F> {
    /// Estimates how long a request takes with the arm on a cylinder.
    pub service: F,
}

impl<F: FnMut(u32, &ArmRequest) -> Nanos + Send> ArmScheduler for FdScan<F> {
    fn choose(&mut self, now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let mut is_feasible = |request: &&ArmRequest| {
            now.saturating_add((self.service)(arm, request)) <= request.deadline
        };
        let next = match queue.iter().find(&mut is_feasible) {
            Some(target) => first_on_the_way(arm, target.cylinder, queue),
            None => (0..queue.len()).min_by_key(|&place| queue[place].cylinder.abs_diff(arm)),
        };
        next.unwrap_or(0)
    }
}
