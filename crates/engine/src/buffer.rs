//! Memory for data on its way between socket and disk.
//!
//! One mapping, with huge pages and locked as far as the host permits, is divided among accounts. Each
//! account has a fixed part, which it keeps, and a variable part. When other accounts have less than their
//! fair share, an account is asked to give back variable memory within 500 ms; memory that it keeps longer
//! is revoked (thesis 5.2.4). [`sched::memory`] decides on the amounts; this module carries them out.
//!
//! A [`Buffer`] is a handle. Every access to its memory begins with a check that the memory is still the
//! holder's and that no conflicting use is under way, and pins the memory until the access ends. Revoking
//! a buffer waits for accesses and transfers under way; every later one fails with
//! [`BufferError::Revoked`]. So no client and no order of calls can make a disk write into memory that has
//! passed to another account. Transfers are described by [`Segments`], which pin the memory while they
//! exist.
//!
//! | module | contents |
//! |---|---|
//! | `mapping` | the memory |
//! | `slot` | the uses of one buffer under way |
//! | `holes` | free pages |
//! | `ledger` | the owner of each page, under one lock |
//! | `handle` | [`Account`] and [`Buffer`] |
//! | `segments` | [`Segments`], scatter-gather lists |
//! | `transfer` | moving segments to and from files and sockets without a copy |
//!
//! Deliberately absent: a cache. The holder decides what a buffer contains.

mod handle;
mod holes;
mod ledger;
mod mapping;
mod segments;
mod slot;
mod transfer;

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sched::units::{Bytes, Nanos, Time};

use crate::clock::{Clock, MonotonicClock};
use crate::event::Doorbell;
use crate::handoff::IndexStack;
use crate::rt;

pub use handle::{Account, Buffer, FillingBuffer};
pub(crate) use segments::INLINE_IOVECS;
pub use segments::Segments;
pub use transfer::{HEADER_BYTES_MAX, Place, SendQueue, receive_into};

use ledger::Ledger;
use mapping::{Mapping, PAGE_BYTES};
use slot::{Slot, Use};

/// Alignment of buffers, and the unit of their sizes in memory.
pub const BUFFER_ALIGN_BYTES: usize = 4096;

/// The most buffers at a time, over all accounts: enough for a gigabyte in 16 KiB pieces, in a table of a
/// few megabytes.
pub const BUFFERS_MAX: u32 = 1 << 16;

/// Time in which a client has to give back memory (thesis 5.2.4).
pub const GIVE_BACK_WITHIN: Nanos = Nanos::from_millis(500);

/// Identifies an account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AccountId(pub u32);

/// Parameters of a memory.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// Its size; rounded up to 2 MiB.
    pub size: Bytes,
    /// Memory kept free for clients below their fair share, so that they are served at once.
    pub reserve: Bytes,
    /// Lock it (`mlock`), as far as permitted.
    pub lock: bool,
    /// Time in which a client has to give back memory.
    pub give_back_within: Nanos,
}

impl MemoryConfig {
    /// Memory of `size`, with a reserve of one 32nd, locked, and 500 ms to give back.
    #[must_use]
    pub fn new(size: Bytes) -> Self {
        Self {
            size,
            reserve: Bytes(size.0 / 32),
            lock: true,
            give_back_within: GIVE_BACK_WITHIN,
        }
    }
}

/// The reason why memory is not available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// More than can ever be available to the account.
    #[error("{asked} of memory requested, but only {available} are available")]
    TooMuch {
        /// Bytes requested.
        asked: Bytes,
        /// Bytes that could be available.
        available: Bytes,
    },
    /// Nothing is free at the moment: others have been asked to give back, or the number of buffers is at
    /// its limit. Try again when [`Account::event`] is signalled, or use [`Account::allocate_wait`].
    #[error("no memory is free at the moment")]
    NotNow,
    /// A buffer of zero bytes.
    #[error("a buffer has at least one byte")]
    Empty,
    /// The host refused memory or descriptors.
    #[error("cannot set up memory: {0}")]
    Host(String),
    /// The sharing policy refused.
    #[error("{0}")]
    Policy(String),
}

