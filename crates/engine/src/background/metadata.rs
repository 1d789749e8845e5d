//! The pool's metadata under its lock, and the committer, which makes the changed bits and places of
//! many volumes durable in one record.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sched::units::Sector;
use volume::{Committed, PoolState, Step, Transaction, VolumeError, VolumeId};

use crate::background::raw::{RawIo, Undone, Unperformed};
use crate::panics;
use crate::state::disk::core::DiskCore;
use crate::state::error::PoolError;
use crate::state::pool::core::PoolCore;
use crate::state::request::IoFailure;
use crate::volume_io::rounds::Round;

/// How often what froze the metadata is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The pool's metadata. Its lock is held while a change is carried out, so that there is one at a
/// time; nothing on the data path takes it.
///
/// # Frozen
///
/// A disk that does not take a write of the metadata *freezes* it. The write may have changed any part of its
/// place, or may yet, so nothing else is written before it has been: the transaction stays under way and is tried
/// again from that write on, with the same bytes at the same places, by whoever has a change to make and by the
/// committer each [`RETRY_AFTER`]. Reads, and writes with nothing new to record, go on meanwhile.
///
/// After a host sync that failed this does not help: what was written before it may be lost although a later
/// sync succeeds. Where that comes before the transaction has written anything, the transaction is taken back.
/// Otherwise the metadata takes no more changes until the pool is opened anew.
pub(crate) struct Meta {
    pub(crate) state: PoolState,
    raw: RawIo,
    /// What is to be done again, from the step of that number on.
    pending: Option<(Transaction, usize)>,
}

impl Meta {
    pub(crate) fn new(state: PoolState, raw: RawIo) -> Self {
        Self {
            state,
            raw,
            pending: None,
        }
    }

    /// Carries out a transaction and makes it take effect.
    ///
    /// # Errors
    /// When a step failed: nothing was changed, or the metadata is frozen.
    pub(crate) fn carry_out(
        &mut self,
        pool: &PoolCore,
        transaction: Transaction,
    ) -> Result<Committed, PoolError> {
        self.carry_out_from(pool, transaction, 0)
    }

    fn carry_out_from(
        &mut self,
        pool: &PoolCore,
        transaction: Transaction,
        from: usize,
    ) -> Result<Committed, PoolError> {
        let _vital = panics::vital();
        match self.raw.perform(&pool.disks, &transaction.steps()[from..]) {
            Ok(()) => {
                let committed = self.state.commit(transaction);
                pool.install(&self.state, &committed);
                pool.meta_watch.resume();
                Ok(committed)
            }
            Err(Undone { at, why }) => Err(self.undone(pool, transaction, from + at, why)),
        }
    }

    /// The steps of a transaction from `at` on could not be carried out.
    fn undone(
        &mut self,
        pool: &PoolCore,
        transaction: Transaction,
        at: usize,
        why: Unperformed,
    ) -> PoolError {
        let failure = match why {
            Unperformed::Io(failure) => failure,
            Unperformed::TakenOver { what, .. } => {
                self.lose(pool, transaction);
                return pool.lose(&what);
            }
        };
        let is_write = |step: &Step| matches!(step, Step::Write { .. });
        let steps = transaction.steps();
        let has_written = steps[..=at].iter().any(is_write);
        if !has_written && self.state.can_cancel() {
            self.state.cancel(transaction);
            return PoolError::Io(failure);
        }
        let is_flush = matches!(steps[at], Step::Flush { .. });
        let is_lost = is_flush && matches!(failure, IoFailure::Disk { .. });
        let reason = failure.to_string();
        if is_lost {
            self.lose(pool, transaction);
            pool.meta_watch.freeze(&reason, false);
            return PoolError::MetadataFailed(reason);
        }
        pool.meta_watch.freeze(&reason, true);
        self.pending = Some((transaction, at));
        pool.committer.wake();
        PoolError::MetadataFrozen {
            reason,
            is_pending: true,
        }
    }

    /// A transaction is not carried out before the pool is opened anew, if at all: what it was to delete or to cut is
    /// there until then.
    fn lose(&mut self, pool: &PoolCore, transaction: Transaction) {
        self.state.fail(transaction);
        let volumes = pool.volumes.read();
        volumes.values().for_each(|volume| volume.stays());
    }

