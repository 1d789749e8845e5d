//! What clients hold: accounts and buffers.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use sched::request::Op;
use sched::units::{Bytes, Time};

use super::ledger::{Ledger, Refusal};
use super::mapping::{PAGE_BYTES, PAGES_OFFSET};
use super::slot::Use;
use super::{AccountId, BufferError, Inner, Memory, MemoryError, Segments};
use crate::event::EventFd;

/// A client's claim on the memory. Clones are the same account; it is closed when the last of them
/// and the last of its buffers are gone.
#[derive(Clone, Debug)]
pub struct Account(Arc<AccountInner>);

#[derive(Debug)]
struct AccountInner {
    memory: Memory,
    id: AccountId,
    event: Arc<EventFd>,
}

impl Memory {
    /// Opens an account with `fixed` bytes that are its own until it is closed. They may lie in pieces:
    /// for buffers that must be had see [`open_account_for`](Self::open_account_for). Waits, at most twice
    /// the time to give back, while others make room for them.
    ///
    /// # Errors
    /// When that much is not available, or was not given up in that time.
    pub fn open_account(&self, name: &str, fixed: Bytes) -> Result<Account, MemoryError> {
        self.open(name, fixed, 1)
    }

    /// As [`open_account`](Self::open_account), with a fixed part that has room for `count` buffers of
    /// `size` bytes at a time, whatever else is in memory.
    ///
    /// # Errors
    /// When that much is not available in pieces that large, or was not given up in that time.
    pub fn open_account_for(
        &self,
        name: &str,
        size: usize,
        count: u64,
    ) -> Result<Account, MemoryError> {
        let unit = pages_for(size)?;
        let each = u64::from(unit) * PAGE_BYTES as u64;
        self.open(name, Bytes(each.saturating_mul(count)), unit)
    }

    fn open(&self, name: &str, fixed: Bytes, unit: u32) -> Result<Account, MemoryError> {
        let inner = &self.0.inner;
        let event = Arc::new(EventFd::new().map_err(|error| MemoryError::Host(error.to_string()))?);
        let mut ledger = inner.lock();
        inner.reap(&mut ledger);
        let id = ledger.open(
            inner.clock.now(),
            name,
            fixed,
            unit,
            Arc::clone(&event),
            &inner.slots,
        )?;
        // From here on dropping the account closes it again.
        let account = Account::new(self.clone(), id, event);
        // What is taken at the end of that time may still be in use by a transfer that nobody can
        // hurry: whoever opens an account may be the one that has to end it.
        let until = inner.clock.now() + inner.give_back_within + inner.give_back_within;
        while !ledger.is_ready(id) {
            if self.0.keeper.is_none() || inner.clock.now() >= until {
                let error = ledger.why_not_ready(id);
                drop(ledger);
                return Err(error);
            }
            ledger = inner.sleep(ledger, Some(until));
        }
        drop(ledger);
        Ok(account)
    }
}

impl Account {
    fn new(memory: Memory, id: AccountId, event: Arc<EventFd>) -> Self {
        Self(Arc::new(AccountInner { memory, id, event }))
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.0.memory.0.inner
    }

    /// Its name for the machine.
    #[must_use]
    pub fn id(&self) -> AccountId {
        self.0.id
    }

    /// The memory it is an account of.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// A buffer of `size` bytes, from the fixed part while that lasts and then from the variable
    /// part. What is in it is unspecified, and never what another account left there.
    ///
    /// # Errors
    /// When there is none now, or never will be.
    pub fn allocate(&self, size: usize) -> Result<Buffer, MemoryError> {
        let count = pages_for(size)?;
        let inner = self.inner();
        let mut ledger = inner.lock();
        inner.reap(&mut ledger);
        let mut attempt = ledger.allocate(inner.clock.now(), self.id(), count, &inner.slots);
        if matches!(attempt, Err(Refusal::NotNow)) {
            // From here on whatever ends is seen by the keeper; what ended before is seen here.
            inner.hungry.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            inner.reap(&mut ledger);
            attempt = ledger.allocate(inner.clock.now(), self.id(), count, &inner.slots);
        }
        inner.tell(&mut ledger);
        drop(ledger);
        self.finish(size, attempt)
    }

    /// As [`allocate`](Self::allocate), sleeping while there is none, until `until` (`None`: as long
    /// as it takes).
    ///
    /// # Errors
    /// When there is none by then, or never will be.
    pub fn allocate_wait(&self, size: usize, until: Option<Time>) -> Result<Buffer, MemoryError> {
        self.allocate_while(size, until, |_| true)
    }

