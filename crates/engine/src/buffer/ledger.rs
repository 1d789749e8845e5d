//! Whose memory is whose: pages, slots and accounts under one lock.
//!
//! How much an account may have is decided by [`sched::memory::MemoryShares`]; this carries the
//! decisions out on pages. The two can differ for a while: memory that was taken back counts as
//! free for the policy at once, but its pages only return when the last transfer that uses them has
//! ended. A grant that finds no pages yet waits for them.
//!
//! | the account's | is |
//! |---|---|
//! | `fixed` | pages set aside for it; its fixed buffers lie there and nowhere else |
//! | `granted` | variable pages the policy says it holds |
//! | `used` | of these, pages in buffers that it has |
//! | `waiting`, `missed` | variable pages that threads wait for, or were refused last |

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use sched::memory::{ClientId, MemoryAction, MemoryShares};
use sched::units::{Bytes, Time};

use super::holes::Holes;
use super::mapping::PAGE_BYTES;
use super::slot::Slot;
use super::{AccountId, MemoryError, MemoryUsage};
use crate::event::EventFd;

/// From which part of an account a buffer comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Fixed,
    Variable,
}

/// A buffer, as the ledger sees it.
#[derive(Clone, Debug)]
struct Entry {
    pages: Range<u32>,
    account: AccountId,
    part: Part,
    /// Not in use for a buffer.
    vacant: bool,
    /// Its holder has let go of it.
    dropped: bool,
    /// It was taken from its holder.
    revoked: bool,
    /// Its pages have been handed back.
    returned: bool,
}

impl Entry {
    fn can_be_taken(&self, from: AccountId) -> bool {
        let is_theirs = !self.vacant && self.account == from && self.part == Part::Variable;
        is_theirs && !self.dropped && !self.revoked
    }
}

#[derive(Debug)]
struct Record {
    name: String,
    event: Arc<EventFd>,
    /// Free pages of the fixed part.
    fixed: Holes,
    /// All pages of the fixed part.
    regions: Vec<Range<u32>>,
    /// Pages of the fixed part that are promised.
    fixed_pages: u32,
    /// Pages of the fixed part that are granted and not yet found.
    fixed_missing: u32,
    /// Whether the policy has granted the fixed part.
    fixed_granted: bool,
    granted: u32,
    used: u32,
    waiting: u32,
    missed: u32,
    /// What it is asked to give back: by when, and how much.
    asked: VecDeque<(Time, u32)>,
    /// Buffers whose pages have not been handed back.
    live: u32,
    closed: bool,
}

/// Pages that have just become a buffer.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) slot: u32,
    pub(crate) pages: Range<u32>,
    /// Whether another account's data is in them.
    pub(crate) foreign: bool,
}

/// What an attempt to allocate came to.
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
    /// Who last had each page; account ids begin at 1.
    owners: Vec<u32>,
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    accounts: HashMap<AccountId, Record>,
    next_account: u32,
    /// Since last asked: whether somebody who waits may be served now.
    news: bool,
    /// Since last asked: whether somebody has been asked to give back, by when.
    new_deadline: bool,
}

impl Record {
    /// All that it is asked to give back.
    fn owed(&self) -> u32 {
        self.asked.iter().map(|ask| ask.1).sum()
    }

    /// So much has been given back, or taken.
    fn settle_asked(&mut self, mut count: u32) {
        while let Some(first) = self.asked.front_mut() {
            let settled = first.1.min(count);
            first.1 -= settled;
            count -= settled;
            if first.1 > 0 {
                return;
            }
            self.asked.pop_front();
        }
    }

    /// Wakes a client that was refused: it may be served now.
    fn tell_starved(&self) {
        if self.missed > 0 {
            self.event.signal();
        }
    }
}

fn bytes_of(pages: u32) -> Bytes {
    Bytes(u64::from(pages) * PAGE_BYTES as u64)
}

/// Whole pages in `bytes`, which the policy deals in multiples of.
fn pages_of(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX)
}

impl Ledger {
    pub(crate) fn new(
        page_count: u32,
        slot_count: u32,
        reserve: Bytes,
        grace: sched::units::Nanos,
    ) -> Self {
        let vacant_entry = Entry {
            pages: 0..0,
            account: AccountId(0),
            part: Part::Fixed,
            vacant: true,
            dropped: false,
            revoked: false,
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
            news: false,
            new_deadline: false,
        }
    }

    /// Opens an account; its fixed part may come later, see [`Ledger::is_ready`].
    pub(crate) fn open(
        &mut self,
        now: Time,
        name: &str,
        fixed: Bytes,
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
        let record = Record {
            name: name.to_owned(),
            event,
            fixed: Holes::new(0..0),
            regions: Vec::new(),
            fixed_pages,
            fixed_missing: 0,
            fixed_granted: fixed_pages == 0,
            granted: 0,
            used: 0,
            waiting: 0,
            missed: 0,
            asked: VecDeque::new(),
            live: 0,
            closed: false,
        };
        self.accounts.insert(id, record);
        self.settle(now, slots);
        Ok(id)
    }

