//! Carrying out the policy's decisions on pages: grants, requests to give back, and revocation.

use sched::memory::MemoryAction;
use sched::units::Time;

use super::super::AccountId;
use super::super::slot::Slot;
use super::record::Reprieve;
use super::{Ledger, account, pages_of};

impl Ledger {
    /// Advances the time to `now`. Returns the time of the next action.
    pub(crate) fn advance(&mut self, now: Time, slots: &[Slot]) -> Option<Time> {
        self.shares.advance(now);
        // Overdue requests have been enforced by revocation, or have become unnecessary.
        for record in self.accounts.values_mut() {
            let owed = record.owed();
            record.to_give_back.retain(|ask| ask.0 > now);
            if owed > 0 && record.owed() == 0 {
                record.event.signal();
            }
        }
        self.settle(now, slots);
        let next = [self.shares.next_deadline(), self.end_reprieves(now, slots)];
        self.settle(now, slots);
        next.into_iter().flatten().min()
    }

    /// Carries out the policy's pending decisions.
    pub(crate) fn settle(&mut self, now: Time, slots: &[Slot]) {
        while let Some(action) = self.shares.next_action() {
            match action {
                MemoryAction::GrantFixed { client, .. } => {
                    if let Some(record) = self.accounts.get_mut(&account(client)) {
                        record.fixed_granted = true;
                        record.fixed_missing = record.fixed_pages;
                        self.may_serve_waiters = true;
                    }
                }
                MemoryAction::GrantVariable { client, bytes } => {
                    if let Some(record) = self.accounts.get_mut(&account(client)) {
                        record.granted += pages_of(bytes);
                        self.may_serve_waiters = true;
                        record.wake_refused();
                    }
                }
                MemoryAction::Ask { client, bytes, by } => {
                    self.ask(now, account(client), pages_of(bytes), by)
                }
                MemoryAction::Seize { client, bytes } => {
                    self.seize(now, account(client), pages_of(bytes), slots)
                }
            }
        }
        self.place_fixed();
    }

    fn ask(&mut self, now: Time, id: AccountId, count: u32, by: Time) {
        let Some(record) = self.accounts.get_mut(&id) else {
            return;
        };
        record.to_give_back.push_back((by, count));
        self.new_deadline = true;
        let idle = record.granted - record.used;
        self.give_back(now, id, idle.min(count));
        if let Some(record) = self.accounts.get(&id).filter(|record| record.owed() > 0) {
            record.event.signal();
        }
    }

    fn seize(&mut self, now: Time, id: AccountId, count: u32, slots: &[Slot]) {
        let Some(record) = self.accounts.get_mut(&id) else {
            return;
        };
        let idle = (record.granted - record.used).min(count);
        record.granted -= count.min(record.granted);
        let mut left = count - idle;
        // From the low end, next to the free pages, so that revoked and free pages join into one hole.
        let mut candidates: Vec<_> = (0..self.entries.len())
            .filter(|&index| self.entries[index].can_be_taken(id))
            .collect();
        candidates.sort_unstable_by_key(|&index| self.entries[index].pages.start);
        for index in candidates {
            if left == 0 {
                break;
            }
            let entry = &mut self.entries[index];
            entry.revoked = true;
            let taken = entry.pages.len() as u32;
            // While a transfer fills it, its pages could not be reused anyway.
            entry.reprieve = slots[index].spare().then_some(Reprieve {
                look_at: now + self.reprieve_duration,
                has_ended: false,
            });
            if entry.reprieve.is_some() {
                self.reprieved.push(index as u32);
                self.new_deadline = true;
            }
            let hand_back = entry.reprieve.is_none() && slots[index].revoke();
            entry.pinned = !hand_back;
            if let Some(record) = self.accounts.get_mut(&id) {
                record.used -= taken;
                if !hand_back {
                    record.pinned += taken;
                    record.taken_at = now;
                }
            }
            if hand_back {
                self.hand_back(now, index as u32);
            }
            left = left.saturating_sub(taken);
        }
        // Buffers are revoked whole; the surplus goes back.
        if let Some(record) = self.accounts.get(&id) {
            let idle = record.granted - record.used;
            record.event.signal();
            self.give_back(now, id, idle);
        }
    }

    /// Revokes buffers whose reprieve has ended, because they were read or their transfer ended long enough
    /// ago. Returns the time of the next check.
    fn end_reprieves(&mut self, now: Time, slots: &[Slot]) -> Option<Time> {
        let mut next: Option<Time> = None;
        for index in std::mem::take(&mut self.reprieved) {
            let entry = &mut self.entries[index as usize];
            let Some(reprieve) = &mut entry.reprieve else {
                continue;
            };
            let slot = &slots[index as usize];
            if reprieve.look_at <= now {
                let is_filled = slot.is_being_filled();
                if !slot.is_unread() || (reprieve.has_ended && !is_filled) {
                    entry.reprieve = None;
                    if slot.revoke() {
                        self.hand_back(now, index);
                    }
                    continue;
                }
                reprieve.has_ended = !is_filled;
                reprieve.look_at = now + self.reprieve_duration;
            }
            next = [next, Some(reprieve.look_at)].into_iter().flatten().min();
            self.reprieved.push(index);
        }
        next
    }

    /// Allocates pages for fixed parts that are granted.
    fn place_fixed(&mut self) {
        if self
            .accounts
            .values()
            .all(|record| record.fixed_missing == 0)
        {
            return;
        }
        for record in self.accounts.values_mut() {
            let missing = record.fixed_missing;
            if missing == 0 || self.holes.total_in_units(record.unit) < missing {
                continue;
            }
            while record.fixed_missing > 0 {
                let found = self.holes.take_units(record.fixed_missing, record.unit);
                let region = found.expect("as many pages are free in such pieces");
                record.fixed_missing -= region.len() as u32;
                record.fixed.give(region.clone());
                record.regions.push(region);
            }
            self.may_serve_waiters = true;
            record.event.signal();
        }
    }
}
