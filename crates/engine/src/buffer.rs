//! Memory for data on its way between socket and disk.
//!
//! One mapping, huge-paged and locked as far as the host permits, is shared out to accounts. Each
//! account has a fixed part, which it keeps, and a variable part, which it is asked to give back when
//! others have less than their fair share, has 500 ms to do so, and loses otherwise (thesis 5.2.4).
//! How much is whose is decided in [`sched::memory`]; here it is carried out.
//!
//! A [`Buffer`] is a handle. Every access to its memory begins with a check that the memory is still
//! the holder's and that nothing conflicting goes on, and holds the memory until it ends: taking a
//! buffer away waits for accesses and transfers under way, and every later one fails with
//! [`BufferError::Revoked`]. So no order of calls, and no client, can make a disk write into memory
//! that has become somebody else's. Transfers are described by [`Segments`], which hold the memory
//! for as long as they exist.
//!
//! | module | what it is |
//! |---|---|
//! | `mapping` | the memory |
//! | `slot` | who is using a buffer just now |
//! | `holes` | free pages |
//! | `ledger` | whose pages are whose, under one lock |
//! | `handle` | [`Account`] and [`Buffer`] |
//! | `segments` | [`Segments`], scatter-gather lists |
//! | `transfer` | moving segments to and from files and sockets without a copy |
//!
//! Deliberately absent: a cache. What is in a buffer is its holder's business.

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

pub use handle::{Account, Buffer, Filling};
pub(crate) use segments::INLINE_IOVECS;
pub use segments::Segments;
pub use transfer::{HEADER_BYTES_MAX, Place, SendQueue, receive_into};

use ledger::Ledger;
use mapping::{Mapping, PAGE_BYTES};
use slot::{Slot, Use};

/// Buffers begin at a multiple of this many bytes, and take up a multiple of it.
pub const BUFFER_ALIGN_BYTES: usize = 4096;

/// The most buffers at a time, of all accounts together: enough for a gigabyte in 16 KiB pieces, in a
/// table of a few megabytes.
pub const BUFFERS_MAX: u32 = 1 << 16;

/// How long a client has to give back what it is asked for (thesis 5.2.4).
pub const GIVE_BACK_WITHIN: Nanos = Nanos::from_millis(500);

/// Names an account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AccountId(pub u32);

/// What the memory is to be.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// Its size; rounded up to 2 MiB.
    pub size: Bytes,
    /// What is kept free for clients below their fair share, so that they are served at once.
    pub reserve: Bytes,
    /// Whether to lock it (`mlock`), as far as permitted.
    pub lock: bool,
    /// How long a client has to give back what it is asked for.
    pub give_back_within: Nanos,
}

impl MemoryConfig {
    /// Memory of `size`, a 32nd of it kept in reserve, locked, with 500 ms to give back.
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

/// Why memory could not be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// More was asked for than is, or could ever become, available to the account.
    #[error("{asked} of memory asked for, {available} could be had")]
    TooMuch {
        /// The bytes asked for.
        asked: Bytes,
        /// The bytes that could be had.
        available: Bytes,
    },
    /// Nothing is free now, and others have been asked to give back, or there are as many buffers as
    /// there can be. Try again when [`Account::event`] is signalled, or use [`Account::allocate_wait`].
    #[error("no memory is free at the moment")]
    NotNow,
    /// A buffer of no bytes.
    #[error("a buffer has at least one byte")]
    Empty,
    /// The host gave no memory or no descriptors.
    #[error("cannot set up memory: {0}")]
    Host(String),
    /// The policy refused for a reason of its own.
    #[error("{0}")]
    Policy(String),
}

/// Why a buffer could not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BufferError {
    /// It was asked back, not given back in time, and taken.
    #[error("the buffer was taken back")]
    Revoked,
    /// It is in use in a way that excludes this one.
    #[error("the buffer is in use")]
    InUse,
    /// The range is not within the buffer.
    #[error("the range is not within the buffer")]
    Range,
    /// Segments of different accounts, memories or directions do not go together.
    #[error("the segments do not go together")]
    Foreign,
}

/// How much memory an account holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryUsage {
    /// The account.
    pub account: AccountId,
    /// Its name for people.
    pub name: String,
    /// Its fixed part.
    pub fixed: Bytes,
    /// What it holds of the variable part.
    pub variable: Bytes,
    /// What it is asked to give back just now.
    pub asked_back: Bytes,
    /// Its buffers, those included that transfers still use after they were dropped.
    pub buffers: u32,
}

/// The memory of a server: one mapping, shared out to accounts. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Owner>);