    /// Does again what could not be done, if there is such a thing.
    ///
    /// # Errors
    /// When the metadata stays frozen, or the disks are another server's.
    pub(crate) fn go_on(&mut self, pool: &PoolCore) -> Result<(), PoolError> {
        pool.still_ours()?;
        let Some(frozen) = pool.meta_watch.frozen() else {
            return Ok(());
        };
        let answers = |(transaction, at): &(Transaction, usize)| {
            let disk = |step: &Step| &pool.disks[usize::from(step.disk().0)];
            transaction.steps()[*at..]
                .iter()
                .all(|step| disk(step).answers())
        };
        // A disk that has been given up may still hold the buffers of what it was asked.
        let Some((transaction, at)) = self.pending.take_if(|pending| answers(pending)) else {
            return Err(frozen.refusal());
        };
        // Another server may have opened the pool meanwhile.
        let expected = self.still_expected(&transaction, at);
        let done = match self.perform(pool, &expected) {
            Ok(()) => self.carry_out_from(pool, transaction, at).map(drop),
            Err(Unperformed::Io(_)) => {
                self.pending = Some((transaction, at));
                return Err(frozen.refusal());
            }
            Err(taken) => Err(self.undone(pool, transaction, at, taken)),
        };
        done.map_err(|_| match (pool.still_ours(), pool.meta_watch.frozen()) {
            (Err(taken), _) => taken,
            (Ok(()), frozen) => frozen.map_or(PoolError::Closed, |frozen| frozen.refusal()),
        })
    }

    /// What the disks hold, if they are still this server's, when a transaction stands before its step `at`.
    fn still_expected(&self, transaction: &Transaction, at: usize) -> Vec<Step> {
        let steps = transaction.steps();
        let claims = |step: &Step| {
            matches!(
                step,
                Step::Write {
                    start: Sector::ZERO,
                    ..
                }
            )
        };
        match steps.iter().rposition(claims) {
            None => vec![self.state.expectation()],
            // Its own superblocks may be there, or those before them, until it has looked.
            Some(last) => {
                let is_expected = |step: &&Step| matches!(step, Step::Expect { .. });
                let done = steps[..at].iter().skip(last).filter(is_expected);
                done.cloned().collect()
            }
        }
    }

    /// Plans a change and carries it out; a checkpoint follows when one is due.
    ///
    /// # Errors
    /// Why it cannot be planned, or what failed.
    pub(crate) fn change(
        &mut self,
        pool: &PoolCore,
        plan: impl FnOnce(&mut PoolState) -> Result<Transaction, VolumeError>,
    ) -> Result<Committed, PoolError> {
        self.go_on(pool)?;
        let _vital = panics::vital();
        let transaction = plan(&mut self.state).map_err(|error| self.refused(error))?;
        let committed = self.carry_out(pool, transaction)?;
        self.checkpoint_if_due(pool);
        Ok(committed)
    }

    /// Writes a checkpoint if one is due. It says what is written on all disks, so there is none while the data
    /// of one of them cannot be made durable. Earlier changes are durable even if it
    /// fails; the next change meets the same failure.
    fn checkpoint_if_due(&mut self, pool: &PoolCore) {
        let is_durable = |disk: &DiskCore| disk.sync_health().failed.is_none();
        if self.state.wants_checkpoint()
            && pool.disks.iter().all(is_durable)
            && let Ok(transaction) = self.state.checkpoint()
        {
            let _: Result<Committed, PoolError> = self.carry_out(pool, transaction);
        }
    }

    fn refused(&self, error: VolumeError) -> PoolError {
        PoolError::from_plan(error, self.state.geometry().extent_bytes())
    }

    /// Carries out steps of nobody's transaction.
    pub(crate) fn perform(&self, pool: &PoolCore, steps: &[Step]) -> Result<(), Unperformed> {
        let done = self.raw.perform(&pool.disks, steps);
        done.map_err(|undone| undone.why)
    }

    /// Writes a checkpoint, so that the next opening has nothing to roll forward, and a new generation,
    /// so that a copy of a disk made before is known as one.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) fn stop(&mut self, pool: &PoolCore) -> Result<(), PoolError> {
        self.change(pool, PoolState::stop).map(|_| ())
    }

    /// Makes what changed in these volumes durable.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) fn settle(
        &mut self,
        pool: &PoolCore,
        volumes: &[VolumeId],
    ) -> Result<(), PoolError> {
        self.go_on(pool)?;
        let _vital = panics::vital();
        let planned = self.state.settle(volumes);
        if let Some(transaction) = planned.map_err(|error| self.refused(error))? {
            self.carry_out(pool, transaction)?;
            self.checkpoint_if_due(pool);
        }
        Ok(())
    }
}

