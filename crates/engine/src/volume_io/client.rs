//! A client: an account of buffers and a queue of completions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos};

use super::request::{SubmitError, VolumeRequest};
use super::share::ReservedShare;
use super::submit::{self, Entry};
use crate::buffer::{Account, AccountId, Buffer, BufferError, MemoryError};
use crate::clock;
use crate::event::{Doorbell, EventFd};
use crate::handoff::IndexStack;
use crate::pool::Volume;
use crate::state::charge::Charge;
use crate::state::op::Op;
use crate::state::pool::core::PoolCore;
use crate::state::request::{IoFailure, Tag, VolumeCompletion, VolumeOp};

/// What a client may use.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Memory that is the client's for as long as it exists. It is refused at once if the pool has
    /// not that much to guarantee.
    pub fixed: Bytes,
    /// The most requests in flight.
    pub in_flight_max: usize,
    /// Disk time that its best-effort requests may use, with whoever else was given it.
    pub reservation: Option<Arc<ReservedShare>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            fixed: Bytes::from_mib(1),
            in_flight_max: 1024,
            reservation: None,
        }
    }
}

/// A synchronous call failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// It was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// There was no buffer for it.
    #[error(transparent)]
    Buffer(#[from] MemoryError),
    /// Its buffer was taken away.
    #[error(transparent)]
    Taken(#[from] BufferError),
    /// It failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

/// Synchronous transfers are divided into pieces of this size.
const SYNC_PIECE_BYTES: usize = 1 << 20;

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
    pub(crate) pool: Arc<PoolCore>,
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
    /// A free op of the table.
    ///
    /// # Errors
    /// When the client has as many in flight as it may.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<Arc<Op>, SubmitError> {
        let mut table = self.table.lock();
        let op = if let Some(slot) = table.free.pop() {
            Arc::clone(&table.ops[slot as usize])
        } else if table.ops.len() < self.limit {
            let op = Op::new(Arc::clone(self), table.ops.len() as u32);
            table.ops.push(Arc::clone(&op));
            table.make_room();
            op
        } else {
            return Err(SubmitError::Busy { limit: self.limit });
        };
        drop(table);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(op)
    }

    /// The op is free for another request.
    fn end(&self, op: &Op) {
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
    fn take_finished(&self) -> Option<Arc<Op>> {
        let mut table = self.table.lock();
        let slot = self.finished.take_first(&mut table.finished)?;
        Some(Arc::clone(&table.ops[slot as usize]))
    }
}

/// A user of the pool: its buffers, its requests in flight, its completions.
///
/// Methods take `&self` and may be called from several threads, such as one that submits and one
/// that waits; one thread at a time may wait. Dropping a client with requests in flight lets them
/// finish; their buffers go back when they do.
pub struct Client {
    core: Arc<ClientCore>,
    /// Keeps its reservation.
    _reservation: Option<Arc<ReservedShare>>,
}

impl Client {
    /// # Errors
    /// When the process has no descriptors left.
    pub(crate) fn new(
        name: &str,
        pool: Arc<PoolCore>,
        account: Account,
        reservation: Option<Arc<ReservedShare>>,
        in_flight_max: usize,
    ) -> std::io::Result<Self> {
        // A tag and a list have 32 bits for an op.
        let limit = u32::try_from(in_flight_max).unwrap_or(u32::MAX).max(1);
        let charge = match &reservation {
            None => Charge::BestEffort,
            Some(share) => Charge::Reserved(Arc::clone(&share.tasks)),
        };
        let core = ClientCore {
            name: name.to_owned(),
            pool,
            account,
            more: MoreAccounts::default(),
            charge,
            limit: limit as usize,
            table: Mutex::default(),
            finished: IndexStack::new(limit),
            bell: Doorbell::new()?,
            in_flight: AtomicUsize::new(0),
            keeps_ids: AtomicBool::new(false),
        };
        Ok(Self {
            core: Arc::new(core),
            _reservation: reservation,
        })
    }

    /// The client's memory, from which it takes its buffers.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.core.account
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Starts a request. It is complete when its tag comes out of [`Client::poll`] or
    /// [`Client::wait`], in any order. Blocks only while a disk's inbox is full.
    ///
    /// # Errors
    /// When the request makes no sense or may not be served; its pins are gone.
    pub fn submit(&self, request: VolumeRequest<'_>) -> Result<Tag, SubmitError> {
        submit::submit(&self.core, request, Entry::Queue).map(|(_, tag)| tag)
    }

    /// As [`submit`](Self::submit), for several requests in a row: the disks may see it only when
    /// the batch ends with [`submit_end`](Self::submit_end), which must follow before the caller
    /// sleeps. It saves waking the disks' threads for each.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_batched(&self, request: VolumeRequest<'_>) -> Result<Tag, SubmitError> {
        submit::submit(&self.core, request, Entry::Batch).map(|(_, tag)| tag)
    }

    /// Ends a batch of [`submit_batched`](Self::submit_batched).
    pub fn submit_end(&self) {
        for disk in &self.core.pool.disks {
            disk.feeder.announce();
        }
    }

    /// A completion, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<VolumeCompletion> {
        let op = self.core.take_finished()?;
        let completion = op.take(&mut op.state.lock());
        self.core.end(&op);
        Some(completion)
    }

    /// The next completion, waiting for it at most `timeout` (`None`: as long as it takes).
    /// `None` on timeout.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<VolumeCompletion> {
        let until = timeout.map(|timeout| {
            let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            clock::now().saturating_add(Nanos(nanos))
        });
        loop {
            if let Some(completion) = self.poll() {
                return Some(completion);
            }
            if self.arm() {
                let woken = self.event().wait(until);
                self.core.bell.disarm();
                if !woken {
                    return self.poll();
                }
            }
        }
    }

    /// How many requests are in flight or complete and not yet taken.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.core.in_flight.load(Ordering::Relaxed)
    }

    /// For event loops: announces that the caller will sleep on [`event`](Self::event). If this is
    /// false, completions are there already and it must not sleep. The event fires once.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.core.bell.arm();
        let empty = self.core.finished.is_empty() && self.core.table.lock().finished.is_empty();
        if !empty {
            self.core.bell.disarm();
        }
        empty
    }

    /// The event that is signalled when completions come after [`arm`](Self::arm); drain it on
    /// waking.
    #[must_use]
    pub fn event(&self) -> &EventFd {
        self.core.bell.event()
    }

    /// Does one request and waits for it. It does not appear in [`Client::poll`].
    ///
    /// # Errors
    /// What submitting can fail with; the request's own result is in the completion.
    pub fn execute(&self, request: VolumeRequest<'_>) -> Result<VolumeCompletion, SubmitError> {
        let (op, _) = submit::submit(&self.core, request, Entry::Wait)?;
        Ok(self.await_op(&op))
    }

    /// The same for the pool itself, when it takes no more requests.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub(crate) fn execute_at_close(
        &self,
        request: VolumeRequest<'_>,
    ) -> Result<VolumeCompletion, SubmitError> {
        let (op, _) = submit::submit(&self.core, request, Entry::Closing)?;
        Ok(self.await_op(&op))
    }

    fn await_op(&self, op: &Arc<Op>) -> VolumeCompletion {
        let mut state = op.state.lock();
        while state.active.as_ref().is_some_and(|active| !active.done) {
            op.finished.wait(&mut state);
        }
        let completion = op.take(&mut state);
        drop(state);
        self.core.end(op);
        completion
    }

    /// Reads so many bytes, a whole number of sectors, into a buffer of the client's memory, and waits for it. What is in
    /// the buffer is where the disks put it: nothing is copied.
    ///
    /// # Errors
    /// When there is no memory for it, or it is taken back meanwhile, and what submitting or a request itself can fail
    /// with.
    pub fn read(&self, volume: &Volume, offset: Bytes, bytes: usize) -> Result<Buffer, SyncError> {
        let buffer = self.core.account.allocate_wait(bytes, None)?;
        for from in (0..bytes).step_by(SYNC_PIECE_BYTES) {
            let to = bytes.min(from + SYNC_PIECE_BYTES);
            let memory = buffer.segments(Direction::Read, from..to)?;
            let at = offset + Bytes(from as u64);
            let request = VolumeRequest::transfer(volume, VolumeOp::Read, at, memory);
            self.execute(request)?.result?;
        }
        Ok(buffer)
    }

    /// Reads into `out`, a whole number of sectors, and waits for it. Copies; for tools and tests.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_at(&self, volume: &Volume, offset: Bytes, out: &mut [u8]) -> Result<(), SyncError> {
        let mut at = offset;
        for piece in out.chunks_mut(SYNC_PIECE_BYTES) {
            let buffer = self.read(volume, at, piece.len())?;
            buffer.with(|bytes| piece.copy_from_slice(&bytes[..piece.len()]))?;
            at += Bytes(piece.len() as u64);
        }
        Ok(())
    }

    /// Writes `data`, a whole number of sectors, and waits for it. Copies; for tools and tests.
    ///
    /// # Errors
    /// What submitting or the request itself can fail with.
    pub fn write_at(&self, volume: &Volume, offset: Bytes, data: &[u8]) -> Result<(), SyncError> {
        let mut at = offset;
        for piece in data.chunks(SYNC_PIECE_BYTES) {
            let mut buffer = self.core.account.allocate_wait(piece.len(), None)?;
            buffer.with_mut(|bytes| bytes[..piece.len()].copy_from_slice(piece))?;
            let memory = buffer.segments(Direction::Write, 0..piece.len())?;
            let op = VolumeOp::Write { durable: false };
            self.execute(VolumeRequest::transfer(volume, op, at, memory))?
                .result?;
            at += Bytes(piece.len() as u64);
        }
        Ok(())
    }

    /// Makes everything durable that was answered before, and waits for it.
    ///
    /// # Errors
    /// What submitting or the request itself can fail with.
    pub fn flush(&self, volume: &Volume) -> Result<(), SyncError> {
        let request = VolumeRequest::command(volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
        Ok(self.execute(request)?.result?)
    }

    pub(crate) fn core(&self) -> &Arc<ClientCore> {
        &self.core
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ops and the core name each other; those in flight live on until they are answered.
        *self.core.table.lock() = Table::default();
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.core.name)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}
