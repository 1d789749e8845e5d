//! A volume at run time: its map, the order of its requests, parked writes, flush state, and users.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Condvar, Mutex, RwLock};
use sched::units::{Bytes, Time};
use volume::map::WriteSpan;
use volume::{VolumeId, VolumeMap};

use super::op::Op;
use super::request::IoFailure;
use super::round::Round;
use super::worker::{Job, Worker};
use crate::clock;

/// Gate bit: a barrier waits or runs, and requests queue behind it.
const CLOSED: u64 = 1 << 63;

/// An op that waits at the gate.
struct HeldOp {
    op: Arc<Op>,
    is_barrier: bool,
}

/// The ops that wait at the gate, in order.
#[derive(Default)]
struct HeldOps {
    queue: VecDeque<HeldOp>,
    /// A barrier has been let through and is not complete.
    running: bool,
}

/// The content of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteContent {
    /// The request's memory.
    Data,
    Zeros,
}

/// A span of a write that cannot begin because of another first write, or of a move about to switch.
pub(crate) struct Parked {
    pub(crate) op: Arc<Op>,
    pub(crate) span: WriteSpan,
    pub(crate) content: WriteContent,
    pub(crate) attempt: Attempt,
}

/// The attempt of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    First,
    /// After an error, at another place. It is best effort: a stream has reserved nothing for it, and its next blocks
    /// must not wait.
    Again,
}

/// Requests that wait to be made durable together.
#[derive(Default)]
pub(crate) struct Rounds {
    pub(crate) running: bool,
    /// The round under way.
    pub(crate) current: Weak<Round>,
    pub(crate) waiting: Vec<Arc<Op>>,
}

/// Users that have the volume open.
#[derive(Default)]
pub(crate) struct Users {
    next: u64,
    names: BTreeMap<u64, String>,
    /// The volume is being deleted and cannot be opened.
    pub(crate) deleted: bool,
}

/// A volume at run time.
pub(crate) struct VolumeCore {
    pub(crate) id: VolumeId,
    pub(crate) name: String,
    map: RwLock<Arc<VolumeMap>>,
    /// Time of the last change of its content; initially the time when this value was made.
    changed: AtomicU64,
    /// Number of begins and ends of changes of its content.
    content_changes: AtomicU64,
    /// Requests under way, and [`CLOSED`].
    gate: AtomicU64,
    held: Mutex<HeldOps>,
    parked: Mutex<VecDeque<Parked>>,
    /// Number of parked spans, including those being retried.
    parked_count: AtomicUsize,
    retry_posted: AtomicBool,
    /// Number of threads that wait for writes to end.
    watchers: AtomicUsize,
    watch: Mutex<()>,
    watched: Condvar,
    pub(crate) rounds: Mutex<Rounds>,
    /// For each disk of the pool: true if it holds data of this volume that no host sync has been
    /// requested for.
    unsynced: Box<[AtomicBool]>,
    poisoned: OnceLock<Arc<str>>,
    /// The end of the volume after a shrink that waits for frozen metadata; otherwise `u64::MAX`.
    cut_at: AtomicU64,
    pub(crate) users: Mutex<Users>,
}

