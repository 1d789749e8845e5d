//! The order among best-effort requests (thesis 6.3.3).
//!
//! # Problem
//!
//! One of thousands of queued requests is to be served next. Position order makes the disk fast, but starves
//! distant requests; order of arrival is fair and slow (on an emulated Atlas-II 12.9 ms a request against
//! 10.4, enough to overload it).
//!
//! # Order
//!
//! 1. *Aged* requests: those that have waited longer than the limit of their urgency, the one
//!    that is longest overdue first. After one, [`AGED_EVERY`] others go in position order, so
//!    that an overloaded disk does not fall back to order of arrival; every request is the
//!    oldest some day, so none waits for ever. Each account counts the requests that are served from its
//!    containers, beginning at the last whole piece of its own oldest request. Service in slack, or from
//!    containers of other accounts, does not delay that request.
//! 2. Synchronous before asynchronous.
//! 3. Among those, [`BestEffortOrder`].
//!
//! `held_up` decides which requests may pass one that does not fit into the slack.
//!
//! An asynchronous request that a synchronous one waits for (by a tag or a barrier) is served
//! as synchronous.
//!
//! # Structure
//!
//! Requests that may start are in two trees by position, one of all and one of their *account*: the
//! periodic server that they belong to, or none. All that are queued are in two lists in order
//! of arrival, by the same division. An operation takes O(log n) and allocates nothing.
//!
//! Deliberately absent: rotational position (the predictor knows no angle), and merging of
//! neighbours, which is the caller's: two requests have two completions.

mod ages;
mod held_up;

use crate::position::{Forest, Key, NONE};
use crate::request::Urgency;
use crate::units::{Nanos, Sector, Time};
use alloc::vec;
use alloc::vec::Vec;

use ages::Ends;

/// Order of best-effort requests of one urgency.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum BestEffortOrder {
    /// Elevator: up to the last request in that direction, then back.
    #[default]
    Scan,
    /// The one with the shortest predicted service time of the neighbours on either side.
    Nearest,
    /// In order of arrival.
    Fifo,
}

/// Requests served in position order between two aged ones.
pub const AGED_EVERY: u32 = 8;

/// Everything, or one account's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    All,
    Account(u32),
}

/// The request that would go next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pick {
    pub(crate) slot: u32,
    aged: bool,
    /// True for the next whole piece of the longest overdue request of its account.
    is_oldest: bool,
    upwards: bool,
}

impl Pick {
    /// Less than its next piece.
    pub(crate) fn shortened(self) -> Self {
        Self {
            is_oldest: false,
            ..self
        }
    }

    /// True if the request was picked for its age.
    pub(crate) fn is_aged(self) -> bool {
        self.aged
    }
}

#[derive(Clone, Copy, Debug)]
struct Item {
    account: u32,
    /// The urgency it was queued with; decides when it is aged.
    urgency: Urgency,
    /// The urgency it is served with.
    served_as: Urgency,
    sequence: u64,
    arrived: Time,
    ready: bool,
    sector: u64,
    /// Neighbours in order of arrival: among all, and in the account.
    links: [(u32, u32); 2],
}

const NO_ITEM: Item = Item {
    account: 0,
    urgency: Urgency::Async,
    served_as: Urgency::Async,
    sequence: 0,
    arrived: Time::ZERO,
    ready: false,
    sector: 0,
    links: [(NONE, NONE); 2],
};

/// Best-effort requests by position and by age.
#[derive(Clone, Debug)]
pub(crate) struct BestEffortQueue {
    order: BestEffortOrder,
    /// By [`Urgency`]: sync, async.
    age_limits: [Nanos; 2],
    items: Vec<Item>,
    all: Forest,
    by_account: Forest,
    ages: [Ends; 2],
    account_ages: Vec<[Ends; 2]>,
    /// Requests served since the last aged request was served or tried.
    since_aged: u32,
    /// By account: requests served since a whole piece of its oldest aged request.
    since_oldest: Vec<u32>,
    upwards: bool,
    queued: [u64; 2],
}

const fn index(urgency: Urgency) -> usize {
    match urgency {
        Urgency::Sync => 0,
        Urgency::Async => 1,
    }
}

const fn tree(account: u32, urgency: Urgency) -> usize {
    2 * account as usize + index(urgency)
}

impl BestEffortQueue {
    pub(crate) fn new(
        slots: usize,
        order: BestEffortOrder,
        sync_age: Nanos,
        async_age: Nanos,
    ) -> Self {
        Self {
            order,
            age_limits: [sync_age, async_age],
            items: vec![NO_ITEM; slots],
            all: Forest::new(slots, 2),
            by_account: Forest::new(slots, 2),
            ages: [(NONE, NONE); 2],
            account_ages: vec![[(NONE, NONE); 2]],
            since_aged: AGED_EVERY,
            since_oldest: vec![AGED_EVERY],
            upwards: true,
            queued: [0; 2],
        }
    }

    /// Makes room for accounts up to and including this one.
    pub(crate) fn admit_account(&mut self, account: u32) {
        let accounts = account as usize + 1;
        if accounts > self.account_ages.len() {
            self.account_ages.resize(accounts, [(NONE, NONE); 2]);
            self.since_oldest.resize(accounts, AGED_EVERY);
            self.by_account.grow(2 * accounts);
        }
    }

    /// Requests that are queued or partly served: synchronous, asynchronous.
    pub(crate) fn queued(&self) -> [u64; 2] {
        self.queued
    }

