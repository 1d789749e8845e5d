//! A client at run time: its account, its table of ops, its queue of finished ones.

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

/// The ops of a client, in flight and at rest.
#[derive(Default)]
struct Table {
    ops: Vec<Arc<Op>>,
    free: Vec<u32>,
    /// Finished ops that the client is about to take, the first last.
    finished: Vec<u32>,
}

impl Table {
    /// Room for all ops wherever they may be, so that only a new op ever allocates.
    fn make_room(&mut self) {
        let ops = self.ops.capacity();
        self.free.reserve(ops - self.free.len());
        self.finished.reserve(ops - self.finished.len());
    }
}

/// So many accounts beside its own are known: those that there can be and as many changes back that blocks of before have long
/// been written.
const IDS_MAX: usize = 1_024;

/// Accounts beside a client's own whose buffers it may use as well.
#[derive(Default)]
pub(crate) struct MoreAccounts {
    accounts: Mutex<Vec<Account>>,
    /// Of those and of the last ones that are gone: what lies in a buffer of one may still be on its way.
    ids: Mutex<VecDeque<AccountId>>,
    /// How often they have changed.
    changes: AtomicUsize,
}

impl MoreAccounts {
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

    /// Keeps so many of them.
    pub(crate) fn shorten(&self, count: usize) {
        let mut accounts = self.accounts.lock();
        let gone = accounts.len().min(count);
        // An account is closed outside of the lock.
        let gone = accounts.split_off(gone);
        drop(accounts);
        drop(gone);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// What the parts of a client share.
pub(crate) struct ClientCore {
    pub(crate) name: String,
    pub(crate) io: Arc<IoCore>,
    pub(crate) worker: Arc<Worker>,
    pub(crate) account: Account,
    pub(crate) more: MoreAccounts,
    /// On whose account its requests without a stream are.
    pub(crate) charge: Charge,
    limit: usize,
    table: Mutex<Table>,
    /// Finished ops, by their slots in the table.
    finished: IndexStack,
    bell: Doorbell,
    in_flight: AtomicUsize,
    /// It names earlier requests: what disks know its requests by is noted.
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
        // A tag and a list have 32 bits for an op.
        let limit = u32::try_from(in_flight_max).unwrap_or(u32::MAX).max(1);
        Ok(Arc::new(Self {
            name: name.to_owned(),
            io,
            worker,
            account,
            more: MoreAccounts::default(),
            charge,
            limit: limit as usize,
            table: Mutex::default(),
            finished: IndexStack::new(limit),
            bell: Doorbell::new()?,
            in_flight: AtomicUsize::new(0),
            keeps_ids: AtomicBool::new(false),
        }))
    }

    /// A free op of the table; `None`: the client has as many in flight as it may.
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

    /// The op is free for another request.
    pub(crate) fn end(&self, op: &Op) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.table.lock().free.push(op.slot);
    }

    /// The op of a tag, if the tag's request has not been taken yet.
    pub(crate) fn find(&self, tag: Tag) -> Option<(Arc<Op>, u32)> {
        let table = self.table.lock();
        let op = table.ops.get((tag.0 & u64::from(u32::MAX)) as usize)?;
        Some((Arc::clone(op), (tag.0 >> 32) as u32))
    }

    /// From now on what disks know the client's requests by is noted.
    pub(crate) fn keep_ids(&self) {
        self.keeps_ids.store(true, Ordering::Relaxed);
    }

    pub(crate) fn keeps_ids(&self) -> bool {
        self.keeps_ids.load(Ordering::Relaxed)
    }

    /// Puts a finished op where the client takes it from. It still has to be told:
    /// [`tell`](Self::tell).
    pub(crate) fn finished(&self, op: &Op) {
        self.finished.push(op.slot);
    }

    /// Whether it may use an account's buffers.
    pub(crate) fn may_use(&self, id: AccountId) -> bool {
        id == self.account.id() || self.more.has(id)
    }

    /// The most requests that it may have in flight.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Wakes whoever sleeps until something is complete, though nothing is, or keeps it from falling asleep:
    /// it may be between looking at what this is about and announcing its sleep.
    pub(crate) fn nudge(&self) {
        self.bell.event().signal();
    }

    /// Tells the client that ops have finished, if it sleeps.
    pub(crate) fn tell(&self) {
        self.bell.ring();
    }

    /// A finished op, if there is one.
    pub(crate) fn take_finished(&self) -> Option<Arc<Op>> {
        let mut table = self.table.lock();
        let slot = self.finished.take_first(&mut table.finished)?;
        Some(Arc::clone(&table.ops[slot as usize]))
    }

    /// How many requests are in flight or complete and not yet taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Announces that somebody will sleep on the [bell](Self::bell). If this is false, completions are there
    /// already.
    pub(crate) fn arm(&self) -> bool {
        self.bell.arm();
        let empty = self.finished.is_empty() && self.table.lock().finished.is_empty();
        if !empty {
            self.bell.disarm();
        }
        empty
    }

    /// What is rung when completions come after [`arm`](Self::arm).
    pub(crate) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Nobody takes completions any more. Ops and the core name each other; those in flight live on until
    /// they are answered.
    pub(crate) fn forget_ops(&self) {
        *self.table.lock() = Table::default();
    }
}
