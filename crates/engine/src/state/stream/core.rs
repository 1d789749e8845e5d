//! A reservation at run time: its tasks, its changeable parameters, and the flow of its blocks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use sched::request::Op as Direction;
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};
use volume::VolumeId;

use super::ahead::ReadAhead;
use super::stats::StreamStats;
use crate::state::request::{IoFailure, Timeliness};

/// Blocks of a stream in flight or being filled, for each disk that it touches (thesis 6.5.3).
pub(crate) const BUFFERS_PER_DISK: u64 = 2;

/// The time during which a reservation holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Begin; a time in the past means now.
    pub from: Time,
    /// End; `None` is until the stream is closed.
    pub until: Option<Time>,
}

/// A stream's task on one disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTask {
    pub(crate) disk: usize,
    /// Index of the request among a block's requests to that disk, from 0.
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
    /// End of its range; changes under the admission lock.
    end: AtomicU64,
    /// Size of each buffer: that of a block when the stream was opened. A longer block spans several buffers.
    pub(crate) buffer: Bytes,
    /// Size of a block; changes while no block is in flight.
    block: AtomicU64,
    pub(crate) op: Direction,
    pub(crate) wraps: bool,
    pub(crate) span: Option<Span>,
    /// Number of disks that it has buffers for.
    pub(crate) disks_max: usize,
    rate: AtomicU64,
    tasks: RwLock<Vec<StreamTask>>,
    pub(crate) stats: StreamStats,
    /// The reservation is to be released as soon as nothing is in flight.
    closing: AtomicBool,
    /// A thread waits until nothing is in flight.
    idle_awaited: AtomicBool,
    /// Number of sessions that move bytes; their blocks stay as long as a buffer. The lock is held by a change,
    /// so that parameters that it leaves alone cannot be changed concurrently.
    pub(crate) byte_sessions: Mutex<usize>,
    /// Serialises changes of more than the end of the range, which may wait for reading ahead. Locked before
    /// `byte_sessions`.
    pub(crate) change_lock: Mutex<()>,
    /// State of reading ahead.
    pub(crate) read_ahead: ReadAhead,
    /// Held while a block is submitted by a thread that must not wait; locked before `flow`.
    entering: Mutex<()>,
    flow: Mutex<Flow>,
    flow_changed: Condvar,
}

/// A session that moves bytes through a stream. While it exists, blocks stay as long as a buffer.
pub(crate) struct ByteSession<'a>(&'a StreamCore);

impl Drop for ByteSession<'_> {
    fn drop(&mut self) {
        *self.0.byte_sessions.lock() -= 1;
    }
}

/// Admits or holds back new blocks.
#[derive(Default)]
struct Flow {
    /// The rate, range or block size is being changed: no block begins until that is done.
    changing: bool,
    /// The reservation has been released.
    left: bool,
}

