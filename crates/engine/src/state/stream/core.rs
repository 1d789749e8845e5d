//! A reservation at run time: its tasks, what of it may change, and whether its blocks may go on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use sched::request::Op as Direction;
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};
use volume::VolumeId;

use super::ahead::Ahead;
use super::evidence::Evidence;
use crate::state::request::{IoFailure, Timeliness};

/// Blocks of a stream in flight or being filled, for each disk that it touches (thesis 6.5.3).
pub(crate) const BUFFERS_PER_DISK: u64 = 2;

/// From when to when a reservation holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// From when on; an instant that has passed means now.
    pub from: Time,
    /// Until when; `None` is until the stream is closed.
    pub until: Option<Time>,
}

/// A stream's task on one disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTask {
    pub(crate) disk: usize,
    /// Which of a block's requests to that disk, from 0.
    pub(crate) lane: usize,
    pub(crate) id: TaskId,
    pub(crate) params: TaskParams,
}

/// A reservation at run time.
pub(crate) struct StreamCore {
    pub(crate) key: u64,
    pub(crate) name: String,
    pub(crate) volume: VolumeId,
    pub(crate) volume_name: String,
    start: u64,
    /// Where its range ends, which changes under the lock of the admission.
    end: AtomicU64,
    /// How long each of its buffers is: a block as it was reserved at first. A longer one is in several.
    pub(crate) buffer: Bytes,
    /// How long a block is, which changes while none is in flight.
    block: AtomicU64,
    pub(crate) op: Direction,
    pub(crate) wraps: bool,
    pub(crate) span: Option<Span>,
    /// How many disks it has buffers for.
    pub(crate) disks_max: usize,
    rate: AtomicU64,
    tasks: RwLock<Vec<StreamTask>>,
    pub(crate) evidence: Evidence,
    /// Its reservation is given up as soon as nothing of it is in flight.
    closing: AtomicBool,
    /// Somebody wants to know when nothing of it is in flight.
    attention: AtomicBool,
    /// Held by whoever changes it: what a change leaves as it is, another one must not have changed meanwhile. How many
    /// sessions move bytes through it, whose blocks stay as long as a buffer.
    pub(crate) changes: Mutex<usize>,
    /// Held, and locked before that, by whoever changes more than where its range ends, which may wait for what is read
    /// ahead.
    pub(crate) turns: Mutex<()>,
    /// What of it is read ahead.
    pub(crate) ahead: Ahead,
    /// Held by whoever submits a block and must not wait; locked before `flow`.
    entering: Mutex<()>,
    flow: Mutex<Flow>,
    flow_changed: Condvar,
}

/// A session that moves bytes through a stream, whose blocks stay as long as a buffer while there is one.
pub(crate) struct MovesBytes<'a>(&'a StreamCore);

impl Drop for MovesBytes<'_> {
    fn drop(&mut self) {
        *self.0.changes.lock() -= 1;
    }
}

/// Whether blocks may go on.
#[derive(Default)]
struct Flow {
    /// The rate, the range or the block is being changed: no block begins until that is done.
    changing: bool,
    /// The reservation has been given up.
    left: bool,
}

/// What a new stream core is made of.
pub(crate) struct StreamParts {
    pub(crate) key: u64,
    pub(crate) name: String,
    pub(crate) volume: VolumeId,
    pub(crate) volume_name: String,
    pub(crate) range: Range<u64>,
    pub(crate) block: Bytes,
    pub(crate) op: Direction,
    pub(crate) wraps: bool,
    pub(crate) span: Option<Span>,
    pub(crate) rate: BytesPerSecond,
    pub(crate) tasks: Vec<StreamTask>,
}