impl VolumeCore {
    pub(crate) fn new(id: VolumeId, name: &str, map: Arc<VolumeMap>, disks: usize) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: name.to_owned(),
            map: RwLock::new(map),
            changed: AtomicU64::new(clock::now().0),
            content_changes: AtomicU64::new(0),
            gate: AtomicU64::new(0),
            held: Mutex::default(),
            parked: Mutex::default(),
            parked_count: AtomicUsize::new(0),
            retry_posted: AtomicBool::new(false),
            watchers: AtomicUsize::new(0),
            watch: Mutex::new(()),
            watched: Condvar::new(),
            rounds: Mutex::default(),
            unsynced: (0..disks).map(|_| AtomicBool::new(false)).collect(),
            poisoned: OnceLock::new(),
            cut_at: AtomicU64::new(u64::MAX),
            users: Mutex::default(),
        })
    }

    pub(crate) fn map(&self) -> Arc<VolumeMap> {
        Arc::clone(&self.map.read())
    }

    /// Acts on the map while no other map can be installed. `act` must not wait.
    pub(crate) fn with_map<T>(&self, act: impl FnOnce(&VolumeMap) -> T) -> T {
        act(&self.map.read())
    }

    pub(crate) fn size(&self) -> Bytes {
        self.map.read().size()
    }

    /// Records that its content changed, at `at` at the latest.
    pub(crate) fn note_change(&self, at: Time) {
        self.count_change();
        self.changed.fetch_max(at.0, Ordering::Relaxed);
    }

    /// Counts the begin or the end of a change of its content.
    pub(crate) fn count_change(&self) {
        self.content_changes.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of begins and ends of changes of its content so far. Data that was read after one call is still
    /// current at a later call with the same result.
    pub(crate) fn content_changes(&self) -> u64 {
        self.content_changes.load(Ordering::SeqCst)
    }

    /// The last change of its content, or the opening of the pool if that was later.
    pub(crate) fn changed(&self) -> Time {
        Time(self.changed.load(Ordering::Relaxed))
    }

    /// The part of it that streams may reserve.
    pub(crate) fn reservable(&self) -> Bytes {
        Bytes(self.size().0.min(self.cut_at.load(Ordering::SeqCst)))
    }

    /// Records that it ends at `at` once the shrink can be recorded.
    pub(crate) fn set_pending_end(&self, at: Bytes) {
        self.cut_at.store(at.0, Ordering::SeqCst);
    }

    pub(crate) fn install(&self, map: Arc<VolumeMap>) {
        let size = map.size();
        let before = std::mem::replace(&mut *self.map.write(), map);
        if before.size() != size {
            self.note_change(clock::now());
        }
        self.cut_at.store(u64::MAX, Ordering::SeqCst);
    }

    /// True if bits or places have changed that are not durable, or if the map is being replaced.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.map
            .try_read()
            .is_none_or(|map| !map.is_durable(map.mark()))
    }

    /// True if everything that was answered is durable, provided that no round is under way.
    pub(crate) fn is_clean(&self) -> bool {
        let unsynced = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        !self.unsynced.iter().any(unsynced) && !self.is_unsettled() && self.poisoned.get().is_none()
    }

    pub(crate) fn poisoned(&self) -> Option<Arc<str>> {
        self.poisoned.get().cloned()
    }

    /// Rejects all further changes. The first reason stays.
    pub(crate) fn poison(&self, reason: &dyn std::fmt::Display) {
        self.poisoned
            .get_or_init(|| Arc::from(reason.to_string().as_str()));
    }

    /// Records that its data could not be made durable. If a host sync failed, acknowledged data may be
    /// lost, so the volume is poisoned.
    pub(crate) fn record_sync_failure(&self, failure: &IoFailure) {
        if matches!(failure, IoFailure::Disk { op: "sync", .. }) {
            self.poison(failure);
        }
    }

    /// The failure of any change, if the volume is poisoned.
    pub(crate) fn poison_failure(&self) -> Option<IoFailure> {
        self.poisoned().map(|reason| IoFailure::Poisoned {
            volume: self.name.clone(),
            reason: reason.to_string(),
        })
    }

    pub(crate) fn set_unsynced(&self, disk: usize) {
        self.unsynced[disk].store(true, Ordering::SeqCst);
    }

    /// The disks with data that no host sync has been requested for. The caller must request one for each.
    pub(crate) fn take_unsynced(&self) -> impl Iterator<Item = usize> + '_ {
        let taken = |flag: &AtomicBool| flag.swap(false, Ordering::SeqCst);
        self.unsynced
            .iter()
            .enumerate()
            .filter_map(move |(disk, flag)| taken(flag).then_some(disk))
    }

    pub(crate) fn open(&self, user: &str) -> Option<u64> {
        let mut users = self.users.lock();
        if users.deleted {
            return None;
        }
        let key = users.next;
        users.next += 1;
        users.names.insert(key, user.to_owned());
        Some(key)
    }

    pub(crate) fn release(&self, key: u64) {
        self.users.lock().names.remove(&key);
    }

    pub(crate) fn user_names(&self) -> Vec<String> {
        self.users.lock().names.values().cloned().collect()
    }

    /// Closes the volume to new users. Returns true if it was closed to them before.
    ///
    /// # Errors
    /// The names of its users, if it has any.
    pub(crate) fn claim_for_deletion(&self) -> Result<bool, Vec<String>> {
        let mut users = self.users.lock();
        if !users.names.is_empty() {
            return Err(users.names.values().cloned().collect());
        }
        Ok(std::mem::replace(&mut users.deleted, true))
    }

    /// Cancels a deletion or a shrink.
    pub(crate) fn cancel_deletion_and_cut(&self) {
        self.users.lock().deleted = false;
        self.cut_at.store(u64::MAX, Ordering::SeqCst);
    }

    /// Counts an op at the gate. Returns false if the op is a barrier or has to queue behind one; the worker
    /// then lets it through in order.
    pub(crate) fn enter(self: &Arc<Self>, op: &Arc<Op>, is_barrier: bool, worker: &Worker) -> bool {
        if !is_barrier {
            if self.gate.fetch_add(1, Ordering::SeqCst) & CLOSED == 0 {
                return true;
            }
            self.leave();
        }
        let mut held = self.held.lock();
        self.gate.fetch_or(CLOSED, Ordering::SeqCst);
        held.queue.push_back(HeldOp {
            op: Arc::clone(op),
            is_barrier,
        });
        drop(held);
        worker.post(Job::Gate(Arc::clone(self)));
        false
    }

    /// Lets a held op through at once, if it is still held, so that it does not wait for the worker.
    pub(crate) fn withdraw(&self, op: &Arc<Op>) -> bool {
        let mut held = self.held.lock();
        let Some(at) = (held.queue.iter()).position(|other| Arc::ptr_eq(&other.op, op)) else {
            return false;
        };
        self.gate.fetch_add(1, Ordering::SeqCst);
        held.queue.remove(at);
        true
    }

    /// An op that was counted is complete. Returns true if the worker has to look at the gate.
    pub(crate) fn leave(&self) -> bool {
        self.gate.fetch_sub(1, Ordering::SeqCst) == CLOSED | 1
    }

    /// Counts and returns the next held op that may go; opens the gate when none is held.
    pub(crate) fn next_held(&self) -> Option<Arc<Op>> {
        let mut held = self.held.lock();
        let busy = self.gate.load(Ordering::SeqCst) & !CLOSED != 0;
        if held.running {
            if busy {
                return None;
            }
            held.running = false;
        }
        let Some(is_barrier) = held.queue.front().map(|next| next.is_barrier) else {
            self.gate.fetch_and(!CLOSED, Ordering::SeqCst);
            return None;
        };
        if is_barrier && busy {
            return None;
        }
        held.running = is_barrier;
        self.gate.fetch_add(1, Ordering::SeqCst);
        held.queue.pop_front().map(|next| next.op)
    }

    /// True if no request is under way or held.
    pub(crate) fn is_quiet(&self) -> bool {
        let held = self.held.lock();
        held.queue.is_empty() && self.gate.load(Ordering::SeqCst) & !CLOSED == 0
    }

    /// Parks a span and retries it once, because the obstacle may have gone in between.
    pub(crate) fn park(self: &Arc<Self>, parked: Parked, worker: &Worker) {
        self.parked_count.fetch_add(1, Ordering::SeqCst);
        self.parked.lock().push_back(parked);
        self.retry(worker);
    }

    /// Schedules a retry of the parked spans.
    pub(crate) fn retry(self: &Arc<Self>, worker: &Worker) {
        if !self.retry_posted.swap(true, Ordering::SeqCst) {
            worker.post(Job::Retry(Arc::clone(self)));
        }
    }

    /// A write has ended: retries spans and wakes threads that may have waited for it.
    pub(crate) fn write_ended(self: &Arc<Self>, worker: &Worker) {
        let waiting = self.parked_count.load(Ordering::SeqCst);
        if waiting + self.watchers.load(Ordering::SeqCst) > 0 {
            self.retry(worker);
        }
    }

    /// Waits until `done`, which is evaluated again whenever a write ends.
    pub(crate) fn wait_until(self: &Arc<Self>, worker: &Worker, mut done: impl FnMut() -> bool) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut watch = self.watch.lock();
        // A write that ended before this thread was counted among the watchers woke nobody.
        self.retry(worker);
        while !done() {
            self.watched.wait(&mut watch);
        }
        drop(watch);
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes all parked spans for a retry, and wakes the watchers.
    pub(crate) fn take_parked(&self) -> VecDeque<Parked> {
        self.retry_posted.store(false, Ordering::SeqCst);
        if self.watchers.load(Ordering::SeqCst) > 0 {
            // Taking the lock orders the notification after a check that found a write under way.
            drop(self.watch.lock());
            self.watched.notify_all();
        }
        std::mem::take(&mut *self.parked.lock())
    }

    /// A span has begun, or never will.
    pub(crate) fn forget_parked(&self) {
        self.parked_count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Parks a span again that could not begin at its retry.
    pub(crate) fn park_again(&self, parked: Parked) {
        self.parked.lock().push_back(parked);
    }
}
