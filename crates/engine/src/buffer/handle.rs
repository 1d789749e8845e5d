//! Handles for clients: accounts and buffers.

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

/// A client's claim on memory. Clones refer to the same account. It is closed when the last clone and its
/// last buffer are gone.
#[derive(Clone, Debug)]
pub struct Account(Arc<AccountInner>);

#[derive(Debug)]
struct AccountInner {
    memory: Memory,
    id: AccountId,
    event: Arc<EventFd>,
}

impl Memory {
    /// Opens an account with a fixed part of `fixed` bytes, which it keeps until it is closed. The fixed part
    /// may consist of several pieces; for buffers of a given size see
    /// [`open_account_for`](Self::open_account_for). Waits at most twice the give-back time while others make
    /// room.
    ///
    /// # Errors
    /// When that much is not available, or was not given back in that time.
    pub fn open_account(&self, name: &str, fixed: Bytes) -> Result<Account, MemoryError> {
        self.open(name, fixed, 1)
    }

    /// As [`open_account`](Self::open_account), with a fixed part that always has room for `count` buffers of
    /// `size` bytes.
    ///
    /// # Errors
    /// When that much is not available in pieces of that size, or was not given back in that time.
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
        // Revoked memory may still be in use by a transfer that cannot be hurried. The caller may be the one
        // that has to end it, so this wait is bounded.
        let until = inner.clock.now() + inner.give_back_within + inner.give_back_within;
        while !ledger.is_ready(id) {
            if self.0.keeper.is_none() || inner.clock.now() >= until {
                let error = ledger.not_ready_reason(id);
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

    /// Its id.
    #[must_use]
    pub fn id(&self) -> AccountId {
        self.0.id
    }

    /// The memory that it belongs to.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.0.memory
    }

    /// Allocates a buffer of `size` bytes, from the fixed part if that has room, otherwise from the variable
    /// part. Its content is unspecified, but never data of another account.
    ///
    /// # Errors
    /// When none is available now, or never will be.
    pub fn allocate(&self, size: usize) -> Result<Buffer, MemoryError> {
        let count = pages_for(size)?;
        let inner = self.inner();
        let mut ledger = inner.lock();
        inner.reap(&mut ledger);
        let mut attempt = ledger.allocate(inner.clock.now(), self.id(), count, &inner.slots);
        if matches!(attempt, Err(Refusal::NotNow)) {
            // Buffers that end from here on are seen by the keeper; those that ended before are reaped here.
            inner.is_awaited.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            inner.reap(&mut ledger);
            attempt = ledger.allocate(inner.clock.now(), self.id(), count, &inner.slots);
        }
        inner.wake_waiters(&mut ledger);
        drop(ledger);
        self.finish(size, attempt)
    }

    /// As [`allocate`](Self::allocate), but sleeps until a buffer is available, at most until `until` (`None`:
    /// without limit).
    ///
    /// # Errors
    /// When none is available by then, or never will be.
    pub fn allocate_wait(&self, size: usize, until: Option<Time>) -> Result<Buffer, MemoryError> {
        self.allocate_while(size, until, |_| true)
    }

    /// As [`allocate_wait`](Self::allocate_wait), for a caller that holds `held` buffers of the account. Sleeps
    /// only while the account has further buffers, which may come back.
    ///
    /// # Errors
    /// When none is available and no buffer of the account can come back.
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
        ledger.begin_wait(inner.clock.now(), self.id(), count, &inner.slots);
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
        ledger.end_wait(inner.clock.now(), self.id(), count, &inner.slots);
        inner.wake_waiters(&mut ledger);
        drop(ledger);
        self.finish(size, attempt)
    }

    fn finish(
        &self,
        size: usize,
        attempt: Result<super::ledger::Allocation, Refusal>,
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
            // If it has been revoked already, nobody can read it, so it need not be zeroed.
            let _ = buffer.with_mut(|bytes| bytes.fill(0));
            buffer.size = size;
        }
        Ok(buffer)
    }

    /// Bytes that the account is asked to give back by dropping variable buffers, and the time after which
    /// they are revoked.
    #[must_use]
    pub fn asked_back(&self) -> Option<(Bytes, Time)> {
        self.inner().lock().owed(self.id())
    }

    /// Signalled when the account is asked to give back, when that request ends, and when an allocation that
    /// was refused may succeed.
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
        inner.wake_waiters(&mut ledger);
    }
}

/// A contiguous piece of memory of one account, aligned to 4 KiB. Returned when dropped.
///
/// It allows any number of readers, or one writer, or transfers, like a `RefCell` that includes the kernel.
/// Conflicting uses are refused, never undefined.
#[derive(Debug)]
pub struct Buffer {
    account: Account,
    slot: u32,
    /// Offset in the mapping.
    offset: usize,
    size: usize,
}

impl PartialEq for Buffer {
    /// True if they are the same memory.
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot && Arc::ptr_eq(self.account.inner(), other.account.inner())
    }
}

/// A use of a buffer by the processor. Ends when dropped, also by a panic.
struct UseGuard<'a> {
    inner: &'a Inner,
    slot: u32,
    how: Use,
}

