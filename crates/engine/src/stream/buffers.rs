//! A session's buffers: those of its stream, those that the stream was given in addition, and what is borrowed.

use sched::units::Bytes;

use super::pace::PaceError;
use super::session::Session;
use crate::buffer::{AccountId, Buffer, Filling};
use crate::volume_io::stream::Stream;

/// A buffer that is being filled for a [`BlockWriter`](super::BlockWriter): its bytes.
#[derive(Debug)]
pub struct BlockBuffer {
    pub(super) filling: Filling,
    pub(super) is_borrowed: bool,
}

impl BlockBuffer {
    /// Whether it is none of the stream's own.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }

    /// Whether it is borrowed, and its lender wants it: what is in it should be put, full or not.
    #[must_use]
    pub fn is_wanted_back(&self) -> bool {
        self.is_borrowed && self.filling.is_wanted_back()
    }
}

impl std::ops::Deref for BlockBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.filling
    }
}

impl std::ops::DerefMut for BlockBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.filling
    }
}

/// How many buffers a session has, and how many of them are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferUse {
    /// Of the stream's own, which nobody else may use.
    pub own: usize,
    /// Borrowed from what nobody else wants at the moment.
    pub borrowed: usize,
    /// Full or on their way to or from the disks, of all of them.
    pub full: usize,
}

/// The buffers of a session.
pub(super) struct Buffers<'a> {
    stream: &'a Stream,
    free: Vec<Buffer>,
    /// How many of the stream's there are.
    own: usize,
    /// Accounts beside the client's whose buffers are among them.
    more: Vec<AccountId>,
    /// How often those had changed when this looked last.
    seen: usize,
    pub(super) borrowed: usize,
}

impl<'a> Buffers<'a> {
    /// One of the stream's own may be taken already.
    ///
    /// # Errors
    /// When there is no memory for the stream's own.
    pub(super) fn new(session: &Session<'a>, taken: Option<&Buffer>) -> Result<Self, PaceError> {
        let own = session.stream.client().account().id();
        let taken = taken.map_or(0, |taken| u32::from(taken.account() == own));
        let free = session.buffers(taken)?;
        let mut buffers = Self {
            stream: session.stream,
            own: free.len() + taken as usize,
            free,
            more: Vec::new(),
            seen: 0,
            borrowed: 0,
        };
        buffers.look();
        Ok(buffers)
    }

    pub(super) fn own(&self) -> usize {
        self.own
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes over what the stream was given or has given back since this was called last.
    pub(super) fn look(&mut self) {
        let client = self.stream.client().core();
        let changes = client.more.changes();
        if changes == self.seen {
            return;
        }
        self.seen = changes;
        let size = self.size();
        let accounts = client.more.accounts();
        let is_there = |id: &AccountId| accounts.iter().any(|account| account.id() == *id);
        let before = self.more.len();
        self.more.retain(is_there);
        self.own -= before - self.more.len();
        let own = client.account.id();
        self.free
            .retain(|buffer| buffer.account() == own || is_there(&buffer.account()));
        for account in &accounts {
            // Its fixed part is one buffer, and nobody else takes it; another session of the stream may have it.
            if !self.more.contains(&account.id())
                && let Ok(buffer) = account.allocate(size)
            {
                self.more.push(account.id());
                self.own += 1;
                self.free.push(buffer);
            }
        }
    }

    fn size(&self) -> usize {
        let Bytes(size) = self.stream.buffer();
        size as usize
    }

    pub(super) fn take(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// Takes back one of the stream's own, unless the stream has given it back.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        let account = buffer.account();
        if account == self.stream.client().account().id() || self.more.contains(&account) {
            self.free.push(buffer);
        }
    }

    /// One to be filled, borrowed if there are none of the stream's own and fewer than `most` are.
    pub(super) fn fill(&mut self, most: usize) -> Option<BlockBuffer> {
        let own = self.free.pop();
        let is_borrowed = own.is_none();
        if is_borrowed && self.borrowed >= most {
            return None;
        }
        let account = self.stream.client().account();
        let buffer = own.or_else(|| account.allocate(self.size()).ok())?;
        // What was borrowed may have been taken again already.
        let filling = buffer.fill().ok()?;
        self.borrowed += usize::from(is_borrowed);
        Some(BlockBuffer {
            filling,
            is_borrowed,
        })
    }

    /// Takes back one that was filled or is not to be.
    pub(super) fn emptied(&mut self, buffer: Buffer, is_borrowed: bool) {
        if is_borrowed {
            self.borrowed -= 1;
        } else {
            self.give_back(buffer);
        }
    }

    /// One has gone with a block that was not taken.
    pub(super) fn dropped(&mut self, is_borrowed: bool) {
        self.borrowed -= usize::from(is_borrowed);
    }

    /// Whether something that is borrowed is wanted back.
    pub(super) fn are_wanted_back(&self) -> bool {
        self.borrowed > 0 && self.stream.client().account().asked_back().is_some()
    }
}
