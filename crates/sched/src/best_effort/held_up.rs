//! Decides which requests may pass a best-effort request that does not fit into the slack.
//!
//! # Problem
//!
//! The request whose turn it is may be too long, or too far away, for the slack of the moment, and slack
//! does not grow by waiting. If it held the others up, a disk could stand still for ever with requests
//! queued that would harm no guarantee; if the others always passed, they could use up the slack each time,
//! and it would never be served.
//!
//! # Rule
//!
//! Other requests pass in the order that they would have without it. A request that is not aged may be passed
//! by all. An aged one is passed by aged ones that fit first, or else by
//! [`AGED_EVERY`](super::AGED_EVERY) others before it is tried again; and of every [`HOLD_EVERY`] *turns*,
//! each as long as its age limit or the longest period on the disk, it has one for itself. In that turn it
//! meets the slack that real-time requests alone leave in a whole period of each of them.

use super::{BestEffortQueue, Pick, index};
use crate::position::NONE;
use crate::request::Urgency;
use crate::units::{Nanos, Sector, Time};

/// One in so many turns of an aged request is its own.
const HOLD_EVERY: u64 = 8;

impl BestEffortQueue {
    /// Until when nobody may pass `pick`, which does not fit; `None`: others may.
    /// `period` is the longest on the disk.
    pub(crate) fn holds_until(&self, pick: Pick, now: Time, period: Nanos) -> Option<Time> {
        let item = &self.items[pick.slot as usize];
        let length = self.age_limits[index(item.urgency)]
            .max(period)
            .get()
            .max(1);
        let turn = now.saturating_since(item.arrived).get() / length;
        (pick.aged && turn % HOLD_EVERY == HOLD_EVERY - 1).then(|| {
            let end = Nanos((turn + 1).saturating_mul(length));
            item.arrived.saturating_add(end)
        })
    }

    /// An aged request has had its try in slack, without success; the next one comes after some others. It keeps
    /// its place in the containers of its account.
    pub(crate) fn put_off_aged(&mut self) {
        self.since_aged = 0;
    }

    /// The aged request that is oldest among those that fit, synchronous ones first.
    pub(crate) fn aged_that(&self, now: Time, mut fits: impl FnMut(u32) -> bool) -> Option<Pick> {
        self.oldest(|slot| {
            let item = &self.items[slot as usize];
            let due = item
                .arrived
                .saturating_add(self.age_limits[index(item.urgency)]);
            now > due && fits(slot)
        })
    }

    /// The oldest request that fits, synchronous ones first.
    pub(crate) fn any_that(&self, fits: impl FnMut(u32) -> bool) -> Option<Pick> {
        self.oldest(fits)
    }

    /// The next one on either side of the head that fits, synchronous ones first.
    pub(crate) fn neighbour_that(
        &self,
        head: Option<Sector>,
        mut fits: impl FnMut(u32) -> bool,
    ) -> Option<Pick> {
        let at = head.map_or(0, Sector::get);
        for urgency in [Urgency::Sync, Urgency::Async] {
            let (above, below) = self.all.around(index(urgency), at);
            let mut sides = [(above, true), (below, false)];
            if !self.upwards {
                sides.reverse();
            }
            for (slot, upwards) in sides {
                if let Some(slot) = slot.filter(|slot| fits(*slot)) {
                    return Some(Pick {
                        slot,
                        aged: false,
                        is_oldest: false,
                        upwards,
                    });
                }
            }
        }
        None
    }

    /// The first ready request in order of arrival that is accepted, those queued as synchronous first.
    fn oldest(&self, mut accept: impl FnMut(u32) -> bool) -> Option<Pick> {
        for urgency in [Urgency::Sync, Urgency::Async] {
            let mut slot = self.ages[index(urgency)].0;
            while slot != NONE {
                let item = &self.items[slot as usize];
                if item.ready && accept(slot) {
                    return Some(Pick {
                        slot,
                        aged: true,
                        is_oldest: false,
                        upwards: self.upwards,
                    });
                }
                slot = item.links[0].1;
            }
        }
        None
    }
}
