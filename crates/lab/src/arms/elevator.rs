//! The elevator, as a part of other rules.

use super::ArmRequest;

/// The elevator: goes on in its direction as long as a request lies ahead, and turns then. It begins upwards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Elevator {
    downwards: bool,
}

impl Elevator {
    pub(super) const UPWARDS: Self = Self { downwards: false };

    /// The place of the next of those requests that count; `None` if there are none.
    pub(super) fn next(
        &mut self,
        arm: u32,
        queue: &[ArmRequest],
        counts: impl Fn(&ArmRequest) -> bool,
    ) -> Option<usize> {
        self.ahead(arm, queue, &counts).or_else(|| {
            self.downwards = !self.downwards;
            self.ahead(arm, queue, &counts)
        })
    }

    fn ahead(
        self,
        arm: u32,
        queue: &[ArmRequest],
        counts: impl Fn(&ArmRequest) -> bool,
    ) -> Option<usize> {
        let is_ahead = |cylinder| {
            if self.downwards {
                cylinder <= arm
            } else {
                cylinder >= arm
            }
        };
        let places = (0..queue.len())
            .filter(|&place| is_ahead(queue[place].cylinder) && counts(&queue[place]));
        places.min_by_key(|&place| queue[place].cylinder.abs_diff(arm))
    }
}
