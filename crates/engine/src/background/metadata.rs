//! Carrying out changes of the pool's metadata, and the committer's thread.
//!
//! [`Meta::change`] is the way of every change of a volume (make, grow, shrink, delete): it plans a transaction
//! with [`PoolState`], writes the transaction's steps to the disks, and installs the new maps. Moves plan their
//! transaction themselves and use [`Meta::carry_out`]. If a step fails, [`Meta::fail_step`] cancels the
//! transaction, freezes the metadata, or gives up; [`Meta::resume`] retries a frozen transaction.
//!
//! The committer makes changed bits and places of many volumes durable in one log record ([`Meta::settle`]).

use std::sync::Arc;

use sched::units::Sector;
use volume::{Committed, PoolState, Step, Transaction, VolumeError, VolumeId};

use super::raw::{FailedStep, StepError};
use crate::panics;
use crate::state::disk::core::DiskCore;
use crate::state::error::PoolError;
use crate::state::pool::committer::Committer;
use crate::state::pool::core::PoolCore;
use crate::state::pool::frozen::Recovery;
use crate::state::pool::meta::Meta;
use crate::state::request::IoFailure;
use crate::state::round::Round;
use crate::volume_io::rounds;

impl Meta {
    /// Writes a transaction to the disks and makes it take effect.
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
        match self
            .raw
            .perform(&pool.io.disks, &transaction.steps()[from..])
        {
            Ok(()) => {
                let committed = self.state.commit(transaction);
                pool.install(&self.state, &committed);
                pool.meta_watch.resume();
                Ok(committed)
            }
            Err(FailedStep { at, error }) => {
                Err(self.fail_step(pool, transaction, from + at, error))
            }
        }
    }

    /// Handles the failure of the step `at` of a transaction.
    fn fail_step(
        &mut self,
        pool: &PoolCore,
        transaction: Transaction,
        at: usize,
        error: StepError,
    ) -> PoolError {
        let failure = match error {
            StepError::Io(failure) => failure,
            StepError::TakenOver { what, .. } => {
                self.abandon(pool, transaction);
                return pool.mark_taken_over(&what);
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
            self.abandon(pool, transaction);
            pool.meta_watch.freeze(&reason, Recovery::AfterRestart);
            return PoolError::MetadataFailed(reason);
        }
        pool.meta_watch.freeze(&reason, Recovery::ByRetry);
        self.pending = Some((transaction, at));
        pool.committer.wake();
        PoolError::MetadataFrozen {
            reason,
            is_pending: true,
        }
    }

    /// Abandons a transaction until the pool is reopened, if it takes effect at all. Volumes that it would delete or
    /// shrink stay whole until then.
    fn abandon(&mut self, pool: &PoolCore, transaction: Transaction) {
        self.state.fail(transaction);
        let volumes = pool.volumes.read();
        volumes
            .values()
            .for_each(|volume| volume.cancel_deletion_and_cut());
    }

    /// Retries the pending transaction, if the metadata is frozen.
    ///
    /// # Errors
    /// When the metadata stays frozen, or another server has the disks.
    pub(crate) fn resume(&mut self, pool: &PoolCore) -> Result<(), PoolError> {
        pool.check_ownership()?;
        let Some(frozen) = pool.meta_watch.frozen() else {
            return Ok(());
        };
        let answers = |(transaction, at): &(Transaction, usize)| {
            let disk = |step: &Step| &pool.io.disks[usize::from(step.disk().0)];
            transaction.steps()[*at..]
                .iter()
                .all(|step| disk(step).answers())
        };
        // A disk that has been given up may still hold buffers of earlier requests.
        let Some((transaction, at)) = self.pending.take_if(|pending| answers(pending)) else {
            return Err(frozen.refusal());
        };
        // Another server may have opened the pool meanwhile.
        let expected = self.still_expected(&transaction, at);
        let done = match self.perform(pool, &expected) {
            Ok(()) => self.carry_out_from(pool, transaction, at).map(drop),
            Err(StepError::Io(_)) => {
                self.pending = Some((transaction, at));
                return Err(frozen.refusal());
            }
            Err(taken) => Err(self.fail_step(pool, transaction, at, taken)),
        };
        done.map_err(
            |_| match (pool.check_ownership(), pool.meta_watch.frozen()) {
                (Err(taken), _) => taken,
                (Ok(()), frozen) => frozen.map_or(PoolError::Closed, |frozen| frozen.refusal()),
            },
        )
    }

    /// The expected content of the disks before step `at` of a transaction, if they still belong to this server.
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
            // From the write of the superblocks until their check, either version may be on the disks.
            Some(last) => {
                let is_expected = |step: &&Step| matches!(step, Step::Expect { .. });
                let done = steps[..at].iter().skip(last).filter(is_expected);
                done.cloned().collect()
            }
        }
    }

    /// Plans a change and carries it out, followed by a checkpoint if one is due.
    ///
    /// # Errors
    /// When the change cannot be planned, or a step failed.
    pub(crate) fn change(
        &mut self,
        pool: &PoolCore,
        plan: impl FnOnce(&mut PoolState) -> Result<Transaction, VolumeError>,
    ) -> Result<Committed, PoolError> {
        self.resume(pool)?;
        let _vital = panics::vital();
        let transaction = plan(&mut self.state).map_err(|error| self.refused(error))?;
        let committed = self.carry_out(pool, transaction)?;
        self.checkpoint_if_due(pool);
        Ok(committed)
    }

    /// Writes a checkpoint if one is due. A checkpoint records the written chunks of all disks, so none is made
    /// while the data of a disk cannot be made durable. A failure is ignored: earlier changes are durable, and the
    /// next change meets the same failure.
    fn checkpoint_if_due(&mut self, pool: &PoolCore) {
        let is_durable = |disk: &DiskCore| disk.sync_health().failed.is_none();
        if self.state.wants_checkpoint()
            && pool.io.disks.iter().all(is_durable)
            && let Ok(transaction) = self.state.checkpoint()
        {
            let _: Result<Committed, PoolError> = self.carry_out(pool, transaction);
        }
    }

    fn refused(&self, error: VolumeError) -> PoolError {
        PoolError::from_plan(error, self.state.geometry().extent_bytes())
    }

    /// Performs steps that belong to no transaction.
    pub(crate) fn perform(&self, pool: &PoolCore, steps: &[Step]) -> Result<(), StepError> {
        let done = self.raw.perform(&pool.io.disks, steps);
        done.map_err(|failed| failed.error)
    }

    /// Writes a checkpoint, so that the next opening has nothing to replay, and a new generation, so that older
    /// copies of a disk are recognised.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) fn stop(&mut self, pool: &PoolCore) -> Result<(), PoolError> {
        self.change(pool, PoolState::stop).map(|_| ())
    }

    /// Makes changed bits and places of these volumes durable.
    ///
    /// # Errors
    /// When they could not be written.
    pub(crate) fn settle(
        &mut self,
        pool: &PoolCore,
        volumes: &[VolumeId],
    ) -> Result<(), PoolError> {
        self.resume(pool)?;
        let _vital = panics::vital();
        let planned = self.state.settle(volumes);
        if let Some(transaction) = planned.map_err(|error| self.refused(error))? {
            self.carry_out(pool, transaction)?;
            self.checkpoint_if_due(pool);
        }
        Ok(())
    }
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(&self, pool: &Arc<PoolCore>) {
        let pool = Arc::clone(pool);
        let body = move || {
            let is_retry_due = || {
                let frozen = pool.meta_watch.frozen();
                frozen.is_some_and(|frozen| frozen.recovery == Recovery::ByRetry)
            };
            while let Some(rounds) = pool.committer.next(is_retry_due, || try_resume(&pool)) {
                end(&pool, rounds);
                pool.committer.done();
            }
        };
        *self.thread.lock() = Some(std::thread::spawn(body));
    }
}

