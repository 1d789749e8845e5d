//! Making what was answered durable: flushes and forced writes, many in one round.
//!
//! A volume has at most one round under way. It serves every op that waited when it began; those
//! that come later wait for the next. A round (1) takes the mark of the volume's changed bits and
//! places, (2) has the host make durable the data on disks that are in the host's care, each on the
//! thread of its own that such a disk has, and (3) has the committer append what changed up to the
//! mark to the metadata log, together with the rounds of other volumes that wait there. Steps with
//! nothing to do are left out: on disks whose writes are durable, a flush of rewritten data costs no
//! I/O at all.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sched::units::Time;
use volume::{Mark, Place};

use super::worker::Job;
use crate::clock;
use crate::state::op::Op;
use crate::state::pool::core::PoolCore;
use crate::state::request::IoFailure;
use crate::state::volume::VolumeCore;

/// One round of a volume.
pub(crate) struct Round {
    pool: Arc<PoolCore>,
    pub(crate) volume: Arc<VolumeCore>,
    ops: Mutex<Vec<Arc<Op>>>,
    pub(crate) mark: Mark,
    began: Time,
    /// How many disks have not said that the data is durable.
    pending: AtomicUsize,
    /// Which.
    unsynced: Mutex<Vec<usize>>,
    failure: Mutex<Option<IoFailure>>,
}

/// Lets an op, a flush or a forced write whose transfers are done, take part in the next round.
pub(crate) fn join(op: &Arc<Op>) {
    let volume = {
        let state = op.state.lock();
        let active = state.active.as_ref().expect("only ops in flight join");
        Arc::clone(&active.volume)
    };
    let mut rounds = volume.rounds.lock();
    if !rounds.running && volume.is_clean() {
        drop(rounds);
        op.finish(&mut op.state.lock());
        return;
    }
    rounds.waiting.push(Arc::clone(op));
    let begins = !std::mem::replace(&mut rounds.running, true);
    drop(rounds);
    if begins {
        begin(&op.client.pool, &volume);
    }
}

/// Begins a round for all that wait, or notes that there is none under way.
fn begin(pool: &Arc<PoolCore>, volume: &Arc<VolumeCore>) {
    let ops = {
        let mut rounds = volume.rounds.lock();
        if rounds.waiting.is_empty() {
            rounds.running = false;
            rounds.current = Weak::new();
            return;
        }
        std::mem::take(&mut rounds.waiting)
    };
    let mark = volume.map().mark();
    let disks: Vec<usize> = volume.take_unsynced().collect();
    let round = Arc::new(Round {
        pool: Arc::clone(pool),
        volume: Arc::clone(volume),
        ops: Mutex::new(ops),
        mark,
        began: clock::now(),
        // One for the loop below, so that the round goes on once, after it.
        pending: AtomicUsize::new(disks.len() + 1),
        unsynced: Mutex::new(disks.clone()),
        failure: Mutex::new(volume.poison_failure()),
    });
    volume.rounds.lock().current = Arc::downgrade(&round);
    for disk in disks {
        let round = Arc::clone(&round);
        pool.disks[disk].sync(Box::new(move |result| {
            round.unsynced.lock().retain(|other| *other != disk);
            if result.is_err() {
                // Not asked to the end: the next round asks again.
                round.volume.set_unsynced(disk);
            }
            round.disk_done(result);
        }));
    }
    round.disk_done(Ok(()));
}

impl Round {
    /// A disk's data is durable, or cannot be made so.
    fn disk_done(self: &Arc<Self>, result: Result<(), IoFailure>) {
        if let Err(failure) = result {
            self.volume.not_durable(&failure);
            self.failure.lock().get_or_insert(failure);
        }
        if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pool.worker.post(Job::Synced(Arc::clone(self)));
        }
    }

    /// The metadata that speaks of its data could not be written for a failure of a disk, which may be one
    /// that holds other data.
    pub(crate) fn not_durable(&self, failure: &IoFailure) {
        let IoFailure::Disk { disk: failed, .. } = failure else {
            return;
        };
        let is_on = |place: Place| self.pool.disks[usize::from(place.disk.0)].name == *failed;
        if self.volume.with_map(|map| map.places().any(is_on)) {
            self.volume.not_durable(failure);
        }
    }

    /// Since when it has been under way.
    pub(crate) fn began(&self) -> Time {
        self.began
    }

    /// The disks that have yet to say that its data is durable; none when it has come to the metadata.
    pub(crate) fn unsynced(&self) -> Vec<usize> {
        self.unsynced.lock().clone()
    }

    /// Whether bits and places up to the mark are durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.volume.map().is_durable(self.mark)
    }

    /// Ends it: answers its ops and lets the next round begin.
    pub(crate) fn end(&self, result: Result<(), IoFailure>) {
        let ops = std::mem::take(&mut *self.ops.lock());
        for op in ops {
            let mut state = op.state.lock();
            let active = state.active.as_mut().expect("ops of a round are in flight");
            if let Err(failure) = &result {
                active.failure.get_or_insert_with(|| failure.clone());
            }
            active.completed = clock::now();
            op.finish(&mut state);
        }
        begin(&self.pool, &self.volume);
    }
}

/// The data of the round is where it should be: goes on with the metadata.
pub(crate) fn synced(round: Arc<Round>) {
    let failure = round.failure.lock().take();
    match failure {
        Some(failure) => round.end(Err(failure)),
        None if round.is_settled() => round.end(Ok(())),
        None => Arc::clone(&round.pool).committer.post(round),
    }
}
