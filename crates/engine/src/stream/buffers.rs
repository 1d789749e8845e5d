//! Buffers of a session: those of its stream, those that the stream was given in addition, and borrowed ones.

use sched::units::Bytes;

use super::pace::PaceError;
use super::session::Session;
use crate::buffer::{AccountId, Buffer, FillingBuffer};
use crate::volume_io::stream::Stream;

/// A buffer that is being filled for a [`BlockWriter`](super::BlockWriter). It dereferences to its bytes.
#[derive(Debug)]
pub struct BlockBuffer {
    pub(super) filling: FillingBuffer,
    pub(super) is_borrowed: bool,
}

impl BlockBuffer {
    /// True if it is borrowed, not one of the stream's own.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }

    /// True if it is borrowed and its memory is wanted back: it should be put now, full or not.
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

/// Numbers of a session's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferUse {
    /// The stream's own buffers, reserved for it.
    pub own: usize,
    /// Buffers borrowed from memory that nobody else wants at the moment.
    pub borrowed: usize,
    /// Buffers, own and borrowed, that are full or in transfer.
    pub full: usize,
}

/// The buffers of a session.
pub(super) struct Buffers<'a> {
    stream: &'a Stream,
    free: Vec<Buffer>,
    /// Number of the stream's own buffers.
    own: usize,
    /// Extra accounts whose buffers are among them.
    extra: Vec<AccountId>,
    /// The number of changes of the extra accounts at the last check.
    seen_changes: usize,
    pub(super) borrowed: usize,
}

impl<'a> Buffers<'a> {
    /// Allocates the stream's own buffers. `taken` is a buffer that the caller holds, which may be one of them.
    ///
    /// # Errors
    /// When there is no memory for the stream's own buffers.
    pub(super) fn new(session: &Session<'a>, taken: Option<&Buffer>) -> Result<Self, PaceError> {
        let own = session.stream.client().account().id();
        let taken = taken.map_or(0, |taken| u32::from(taken.account() == own));
        let free = session.buffers(taken)?;
        let mut buffers = Self {
            stream: session.stream,
            own: free.len() + taken as usize,
            free,
            extra: Vec::new(),
            seen_changes: 0,
            borrowed: 0,
        };
        buffers.refresh();
        Ok(buffers)
    }

    pub(super) fn own(&self) -> usize {
        self.own
    }

    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Adds buffers that the stream has been given, and removes those that it has given up, since the last call.
    pub(super) fn refresh(&mut self) {
        let client = self.stream.client().core();
        let changes = client.extra_accounts.changes();
        if changes == self.seen_changes {
            return;
        }
        self.seen_changes = changes;
        let size = self.size();
        let accounts = client.extra_accounts.accounts();
        let is_there = |id: &AccountId| accounts.iter().any(|account| account.id() == *id);
        let before = self.extra.len();
        self.extra.retain(is_there);
        self.own -= before - self.extra.len();
        let own = client.account.id();
        self.free
            .retain(|buffer| buffer.account() == own || is_there(&buffer.account()));
        for account in &accounts {
            // Its fixed part is exactly one buffer. If another session of the stream has it, allocation fails.
            if !self.extra.contains(&account.id())
                && let Ok(buffer) = account.allocate(size)
            {
                self.extra.push(account.id());
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

    /// Takes back one of the stream's own buffers, unless the stream has given it up.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        let account = buffer.account();
        if account == self.stream.client().account().id() || self.extra.contains(&account) {
            self.free.push(buffer);
        }
    }

    /// A buffer to be filled. It is borrowed if no own buffer is free and fewer than `most` are borrowed.
    pub(super) fn fill(&mut self, most: usize) -> Option<BlockBuffer> {
        let own = self.free.pop();
        let is_borrowed = own.is_none();
        if is_borrowed && self.borrowed >= most {
            return None;
        }
        let account = self.stream.client().account();
        let buffer = own.or_else(|| account.allocate(self.size()).ok())?;
        // A borrowed buffer may have been revoked already.
        let filling = buffer.fill().ok()?;
        self.borrowed += usize::from(is_borrowed);
        Some(BlockBuffer {
            filling,
            is_borrowed,
        })
    }

    /// Takes back a buffer that was filled, or that is not needed.
    pub(super) fn emptied(&mut self, buffer: Buffer, is_borrowed: bool) {
        if is_borrowed {
            self.borrowed -= 1;
        } else {
            self.give_back(buffer);
        }
    }

    /// Records that a buffer was dropped with a block that was refused.
    pub(super) fn dropped(&mut self, is_borrowed: bool) {
        self.borrowed -= usize::from(is_borrowed);
    }

    /// True if borrowed memory is wanted back.
    pub(super) fn are_wanted_back(&self) -> bool {
        self.borrowed > 0 && self.stream.client().account().asked_back().is_some()
    }
}