/// Stops the keeper when the last account and the last handle of the memory are gone.
#[derive(Debug)]
struct Owner {
    inner: Arc<Inner>,
    refused: Vec<String>,
    keeper: Option<JoinHandle<()>>,
}

/// What buffers and transfers hold on to.
struct Inner {
    mapping: Mapping,
    slots: Box<[Slot]>,
    /// Buffers whose last use has ended on a thread that must not wait for the ledger.
    ended: IndexStack,
    ledger: Mutex<Ledger>,
    /// Signalled whenever memory may have become free.
    freed: Condvar,
    /// Whether somebody waits for what is in `ended`.
    hungry: AtomicBool,
    keeper_bell: Doorbell,
    stopping: AtomicBool,
    clock: Arc<dyn Clock>,
    give_back_within: Nanos,
}

impl Memory {
    /// Maps memory, and starts the thread that takes back what is not given back in time.
    ///
    /// # Errors
    /// When the host gives no memory.
    pub fn new(config: &MemoryConfig) -> Result<Self, MemoryError> {
        Self::build(config, Arc::new(MonotonicClock), true)
    }

    /// Maps memory that takes its time from `clock` and its chance to act from [`tick`](Self::tick).
    ///
    /// # Errors
    /// When the host gives no memory.
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
            hungry: AtomicBool::new(false),
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

    /// What the host refused, in words for the operator; empty if nothing.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.0.refused
    }

    /// Does what is due: asks back, takes. Returns when there will next be something to do. Needed
    /// only for memory made [`with_clock`](Self::with_clock).
    pub fn tick(&self) -> Option<Time> {
        self.0.inner.tick()
    }

    /// Who holds how much.
    #[must_use]
    pub fn usage(&self) -> Vec<MemoryUsage> {
        self.0.inner.lock().usage()
    }

    /// What is in no buffer and in no fixed part.
    #[must_use]
    pub fn free(&self) -> Bytes {
        let mut ledger = self.0.inner.lock();
        self.0.inner.reap(&mut ledger);
        self.0.inner.tell(&mut ledger);
        ledger.free()
    }

    /// What can still be promised to accounts as their own, whoever has it now.
    #[must_use]
    pub fn promisable(&self) -> Bytes {
        self.0.inner.lock().promisable()
    }

    /// What can be shared out.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(u64::from(self.0.inner.mapping.page_count()) * PAGE_BYTES as u64)
    }

    /// The mapping, for a ring to register: it stays where it is while the result is held.
    pub(crate) fn region(&self) -> Region {
        Region(Arc::clone(&self.0.inner))
    }
}

/// The whole mapping, kept where it is.
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
            // It cannot have panicked without taking the process's lock on memory with it.
            let _ = keeper.join();
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands back the memory of buffers whose last use has ended.
    fn reap(&self, ledger: &mut Ledger) {
        if self.ended.is_empty() {
            return;
        }
        let now = self.clock.now();
        self.ended
            .take_all(|index| ledger.reap(now, index, &self.slots));
        ledger.settle(now, &self.slots);
    }

    /// Wakes whom a change of the ledger concerns. To be called before the lock is let go of.
    fn tell(&self, ledger: &mut Ledger) {
        if ledger.take_news() && self.hungry.load(Ordering::Relaxed) {
            self.freed.notify_all();
        }
        if ledger.take_new_deadline() {
            self.keeper_bell.ring();
        }
    }

    /// Sleeps until memory may have become free or `until` has come.
    fn sleep<'a>(
        &'a self,
        mut ledger: MutexGuard<'a, Ledger>,
        until: Option<Time>,
    ) -> MutexGuard<'a, Ledger> {
        self.hungry.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Whatever ended before the flag could be seen woke nobody.
        if !self.ended.is_empty() {
            self.reap(&mut ledger);
            return ledger;
        }
        self.tell(&mut ledger);
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
        // The keeper is the caller, and has seen every deadline.
        ledger.take_new_deadline();
        self.tell(&mut ledger);
        self.hungry.store(ledger.is_hungry(), Ordering::Relaxed);
        next
    }

    fn keep(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.keeper_bell.arm();
            let next = self.tick();
            fence(Ordering::SeqCst);
            let waited_for = self.hungry.load(Ordering::Relaxed) && !self.ended.is_empty();
            if !waited_for {
                self.keeper_bell.event().wait(next);
            }
            self.keeper_bell.disarm();
        }
    }

    /// Ends a use of a buffer. Never waits.
    fn end_use(&self, slot: u32, how: Use) {
        if self.slots[slot as usize].end(how) {
            // A slot ends once.
            self.ended.push(slot);
            fence(Ordering::SeqCst);
            if self.hungry.load(Ordering::Relaxed) {
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