    /// A request is queued; it may not start yet. Sequence numbers ascend.
    pub(crate) fn push(
        &mut self,
        slot: u32,
        account: u32,
        urgency: Urgency,
        sequence: u64,
        arrived: Time,
    ) {
        self.items[slot as usize] = Item {
            account,
            urgency,
            served_as: urgency,
            sequence,
            arrived,
            ..NO_ITEM
        };
        self.queued[index(urgency)] += 1;
        self.append(slot, 0);
        self.append(slot, 1);
    }

    /// A request is complete or cancelled. It must not be ready.
    pub(crate) fn remove(&mut self, slot: u32) {
        debug_assert!(!self.items[slot as usize].ready, "it was taken first");
        self.queued[index(self.items[slot as usize].urgency)] -= 1;
        self.unlink(slot, 0);
        self.unlink(slot, 1);
    }

    /// A request may start, at this sector.
    pub(crate) fn make_ready(&mut self, slot: u32, sector: Sector) {
        let item = &mut self.items[slot as usize];
        (item.ready, item.sector) = (true, sector.get());
        self.plant(slot);
    }

    /// A request may not be picked: it is on the disk, or about to be removed.
    pub(crate) fn make_unready(&mut self, slot: u32) {
        self.uproot(slot);
        self.items[slot as usize].ready = false;
    }

    pub(crate) fn is_ready(&self, slot: u32) -> bool {
        self.items[slot as usize].ready
    }

    /// True if the request is served as synchronous.
    pub(crate) fn is_synchronous(&self, slot: u32) -> bool {
        self.items[slot as usize].served_as == Urgency::Sync
    }

    pub(crate) fn account(&self, slot: u32) -> u32 {
        self.items[slot as usize].account
    }

    /// Serves a request as synchronous from now on; false if it is already.
    pub(crate) fn promote(&mut self, slot: u32) -> bool {
        let Item {
            served_as, ready, ..
        } = self.items[slot as usize];
        if served_as == Urgency::Sync {
            return false;
        }
        if ready {
            self.uproot(slot);
        }
        self.items[slot as usize].served_as = Urgency::Sync;
        if ready {
            self.plant(slot);
        }
        true
    }

    /// Moves a request to another account, where it takes its place by age.
    pub(crate) fn move_to(&mut self, slot: u32, account: u32) {
        let ready = self.items[slot as usize].ready;
        if ready {
            self.uproot(slot);
        }
        self.unlink(slot, 1);
        self.items[slot as usize].account = account;
        self.append(slot, 1);
        if ready {
            self.plant(slot);
        }
    }

    /// The request that would go next with the head at this position. `predict` gives service times.
    pub(crate) fn pick(
        &self,
        scope: Scope,
        now: Time,
        head: Option<Sector>,
        predict: impl Fn(u32) -> Nanos,
    ) -> Option<Pick> {
        let since = match scope {
            Scope::All => self.since_aged,
            Scope::Account(account) => self.since_oldest[account as usize],
        };
        if since >= AGED_EVERY
            && let Some(slot) = self.aged(scope, now)
        {
            let account = Scope::Account(self.items[slot as usize].account);
            return Some(Pick {
                slot,
                aged: true,
                is_oldest: scope == account || self.aged(account, now) == Some(slot),
                upwards: self.upwards,
            });
        }
        let pick = |slot, upwards| Pick {
            slot,
            aged: false,
            is_oldest: false,
            upwards,
        };
        for urgency in [Urgency::Sync, Urgency::Async] {
            let (forest, tree) = match scope {
                Scope::All => (&self.all, index(urgency)),
                Scope::Account(account) => (&self.by_account, tree(account, urgency)),
            };
            if forest.is_empty(tree) {
                continue;
            }
            if self.order == BestEffortOrder::Fifo {
                // A promoted request stays in the list of the urgency it was queued with.
                let slot = [Urgency::Sync, Urgency::Async]
                    .into_iter()
                    .find_map(|urgency| self.first_ready(scope, urgency, usize::MAX))?;
                return Some(pick(slot, self.upwards));
            }
            let at = head.map_or(0, Sector::get);
            return match forest.around(tree, at) {
                (Some(above), Some(below)) => {
                    let up = match self.order {
                        BestEffortOrder::Nearest => predict(above) <= predict(below),
                        _ => self.upwards,
                    };
                    Some(pick(if up { above } else { below }, up))
                }
                (Some(above), None) => Some(pick(above, true)),
                (None, Some(below)) => Some(pick(below, false)),
                (None, None) => None,
            };
        }
        None
    }

    /// The pick is given to the disk.
    pub(crate) fn take(&mut self, pick: Pick) {
        let after = |since: u32, starts_again| {
            if starts_again {
                0
            } else {
                since.saturating_add(1)
            }
        };
        self.since_aged = after(self.since_aged, pick.aged);
        let of_account = &mut self.since_oldest[self.items[pick.slot as usize].account as usize];
        *of_account = after(*of_account, pick.is_oldest);
        self.upwards = pick.upwards;
        self.make_unready(pick.slot);
    }

    fn plant(&mut self, slot: u32) {
        let Item {
            account,
            served_as,
            sequence,
            sector,
            ..
        } = self.items[slot as usize];
        let key = Key { sector, sequence };
        self.all.insert(index(served_as), slot, key);
        self.by_account.insert(tree(account, served_as), slot, key);
    }

    fn uproot(&mut self, slot: u32) {
        let Item {
            account, served_as, ..
        } = self.items[slot as usize];
        self.all.remove(index(served_as), slot);
        self.by_account.remove(tree(account, served_as), slot);
    }
}
