//! The pool's metadata under its lock, and the committer, which makes the changed bits and places of
//! many volumes durable in one record.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use volume::{Committed, PoolState, Step, Transaction, VolumeError, VolumeId};

use super::core::PoolCore;
use super::error::PoolError;
use crate::front::IoFailure;
use crate::front::rounds::Round;
use crate::raw::{RawIo, Unperformed};

/// The pool's metadata. Its lock is held while a change is carried out, so that there is one at a
/// time; nothing on the data path takes it.
pub(crate) struct Meta {
    pub(crate) state: PoolState,
    raw: RawIo,
    failed: Option<String>,
}

impl Meta {
    pub(crate) fn new(state: PoolState, raw: RawIo) -> Self {
        Self {
            state,
            raw,
            failed: None,
        }
    }

    /// Why nothing can be changed any more, if so.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Carries out a transaction and makes it take effect.
    ///
    /// # Errors
    /// When a step failed; the metadata takes no more changes then.
    pub(crate) fn carry_out(
        &mut self,
        pool: &PoolCore,
        transaction: Transaction,
    ) -> Result<Committed, PoolError> {
        match self.raw.perform(&pool.disks, transaction.steps()) {
            Ok(()) => {
                let committed = self.state.commit(transaction);
                pool.install(&self.state, &committed);
                Ok(committed)
            }
            Err(failure) => {
                self.state.fail(transaction);
                let reason = failure.to_string();
                self.failed.get_or_insert(reason);
                Err(Self::failure(pool, &failure))
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
        pool.still_ours()?;
        if let Some(reason) = &self.failed {
            return Err(PoolError::MetadataFailed(reason.clone()));
        }
        let transaction = plan(&mut self.state).map_err(|error| self.refused(error))?;
        let committed = self.carry_out(pool, transaction)?;
        self.checkpoint_if_due(pool)?;
        Ok(committed)
    }

    fn checkpoint_if_due(&mut self, pool: &PoolCore) -> Result<(), PoolError> {
        if self.state.wants_checkpoint() {
            let transaction = self
                .state
                .checkpoint()
                .map_err(|error| self.refused(error))?;
            self.carry_out(pool, transaction)?;
        }
        Ok(())
    }

    fn refused(&self, error: VolumeError) -> PoolError {
        PoolError::from_plan(error, self.state.geometry().extent_bytes())
    }

    /// Carries out steps of nobody's transaction.
    pub(super) fn perform(&self, pool: &PoolCore, steps: &[Step]) -> Result<(), Unperformed> {
        self.raw.perform(&pool.disks, steps)
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
        pool.still_ours()?;
        if let Some(reason) = &self.failed {
            return Err(PoolError::MetadataFailed(reason.clone()));
        }
        let planned = self.state.settle(volumes);
        if let Some(transaction) = planned.map_err(|error| self.refused(error))? {
            self.carry_out(pool, transaction)?;
            self.checkpoint_if_due(pool)?;
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
                    self.changed.wait(&mut queue);
                }
                if queue.rounds.is_empty() {
                    return;
                }
                queue.busy = true;
                std::mem::take(&mut queue.rounds)
            };
            let result = Self::commit(pool, &rounds);
            for round in rounds {
                if let Err(error) = &result {
                    round.volume.poison(error);
                }
                let result = result
                    .as_ref()
                    .copied()
                    .map_err(|error| IoFailure::Poisoned {
                        volume: round.volume.name.clone(),
                        reason: error.to_string(),
                    });
                round.end(result);
            }
            self.queue.lock().busy = false;
            self.changed.notify_all();
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
