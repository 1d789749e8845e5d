//! A client at run time: its memory account, its table of ops, and its completion queue.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::buffer::{Account, AccountId};
use crate::event::Doorbell;
use crate::handoff::IndexStack;
use crate::state::charge::Charge;
use crate::state::op::Op;
use crate::state::pool::io::IoCore;
use crate::state::request::Tag;
use crate::state::worker::Worker;

/// The ops of a client, in use and free.
#[derive(Default)]
struct Table {
    ops: Vec<Arc<Op>>,
    free: Vec<u32>,
    /// Finished ops that the client is about to take; the oldest is last.
    finished: Vec<u32>,
}

impl Table {
    /// Reserves room for all ops in each list, so that only creating an op allocates.
    fn make_room(&mut self) {
        let ops = self.ops.capacity();
        self.free.reserve(ops - self.free.len());
        self.finished.reserve(ops - self.finished.len());
    }
}

/// Ids of extra accounts that are remembered. Enough for every account that can exist and as many
/// removed ones; blocks in buffers of older accounts have long been written.
const IDS_MAX: usize = 1_024;

/// Accounts beside the client's own whose buffers it may use.
#[derive(Default)]
pub(crate) struct ExtraAccounts {
    accounts: Mutex<Vec<Account>>,
    /// Ids of these accounts and of recently removed ones, whose buffers may still be in transfer.
    ids: Mutex<VecDeque<AccountId>>,
    /// Number of changes of the list so far.
    changes: AtomicUsize,
}

impl ExtraAccounts {
    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn accounts(&self) -> Vec<Account> {
        self.accounts.lock().clone()
    }

    fn has(&self, id: AccountId) -> bool {
        self.ids.lock().contains(&id)
    }

    pub(crate) fn add(&self, accounts: Vec<Account>) {
        let mut ids = self.ids.lock();
        ids.extend(accounts.iter().map(Account::id));
        let gone = ids.len().saturating_sub(IDS_MAX);
        ids.drain(..gone);
        drop(ids);
        self.accounts.lock().extend(accounts);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Keeps the first `count` accounts.
    pub(crate) fn truncate(&self, count: usize) {
        let mut accounts = self.accounts.lock();
        let gone = accounts.len().min(count);
        // An account is closed outside of the lock.
        let gone = accounts.split_off(gone);
        drop(accounts);
        drop(gone);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// State that the parts of a client share.
pub(crate) struct ClientCore {
    pub(crate) name: String,
    pub(crate) io: Arc<IoCore>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) account: Account,
    pub(crate) extra_accounts: ExtraAccounts,
    /// Pays for requests that belong to no stream.
    pub(crate) charge: Charge,
    limit: usize,
    table: Mutex<Table>,
    /// Finished ops, by their slots in the table.
    finished: IndexStack,
    bell: Doorbell,
    in_flight: AtomicUsize,
    /// Set once the client orders requests after earlier ones: then the disks' request ids are kept.
    keeps_ids: AtomicBool,
}

impl ClientCore {
    pub(crate) fn new(
        name: &str,
        (io, worker): (Arc<IoCore>, Arc<Worker>),
        account: Account,
        charge: Charge,
        in_flight_max: usize,
    ) -> io::Result<Arc<Self>> {
        // Tags and lists identify an op by 32 bits.
        let limit = u32::try_from(in_flight_max).unwrap_or(u32::MAX).max(1);
        Ok(Arc::new(Self {
            name: name.to_owned(),
            io,
            worker,
            account,
            extra_accounts: ExtraAccounts::default(),
            charge,
            limit: limit as usize,
            table: Mutex::default(),
            finished: IndexStack::new(limit),
            bell: Doorbell::new()?,
            in_flight: AtomicUsize::new(0),
            keeps_ids: AtomicBool::new(false),
        }))
    }

    /// Takes a free op of the table; `None` if the client's limit of requests in flight is reached.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Arc<Op>> {
        let mut table = self.table.lock();
        let op = if let Some(slot) = table.free.pop() {
            Arc::clone(&table.ops[slot as usize])
        } else if table.ops.len() < self.limit {
            let op = Op::new(Arc::clone(self), table.ops.len() as u32);
            table.ops.push(Arc::clone(&op));
            table.make_room();
            op
        } else {
            return None;
        };
        drop(table);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(op)
    }

    /// Returns an op to the free list.
    pub(crate) fn end(&self, op: &Op) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.table.lock().free.push(op.slot);
    }

    /// The op and generation of a tag, if its completion has not been taken yet.
    pub(crate) fn find(&self, tag: Tag) -> Option<(Arc<Op>, u32)> {
        let table = self.table.lock();
        let op = table.ops.get((tag.0 & u64::from(u32::MAX)) as usize)?;
        Some((Arc::clone(op), (tag.0 >> 32) as u32))
    }

    /// From here on, keeps the disks' request ids of this client's requests.
    pub(crate) fn keep_ids(&self) {
        self.keeps_ids.store(true, Ordering::Relaxed);
    }

    pub(crate) fn keeps_ids(&self) -> bool {
        self.keeps_ids.load(Ordering::Relaxed)
    }

    /// Appends a finished op to the completion queue. The client is woken by [`notify`](Self::notify).
    pub(crate) fn finished(&self, op: &Op) {
        self.finished.push(op.slot);
    }

    /// True if the client may use buffers of this account.
    pub(crate) fn may_use(&self, id: AccountId) -> bool {
        id == self.account.id() || self.extra_accounts.has(id)
    }

    /// The most requests that may be in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Wakes the thread that sleeps until a completion arrives, although none has. Also keeps it from
    /// falling asleep if it is between its last check and the sleep.
    pub(crate) fn wake(&self) {
        self.bell.event().signal();
    }

    /// Wakes the client if it sleeps, because ops have finished.
    pub(crate) fn notify(&self) {
        self.bell.ring();
    }

    /// Takes the oldest finished op, if there is one.
    pub(crate) fn take_finished(&self) -> Option<Arc<Op>> {
        let mut table = self.table.lock();
        let slot = self.finished.take_first(&mut table.finished)?;
        Some(Arc::clone(&table.ops[slot as usize]))
    }

    /// Requests in flight, plus complete ones that have not been taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Announces that a thread is about to sleep on the [bell](Self::bell). Returns false if completions
    /// are queued already.
    pub(crate) fn arm(&self) -> bool {
        self.bell.arm();
        let empty = self.finished.is_empty() && self.table.lock().finished.is_empty();
        if !empty {
            self.bell.disarm();
        }
        empty
    }

    /// Rings when completions arrive after [`arm`](Self::arm).
    pub(crate) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Drops the ops: no more completions are taken. This breaks the reference cycle of ops and client;
    /// ops in flight live until they are answered.
    pub(crate) fn forget_ops(&self) {
        *self.table.lock() = Table::default();
    }
}
