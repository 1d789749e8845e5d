//! Earliest deadline first.

use sched::units::Time;

use super::{ArmRequest, ArmScheduler};

/// Earliest deadline first. Of equal deadlines, the earlier arrival.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Edf;

impl ArmScheduler for Edf {
    fn choose(&mut self, _now: Time, _arm: u32, _queue: &[ArmRequest]) -> usize {
        0
    }
}