    /// Whether the fixed part of an account is there.
    pub(crate) fn is_ready(&self, id: AccountId) -> bool {
        self.accounts
            .get(&id)
            .is_some_and(|record| record.fixed_granted && record.fixed_missing == 0)
    }

    /// Closes an account. Nobody can allocate from it any more; transfers may still use its buffers.
    pub(crate) fn close(&mut self, now: Time, id: AccountId, slots: &[Slot]) {
        if let Some(record) = self.accounts.get_mut(&id) {
            record.closed = true;
            // The account is known to the policy: it joined when it was opened.
            let left = self.shares.leave(now, client(id));
            debug_assert!(left.is_ok(), "{left:?}");
        }
        self.forget_if_over(id);
        self.settle(now, slots);
    }

    /// Takes pages for a buffer of `id`.
    pub(crate) fn allocate(
        &mut self,
        now: Time,
        id: AccountId,
        count: u32,
        slots: &[Slot],
    ) -> Result<Placed, Refusal> {
        let available = self.page_count;
        if count > available {
            return Err(Refusal::Never { available });
        }
        let (part, pages) = self.take_pages(now, id, count, slots)?;
        let Some(slot) = self.vacant.pop() else {
            self.put_pages(id, part, pages);
            return Err(Refusal::NotNow);
        };
        let record = self
            .accounts
            .get_mut(&id)
            .expect("the caller holds the account open");
        record.live += 1;
        record.missed = 0;
        if part == Part::Variable {
            record.used += count;
        }
        let owners = &mut self.owners[pages.start as usize..pages.end as usize];
        let foreign = owners.iter().any(|&owner| owner != 0 && owner != id.0);
        owners.fill(id.0);
        self.entries[slot as usize] = Entry {
            pages: pages.clone(),
            account: id,
            part,
            vacant: false,
            dropped: false,
            revoked: false,
            returned: false,
        };
        Ok(Placed {
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
    ) -> Result<(Part, Range<u32>), Refusal> {
        let record = self
            .accounts
            .get_mut(&id)
            .expect("the caller holds the account open");
        if let Some(pages) = record.fixed.take_low(count) {
            return Ok((Part::Fixed, pages));
        }
        if record.used + count > record.granted {
            let wanted = record
                .used
                .saturating_add(record.waiting)
                .saturating_add(record.missed.max(count));
            self.tell_want(now, id, wanted);
            self.settle(now, slots);
        }
        let pages = self.take_granted(id, count);
        let record = self.accounts.get_mut(&id).expect("just found");
        if let Some(pages) = pages {
            // What had to be wished for on top, to get it in one piece, goes back.
            let idle =
                (record.granted - record.used).saturating_sub(count.saturating_add(record.waiting));
            self.give_back(now, id, idle);
            return Ok((Part::Variable, pages));
        }
        record.missed = record.missed.max(count);
        if record.used + count <= record.granted {
            // It is granted, but not in one piece: more has to come back for that.
            let wanted = record.granted.saturating_add(count);
            self.tell_want(now, id, wanted);
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

    fn put_pages(&mut self, id: AccountId, part: Part, pages: Range<u32>) {
        match (part, self.accounts.get_mut(&id)) {
            (Part::Fixed, Some(record)) => record.fixed.give(pages),
            _ => self.holes.give(pages),
        }
    }

    /// Tells the policy how much variable memory the account would like to hold.
    fn tell_want(&mut self, now: Time, id: AccountId, wanted: u32) {
        let wanted = wanted.max(self.accounts[&id].granted);
        let told = self.shares.want(now, client(id), bytes_of(wanted));
        debug_assert!(told.is_ok(), "{told:?}");
    }

    /// Notes that a thread waits for variable memory, or has stopped to.
    pub(crate) fn wait_for(
        &mut self,
        now: Time,
        id: AccountId,
        count: u32,
        begins: bool,
        slots: &[Slot],
    ) {
        let record = self
            .accounts
            .get_mut(&id)
            .expect("the caller holds the account open");
        // What a waiting thread was refused is counted as what it waits for.
        record.missed = 0;
        if begins {
            record.waiting += count;
        } else {
            record.waiting -= count;
        }
        let wanted = record.used.saturating_add(record.waiting);
        self.tell_want(now, id, wanted);
        self.settle(now, slots);
    }

    /// The holder of a buffer lets go of it.
    pub(crate) fn drop_handle(&mut self, now: Time, index: u32, slots: &[Slot]) {
        let hand_back = slots[index as usize].drop_handle();
        let entry = &mut self.entries[index as usize];
        entry.dropped = true;
        let (id, part, count, revoked) = (
            entry.account,
            entry.part,
            entry.pages.len() as u32,
            entry.revoked,
        );
        if hand_back {
            self.hand_back(index);
        }
        if self.entries[index as usize].returned {
            self.vacate(index, slots);
        }
        if part == Part::Variable && !revoked {
            let record = self
                .accounts
                .get_mut(&id)
                .expect("a buffer keeps its account");
            record.used -= count;
            self.give_back(now, id, count);
        }
        self.settle(now, slots);
    }

    /// The last transfer of a dropped or revoked buffer has ended.
    pub(crate) fn reap(&mut self, index: u32, slots: &[Slot]) {
        self.hand_back(index);
        if self.entries[index as usize].dropped {
            self.vacate(index, slots);
        }
    }

    fn hand_back(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        debug_assert!(!entry.returned && !entry.vacant, "pages handed back twice");
        entry.returned = true;
        self.news = true;
        let (id, part, pages) = (entry.account, entry.part, entry.pages.clone());
        self.put_pages(id, part, pages);
        if let Some(record) = self.accounts.get_mut(&id) {
            record.live -= 1;
            record.tell_starved();
        }
        self.forget_if_over(id);
    }

    fn vacate(&mut self, index: u32, slots: &[Slot]) {
        self.entries[index as usize].vacant = true;
        slots[index as usize].recycle();
        self.vacant.push(index);
    }

    /// Gives variable memory of the account that no buffer uses back to the policy.
    fn give_back(&mut self, now: Time, id: AccountId, count: u32) {
        let Some(record) = self.accounts.get_mut(&id).filter(|record| !record.closed) else {
            return;
        };
        let count = count.min(record.granted - record.used);
        if count == 0 {
            return;
        }
        record.granted -= count;
        record.settle_asked(count);
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
            self.news = true;
        }
    }

    /// The time has come to `now`. Returns when there will be something to do.
    pub(crate) fn advance(&mut self, now: Time, slots: &[Slot]) -> Option<Time> {
        self.shares.advance(now);
        // What is overdue has been taken, or is not needed any more.
        for record in self.accounts.values_mut() {
            record.asked.retain(|ask| ask.0 > now);
        }
        self.settle(now, slots);
        self.shares.next_deadline()
    }

    /// Carries out what the policy has decided.
    fn settle(&mut self, now: Time, slots: &[Slot]) {
        while let Some(action) = self.shares.next_action() {
            match action {
                MemoryAction::GrantFixed { client, .. } => {
                    if let Some(record) = self.accounts.get_mut(&account(client)) {
                        record.fixed_granted = true;
                        record.fixed_missing = record.fixed_pages;
                        self.news = true;
                    }
                }
                MemoryAction::GrantVariable { client, bytes } => {
                    if let Some(record) = self.accounts.get_mut(&account(client)) {
                        record.granted += pages_of(bytes);
                        self.news = true;
                        record.tell_starved();
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
        record.asked.push_back((by, count));
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
        // From the low end, where the free pages are, so that what is taken makes one hole with them.
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
            let hand_back = slots[index].revoke();
            if let Some(record) = self.accounts.get_mut(&id) {
                record.used -= taken;
            }
            if hand_back {
                self.hand_back(index as u32);
            }
            left = left.saturating_sub(taken);
        }
        // A buffer is taken whole: what it was larger than the claim goes back as well.
        if let Some(record) = self.accounts.get(&id) {
            let idle = record.granted - record.used;
            record.event.signal();
            self.give_back(now, id, idle);
        }
    }

    /// Finds pages for fixed parts that are granted.
    fn place_fixed(&mut self) {
        if self
            .accounts
            .values()
            .all(|record| record.fixed_missing == 0)
        {
            return;
        }
        for record in self.accounts.values_mut() {
            if record.fixed_missing == 0 || self.holes.total() < record.fixed_missing {
                continue;
            }
            while record.fixed_missing > 0 {
                let want = record.fixed_missing;
                let found = self
                    .holes
                    .take_low(want)
                    .or_else(|| self.holes.take_largest(want));
                let region = found.expect("as many pages are free");
                record.fixed_missing -= region.len() as u32;
                record.fixed.give(region.clone());
                record.regions.push(region);
            }
            self.news = true;
            record.event.signal();
        }
    }

    /// Whether somebody who waits may be served now, since this was last asked.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether there is a time to watch that was not there when this was last asked.
    pub(crate) fn take_new_deadline(&mut self) -> bool {
        std::mem::take(&mut self.new_deadline)
    }

    /// What the account is asked to give back, and by when.
    pub(crate) fn owed(&self, id: AccountId) -> Option<(Bytes, Time)> {
        let record = self.accounts.get(&id).filter(|record| record.owed() > 0)?;
        Some((bytes_of(record.owed()), record.asked.front()?.0))
    }

    /// Whether an account waits for memory or for pages.
    pub(crate) fn is_hungry(&self) -> bool {
        self.accounts.values().any(|record| {
            record.waiting > 0
                || record.missed > 0
                || record.fixed_missing > 0
                || !record.fixed_granted
                || (record.closed && record.live > 0)
        })
    }

    /// Who holds how much.
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

    /// Pages that are in no buffer and no fixed part.
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