/// The reason why a buffer cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BufferError {
    /// It was revoked because it was not given back in time.
    #[error("the buffer was taken back")]
    Revoked,
    /// A conflicting use is under way.
    #[error("the buffer is in use")]
    InUse,
    /// The range is not within the buffer.
    #[error("the range is not within the buffer")]
    Range,
    /// The segments belong to different accounts, memories or directions.
    #[error("the segments belong to different accounts, memories or directions")]
    Foreign,
}

/// Memory held by an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryUsage {
    /// The account.
    pub account: AccountId,
    /// Its name for people.
    pub name: String,
    /// Its fixed part.
    pub fixed: Bytes,
    /// The variable memory that it holds.
    pub variable: Bytes,
    /// Memory that it is asked to give back at the moment.
    pub asked_back: Bytes,
    /// Number of its buffers, including dropped ones that transfers still use.
    pub buffers: u32,
}

/// The memory of a server: one mapping, divided among accounts. Clones refer to the same memory.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Owner>);

/// Stops the keeper thread when the last account and the last handle of the memory are gone.
#[derive(Debug)]
struct Owner {
    inner: Arc<Inner>,
    refused: Vec<String>,
    keeper: Option<JoinHandle<()>>,
}

/// The state that buffers and transfers keep alive.
struct Inner {
    mapping: Mapping,
    slots: Box<[Slot]>,
    /// Slots of buffers whose last use ended on a thread that must not wait for the ledger.
    ended: IndexStack,
    ledger: Mutex<Ledger>,
    /// Signalled whenever memory may have become free.
    freed: Condvar,
    /// True if a thread or client waits for the buffers in `ended`.
    is_awaited: AtomicBool,
    keeper_bell: Doorbell,
    stopping: AtomicBool,
    clock: Arc<dyn Clock>,
    give_back_within: Nanos,
}

impl Memory {
    /// Maps memory, and starts the thread that revokes buffers that are not given back in time.
    ///
    /// # Errors
    /// When the host refuses memory.
    pub fn new(config: &MemoryConfig) -> Result<Self, MemoryError> {
        Self::build(config, Arc::new(MonotonicClock), true)
    }

    /// Maps memory that uses `clock` and acts only in calls of [`tick`](Self::tick).
    ///
    /// # Errors
    /// When the host refuses memory.
    pub fn with_clock(config: &MemoryConfig, clock: Arc<dyn Clock>) -> Result<Self, MemoryError> {
        Self::build(config, clock, false)
    }

    fn build(
        config: &MemoryConfig,
        clock: Arc<dyn Clock>,
        keep: bool,
    ) -> Result<Self, MemoryError> {
        let host = |error: std::io::Error| MemoryError::Host(error.to_string());
        let size = usize::try_from(config.size.0).unwrap_or(usize::MAX);
        let (mapping, refused) = Mapping::new(size, config.lock).map_err(host)?;
        let page_count = mapping.page_count();
        let slot_count = page_count.clamp(1, BUFFERS_MAX);
        let inner = Arc::new(Inner {
            slots: (0..slot_count).map(|_| Slot::default()).collect(),
            ended: IndexStack::new(slot_count),
            ledger: Mutex::new(Ledger::new(
                page_count,
                slot_count,
                config.reserve,
                config.give_back_within,
            )),
            freed: Condvar::new(),
            is_awaited: AtomicBool::new(false),
            keeper_bell: Doorbell::new().map_err(host)?,
            stopping: AtomicBool::new(false),
            mapping,
            clock,
            give_back_within: config.give_back_within,
        });
        let keeper = if keep {
            let kept = Arc::clone(&inner);
            let (handle, _) = rt::spawn(&rt::ThreadParams::ordinary("memory"), move || kept.keep())
                .map_err(host)?;
            Some(handle)
        } else {
            None
        };
        Ok(Self(Arc::new(Owner {
            inner,
            refused,
            keeper,
        })))
    }

