//! Allocation of pages for a buffer, from the account's fixed part or its grant.

use std::ops::Range;

use sched::units::Time;

use super::super::AccountId;
use super::super::slot::Slot;
use super::record::{AccountPart, AccountRecord, BufferRecord};
use super::{Allocation, Ledger, Refusal, bytes_of, client};

impl Ledger {
    /// Takes pages for a buffer of `id`.
    pub(crate) fn allocate(
        &mut self,
        now: Time,
        id: AccountId,
        count: u32,
        slots: &[Slot],
    ) -> Result<Allocation, Refusal> {
        let available = self.page_count;
        if count > available {
            return Err(Refusal::Never { available });
        }
        let (part, pages) = self.take_pages(now, id, count, slots)?;
        let Some(slot) = self.vacant.pop() else {
            self.put_pages(id, part, pages);
            self.any_lacks_slot = true;
            let record = self.accounts.get_mut(&id).expect("just found");
            record.lacks_slot = true;
            return Err(Refusal::NotNow);
        };
        let record = self.open_record(id);
        record.live += 1;
        record.missed = 0;
        if part == AccountPart::Variable {
            record.used += count;
        }
        let owners = &mut self.owners[pages.start as usize..pages.end as usize];
        let foreign = owners.iter().any(|&owner| owner != 0 && owner != id.0);
        owners.fill(id.0);
        self.entries[slot as usize] = BufferRecord {
            pages: pages.clone(),
            account: id,
            part,
            vacant: false,
            dropped: false,
            revoked: false,
            pinned: false,
            reprieve: None,
            returned: false,
        };
        Ok(Allocation {
            slot,
            pages,
            foreign,
        })
    }

    fn take_pages(
        &mut self,
        now: Time,
        id: AccountId,
        count: u32,
        slots: &[Slot],
    ) -> Result<(AccountPart, Range<u32>), Refusal> {
        let record = self.open_record(id);
        if let Some(pages) = record.fixed.take_low(count) {
            return Ok((AccountPart::Fixed, pages));
        }
        if record.used + count > record.granted {
            let wanted = record
                .used
                .saturating_add(record.waiting)
                .saturating_add(record.missed.max(count));
            self.request_memory(now, id, wanted);
            self.settle(now, slots);
        }
        let pages = self.take_granted(id, count);
        let record = self.accounts.get_mut(&id).expect("just found");
        if let Some(pages) = pages {
            // Return pages that were requested in addition, to get a contiguous piece.
            let idle =
                (record.granted - record.used).saturating_sub(count.saturating_add(record.waiting));
            self.give_back(now, id, idle);
            return Ok((AccountPart::Variable, pages));
        }
        record.missed = record.missed.max(count);
        self.any_missed = true;
        if record.used + count <= record.granted {
            // The pages are granted but not contiguous: more of them have to come back.
            let wanted = record.granted.saturating_add(count);
            self.request_memory(now, id, wanted);
            self.settle(now, slots);
        }
        Err(Refusal::NotNow)
    }

    fn take_granted(&mut self, id: AccountId, count: u32) -> Option<Range<u32>> {
        let record = &self.accounts[&id];
        if record.used + count <= record.granted {
            self.holes.take_high(count)
        } else {
            None
        }
    }

    pub(super) fn put_pages(&mut self, id: AccountId, part: AccountPart, pages: Range<u32>) {
        match (part, self.accounts.get_mut(&id)) {
            (AccountPart::Fixed, Some(record)) => record.fixed.give(pages),
            _ => self.holes.give(pages),
        }
    }

    /// Tells the policy how much variable memory the account wants to hold.
    pub(super) fn request_memory(&mut self, now: Time, id: AccountId, wanted: u32) {
        let wanted = wanted.max(self.accounts[&id].granted);
        let accepted = self.shares.want(now, client(id), bytes_of(wanted));
        debug_assert!(accepted.is_ok(), "{accepted:?}");
    }

    /// Records that a thread begins to wait for variable memory.
    pub(crate) fn begin_wait(&mut self, now: Time, id: AccountId, count: u32, slots: &[Slot]) {
        self.open_record(id).waiting += count;
        self.waiting_changed(now, id, slots);
    }

    /// Records that a thread has ended to wait for variable memory.
    pub(crate) fn end_wait(&mut self, now: Time, id: AccountId, count: u32, slots: &[Slot]) {
        self.open_record(id).waiting -= count;
        self.waiting_changed(now, id, slots);
    }

    fn waiting_changed(&mut self, now: Time, id: AccountId, slots: &[Slot]) {
        let record = self.open_record(id);
        // The refused pages are counted as waited for.
        record.missed = 0;
        let wanted = record.used.saturating_add(record.waiting);
        self.request_memory(now, id, wanted);
        self.settle(now, slots);
    }

    fn open_record(&mut self, id: AccountId) -> &mut AccountRecord {
        self.accounts
            .get_mut(&id)
            .expect("the caller holds the account open")
    }
}