/// Retries frozen metadata, unless another thread holds its lock.
fn try_resume(pool: &PoolCore) {
    if let Some(mut meta) = pool.meta.try_lock() {
        // The result is recorded in `meta_watch`.
        let _: Result<(), PoolError> = meta.resume(pool);
    }
}

/// Commits the metadata of these rounds, and ends the rounds.
fn end(pool: &PoolCore, rounds: Vec<Arc<Round>>) {
    let result = commit(pool, &rounds);
    let is_shared = rounds.len() > 1 && matches!(result, Err(PoolError::Io(_)));
    for round in rounds {
        // The data of one round cannot be made durable, and nothing was changed. Commit each round alone, so that
        // only that one fails.
        let alone = is_shared.then(|| commit(pool, std::slice::from_ref(&round)));
        let ended = alone.as_ref().unwrap_or(&result).as_ref().copied();
        rounds::end(&round, ended.map_err(|error| settle_failure(&round, error)));
    }
}

fn commit(pool: &PoolCore, rounds: &[Arc<Round>]) -> Result<(), PoolError> {
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

/// The failure of a round whose bits and places could not be made durable.
fn settle_failure(round: &Round, error: &PoolError) -> IoFailure {
    match error {
        // Only a superblock is read. The data is written, and nothing of the transaction is.
        PoolError::Io(failure @ IoFailure::Disk { op: "read", .. }) => IoFailure::NotNow {
            reason: format!("the pool's superblock cannot be read: {failure}"),
        },
        PoolError::Io(failure) => {
            round.record_sync_failure(failure);
            failure.clone()
        }
        PoolError::MetadataFrozen { .. } => IoFailure::NotNow {
            reason: error.to_string(),
        },
        // Nothing of the volume becomes durable before the pool is reopened.
        error => {
            round.volume.poison(error);
            IoFailure::Poisoned {
                volume: round.volume.name.clone(),
                reason: error.to_string(),
            }
        }
    }
}
