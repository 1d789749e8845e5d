//! Disks that share a link, such as an enclosure, a port multiplier or a bus: when does a transfer end?
//!
//! # Model
//!
//! * Between its `start` and its `end` a transfer moves data at a constant rate between its medium and its disk. Reads
//!   then wait in the disk for the link. Writes are needed by the medium at that rate.
//! * The link gives each transfer the max-min fair share of its rate. A transfer whose data keeps up wants its own
//!   rate, one with a backlog wants all that it can get. So of m transfers, each gets a share of 1/m at least.
//! * A read ends when its last byte has crossed, but not before `end`.
//! * A write whose data was never late ends at `end`. Otherwise it ends later by the largest delay of its data. A
//!   rotating drive has missed the place of that data, so the delay is rounded up to whole rotations.
//!
//! # Arithmetic
//!
//! Time goes in ticks of a nanosecond, and the shares of a tick are whole parts of 2^-48 byte, rounded down. More
//! demand of one transfer lowers the share of the others in every tick or leaves it. So another transfer never
//! hastens those that were there, not by a nanosecond. Ticks that are alike are worked out together. A transfer loses
//! less than one part in each nanosecond: less than a byte in three days.
//!
//! # Late announcements
//!
//! Transfers may be announced in any order: the result is the same if each is announced [`ANNOUNCED_LATE_MAX`] after
//! its start at the latest. Data from before that counts as backlog if others crossed meanwhile.
//!
//! # Deliberately absent
//!
//! Commands and arbitration take no time. Writes are not sent ahead of the medium. A disk has one transfer at a time.

use sched::request::Op;
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

/// Data is counted in parts of 2^-48 byte.
const PART_BITS: u32 = 48;

/// A transfer beside others that is announced later after its start may be delayed by that.
pub const ANNOUNCED_LATE_MAX: Nanos = Nanos::from_millis(10);

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// One transfer of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The direction.
    pub op: Op,
    /// When the first byte comes from the medium, or is needed by it.
    pub start: Time,
    /// When the transfer would end on a link of its own. It takes a nanosecond at least.
    pub end: Time,
    /// The amount of data.
    pub bytes: Bytes,
    /// The drive's rotation; zero for a drive that does not rotate.
    pub rotation: Nanos,
}

/// Names a transfer of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(u64);

/// A link in virtual time.
#[derive(Clone, Debug)]
pub struct Link {
    /// The data that has crossed up to a time that no announcement changes any more.
    past: Flows,
    next_id: u64,
}

impl Link {
    /// A link that moves `rate`.
    ///
    /// # Panics
    /// When the rate is zero.
    #[must_use]
    pub fn new(rate: BytesPerSecond) -> Self {
        assert!(rate > BytesPerSecond::ZERO, "a link without a rate");
        let past = Flows {
            rate: (u128::from(rate.get()) << PART_BITS) / NANOS_PER_SECOND,
            now: Time::ZERO,
            flows: Vec::new(),
        };
        Self { past, next_id: 0 }
    }

    /// Announces a transfer at `now`.
    pub fn begin(&mut self, now: Time, transfer: Transfer) -> TransferId {
        let id = TransferId(self.next_id);
        self.next_id += 1;
        self.settle(Time(now.get().saturating_sub(ANNOUNCED_LATE_MAX.get())));
        let flow = Flow::new(id, transfer, self.past.now);
        self.past.flows.push(flow);
        id
    }

    /// Settles what crosses before `until`. A time in which nothing crosses stays open to any announcement.
    fn settle(&mut self, until: Time) {
        let past = &mut self.past;
        let crosses = |flow: &Flow| flow.crossed.is_none() && flow.transfer.start < until;
        while past.now < until && past.flows.iter().any(crosses) {
            past.step(until);
        }
        past.flows
            .retain(|flow| !flow.is_finished || flow.crossed.is_none());
    }

    /// When the transfer ends if no other begins: its real end is not earlier, unless another is called off.
    ///
    /// # Panics
    /// When the transfer has been finished.
    #[must_use]
    pub fn due(&self, id: TransferId) -> Time {
        let place = self.place(id);
        let mut flows = self.past.clone();
        loop {
            if let Some(end) = flows.flows[place].end() {
                return end;
            }
            flows.step(Time::MAX);
        }
    }

    /// Gives the name of a transfer up at `now`. A transfer whose data has not crossed is called off: it no longer
    /// delays others.
    ///
    /// # Panics
    /// When the transfer has been finished.
    pub fn finish(&mut self, id: TransferId, now: Time) {
        let place = self.place(id);
        if self.past.at(now).flows[place].crossed.is_some() {
            self.past.flows[place].is_finished = true;
        } else {
            self.past.flows.remove(place);
        }
    }

    fn place(&self, id: TransferId) -> usize {
        let is_it = |flow: &Flow| flow.id == id && !flow.is_finished;
        let place = self.past.flows.iter().position(is_it);
        place.expect("the transfer has not been finished")
    }
}

