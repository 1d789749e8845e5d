//! The owner of every page: pages, slots and accounts under one lock.
//!
//! [`sched::memory::MemoryShares`] decides how much an account may have; this module carries the decisions
//! out on pages.
//!
//! * A buffer dropped during a transfer counts as the account's until the transfer ends. Data that a client
//!   does not take from its socket is therefore not free.
//! * Revoked memory counts as free for the policy at once, but its pages return only when the last transfer
//!   has ended. A grant that finds no pages waits for them, and their holder is told that it is late.
//! * A buffer that is revoked while a disk reads into it, or before its data has been used, gets a
//!   *reprieve*: the holder can use the data until half the give-back time after the transfer. So a client
//!   that submitted its read in time still gets the data if the disk was slow. Nothing more can be read into
//!   such a buffer, so it cannot be kept that way.
//!
//! | field of an account | meaning |
//! |---|---|
//! | `fixed` | pages set aside for it; its fixed buffers lie only there |
//! | `granted` | variable pages that the policy grants it |
//! | `used` | of these, pages in buffers that it has or that transfers still use |
//! | `pinned` | revoked pages that transfers still use, or that have a reprieve |
//! | `waiting`, `missed` | variable pages that threads wait for, or that were refused last |
//! | `lacks_slot` | it was refused a buffer for lack of a slot, although there were pages |

mod pages;
mod policy;
mod record;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use sched::memory::{ClientId, MemoryShares};
use sched::units::{Bytes, Nanos, Time};

use super::holes::Holes;
use super::mapping::PAGE_BYTES;
use super::slot::Slot;
use super::{AccountId, MemoryError, MemoryUsage};
use crate::event::EventFd;
use record::{AccountPart, AccountRecord, BufferRecord};

/// Pages that have become a buffer.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) slot: u32,
    pub(crate) pages: Range<u32>,
    /// True if they contain another account's data.
    pub(crate) foreign: bool,
}

/// The reason why an allocation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    NotNow,
    Never { available: u32 },
}

#[derive(Debug)]
pub(crate) struct Ledger {
    shares: MemoryShares,
    holes: Holes,
    page_count: u32,
    /// The last owner of each page; account ids begin at 1.
    owners: Vec<u32>,
    entries: Vec<BufferRecord>,
    vacant: Vec<u32>,
    accounts: HashMap<AccountId, AccountRecord>,
    next_account: u32,
    /// Since the last call of `take_wakeup`: a waiting thread may be served now.
    may_serve_waiters: bool,
    /// Since the last call of `take_new_deadline`: an account was asked to give back, with a new deadline.
    new_deadline: bool,
    /// True if an account may have been refused memory that it still lacks.
    any_missed: bool,
    /// True if an account may have been refused a buffer for lack of a slot.
    any_lacks_slot: bool,
    /// Entries with a reprieve; some of them may have lost it.
    reprieved: Vec<u32>,
    /// Duration of a reprieve after the transfer that fills the buffer.
    reprieve_duration: Nanos,
}

fn bytes_of(pages: u32) -> Bytes {
    Bytes(u64::from(pages) * PAGE_BYTES as u64)
}

/// Pages in `bytes`, rounded up; the policy uses multiples of a page.
fn pages_of(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX)
}

impl Ledger {
    pub(crate) fn new(page_count: u32, slot_count: u32, reserve: Bytes, grace: Nanos) -> Self {
        let vacant_entry = BufferRecord {
            pages: 0..0,
            account: AccountId(0),
            part: AccountPart::Fixed,
            vacant: true,
            dropped: false,
            revoked: false,
            pinned: false,
            reprieve: None,
            returned: true,
        };
        Self {
            shares: MemoryShares::new(bytes_of(page_count), reserve, grace),
            holes: Holes::new(0..page_count),
            page_count,
            owners: vec![0; page_count as usize],
            entries: vec![vacant_entry; slot_count as usize],
            vacant: (0..slot_count).rev().collect(),
            accounts: HashMap::new(),
            next_account: 1,
            may_serve_waiters: false,
            new_deadline: false,
            any_missed: false,
            any_lacks_slot: false,
            reprieved: Vec::new(),
            reprieve_duration: Nanos(grace.0 / 2),
        }
    }

