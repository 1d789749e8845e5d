//! The thread on which the host makes a disk's data durable: outside the disk's schedule.
//!
//! All that ask while it runs are served by the next run. A second thread watches it, for the host may not
//! answer: what it takes is seen as a stall, and after the pool's patience those that wait are told so. Nothing
//! is lost by that: the data is where it was, and whoever asks again when the host has answered is served.
//!
//! A failure is another matter. Nothing may be assumed then of any write since the last success, and the kernel
//! tells of it only once: a later call would succeed although data is lost. So every later one fails too.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sched::units::{Nanos, SectorCount, Time};

use crate::clock;
use crate::disk::HostSync;
use crate::dispatcher::Patience;
use crate::state::request::IoFailure;

/// Is told whether the data is durable.
pub(crate) type SyncDone = Box<dyn FnOnce(Result<(), IoFailure>) + Send>;

/// What comes too late to be made durable is told.
const ENDED: IoFailure = IoFailure::Cancelled {
    reason: "the pool is being closed",
};

/// How it stands with a disk's syncs.
#[derive(Clone, Default)]
pub(crate) struct SyncHealth {
    /// For how long the host has not answered, if that is so long that it counts as stalled.
    pub(crate) stalled: Option<Nanos>,
    /// It has not answered for so long that those who waited were told so.
    pub(crate) given_up: bool,
    /// Why nothing on the disk can be made durable any more.
    pub(crate) failed: Option<IoFailure>,
    pub(crate) stalls: u64,
    pub(crate) given_ups: u64,
    pub(crate) comebacks: u64,
}

#[derive(Default)]
struct State {
    waiting: Vec<SyncDone>,
    /// Those that the run under way is for.
    served: Vec<SyncDone>,
    /// When the run under way began.
    began: Option<Time>,
    is_stalled: bool,
    health: SyncHealth,
    stopping: bool,
    /// The thread that calls the host has ended.
    has_ended: bool,
}

struct Shared {
    disk: String,
    patience: Patience,
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
    pub(crate) fn new(disk: String, sync: Arc<dyn HostSync>, patience: Patience) -> Self {
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

    /// Serves those that wait, and ends. The disk is not in use any more when it returns, unless the host does
    /// not answer.
    pub(crate) fn end(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        // Whoever it served last may have been the last user of the pool, and end it from there.
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

    /// Has `done` told of the next sync, or at once that there is none.
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

    /// Calls the host until told to stop.
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
            MutexGuard::unlocked(&mut state, || tell(served, &result));
        }
        state.has_ended = true;
        self.changed.notify_all();
    }

    /// Watches the calls until the last has ended, or is not waited for any more.
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

    /// How long the call under way may take until something has to be done about it.
    fn limit(&self, state: &State) -> Nanos {
        let Patience {
            stalled_after,
            give_up_after,
        } = self.patience;
        // While stopping, a stalled disk is given up at once.
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
        let mut told = std::mem::take(&mut state.served);
        told.append(&mut state.waiting);
        let late = Err(self.late());
        MutexGuard::unlocked(state, || tell(told, &late));
    }
}

fn tell(waiting: Vec<SyncDone>, result: &Result<(), IoFailure>) {
    for done in waiting {
        done(result.clone());
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.end();
    }
}
