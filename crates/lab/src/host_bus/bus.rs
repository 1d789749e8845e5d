//! The bus in time: one transaction after another.

use sched::units::{Bytes, Nanos, Time};

use super::spec::{Adapter, Arbitration, HostBus};
use super::times::{Direction, Transaction};
use crate::run::Hash;

/// Adapters that use the bus. They are asked after every transaction, so what one does may depend on the others.
pub trait Masters {
    /// Their number.
    fn count(&self) -> usize;
    /// When one asks for the bus; `None` while it does not.
    fn ready(&self, master: usize) -> Option<Time>;
    /// Its adapter.
    fn adapter(&self, master: usize) -> &Adapter;
    /// What it does with the bus next.
    fn transaction(&self, master: usize) -> Transaction;
    /// Told that it has done so.
    fn done(&mut self, master: usize, began: Time, ended: Time);
}

/// Sums over a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Transactions.
    pub transactions: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their time.
    pub busy: Nanos,
    /// Transactions that waited for one of another adapter.
    pub conflicts: u64,
    /// Waits of adapters for the bus.
    pub waited: Nanos,
    /// The end of the last transaction.
    pub ended: Time,
    /// Covers the master, the beginning and the end of each transaction.
    pub hash: u64,
}

impl Account {
    /// Bytes of a second, over the whole run.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes.get() as f64 / (self.ended - Time::ZERO).as_secs_f64()
    }
}

/// Who is next, and from when on it has asked.
fn next<M: Masters + ?Sized>(
    bus: &HostBus,
    masters: &M,
    free: Time,
    last: usize,
) -> Option<(usize, Time)> {
    let count = masters.count();
    let mut first: Option<(usize, Time)> = None;
    for master in (last + 1..count).chain(0..=last) {
        if let Some(since) = masters.ready(master) {
            // Of equal times the first counts, which is the next in turn.
            if first.is_none_or(|(_, earliest)| since < earliest) {
                first = Some((master, since));
            }
            if bus.arbitration == Arbitration::RoundRobin && since <= free {
                return Some((master, since));
            }
        }
    }
    first
}

/// Runs the bus until no adapter asks for it.
pub fn run<M: Masters + ?Sized>(bus: &HostBus, masters: &mut M) -> Account {
    let mut account = Account::default();
    let mut hash = Hash::default();
    let (mut free, mut memory_free) = (Time::ZERO, Time::ZERO);
    let Some(mut last) = masters.count().checked_sub(1) else {
        return account;
    };
    // Most transactions of an adapter are alike.
    let mut known = vec![None; masters.count()];
    while let Some((master, since)) = next(bus, masters, free, last) {
        let began = free.max(since);
        let transaction = masters.transaction(master);
        let mut took = match known[master] {
            Some((alike, took)) if alike == transaction => took,
            _ => bus.time(masters.adapter(master), transaction),
        };
        known[master] = Some((transaction, took));
        if let (Some(rate), Direction::FromMemory) = (bus.memory_read, transaction.direction) {
            let read = rate.period_of(transaction.size).unwrap_or_default() + Nanos(1);
            took += memory_free.saturating_since(began);
            memory_free = memory_free.max(began) + read;
        }
        let ended = began + took;
        account.transactions += 1;
        account.bytes += transaction.size;
        account.busy += took;
        account.waited += began - since;
        account.conflicts += u64::from(last != master && since < account.ended);
        account.ended = ended;
        hash.add((began - Time::ZERO).get() ^ (master as u64) << 56);
        hash.add(took.get());
        free = ended + bus.idle;
        last = master;
        masters.done(master, began, ended);
    }
    account.hash = hash.0;
    account
}