impl<'a> UseGuard<'a> {
    fn begin(inner: &'a Inner, slot: u32, how: Use) -> Result<Self, BufferError> {
        inner.slots[slot as usize].begin(how)?;
        Ok(Self { inner, slot, how })
    }
}

impl Drop for UseGuard<'_> {
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

    /// The account that it belongs to.
    #[must_use]
    pub fn account(&self) -> AccountId {
        self.account.id()
    }

    /// True if it has been revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.account.inner().slots[self.slot as usize].is_revoked()
    }

    /// True if it has been revoked, or will be once the data read into it has been used. The holder should
    /// drop it.
    #[must_use]
    pub fn is_wanted_back(&self) -> bool {
        self.account.inner().slots[self.slot as usize].is_wanted_back()
    }

    /// Reads its content.
    ///
    /// # Errors
    /// When it has been revoked, or a transfer into it is under way.
    #[allow(unsafe_code)]
    pub fn with<R>(&self, reader: impl FnOnce(&[u8]) -> R) -> Result<R, BufferError> {
        let inner = self.account.inner();
        let _guard = UseGuard::begin(inner, self.slot, Use::Read)?;
        // SAFETY: the bytes belong to this buffer and are initialised (the kernel maps zeros). While the guard
        // lives, the slot excludes writes and keeps the pages allocated.
        let bytes = unsafe { std::slice::from_raw_parts(inner.mapping.at(self.offset), self.size) };
        Ok(reader(bytes))
    }

    /// Writes its content.
    ///
    /// # Errors
    /// When it has been revoked, or a transfer uses it.
    #[allow(unsafe_code)]
    pub fn with_mut<R>(&mut self, writer: impl FnOnce(&mut [u8]) -> R) -> Result<R, BufferError> {
        let inner = self.account.inner();
        let _guard = UseGuard::begin(inner, self.slot, Use::Exclusive)?;
        // SAFETY: as in `with`; while the guard lives, the slot excludes all other uses of the bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(inner.mapping.at(self.offset), self.size) };
        Ok(writer(bytes))
    }

    /// Begins to fill it by the processor. It cannot be revoked before that ends, though it may be
    /// [wanted back](Self::is_wanted_back).
    ///
    /// # Errors
    /// When it has been revoked, another use is under way, or it has 4 GiB or more.
    pub fn fill(self) -> Result<FillingBuffer, BufferError> {
        if u32::try_from(self.size).is_err() {
            return Err(BufferError::Range);
        }
        self.inner().slots[self.slot as usize].begin(Use::Exclusive)?;
        Ok(FillingBuffer {
            guard: ExclusiveUse {
                inner: Arc::clone(self.inner()),
                slot: self.slot,
                is_over: false,
            },
            buffer: self,
        })
    }

    /// A range of it, for a transfer in the direction of `op` (`Read`: from a disk or socket into the buffer).
    /// The memory stays pinned until the segments are dropped.
    ///
    /// # Errors
    /// When it has been revoked, the processor is using it, or the range is not within it.
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

/// The processor's exclusive use of a buffer while it is being filled.
#[derive(Debug)]
struct ExclusiveUse {
    inner: Arc<Inner>,
    slot: u32,
    /// The use has been turned into another kind.
    is_over: bool,
}

impl Drop for ExclusiveUse {
    fn drop(&mut self) {
        if !self.is_over {
            self.inner.end_use(self.slot, Use::Exclusive);
        }
    }
}

/// A buffer that is being filled by the processor. Its memory stays until this, or the result, is dropped.
#[derive(Debug)]
pub struct FillingBuffer {
    /// Declared first, so that the use ends before the buffer is dropped.
    guard: ExclusiveUse,
    buffer: Buffer,
}

impl FillingBuffer {
    /// True if it has been revoked, or will be. The holder should finish soon.
    #[must_use]
    pub fn is_wanted_back(&self) -> bool {
        self.buffer.is_wanted_back()
    }

    /// Ends filling without a transfer.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Ends filling and begins a transfer of the whole content. The content stays until the segments are
    /// dropped, even if the buffer is revoked.
    #[must_use]
    pub fn into_source(mut self) -> (Buffer, Segments) {
        self.guard.inner.slots[self.guard.slot as usize].turn_to_source();
        self.guard.is_over = true;
        let segments = Segments::begun(&self.buffer);
        (self.buffer, segments)
    }
}

impl std::ops::Deref for FillingBuffer {
    type Target = [u8];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        let at = self.guard.inner.mapping.at(self.buffer.offset);
        // SAFETY: the bytes belong to this buffer and are initialised (the kernel maps zeros). While the guard
        // lives, as it does here, the slot excludes all other uses and keeps the pages allocated.
        unsafe { std::slice::from_raw_parts(at, self.buffer.size) }
    }
}

impl std::ops::DerefMut for FillingBuffer {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        let at = self.guard.inner.mapping.at(self.buffer.offset);
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(at, self.buffer.size) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let inner = self.account.inner();
        let mut ledger = inner.lock();
        inner.reap(&mut ledger);
        ledger.drop_handle(inner.clock.now(), self.slot, &inner.slots);
        inner.wake_waiters(&mut ledger);
    }
}