    /// As [`allocate_wait`](Self::allocate_wait) for whoever has `held` buffers of the account, sleeping
    /// only while more of them are out, in whose place it can be.
    ///
    /// # Errors
    /// When there is none and nothing of the account comes back.
    pub(crate) fn allocate_own(&self, size: usize, held: u32) -> Result<Buffer, MemoryError> {
        self.allocate_while(size, None, |ledger| ledger.live(self.id()) > held)
    }

    fn allocate_while(
        &self,
        size: usize,
        until: Option<Time>,
        may_come: impl Fn(&Ledger) -> bool,
    ) -> Result<Buffer, MemoryError> {
        let first = self.allocate(size);
        if first != Err(MemoryError::NotNow) {
            return first;
        }
        let count = pages_for(size)?;
        let inner = self.inner();
        let mut ledger = inner.lock();
        ledger.wait_for(inner.clock.now(), self.id(), count, true, &inner.slots);
        let attempt = loop {
            inner.reap(&mut ledger);
            let now = inner.clock.now();
            let attempt = ledger.allocate(now, self.id(), count, &inner.slots);
            let is_over = until.is_some_and(|until| now >= until) || !may_come(&ledger);
            if !matches!(attempt, Err(Refusal::NotNow)) || is_over {
                break attempt;
            }
            ledger = inner.sleep(ledger, until);
        };
        ledger.wait_for(inner.clock.now(), self.id(), count, false, &inner.slots);
        inner.tell(&mut ledger);
        drop(ledger);
        self.finish(size, attempt)
    }

    fn finish(
        &self,
        size: usize,
        attempt: Result<super::ledger::Placed, Refusal>,
    ) -> Result<Buffer, MemoryError> {
        let placed = attempt.map_err(|refusal| match refusal {
            Refusal::NotNow => MemoryError::NotNow,
            Refusal::Never { available } => MemoryError::TooMuch {
                asked: Bytes(size as u64),
                available: Bytes(u64::from(available) * PAGE_BYTES as u64),
            },
        })?;
        let mut buffer = Buffer {
            account: self.clone(),
            slot: placed.slot,
            offset: PAGES_OFFSET + placed.pages.start as usize * PAGE_BYTES,
            size,
        };
        if placed.foreign {
            buffer.size = placed.pages.len() * PAGE_BYTES;
            // If it has been revoked already there is nothing to hide any more.
            let _ = buffer.with_mut(|bytes| bytes.fill(0));
            buffer.size = size;
        }
        Ok(buffer)
    }

    /// How many bytes the account is asked to give back just now, by dropping buffers of its
    /// variable part, and until when, before they are taken.
    #[must_use]
    pub fn asked_back(&self) -> Option<(Bytes, Time)> {
        self.inner().lock().owed(self.id())
    }

    /// Signalled when the account is asked to give back, when that is over, and when there may be a
    /// buffer for it after it was refused one.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        &self.0.event
    }
}

fn pages_for(size: usize) -> Result<u32, MemoryError> {
    if size == 0 {
        return Err(MemoryError::Empty);
    }
    Ok(u32::try_from(size.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX))
}

impl Drop for AccountInner {
    fn drop(&mut self) {
        let inner = &self.memory.0.inner;
        let mut ledger = inner.lock();
        inner.reap(&mut ledger);
        ledger.close(inner.clock.now(), self.id, &inner.slots);
        inner.tell(&mut ledger);
    }
}

/// A piece of memory of one account, contiguous and 4 KiB aligned. Given back when dropped.
///
/// Any number of readers, or one writer, or transfers: a `RefCell` that the kernel takes part in.
/// What conflicts is refused, never undefined.
#[derive(Debug)]
pub struct Buffer {
    account: Account,
    slot: u32,
    /// Where it begins in the mapping.
    offset: usize,
    size: usize,
}

impl PartialEq for Buffer {
    /// Whether they are the same memory.
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot && Arc::ptr_eq(self.account.inner(), other.account.inner())
    }
}

/// A use of a buffer by the processor; ends when dropped, also by a panic.
struct Guard<'a> {
    inner: &'a Inner,
    slot: u32,
    how: Use,
}

impl<'a> Guard<'a> {
    fn begin(inner: &'a Inner, slot: u32, how: Use) -> Result<Self, BufferError> {
        inner.slots[slot as usize].begin(how)?;
        Ok(Self { inner, slot, how })
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.inner.end_use(self.slot, self.how);
    }
}

impl Buffer {
    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whose it is.
    #[must_use]
    pub fn account(&self) -> AccountId {
        self.account.id()
    }

