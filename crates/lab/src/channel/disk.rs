//! One disk of a channel: its queue at the host, and its buffer.

use sched::units::{Nanos, Time};

use super::{Arrival, DiskTally, OUTSTANDING_MAX};
use crate::arms::{ArmRequest, ArmScheduler};

/// A request that has been given to the drive.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    pub(super) deadline: Time,
    pub(super) unit: u32,
    /// When its command came.
    pub(super) received_at: Time,
    /// When its next burst is in the buffer and may go.
    pub(super) burst_at: Time,
    /// The time between two bursts.
    pub(super) burst_gap: Nanos,
    pub(super) bursts_left: u32,
}

/// The drive takes requests in order, so counters tell the state of each: the requests before `sent` are sent, and so on.
pub(super) struct Disk {
    pub(super) queue: Vec<ArmRequest>,
    /// The stripe units of the requests of `queue`.
    pub(super) units: Vec<u32>,
    pub(super) scheduler: Box<dyn ArmScheduler>,
    /// Where the last request that was given to the drive leaves the arm.
    pub(super) arm_then: u32,
    /// Where the last request that was begun leaves the arm.
    pub(super) arm: u32,
    pub(super) spindle: Nanos,
    pub(super) slots: [Slot; OUTSTANDING_MAX as usize],
    pub(super) issued: u32,
    pub(super) received: u32,
    pub(super) begun: u32,
    pub(super) fetched: u32,
    /// The status of the PRE-FETCH has reached the host.
    pub(super) notified: u32,
    /// READ of buffered data: sent by the host, and received.
    pub(super) asked: u32,
    pub(super) ordered: u32,
    pub(super) sent: u32,
    /// True while the next burst waits for its time, for the bus or is on the bus.
    pub(super) is_offered: bool,
    /// From when the drive has been waiting for the bus, with data or with a status.
    pub(super) data_since: Time,
    pub(super) status_since: Time,
    /// The channel's number of bursts at `status_since`.
    pub(super) status_bursts: u64,
    /// The access right of the fair discipline.
    pub(super) has_right: bool,
    pub(super) tally: DiskTally,
}

impl Disk {
    pub(super) fn new(id: u8, spindle: Nanos, scheduler: Box<dyn ArmScheduler>) -> Self {
        Self {
            queue: Vec::with_capacity(64),
            units: Vec::with_capacity(64),
            scheduler,
            arm_then: 0,
            arm: 0,
            spindle,
            slots: [Slot::default(); OUTSTANDING_MAX as usize],
            issued: 0,
            received: 0,
            begun: 0,
            fetched: 0,
            notified: 0,
            asked: 0,
            ordered: 0,
            sent: 0,
            is_offered: false,
            data_since: Time::ZERO,
            status_since: Time::ZERO,
            status_bursts: 0,
            has_right: true,
            tally: DiskTally {
                id,
                ..DiskTally::default()
            },
        }
    }

    pub(super) fn slot(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[(number % OUTSTANDING_MAX) as usize]
    }

    /// Puts a request into the queue, which is in order of deadlines, then of arrivals.
    pub(super) fn join(&mut self, arrival: &Arrival, cylinder: u32, number: u64) {
        let request = ArmRequest {
            deadline: arrival.deadline,
            arrived: arrival.time,
            cylinder,
            stream: arrival.stream,
            number,
        };
        let mut place = self.queue.len();
        while place > 0 && self.queue[place - 1].deadline > request.deadline {
            place -= 1;
        }
        self.queue.insert(place, request);
        self.units.insert(place, arrival.unit);
        self.tally.queue_max = self.tally.queue_max.max(self.queue.len());
    }

    /// Takes the request that the scheduler chooses, as deadline and stripe unit.
    pub(super) fn choose(&mut self, now: Time) -> Option<(Time, u32)> {
        if self.queue.is_empty() {
            return None;
        }
        let place = self.scheduler.choose(now, self.arm_then, &self.queue);
        let request = self.queue.remove(place);
        Some((request.deadline, self.units.remove(place)))
    }
}