impl StreamCore {
    pub(crate) fn new(parts: StreamParts) -> Arc<Self> {
        Arc::new(Self {
            key: parts.key,
            name: parts.name,
            volume: parts.volume,
            volume_name: parts.volume_name,
            start: parts.range.start,
            end: AtomicU64::new(parts.range.end),
            buffer: parts.block,
            block: AtomicU64::new(parts.block.0),
            op: parts.op,
            wraps: parts.wraps,
            span: parts.span,
            disks_max: disks_of(&parts.tasks),
            rate: AtomicU64::new(parts.rate.0),
            tasks: RwLock::new(parts.tasks),
            evidence: Evidence::default(),
            closing: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            changes: Mutex::new(0),
            turns: Mutex::default(),
            ahead: Ahead::default(),
            entering: Mutex::default(),
            flow: Mutex::default(),
            flow_changed: Condvar::new(),
        })
    }

    /// The task of a block's `lane`th request to a disk.
    pub(crate) fn task(&self, disk: usize, lane: usize) -> Option<TaskId> {
        let tasks = self.tasks.read();
        let found = tasks
            .iter()
            .find(|task| task.disk == disk && task.lane == lane);
        found.map(|task| task.id)
    }

    pub(crate) fn tasks(&self) -> Vec<StreamTask> {
        self.tasks.read().clone()
    }

    /// The longest period of its tasks.
    pub(crate) fn longest_period(&self) -> Nanos {
        let tasks = self.tasks.read();
        let longest = tasks.iter().map(|task| task.params.period()).max();
        longest.unwrap_or(Nanos::ZERO)
    }

    /// What it has reserved from now on: nothing is in flight.
    pub(crate) fn set_tasks(&self, tasks: Vec<StreamTask>, rate: BytesPerSecond, block: Bytes) {
        *self.tasks.write() = tasks;
        self.rate.store(rate.0, Relaxed);
        self.block.store(block.0, SeqCst);
    }

