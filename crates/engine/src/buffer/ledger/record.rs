//! The ledger's records of a buffer and of an account.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use sched::units::Time;

use super::super::AccountId;
use super::super::holes::Holes;
use crate::event::EventFd;

/// The part of an account that a buffer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccountPart {
    Fixed,
    Variable,
}

/// The ledger's record of a buffer.
#[derive(Clone, Debug)]
pub(super) struct BufferRecord {
    pub(super) pages: Range<u32>,
    pub(super) account: AccountId,
    pub(super) part: AccountPart,
    /// The entry is free.
    pub(super) vacant: bool,
    /// Its holder has dropped it.
    pub(super) dropped: bool,
    /// It was revoked.
    pub(super) revoked: bool,
    /// It was revoked, and transfers still use it or it has a reprieve.
    pub(super) pinned: bool,
    /// It was revoked while its data was unread, and the holder may still use the data.
    pub(super) reprieve: Option<Reprieve>,
    /// Its pages have been returned.
    pub(super) returned: bool,
}

/// The reprieve of a buffer that is revoked while its data is unread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reprieve {
    /// Time of the next check.
    pub(super) look_at: Time,
    /// The transfer had ended at the last check.
    pub(super) has_ended: bool,
}

impl BufferRecord {
    pub(super) fn can_be_taken(&self, from: AccountId) -> bool {
        let is_theirs = !self.vacant && self.account == from && self.part == AccountPart::Variable;
        is_theirs && !self.revoked
    }
}

#[derive(Debug)]
pub(super) struct AccountRecord {
    pub(super) name: String,
    pub(super) event: Arc<EventFd>,
    /// Free pages of the fixed part.
    pub(super) fixed: Holes,
    /// All pages of the fixed part.
    pub(super) regions: Vec<Range<u32>>,
    /// Pages of the fixed part that are promised.
    pub(super) fixed_pages: u32,
    /// The pieces of the fixed part are multiples of this many pages.
    pub(super) unit: u32,
    /// Pages of the fixed part that are granted and not yet allocated.
    pub(super) fixed_missing: u32,
    /// True if the policy has granted the fixed part.
    pub(super) fixed_granted: bool,
    pub(super) granted: u32,
    pub(super) used: u32,
    pub(super) waiting: u32,
    pub(super) missed: u32,
    pub(super) lacks_slot: bool,
    /// Requests to give back: deadline and pages.
    pub(super) to_give_back: VecDeque<(Time, u32)>,
    /// Revoked pages that transfers still use, and the time of the last such revocation.
    pub(super) pinned: u32,
    pub(super) taken_at: Time,
    /// Buffers whose pages have not been returned.
    pub(super) live: u32,
    pub(super) closed: bool,
}

impl AccountRecord {
    /// The sum of all requests to give back, in pages.
    pub(super) fn owed(&self) -> u32 {
        self.to_give_back.iter().map(|ask| ask.1).sum()
    }

    /// Reduces the requests by pages that have been given back or revoked.
    pub(super) fn settle_asked(&mut self, mut count: u32) {
        while let Some(first) = self.to_give_back.front_mut() {
            let settled = first.1.min(count);
            first.1 -= settled;
            count -= settled;
            if first.1 > 0 {
                return;
            }
            self.to_give_back.pop_front();
        }
    }

    /// Wakes a client whose allocation was refused, because it may succeed now.
    pub(super) fn wake_refused(&self) {
        if self.missed > 0 {
            self.event.signal();
        }
    }
}