    /// Messages for the operator about resources that the host denied; empty if none.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.0.refused
    }

    /// Does what is due: asks for memory and revokes buffers. Returns the time of the next action. Only needed
    /// for memory made by [`with_clock`](Self::with_clock).
    pub fn tick(&self) -> Option<Time> {
        self.0.inner.tick()
    }

    /// Memory held by each account.
    #[must_use]
    pub fn usage(&self) -> Vec<MemoryUsage> {
        self.0.inner.lock().usage()
    }

    /// Memory that is in no buffer and in no fixed part.
    #[must_use]
    pub fn free(&self) -> Bytes {
        let mut ledger = self.0.inner.lock();
        self.0.inner.reap(&mut ledger);
        self.0.inner.wake_waiters(&mut ledger);
        ledger.free()
    }

    /// Memory that new fixed parts could still get, whoever uses it at the moment.
    #[must_use]
    pub fn promisable(&self) -> Bytes {
        self.0.inner.lock().promisable()
    }

    /// Memory that can be divided among accounts.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(u64::from(self.0.inner.mapping.page_count()) * PAGE_BYTES as u64)
    }

    /// The mapping, for registration with a ring. It does not move while the result exists.
    pub(crate) fn region(&self) -> Region {
        Region(Arc::clone(&self.0.inner))
    }
}

/// The whole mapping, kept in place.
#[derive(Clone, Debug)]
pub(crate) struct Region(Arc<Inner>);

impl Region {
    pub(crate) fn base(&self) -> *mut u8 {
        self.0.mapping.at(0)
    }

    pub(crate) fn size(&self) -> usize {
        self.0.mapping.size()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.stopping.store(true, Ordering::Release);
        self.inner.keeper_bell.event().signal();
        if let Some(keeper) = self.keeper.take() {
            // A panic of the keeper has been reported by the panic hook.
            let _ = keeper.join();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory of buffers whose last use has ended.
    fn reap(&self, ledger: &mut Ledger) {
        if self.ended.is_empty() {
            return;
        }
        let now = self.clock.now();
        self.ended
            .take_all(|index| ledger.reap(now, index, &self.slots));
        ledger.settle(now, &self.slots);
    }

    /// Wakes the threads that a change of the ledger concerns. To be called before the lock is released.
    fn wake_waiters(&self, ledger: &mut Ledger) {
        if ledger.take_wakeup() && self.is_awaited.load(Ordering::Relaxed) {
            self.freed.notify_all();
        }
        if ledger.take_new_deadline() {
            self.keeper_bell.ring();
        }
    }

    /// Sleeps until memory may have become free, or `until`.
    fn sleep<'a>(
        &'a self,
        mut ledger: MutexGuard<'a, Ledger>,
        until: Option<Time>,
    ) -> MutexGuard<'a, Ledger> {
        self.is_awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // A use that ended before the flag was visible woke nobody.
        if !self.ended.is_empty() {
            self.reap(&mut ledger);
            return ledger;
        }
        self.wake_waiters(&mut ledger);
        match until {
            None => self
                .freed
                .wait(ledger)
                .unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left =
                    std::time::Duration::from_nanos(until.saturating_since(self.clock.now()).0);
                self.freed
                    .wait_timeout(ledger, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        }
    }

    fn tick(&self) -> Option<Time> {
        let mut ledger = self.lock();
        self.reap(&mut ledger);
        let next = ledger.advance(self.clock.now(), &self.slots);
        // The caller is the keeper, which gets the next deadline as the result.
        ledger.take_new_deadline();
        self.wake_waiters(&mut ledger);
        self.is_awaited
            .store(ledger.has_waiters(), Ordering::Relaxed);
        next
    }

    fn keep(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.keeper_bell.arm();
            let next = self.tick();
            fence(Ordering::SeqCst);
            let waited_for = self.is_awaited.load(Ordering::Relaxed) && !self.ended.is_empty();
            if !waited_for {
                self.keeper_bell.event().wait(next);
            }
            self.keeper_bell.disarm();
        }
    }

    /// Ends a use of a buffer. Never waits.
    fn end_use(&self, slot: u32, how: Use) {
        if self.slots[slot as usize].end(how) {
            // `end` returns true once per buffer, so the slot is pushed only once.
            self.ended.push(slot);
            fence(Ordering::SeqCst);
            if self.is_awaited.load(Ordering::Relaxed) {
                self.keeper_bell.ring();
            }
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("mapping", &self.mapping)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
