//! The circular elevator.

use sched::units::Time;

use super::{ArmRequest, ArmScheduler, first_on_the_way};

/// The circular elevator: upwards from the arm, then from the lowest request again. Deadlines decide only between
/// requests on the same cylinder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CScan;

impl ArmScheduler for CScan {
    fn choose(&mut self, _now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let next = first_on_the_way(arm, u32::MAX, queue);
        next.or_else(|| first_on_the_way(0, u32::MAX, queue))
            .unwrap_or(0)
    }
}
