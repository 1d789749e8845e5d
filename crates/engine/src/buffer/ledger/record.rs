//! What is known of a buffer and of an account.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use sched::units::Time;

use super::super::AccountId;
use super::super::holes::Holes;
use crate::event::EventFd;

/// From which part of an account a buffer comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Fixed,
    Variable,
}

/// A buffer, as the ledger sees it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) pages: Range<u32>,
    pub(super) account: AccountId,
    pub(super) part: Part,
    /// Not in use for a buffer.
    pub(super) vacant: bool,
    /// Its holder has let go of it.
    pub(super) dropped: bool,
    /// It was taken from its holder.
    pub(super) revoked: bool,
    /// It was taken while transfers used it, and they still do, or it is spared.
    pub(super) pinned: bool,
    /// It was taken while data was being put into it, and its holder may have the data first.
    pub(super) spared: Option<Spared>,
    /// Its pages have been handed back.
    pub(super) returned: bool,
}

/// The respite of a buffer that is taken while a transfer fills it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spared {
    /// When to look at it again.
    pub(super) look_at: Time,
    /// The transfer had ended at the last look.
    pub(super) has_ended: bool,
}

impl Entry {
    pub(super) fn can_be_taken(&self, from: AccountId) -> bool {
        let is_theirs = !self.vacant && self.account == from && self.part == Part::Variable;
        is_theirs && !self.revoked
    }
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) event: Arc<EventFd>,
    /// Free pages of the fixed part.
    pub(super) fixed: Holes,
    /// All pages of the fixed part.
    pub(super) regions: Vec<Range<u32>>,
    /// Pages of the fixed part that are promised.
    pub(super) fixed_pages: u32,
    /// Its pieces are multiples of this many pages.
    pub(super) unit: u32,
    /// Pages of the fixed part that are granted and not yet found.
    pub(super) fixed_missing: u32,
    /// Whether the policy has granted the fixed part.
    pub(super) fixed_granted: bool,
    pub(super) granted: u32,
    pub(super) used: u32,
    pub(super) waiting: u32,
    pub(super) missed: u32,
    pub(super) lacks_slot: bool,
    /// What it is asked to give back: by when, and how much.
    pub(super) asked: VecDeque<(Time, u32)>,
    /// Pages that were taken from it and that transfers still use, and when that last happened.
    pub(super) pinned: u32,
    pub(super) taken_at: Time,
    /// Buffers whose pages have not been handed back.
    pub(super) live: u32,
    pub(super) closed: bool,
}

impl Record {
    /// All that it is asked to give back.
    pub(super) fn owed(&self) -> u32 {
        self.asked.iter().map(|ask| ask.1).sum()
    }

    /// So much has been given back, or taken.
    pub(super) fn settle_asked(&mut self, mut count: u32) {
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
    pub(super) fn tell_starved(&self) {
        if self.missed > 0 {
            self.event.signal();
        }
    }
}
