//! Lists in order of arrival, of all requests and of each account's, and who in them has waited too long.

use super::{BestEffortQueue, Item, Scope, index};
use crate::position::NONE;
use crate::request::Urgency;
use crate::units::Time;

/// Requests that wait for others are skipped in the search for an aged one, up to this number. The requests
/// that they wait for are older and in the same lists, so the search may stop without loss.
const AGED_SEARCH_MAX: usize = 16;

/// First and last of a list.
pub(super) type Ends = (u32, u32);

impl BestEffortQueue {
    /// The oldest request of an account, for moving all of them elsewhere.
    pub(crate) fn oldest_of(&self, account: u32) -> Option<u32> {
        let lists = &self.account_ages[account as usize];
        lists
            .iter()
            .map(|ends| ends.0)
            .filter(|slot| *slot != NONE)
            .min_by_key(|slot| self.items[*slot as usize].sequence)
    }

    /// The ready request that is longest beyond its age limit.
    pub(super) fn aged(&self, scope: Scope, now: Time) -> Option<u32> {
        let overdue = |urgency: Urgency| {
            let slot = self.first_ready(scope, urgency, AGED_SEARCH_MAX)?;
            let limit = self.age_limits[index(urgency)];
            let due = self.items[slot as usize].arrived.saturating_add(limit);
            (now > due).then_some((due, slot))
        };
        let oldest = [Urgency::Sync, Urgency::Async]
            .into_iter()
            .filter_map(overdue)
            .min();
        oldest.map(|(_, slot)| slot)
    }

    /// The oldest ready request that was queued with this urgency, among so many.
    pub(super) fn first_ready(
        &self,
        scope: Scope,
        urgency: Urgency,
        search_max: usize,
    ) -> Option<u32> {
        let (list, level) = match scope {
            Scope::All => (self.ages[index(urgency)], 0),
            Scope::Account(account) => (self.account_ages[account as usize][index(urgency)], 1),
        };
        let mut slot = list.0;
        for _ in 0..search_max {
            if slot == NONE {
                return None;
            }
            let item = &self.items[slot as usize];
            if item.ready {
                return Some(slot);
            }
            slot = item.links[level].1;
        }
        None
    }

    /// Puts a request into a list by its age: at the end, unless it is moved from another account.
    pub(super) fn append(&mut self, slot: u32, level: usize) {
        let Item {
            account,
            urgency,
            sequence,
            ..
        } = self.items[slot as usize];
        let mut before = self.ends(account, urgency, level).1;
        let mut after = NONE;
        while before != NONE && self.items[before as usize].sequence > sequence {
            after = before;
            before = self.items[before as usize].links[level].0;
        }
        self.join((account, urgency, level), before, slot);
        self.join((account, urgency, level), slot, after);
    }

    pub(super) fn unlink(&mut self, slot: u32, level: usize) {
        let Item {
            account,
            urgency,
            links,
            ..
        } = self.items[slot as usize];
        let (before, after) = links[level];
        self.join((account, urgency, level), before, after);
    }

    /// Makes two requests neighbours in a list; none is the list's end.
    fn join(&mut self, list: (u32, Urgency, usize), before: u32, after: u32) {
        let (account, urgency, level) = list;
        match before {
            NONE => self.ends(account, urgency, level).0 = after,
            _ => self.items[before as usize].links[level].1 = after,
        }
        match after {
            NONE => self.ends(account, urgency, level).1 = before,
            _ => self.items[after as usize].links[level].0 = before,
        }
    }

    fn ends(&mut self, account: u32, urgency: Urgency, level: usize) -> &mut Ends {
        match level {
            0 => &mut self.ages[index(urgency)],
            _ => &mut self.account_ages[account as usize][index(urgency)],
        }
    }
}
