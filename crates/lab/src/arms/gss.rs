//! Grouped sweeping.

use std::num::NonZeroU32;

use sched::units::Time;

use super::elevator::Elevator;
use super::{ArmRequest, ArmScheduler};

/// The grouped sweeping scheme of Yu, Chen and Kandlur (Multimedia Systems 1, 1993).
///
/// Streams belong to groups, which have their turns one after another, always in the same order. In a turn, one request
/// of each stream of the group is served, in the order of an elevator. One group is the elevator. A group for each stream
/// is round-robin.
///
/// The scheme is made for rounds in which each stream has a request. Requests come at any time here, which needs more
/// rules:
///
/// * Stream n belongs to group n modulo the number of groups.
/// * A request that comes in its group's turn is still served in it, unless its stream had a request served in it.
/// * A turn ends when no such request waits. Groups that have none are skipped, so the disk never waits for a group.
#[derive(Clone, Debug)]
pub struct Gss {
    groups: NonZeroU32,
    elevator: Elevator,
    group: u32,
    turn: u64,
    /// By stream: the last turn in which a request of it was served. Turns count from 1.
    served_in: Vec<u64>,
}

impl Gss {
    /// Grouped sweeping with so many groups.
    #[must_use]
    pub const fn new(groups: NonZeroU32) -> Self {
        Self {
            groups,
            elevator: Elevator::UPWARDS,
            group: 0,
            turn: 1,
            served_in: Vec::new(),
        }
    }

    /// The next request of this turn.
    fn of_turn(&mut self, arm: u32, queue: &[ArmRequest]) -> Option<usize> {
        let Self {
            groups,
            elevator,
            group,
            turn,
            served_in,
        } = self;
        elevator.next(arm, queue, |request| {
            let served_in = served_in.get(request.stream as usize);
            request.stream % *groups == *group && served_in.is_none_or(|in_turn| in_turn < turn)
        })
    }
}

impl ArmScheduler for Gss {
    fn choose(&mut self, _now: Time, arm: u32, queue: &[ArmRequest]) -> usize {
        let next = loop {
            if let Some(next) = self.of_turn(arm, queue) {
                break next;
            }
            self.group = (self.group + 1) % self.groups;
            self.turn += 1;
        };
        let stream = queue[next].stream as usize;
        if self.served_in.len() <= stream {
            self.served_in.resize(stream + 1, 0);
        }
        self.served_in[stream] = self.turn;
        next
    }
}