    /// Bytes are to be moved through it; `None`: its blocks are in several buffers each.
    pub(crate) fn moves_bytes(&self) -> Option<MovesBytes<'_>> {
        let mut sessions = self.changes.lock();
        (self.block() == self.buffer).then(|| {
            *sessions += 1;
            MovesBytes(self)
        })
    }

    /// How long a block is.
    pub(crate) fn block(&self) -> Bytes {
        Bytes(self.block.load(SeqCst))
    }

    /// The fewest buffers with which it keeps what it has reserved, if a block is so long: each disk transfers one while
    /// another is filled or used.
    pub(crate) fn buffers_min(&self, block: Bytes) -> usize {
        let of_a_block = block.0.div_ceil(self.buffer.0);
        let of_a_block = usize::try_from(of_a_block).unwrap_or(usize::MAX);
        of_a_block.saturating_mul(BUFFERS_PER_DISK as usize * self.disks_max)
    }

    pub(crate) fn rate(&self) -> BytesPerSecond {
        BytesPerSecond(self.rate.load(Relaxed))
    }

    /// How many disks it touches.
    pub(crate) fn disk_count(&self) -> usize {
        disks_of(&self.tasks.read())
    }

    /// The bytes of the volume that it is reserved for.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end.load(SeqCst)
    }

    /// Its range ends there from now on.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, SeqCst);
    }

    /// Whether bytes up to there are in its range: a request that waited may find that it has become shorter.
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= self.end.load(SeqCst)
    }

    /// Whether bytes from there to there, which are in its range, are in one block: a request that waited may find that
    /// blocks have become shorter.
    pub(crate) fn is_one_block(&self, from: u64, end: u64) -> bool {
        let block = self.block();
        (from - self.start) / block.0 == (end - 1 - self.start) / block.0
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// A block is submitted. Waits while its rate, its range or its block is being changed, at most until the blocks in
    /// flight are due: their successors could not be released earlier anyway.
    pub(crate) fn began(&self) {
        let mut flow = self.flow.lock();
        while flow.changing {
            self.flow_changed.wait(&mut flow);
        }
        self.evidence.in_flight.fetch_add(1, SeqCst);
    }

    /// A block is complete. Whether nothing is in flight now and somebody wants to know that.
    pub(crate) fn finished(
        &self,
        timeliness: Option<&Timeliness>,
        failure: Option<&IoFailure>,
    ) -> bool {
        self.evidence.finished(timeliness, failure);
        self.evidence.in_flight.fetch_sub(1, SeqCst) == 1 && self.attention.load(SeqCst)
    }

    /// Nothing of it is in flight, which somebody wants to know. Whether it is to be given up now.
    pub(crate) fn idle(&self) -> bool {
        // Taking the lock orders this after a look that found something in flight.
        drop(self.flow.lock());
        self.flow_changed.notify_all();
        self.is_closing()
    }

    /// Holds new blocks back and waits until none is in flight. Ends with [`StreamCore::resume`].
    pub(crate) fn pause(&self) {
        let mut flow = loop {
            let entering = self.entering.lock();
            let mut flow = self.flow.lock();
            if !flow.changing {
                flow.changing = true;
                break flow;
            }
            drop(entering);
            self.flow_changed.wait(&mut flow);
        };
        self.attention.store(true, SeqCst);
        while self.evidence.in_flight.load(SeqCst) > 0 {
            self.flow_changed.wait(&mut flow);
        }
    }

    /// Lets a block in that is submitted while this is kept, without waiting; `None`: new blocks are held back.
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let entering = self.entering.lock();
        (!self.is_changing()).then_some(entering)
    }

    /// Whether new blocks are held back.
    pub(crate) fn is_changing(&self) -> bool {
        self.flow.lock().changing
    }

    pub(crate) fn resume(&self) {
        self.attention.store(false, SeqCst);
        // Looked at afterwards: what begins to close meanwhile has attention of its own.
        if self.is_closing() {
            self.attention.store(true, SeqCst);
        }
        self.flow.lock().changing = false;
        self.flow_changed.notify_all();
    }

    /// No more blocks are taken; the reservation is given up when none is in flight: whether that is now.
    pub(crate) fn begin_close(&self) -> bool {
        self.closing.store(true, SeqCst);
        self.attention.store(true, SeqCst);
        self.evidence.in_flight.load(SeqCst) == 0
    }

    /// Whether this call is the one that has to give the reservation up.
    pub(crate) fn begin_leave(&self) -> bool {
        self.is_closing()
            && self.evidence.in_flight.load(SeqCst) == 0
            && !self.evidence.leaving.swap(true, AcqRel)
    }

    /// The reservation is given up.
    pub(crate) fn set_left(&self) {
        self.flow.lock().left = true;
        self.flow_changed.notify_all();
    }

    /// Waits until the reservation is given up.
    pub(crate) fn wait_left(&self) {
        let mut flow = self.flow.lock();
        while !flow.left {
            self.flow_changed.wait(&mut flow);
        }
    }

    /// Of what is recorded through it, or was last, bytes from the beginning that survive a power cut.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.evidence.durable_bytes.load(Relaxed)
    }
}

/// How many disks tasks are on.
fn disks_of(tasks: &[StreamTask]) -> usize {
    let mut disks: Vec<usize> = tasks.iter().map(|task| task.disk).collect();
    disks.sort_unstable();
    disks.dedup();
    disks.len()
}

/// The last deadline of a stream's blocks that were submitted by `until`, unless it asked for more than it
/// had reserved: as many requests as there are buffers may follow each other, all on one disk.
pub(crate) fn last_deadline(until: Time, longest: Nanos, disks: usize) -> Time {
    let blocks = BUFFERS_PER_DISK * disks as u64;
    until.saturating_add(Nanos(longest.0.saturating_mul(blocks)))
}

/// The word for a direction.
pub(crate) fn op_name(op: Direction) -> &'static str {
    match op {
        Direction::Read => "play",
        Direction::Write => "record",
    }
}
