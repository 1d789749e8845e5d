//! Host syncs of a disk, on a thread of their own outside the disk's schedule.
//!
//! All requests that arrive during a sync are served by the next one. A second thread watches the first,
//! because the host may not answer. After the stall limit ([`StallLimits`]) the disk counts as stalled. After
//! the give-up limit all waiters are told that their data cannot be made durable now. Nothing is lost by
//! that: a flush after the host has answered makes the data durable.
//!
//! After a failed sync nothing may be assumed of any write since the last success. The kernel reports the
//! failure only once; a later call would succeed although data is lost. So every later sync fails too.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sched::units::{Nanos, SectorCount, Time};

use crate::clock;
use crate::disk::HostSync;
use crate::dispatcher::StallLimits;
use crate::state::request::IoFailure;

/// Receives the result of a sync.
pub(crate) type SyncDone = Box<dyn FnOnce(Result<(), IoFailure>) + Send>;

/// The answer to sync requests that arrive after the end.
const ENDED: IoFailure = IoFailure::Cancelled {
    reason: "the pool is being closed",
};

/// State of a disk's host syncs.
#[derive(Clone, Default)]
pub(crate) struct SyncHealth {
    /// Time since the call under way began, if that exceeds the stall limit.
    pub(crate) stalled: Option<Nanos>,
    /// The give-up limit has passed and the waiters were answered.
    pub(crate) given_up: bool,
    /// The failure after which nothing on the disk can be made durable any more.
    pub(crate) failed: Option<IoFailure>,
    pub(crate) stalls: u64,
    pub(crate) given_ups: u64,
    pub(crate) comebacks: u64,
}

#[derive(Default)]
struct State {
    waiting: Vec<SyncDone>,
    /// The requests that the call under way serves.
    served: Vec<SyncDone>,
    /// When the call under way began.
    began: Option<Time>,
    is_stalled: bool,
    health: SyncHealth,
    stopping: bool,
    /// The thread that calls the host has ended.
    has_ended: bool,
}

struct Shared {
    disk: String,
    patience: StallLimits,
    state: Mutex<State>,
    changed: Condvar,
}

/// See the [module](self).
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    /// The thread that calls the host, and the one that watches it.
    threads: Mutex<Option<[JoinHandle<()>; 2]>>,
}

impl Syncer {
    pub(crate) fn new(disk: String, sync: Arc<dyn HostSync>, patience: StallLimits) -> Self {
        let shared = Arc::new(Shared {
            disk,
            patience,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (calling, watching) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = [
            std::thread::spawn(move || calling.call(&*sync)),
            std::thread::spawn(move || watching.watch()),
        ];
        Self {
            shared,
            threads: Mutex::new(Some(threads)),
        }
    }

    /// Serves the waiting requests and ends the threads. Afterwards the disk is unused, unless the host
    /// does not answer.
    pub(crate) fn end(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        // The callback of the last sync may drop the pool, which ends this syncer from its own thread.
        let here = std::thread::current().id();
        if threads.iter().any(|thread| thread.thread().id() == here) {
            return;
        }
        let [calling, watching] = threads;
        // A panic of a thread has been reported by the panic hook.
        let _ = watching.join();
        if self.shared.state.lock().has_ended {
            let _ = calling.join();
        }
    }

    /// Calls `done` with the result of the next sync, or at once if there will be none.
    pub(crate) fn post(&self, done: SyncDone) {
        let mut state = self.shared.state.lock();
        let refusal = if state.stopping {
            Some(ENDED)
        } else if state.health.given_up {
            Some(self.shared.late())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            drop(state);
            done(Err(refusal));
            return;
        }
        state.waiting.push(done);
        drop(state);
        self.shared.changed.notify_all();
    }

    pub(crate) fn health(&self) -> SyncHealth {
        let state = self.shared.state.lock();
        let silent = |began| clock::now().saturating_since(began);
        SyncHealth {
            stalled: state.began.filter(|_| state.is_stalled).map(silent),
            ..state.health.clone()
        }
    }
}

impl Shared {
    fn late(&self) -> IoFailure {
        IoFailure::NotNow {
            reason: format!(
                "disk {:?}: sync: the host did not answer in time",
                self.disk
            ),
        }
    }

    fn failed(&self, error: &std::io::Error) -> IoFailure {
        IoFailure::Disk {
            disk: self.disk.clone(),
            op: "sync",
            sector: 0,
            sectors: SectorCount::ZERO,
            reason: error.to_string(),
        }
    }

    /// Thread: calls the host until stopped.
    fn call(&self, sync: &dyn HostSync) {
        let mut state = self.state.lock();
        loop {
            while state.waiting.is_empty() && !state.stopping {
                self.changed.wait(&mut state);
            }
            if state.waiting.is_empty() {
                break;
            }
            state.served = std::mem::take(&mut state.waiting);
            if state.health.failed.is_none() {
                state.began = Some(clock::now());
                self.changed.notify_all();
                let result = MutexGuard::unlocked(&mut state, || sync.sync());
                state.began = None;
                state.health.failed = result.err().map(|error| self.failed(&error));
                if std::mem::take(&mut state.is_stalled) {
                    state.health.given_up = false;
                    state.health.comebacks += 1;
                }
            }
            let result = state.health.failed.clone().map_or(Ok(()), Err);
            let served = std::mem::take(&mut state.served);
            self.changed.notify_all();
            MutexGuard::unlocked(&mut state, || answer_all(served, &result));
        }
        state.has_ended = true;
        self.changed.notify_all();
    }

    /// Thread: watches the calls until the last has ended, or is given up.
    fn watch(&self) {
        let mut state = self.state.lock();
        while !(state.has_ended || state.stopping && state.health.given_up) {
            let limit = self.limit(&state);
            match state.began.filter(|_| !state.health.given_up) {
                None => self.changed.wait(&mut state),
                Some(began) => {
                    let silent = clock::now().saturating_since(began);
                    if silent < limit {
                        let left = Duration::from_nanos(limit.saturating_sub(silent).0);
                        let _ = self.changed.wait_for(&mut state, left);
                    } else {
                        self.lose_patience(&mut state);
                    }
                }
            }
        }
    }

    /// Duration of the call under way after which it becomes stalled or is given up.
    fn limit(&self, state: &State) -> Nanos {
        let StallLimits {
            stalled_after,
            give_up_after,
        } = self.patience;
        // While the disk itself is stopped, a stalled sync is given up at once.
        if state.is_stalled && !state.stopping {
            give_up_after.max(stalled_after)
        } else {
            stalled_after
        }
    }

    fn lose_patience(&self, state: &mut MutexGuard<'_, State>) {
        if !state.is_stalled {
            state.is_stalled = true;
            state.health.stalls += 1;
            return;
        }
        state.health.given_up = true;
        state.health.given_ups += 1;
        let mut waiters = std::mem::take(&mut state.served);
        waiters.append(&mut state.waiting);
        let late = Err(self.late());
        MutexGuard::unlocked(state, || answer_all(waiters, &late));
    }
}

fn answer_all(waiting: Vec<SyncDone>, result: &Result<(), IoFailure>) {
    for done in waiting {
        done(result.clone());
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.end();
    }
}