    /// Whether it has been taken back.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.account.inner().slots[self.slot as usize].is_revoked()
    }

    /// Whether it has been taken back, or will be as soon as what was read into it has been used: the
    /// thing to do is to drop it.
    #[must_use]
    pub fn is_wanted_back(&self) -> bool {
        self.account.inner().slots[self.slot as usize].is_wanted_back()
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it has been taken, or something is being transferred into it.
    #[allow(unsafe_code)]
    pub fn with<R>(&self, reader: impl FnOnce(&[u8]) -> R) -> Result<R, BufferError> {
        let inner = self.account.inner();
        let _guard = Guard::begin(inner, self.slot, Use::Read)?;
        // SAFETY: the bytes belong to this buffer and are initialised (the kernel maps zeros). While
        // the guard lives the slot lets nothing write them and does not let their pages go.
        let bytes = unsafe { std::slice::from_raw_parts(inner.mapping.at(self.offset), self.size) };
        Ok(reader(bytes))
    }

    /// Writes it.
    ///
    /// # Errors
    /// When it has been taken, or a transfer is using it.
    #[allow(unsafe_code)]
    pub fn with_mut<R>(&mut self, writer: impl FnOnce(&mut [u8]) -> R) -> Result<R, BufferError> {
        let inner = self.account.inner();
        let _guard = Guard::begin(inner, self.slot, Use::Exclusive)?;
        // SAFETY: as in `with`, and while the guard lives the slot lets nobody else use the bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(inner.mapping.at(self.offset), self.size) };
        Ok(writer(bytes))
    }

    /// Keeps it for the processor to write, until it is full: it is not taken away meanwhile, though it may be
    /// [wanted back](Self::is_wanted_back).
    ///
    /// # Errors
    /// When it has been taken, something else is using it, or it has 4 GiB and more.
    pub fn fill(self) -> Result<Filling, BufferError> {
        if u32::try_from(self.size).is_err() {
            return Err(BufferError::Range);
        }
        self.inner().slots[self.slot as usize].begin(Use::Exclusive)?;
        Ok(Filling {
            guard: Exclusive {
                inner: Arc::clone(self.inner()),
                slot: self.slot,
                is_over: false,
            },
            buffer: self,
        })
    }

    /// A range of it, for a transfer in the direction of `op` (`Read`: from a disk or socket into the
    /// buffer). The memory is held until the segments are dropped.
    ///
    /// # Errors
    /// When it has been taken, the processor is using it, or the range is not within it.
    pub fn segments(&self, op: Op, range: Range<usize>) -> Result<Segments, BufferError> {
        let mut segments = Segments::empty(op);
        segments.push(self, range)?;
        Ok(segments)
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        self.account.inner()
    }

    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }
}

/// The processor's exclusive use of a buffer, for as long as it takes to fill it.
#[derive(Debug)]
struct Exclusive {
    inner: Arc<Inner>,
    slot: u32,
    /// It has become another use.
    is_over: bool,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if !self.is_over {
            self.inner.end_use(self.slot, Use::Exclusive);
        }
    }
}

/// A buffer that is being filled, as bytes. Its memory stays until this is dropped or what comes of it is.
#[derive(Debug)]
pub struct Filling {
    /// Ends before the buffer does.
    guard: Exclusive,
    buffer: Buffer,
}

impl Filling {
    /// Whether it has been taken back, or will be: the thing to do is to be done with it.
    #[must_use]
    pub fn is_wanted_back(&self) -> bool {
        self.buffer.is_wanted_back()
    }

    /// The buffer, of which nothing is to be written.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// All of it, for a transfer out of it. What is in it can be had until the segments are dropped, whoever
    /// wants it back.
    #[must_use]
    pub fn into_source(mut self) -> (Buffer, Segments) {
        self.guard.inner.slots[self.guard.slot as usize].turn_to_source();
        self.guard.is_over = true;
        let segments = Segments::begun(&self.buffer);
        (self.buffer, segments)
    }
}

impl std::ops::Deref for Filling {
    type Target = [u8];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        let at = self.guard.inner.mapping.at(self.buffer.offset);
        // SAFETY: the bytes belong to this buffer and are initialised (the kernel maps zeros). While the guard
        // lives, as it does here, the slot lets nobody else use them and does not let their pages go.
        unsafe { std::slice::from_raw_parts(at, self.buffer.size) }
    }
}

impl std::ops::DerefMut for Filling {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        let at = self.guard.inner.mapping.at(self.buffer.offset);
        // SAFETY: as in `deref`, and this is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(at, self.buffer.size) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let inner = self.account.inner();
        let mut ledger = inner.lock();
        inner.reap(&mut ledger);
        ledger.drop_handle(inner.clock.now(), self.slot, &inner.slots);
        inner.tell(&mut ledger);
    }
}