/// Parts of a new stream core.
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
            stats: StreamStats::default(),
            closing: AtomicBool::new(false),
            idle_awaited: AtomicBool::new(false),
            byte_sessions: Mutex::new(0),
            change_lock: Mutex::default(),
            read_ahead: ReadAhead::default(),
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

    /// The service time that is promised to a block's `lane`th request to a disk.
    pub(crate) fn service(&self, disk: usize, lane: usize) -> Option<Nanos> {
        let tasks = self.tasks.read();
        let found = tasks
            .iter()
            .find(|task| task.disk == disk && task.lane == lane);
        found.map(|task| task.params.service())
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

    /// Replaces the reservation. Nothing may be in flight.
    pub(crate) fn set_tasks(&self, tasks: Vec<StreamTask>, rate: BytesPerSecond, block: Bytes) {
        *self.tasks.write() = tasks;
        self.rate.store(rate.0, Relaxed);
        self.block.store(block.0, SeqCst);
    }

    /// Begins to move bytes; `None` if its blocks span several buffers.
    pub(crate) fn moves_bytes(&self) -> Option<ByteSession<'_>> {
        let mut sessions = self.byte_sessions.lock();
        (self.block() == self.buffer).then(|| {
            *sessions += 1;
            ByteSession(self)
        })
    }

    /// Size of a block.
    pub(crate) fn block(&self) -> Bytes {
        Bytes(self.block.load(SeqCst))
    }

    /// The fewest buffers that sustain the reservation with blocks of this size: each disk transfers one block
    /// while another is filled or used.
    pub(crate) fn buffers_min(&self, block: Bytes) -> usize {
        let of_a_block = block.0.div_ceil(self.buffer.0);
        let of_a_block = usize::try_from(of_a_block).unwrap_or(usize::MAX);
        of_a_block.saturating_mul(BUFFERS_PER_DISK as usize * self.disks_max)
    }

    pub(crate) fn rate(&self) -> BytesPerSecond {
        BytesPerSecond(self.rate.load(Relaxed))
    }

    /// Number of disks that it touches.
    pub(crate) fn disk_count(&self) -> usize {
        disks_of(&self.tasks.read())
    }

    /// The byte range of the volume that it is reserved for.
    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end.load(SeqCst)
    }

    /// Sets the end of its range.
    pub(crate) fn set_end(&self, end: u64) {
        self.end.store(end, SeqCst);
    }

    /// True if bytes up to `end` are in its range. A request that waited has to check this again.
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= self.end.load(SeqCst)
    }

    /// True if `from..end`, which is in its range, lies in one block. A request that waited has to check this
    /// again, because blocks may have become shorter.
    pub(crate) fn is_one_block(&self, from: u64, end: u64) -> bool {
        let block = self.block();
        (from - self.start) / block.0 == (end - 1 - self.start) / block.0
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Counts a block that is submitted. Waits while the rate, range or block size is being changed: at most
    /// until the blocks in flight are due. Their successors could not be released earlier anyway.
    pub(crate) fn began(&self) {
        let mut flow = self.flow.lock();
        while flow.changing {
            self.flow_changed.wait(&mut flow);
        }
        self.stats.in_flight.fetch_add(1, SeqCst);
    }

    /// Counts a block as complete. Returns true if nothing is in flight any more and a thread waits for that.
    pub(crate) fn finished(
        &self,
        timeliness: Option<&Timeliness>,
        failure: Option<&IoFailure>,
    ) -> bool {
        self.stats.finished(timeliness, failure);
        self.stats.in_flight.fetch_sub(1, SeqCst) == 1 && self.idle_awaited.load(SeqCst)
    }

    /// Wakes the threads that wait until nothing is in flight. Returns true if the reservation is to be
    /// released now.
    pub(crate) fn idle(&self) -> bool {
        // Taking the lock orders the notification after a check that found something in flight.
        drop(self.flow.lock());
        self.flow_changed.notify_all();
        self.is_closing()
    }

    /// Holds back new blocks and waits until none is in flight. Ends with [`StreamCore::resume`].
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
        self.idle_awaited.store(true, SeqCst);
        while self.stats.in_flight.load(SeqCst) > 0 {
            self.flow_changed.wait(&mut flow);
        }
    }

    /// Admits a block that is submitted while the guard is kept, without waiting; `None` if blocks are held
    /// back.
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let entering = self.entering.lock();
        (!self.is_changing()).then_some(entering)
    }

    /// True if new blocks are held back.
    pub(crate) fn is_changing(&self) -> bool {
        self.flow.lock().changing
    }

    pub(crate) fn resume(&self) {
        self.idle_awaited.store(false, SeqCst);
        // Checked after the store: a concurrent close sets the flag itself.
        if self.is_closing() {
            self.idle_awaited.store(true, SeqCst);
        }
        self.flow.lock().changing = false;
        self.flow_changed.notify_all();
    }

    /// Stops accepting blocks. Returns true if none is in flight, so that the reservation is to be released.
    pub(crate) fn begin_close(&self) -> bool {
        self.closing.store(true, SeqCst);
        self.idle_awaited.store(true, SeqCst);
        self.stats.in_flight.load(SeqCst) == 0
    }

    /// True if this call is the one that has to release the reservation.
    pub(crate) fn begin_leave(&self) -> bool {
        self.is_closing()
            && self.stats.in_flight.load(SeqCst) == 0
            && !self.stats.leaving.swap(true, AcqRel)
    }

    /// Records that the reservation is released.
    pub(crate) fn set_left(&self) {
        self.flow.lock().left = true;
        self.flow_changed.notify_all();
    }

    /// Waits until the reservation is released.
    pub(crate) fn wait_left(&self) {
        let mut flow = self.flow.lock();
        while !flow.left {
            self.flow_changed.wait(&mut flow);
        }
    }

    /// Durable bytes of its current or last recording, from the beginning.
    pub(crate) fn durable_bytes(&self) -> u64 {
        self.stats.durable_bytes.load(Relaxed)
    }
}

/// Number of distinct disks of the tasks.
fn disks_of(tasks: &[StreamTask]) -> usize {
    let mut disks: Vec<usize> = tasks.iter().map(|task| task.disk).collect();
    disks.sort_unstable();
    disks.dedup();
    disks.len()
}

/// The last deadline of a stream's blocks that were submitted by `until`, provided that the stream kept to
/// its rate: as many requests as there are buffers may follow each other on one disk.
pub(crate) fn last_deadline(until: Time, longest: Nanos, disks: usize) -> Time {
    let blocks = BUFFERS_PER_DISK * disks as u64;
    until.saturating_add(Nanos(longest.0.saturating_mul(blocks)))
}

/// The name of a direction.
pub(crate) fn op_name(op: Direction) -> &'static str {
    match op {
        Direction::Read => "play",
        Direction::Write => "record",
    }
}