#[derive(Default)]
struct Queue {
    rounds: Vec<Arc<Round>>,
    /// Rounds have been taken and have not ended.
    busy: bool,
    stopping: bool,
}

/// The thread that appends to the metadata log for flushes. All rounds that wait while it writes
/// share its next record.
#[derive(Default)]
pub(crate) struct Committer {
    queue: Mutex<Queue>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(crate) fn start(&self, pool: &Arc<PoolCore>) {
        let pool = Arc::clone(pool);
        let body = move || pool.committer.run(&pool);
        *self.thread.lock() = Some(std::thread::spawn(body));
    }

    pub(crate) fn post(&self, round: Arc<Round>) {
        self.queue.lock().rounds.push(round);
        self.changed.notify_all();
    }

    /// Has it look at how things stand.
    fn wake(&self) {
        // After the lock it has seen it, or sleeps.
        drop(self.queue.lock());
        self.changed.notify_all();
    }

    /// Waits until the rounds posted before have ended.
    pub(crate) fn fence(&self) {
        let mut queue = self.queue.lock();
        while queue.busy || !queue.rounds.is_empty() {
            self.changed.wait(&mut queue);
        }
    }

    /// Serves what waits and ends the thread.
    pub(crate) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic has been reported by the panic hook.
            let _: Result<(), _> = thread.join();
        }
    }

    fn run(&self, pool: &Arc<PoolCore>) {
        loop {
            let rounds = {
                let mut queue = self.queue.lock();
                while queue.rounds.is_empty() && !queue.stopping {
                    if pool
                        .meta_watch
                        .frozen()
                        .is_some_and(|frozen| frozen.goes_on)
                    {
                        let timed_out = self.changed.wait_for(&mut queue, RETRY_AFTER).timed_out();
                        if timed_out {
                            MutexGuard::unlocked(&mut queue, || Self::retry(pool));
                        }
                    } else {
                        self.changed.wait(&mut queue);
                    }
                }
                if queue.rounds.is_empty() {
                    return;
                }
                queue.busy = true;
                std::mem::take(&mut queue.rounds)
            };
            let result = Self::commit(pool, &rounds);
            let is_shared = rounds.len() > 1 && matches!(result, Err(PoolError::Io(_)));
            for round in rounds {
                // The data of one of them cannot be made durable, and nothing was changed: it is that one's alone.
                let alone = is_shared.then(|| Self::commit(pool, std::slice::from_ref(&round)));
                let ended = alone.as_ref().unwrap_or(&result).as_ref().copied();
                round.end(ended.map_err(|error| not_settled(&round, error)));
            }
            self.queue.lock().busy = false;
            self.changed.notify_all();
        }
    }

    /// Has frozen metadata go on, unless somebody is at it.
    fn retry(pool: &PoolCore) {
        if let Some(mut meta) = pool.meta.try_lock() {
            // Whether it does is told to those who look.
            let _: Result<(), PoolError> = meta.go_on(pool);
        }
    }

    fn commit(pool: &Arc<PoolCore>, rounds: &[Arc<Round>]) -> Result<(), PoolError> {
        let mut meta = pool.meta.lock();
        let mut volumes: Vec<VolumeId> = rounds
            .iter()
            .filter(|round| !round.is_settled())
            .map(|round| round.volume.id)
            .collect();
        volumes.sort_unstable();
        volumes.dedup();
        if volumes.is_empty() {
            return Ok(());
        }
        meta.settle(pool, &volumes)
    }
}

/// What the flushes of a round are told whose bits and places could not be made durable.
fn not_settled(round: &Round, error: &PoolError) -> IoFailure {
    match error {
        PoolError::Io(failure) => {
            round.not_durable(failure);
            failure.clone()
        }
        PoolError::MetadataFrozen { .. } => IoFailure::NotNow {
            reason: error.to_string(),
        },
        // Nothing of it becomes durable before the pool is opened anew.
        error => {
            round.volume.poison(error);
            IoFailure::Poisoned {
                volume: round.volume.name.clone(),
                reason: error.to_string(),
            }
        }
    }
}
