//! The window of Chen and Thapar.

use std::num::NonZeroUsize;

use sched::units::{Nanos, Time};

use super::{ArmRequest, ArmScheduler, first_on_the_way};

/// RT-WINDOW of Chen and Thapar (HPL-96-126, section 3.1).
///
/// The window is the first `window` requests of the queue, and r1 is the first of them. If r1 has less than
/// `threshold` left until its deadline, it is served. Otherwise the arm scans towards r1, and serves the request of
/// the window that it meets first.
///
/// The paper leaves some cases open. They are decided by what it says about the rule:
///
/// * The direction is chosen anew at each decision, from the arm to r1. The scan ends at r1: the paper promises that
///   the way to r1 gets shorter with each request.
/// * Of requests on the same cylinder, the most urgent comes first. So nothing precedes r1 on its own cylinder.
/// * A request on the arm's own cylinder is on the way in both directions. It precedes r1, whose way stays as long
///   as it was.
/// * If r1 is on the arm's cylinder, there is no direction, and r1 is served.
/// * With exactly `threshold` left, the arm still scans. A deadline that has passed is less than any threshold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RtWindow {
    /// The number of requests that the arm may choose from.
    pub window: NonZeroUsize,
    /// The worst response time of r1, as estimated by the operator.
    pub threshold: Nanos,
}

impl RtWindow {
    /// The paper's parameters: a window of 5, a threshold of 350 ms.
    pub const PAPER: Self = Self {
        window: NonZeroUsize::new(5).unwrap(),
        threshold: Nanos(350_000_000),
    };
}

impl ArmScheduler for RtWindow {
    fn choose(&mut self, now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let urgent = &queue[0];
        if urgent.deadline < now.saturating_add(self.threshold) {
            return 0;
        }
        let window = &queue[..self.window.get().min(queue.len())];
        first_on_the_way(arm, urgent.cylinder, window).unwrap_or(0)
    }
}
