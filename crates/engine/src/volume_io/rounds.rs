//! Flushes and forced writes, many in one round.
//!
//! A volume has at most one round under way. It serves every op that waited when it began; later ones wait
//! for the next round. The steps of a round:
//!
//! 1. Take the mark of the volume's changed bits and places.
//! 2. Sync the disks in the host's care that hold unsynced data of the volume, each on its own sync thread.
//! 3. Have the committer append the changes up to the mark to the metadata log, together with the rounds of
//!    other volumes that wait there.
//!
//! Steps with nothing to do are skipped: on disks whose writes are durable, a flush of rewritten data costs
//! no I/O.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::clock;
use crate::state::op::Op;
use crate::state::pool::committer::Committer;
use crate::state::pool::io::IoCore;
use crate::state::request::IoFailure;
use crate::state::round::Round;
use crate::state::volume::VolumeCore;
use crate::state::worker::Worker;

/// Adds an op to the next round: a flush, or a forced write whose transfers are done.
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
        begin(&op.client.io, &op.client.worker, &volume);
    }
}

/// Begins a round for all waiting ops; without any, records that no round is under way.
fn begin(io: &Arc<IoCore>, worker: &Arc<Worker>, volume: &Arc<VolumeCore>) {
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
        io: Arc::clone(io),
        worker: Arc::clone(worker),
        volume: Arc::clone(volume),
        ops: Mutex::new(ops),
        mark,
        began: clock::now(),
        // One extra for the loop below, so that the round proceeds only once and after it.
        pending: AtomicUsize::new(disks.len() + 1),
        unsynced: Mutex::new(disks.clone()),
        failure: Mutex::new(volume.poison_failure()),
    });
    volume.rounds.lock().current = Arc::downgrade(&round);
    for disk in disks {
        let round = Arc::clone(&round);
        io.disks[disk].sync(Box::new(move |result| {
            round.unsynced.lock().retain(|other| *other != disk);
            if result.is_err() {
                // The sync did not succeed, so the next round has to request it again.
                round.volume.set_unsynced(disk);
            }
            round.disk_done(result);
        }));
    }
    round.disk_done(Ok(()));
}

/// Ends a round: answers its ops and lets the next round begin.
pub(crate) fn end(round: &Round, result: Result<(), IoFailure>) {
    let ops = std::mem::take(&mut *round.ops.lock());
    for op in ops {
        let mut state = op.state.lock();
        let active = state.active.as_mut().expect("ops of a round are in flight");
        if let Err(failure) = &result {
            active.failure.get_or_insert_with(|| failure.clone());
        }
        active.completed = clock::now();
        op.finish(&mut state);
    }
    begin(&round.io, &round.worker, &round.volume);
}

/// The syncs of the round have ended: proceeds with the metadata.
pub(crate) fn synced(round: Arc<Round>, committer: &Committer) {
    let failure = round.failure.lock().take();
    match failure {
        Some(failure) => end(&round, Err(failure)),
        None if round.is_settled() => end(&round, Ok(())),
        None => committer.post(round),
    }
}