    /// Opens an account. Its fixed part may arrive later, see [`Ledger::is_ready`]. The fixed part and each of
    /// its pieces are multiples of `unit` pages.
    pub(crate) fn open(
        &mut self,
        now: Time,
        name: &str,
        fixed: Bytes,
        unit: u32,
        event: Arc<EventFd>,
        slots: &[Slot],
    ) -> Result<AccountId, MemoryError> {
        let id = AccountId(self.next_account);
        let fixed_pages = pages_of(fixed);
        self.shares
            .join(now, client(id), bytes_of(fixed_pages))
            .map_err(|error| match error {
                sched::memory::MemoryError::NotEnough { asked, available } => {
                    MemoryError::TooMuch { asked, available }
                }
                other => MemoryError::Policy(other.to_string()),
            })?;
        self.next_account += 1;
        let record = AccountRecord {
            name: name.to_owned(),
            event,
            fixed: Holes::new(0..0),
            regions: Vec::new(),
            fixed_pages,
            unit,
            fixed_missing: 0,
            fixed_granted: fixed_pages == 0,
            granted: 0,
            used: 0,
            waiting: 0,
            missed: 0,
            lacks_slot: false,
            to_give_back: VecDeque::new(),
            pinned: 0,
            taken_at: Time::ZERO,
            live: 0,
            closed: false,
        };
        self.accounts.insert(id, record);
        self.settle(now, slots);
        Ok(id)
    }

    /// True if the fixed part of an account is allocated.
    pub(crate) fn is_ready(&self, id: AccountId) -> bool {
        self.accounts
            .get(&id)
            .is_some_and(|record| record.fixed_granted && record.fixed_missing == 0)
    }

    /// The reason why the fixed part of an account is not allocated yet.
    pub(crate) fn not_ready_reason(&self, id: AccountId) -> MemoryError {
        match self.accounts.get(&id) {
            // Enough pages are free, so nobody is asked to give back; they are only too fragmented.
            Some(record)
                if record.fixed_missing > 0 && self.holes.total() >= record.fixed_missing =>
            {
                MemoryError::TooMuch {
                    asked: bytes_of(record.fixed_pages),
                    available: bytes_of(self.holes.total_in_units(record.unit)),
                }
            }
            _ => MemoryError::NotNow,
        }
    }

    /// Number of buffers of an account whose pages have not come back.
    pub(crate) fn live(&self, id: AccountId) -> u32 {
        self.accounts.get(&id).map_or(0, |record| record.live)
    }

    /// Closes an account for allocations; transfers may still use its buffers.
    pub(crate) fn close(&mut self, now: Time, id: AccountId, slots: &[Slot]) {
        if let Some(record) = self.accounts.get_mut(&id) {
            record.closed = true;
            // The policy knows the account since it was opened, so this cannot fail.
            let left = self.shares.leave(now, client(id));
            debug_assert!(left.is_ok(), "{left:?}");
        }
        self.forget_if_over(id);
        self.settle(now, slots);
        self.wake_accounts_lacking_pages();
    }

    /// The holder of a buffer drops it.
    pub(crate) fn drop_handle(&mut self, now: Time, index: u32, slots: &[Slot]) {
        let hand_back = slots[index as usize].drop_handle();
        self.entries[index as usize].dropped = true;
        if hand_back {
            self.hand_back(now, index);
        }
        if self.entries[index as usize].returned {
            self.vacate(index, slots);
        }
        self.settle(now, slots);
    }

    /// The last transfer of a dropped or revoked buffer has ended. The caller has to call `settle` afterwards.
    pub(crate) fn reap(&mut self, now: Time, index: u32, slots: &[Slot]) {
        self.hand_back(now, index);
        if self.entries[index as usize].dropped {
            self.vacate(index, slots);
        }
    }

    fn hand_back(&mut self, now: Time, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(!entry.returned && !entry.vacant, "pages handed back twice");
        entry.returned = true;
        self.may_serve_waiters = true;
        entry.reprieve = None;
        let was_pinned = std::mem::take(&mut entry.pinned);
        // Revoked pages do not belong to the account any more.
        let is_theirs = entry.part == AccountPart::Variable && !entry.revoked;
        let (id, part, pages) = (entry.account, entry.part, entry.pages.clone());
        let count = pages.len() as u32;
        self.put_pages(id, part, pages);
        if let Some(record) = self.accounts.get_mut(&id) {
            record.live -= 1;
            if was_pinned {
                record.pinned -= count;
            }
            if is_theirs {
                record.used -= count;
            }
            record.wake_refused();
            if was_pinned && record.pinned == 0 {
                // The request for these pages has ended.
                record.event.signal();
            }
        }
        if is_theirs {
            self.give_back(now, id, count);
        }
        self.forget_if_over(id);
        self.wake_accounts_lacking_pages();
    }