/// Transfers, and how far they are at a time.
#[derive(Clone, Debug)]
struct Flows {
    /// Parts that cross in a tick.
    rate: u128,
    now: Time,
    flows: Vec<Flow>,
}

impl Flows {
    /// The same at a later time.
    fn at(&self, until: Time) -> Self {
        let mut later = self.clone();
        later.run_until(until);
        later
    }

    fn run_until(&mut self, until: Time) {
        while self.now < until {
            self.step(until);
        }
    }

    /// Works out as many ticks as are alike, not beyond `until`.
    fn step(&mut self, until: Time) {
        let level = self.level();
        let mut next = until;
        for flow in &self.flows {
            next = next.min(flow.alike_until(self.now, level));
        }
        for flow in &mut self.flows {
            flow.advance(self.now, next, level);
        }
        self.now = next;
    }

    /// The share of a transfer that wants more. Transfers that want no more than this get what they want.
    fn level(&self) -> u128 {
        let mut level = 0;
        loop {
            let (mut left, mut unsatisfied) = (self.rate, 0);
            for flow in &self.flows {
                let demand = flow.demand(self.now);
                if demand <= level {
                    left -= demand;
                } else {
                    unsatisfied += 1;
                }
            }
            if unsatisfied == 0 {
                return u128::MAX;
            }
            if left / unsatisfied == level {
                return level;
            }
            level = left / unsatisfied;
        }
    }
}

/// A transfer on its way.
#[derive(Clone, Debug)]
struct Flow {
    id: TransferId,
    transfer: Transfer,
    /// Parts that the medium moves in a tick between start and end.
    rate: u128,
    /// Parts that are late: read, or needed by the medium, and not across the link.
    backlog: u128,
    /// The largest delay of its data up to now.
    delay: Nanos,
    /// When the last byte has crossed.
    crossed: Option<Time>,
    is_finished: bool,
}

impl Flow {
    fn new(id: TransferId, mut transfer: Transfer, now: Time) -> Self {
        transfer.end = transfer.end.max(transfer.start + Nanos(1));
        let length = transfer.end - transfer.start;
        let mut flow = Self {
            id,
            transfer,
            rate: (u128::from(transfer.bytes.get()) << PART_BITS) / u128::from(length.get()),
            backlog: 0,
            delay: Nanos::ZERO,
            crossed: None,
            is_finished: false,
        };
        flow.backlog = flow.moved_by_medium(now);
        flow.note(now);
        flow
    }

    fn moved_by_medium(&self, now: Time) -> u128 {
        let Transfer { start, end, .. } = self.transfer;
        self.rate * u128::from(now.min(end).saturating_since(start).get())
    }

    /// Parts that the medium moves in the tick that begins at `now`.
    fn arriving(&self, now: Time) -> u128 {
        let is_moving = self.transfer.start <= now && now < self.transfer.end;
        if is_moving { self.rate } else { 0 }
    }

    fn demand(&self, now: Time) -> u128 {
        self.backlog + self.arriving(now)
    }

    /// Until when this transfer changes the shares of no tick.
    fn alike_until(&self, now: Time, level: u128) -> Time {
        let Transfer { start, end, .. } = self.transfer;
        let boundary = if now < start {
            start
        } else if now < end {
            end
        } else {
            Time::MAX
        };
        let arriving = self.arriving(now);
        let alike = if self.demand(now) <= level {
            if self.backlog == 0 {
                return boundary;
            }
            Nanos(1)
        } else if arriving < level {
            let ticks = self.backlog.div_ceil(level - arriving) - 1;
            Nanos(u64::try_from(ticks).unwrap_or(u64::MAX))
        } else {
            return boundary;
        };
        boundary.min(now.saturating_add(alike))
    }

    /// Goes on to `next`, at most `level` parts in each tick.
    fn advance(&mut self, now: Time, next: Time, level: u128) {
        if self.demand(now) <= level {
            self.backlog = 0;
        } else {
            let ticks = u128::from((next - now).get());
            self.backlog += self.arriving(now) * ticks;
            self.backlog -= level * ticks;
        }
        self.note(next);
    }

    /// Notes how late the data is at `now`, and whether all of it has crossed.
    fn note(&mut self, now: Time) {
        if self.crossed.is_some() {
            return;
        }
        let Transfer { start, end, .. } = self.transfer;
        if self.backlog > 0 {
            let crossed = self.moved_by_medium(now) - self.backlog;
            // Less than the length of the transfer, which is 64 bits long.
            let needed = start + Nanos((crossed / self.rate) as u64);
            self.delay = self.delay.max(now - needed);
        } else if now >= end {
            self.crossed = Some(now);
            self.delay = self.delay.max(now - end);
        }
    }

    /// When the transfer ends, once its last byte has crossed.
    fn end(&self) -> Option<Time> {
        let crossed = self.crossed?;
        let Transfer {
            op, end, rotation, ..
        } = self.transfer;
        Some(match op {
            Op::Read => crossed,
            Op::Write if rotation.is_zero() => end + self.delay,
            Op::Write => end + rotation * self.delay.get().div_ceil(rotation.get()),
        })
    }
}

#[cfg(test)]
mod tests;