    /// Wakes accounts whose refused allocation is covered by their grant, but for which pages were missing.
    fn wake_accounts_lacking_pages(&mut self) {
        if !self.any_missed {
            return;
        }
        self.any_missed = false;
        for record in self
            .accounts
            .values_mut()
            .filter(|record| record.missed > 0)
        {
            if record.used + record.missed <= record.granted {
                // Only once: an account that still needs memory is refused again, and others are not woken again.
                record.missed = 0;
                record.event.signal();
            } else {
                self.any_missed = true;
            }
        }
    }

    fn vacate(&mut self, index: u32, slots: &[Slot]) {
        self.entries[index as usize].vacant = true;
        slots[index as usize].recycle();
        self.vacant.push(index);
        if !std::mem::take(&mut self.any_lacks_slot) {
            return;
        }
        self.may_serve_waiters = true;
        for record in self.accounts.values_mut() {
            if std::mem::take(&mut record.lacks_slot) {
                record.event.signal();
            }
        }
    }

    /// Returns granted but unused variable memory of the account to the policy.
    fn give_back(&mut self, now: Time, id: AccountId, count: u32) {
        let Some(record) = self.accounts.get_mut(&id).filter(|record| !record.closed) else {
            return;
        };
        let count = count.min(record.granted - record.used);
        if count == 0 {
            return;
        }
        record.granted -= count;
        let was_asked = record.owed() > 0;
        record.settle_asked(count);
        if was_asked && record.owed() == 0 {
            // The holder may have checked before the memory that it dropped came back.
            record.event.signal();
        }
        let given = self.shares.give_back(now, client(id), bytes_of(count));
        debug_assert!(given.is_ok(), "{given:?}");
    }

    fn forget_if_over(&mut self, id: AccountId) {
        if self
            .accounts
            .get(&id)
            .is_some_and(|record| record.closed && record.live == 0)
        {
            let record = self.accounts.remove(&id).expect("just found");
            for region in record.regions {
                self.holes.give(region);
            }
            self.may_serve_waiters = true;
        }
    }

    /// True if a waiting thread may be served, since the last call.
    pub(crate) fn take_wakeup(&mut self) -> bool {
        std::mem::take(&mut self.may_serve_waiters)
    }

    /// True if there is a new deadline, since the last call.
    pub(crate) fn take_new_deadline(&mut self) -> bool {
        std::mem::take(&mut self.new_deadline)
    }

    /// The amount that the account is asked to give back, and the deadline. The deadline is in the past if the
    /// memory was revoked and transfers still use it.
    pub(crate) fn owed(&self, id: AccountId) -> Option<(Bytes, Time)> {
        let record = self.accounts.get(&id)?;
        let asked = record
            .to_give_back
            .iter()
            .find(|ask| ask.1 > 0)
            .map(|ask| ask.0);
        let late = (record.pinned > 0).then_some(record.taken_at);
        let by = late.or(asked)?;
        Some((bytes_of(record.owed() + record.pinned), by))
    }

    /// True if an account waits for memory or for pages.
    pub(crate) fn has_waiters(&self) -> bool {
        self.accounts.values().any(|record| {
            record.waiting > 0
                || record.missed > 0
                || record.lacks_slot
                || record.fixed_missing > 0
                || record.pinned > 0
                || !record.fixed_granted
                || (record.closed && record.live > 0)
        })
    }

    /// Memory held by each account.
    pub(crate) fn usage(&self) -> Vec<MemoryUsage> {
        let mut usage: Vec<_> = self
            .accounts
            .iter()
            .map(|(&id, record)| MemoryUsage {
                account: id,
                name: record.name.clone(),
                fixed: bytes_of(record.fixed_pages),
                variable: bytes_of(record.granted),
                asked_back: bytes_of(record.owed()),
                buffers: record.live,
            })
            .collect();
        usage.sort_by_key(|usage| usage.account);
        usage
    }

    /// Memory that new fixed parts can still get.
    pub(crate) fn promisable(&self) -> Bytes {
        self.shares.promisable()
    }

    /// Pages that are in no buffer and in no fixed part.
    pub(crate) fn free(&self) -> Bytes {
        bytes_of(self.holes.total())
    }
}

fn client(id: AccountId) -> ClientId {
    ClientId(u64::from(id.0))
}

fn account(id: ClientId) -> AccountId {
    AccountId(u32::try_from(id.0).unwrap_or(u32::MAX))
}
