//! A reservation at run time: its tasks, and the evidence of what happened to it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use sched::request::{Op as Direction, Served};
use sched::task::{TaskId, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use super::ahead::Ahead;
use crate::completion::{Completion, IoError};
use crate::state::pool::core::PoolCore;
use crate::state::request::{IoFailure, Timeliness, VolumeOp};
use crate::state::volume::VolumeCore;
use crate::status::{StreamDisk, StreamStatus};
use crate::volume_io::worker::Job;
use crate::volume_io::{SubmitError, VolumeRequest};

/// Blocks of a stream in flight or being filled, for each disk that it touches (thesis 6.5.3).
pub(crate) const BUFFERS_PER_DISK: u64 = 2;

/// How many of the latest blocks are remembered with their times.
const RECENT_BLOCKS: usize = 64;

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
    pub(crate) pool: Arc<PoolCore>,
    pub(crate) volume: Arc<VolumeCore>,
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
    pub(crate) pool: Arc<PoolCore>,
    pub(crate) volume: Arc<VolumeCore>,
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
            pool: parts.pool,
            volume: parts.volume,
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

    /// Whether a request is one that it has reserved: a block of it, or part of one.
    ///
    /// # Errors
    /// How it differs.
    pub(crate) fn check(&self, request: &VolumeRequest<'_>) -> Result<(), SubmitError> {
        let direction = match request.op {
            VolumeOp::Read => Some(Direction::Read),
            VolumeOp::Write { .. } => Some(Direction::Write),
            _ => None,
        };
        let same_volume = Arc::ptr_eq(&self.volume, request.volume.core());
        let end = request.offset.0 + request.len.0;
        let range = self.range();
        let inside = range.start <= request.offset.0 && end <= range.end;
        let size = self.block();
        let one_block = inside && self.is_one_block(request.offset.0, end);
        if same_volume && one_block && direction == Some(self.op) && !self.is_closing() {
            return Ok(());
        }
        Err(SubmitError::NotOfStream {
            stream: self.name.clone(),
            reserved: format!(
                "{} blocks of {} from {} to {} of volume {:?}{}",
                op_name(self.op),
                size,
                Bytes(range.start),
                Bytes(range.end),
                self.volume.name,
                if self.is_closing() {
                    ", and is closed"
                } else {
                    ""
                },
            ),
            asked: format!(
                "{:?} of {} at {} B of volume {:?}",
                request.op,
                request.len,
                request.offset.0,
                request.volume.name()
            ),
        })
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

    /// A block is complete.
    pub(crate) fn finished(
        self: &Arc<Self>,
        timeliness: Option<&Timeliness>,
        failure: Option<&IoFailure>,
    ) {
        self.evidence.finished(timeliness, failure);
        if self.evidence.in_flight.fetch_sub(1, SeqCst) == 1 && self.attention.load(SeqCst) {
            self.pool.worker.post(Job::Idle(Arc::clone(self)));
        }
    }

    /// Nothing of it is in flight, which somebody wants to know.
    pub(crate) fn idle(self: &Arc<Self>) {
        // Taking the lock orders this after a look that found something in flight.
        drop(self.flow.lock());
        self.flow_changed.notify_all();
        if self.is_closing() {
            self.pool.keeper.close(Arc::clone(self));
        }
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

    /// No more blocks are taken; the reservation is given up when none is in flight.
    pub(crate) fn begin_close(self: &Arc<Self>) {
        self.closing.store(true, SeqCst);
        self.attention.store(true, SeqCst);
        if self.evidence.in_flight.load(SeqCst) == 0 {
            self.pool.keeper.close(Arc::clone(self));
        }
    }

    /// The span is over: no more blocks are taken, and of those that are in the disks' queues only what is
    /// due by the last deadline that the books know of is served.
    pub(crate) fn end_span(self: &Arc<Self>) {
        self.begin_close();
        let tasks = self.tasks();
        let Some(until) = self.span.and_then(|span| span.until) else {
            return;
        };
        let last = last_deadline(until, self.longest_period(), self.disks_max);
        for task in tasks {
            self.pool.disks[task.disk].handle.end_span(task.id, last);
        }
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

    pub(crate) fn status(&self) -> StreamStatus {
        let evidence = &self.evidence;
        let disk = |task: &StreamTask| StreamDisk {
            disk: self.pool.disks[task.disk].name.clone(),
            service_ns: task.params.service().0,
            period_ns: task.params.period().0,
        };
        StreamStatus {
            name: self.name.clone(),
            volume: self.volume.name.clone(),
            op: op_name(self.op).to_owned(),
            rate_bytes_per_second: self.rate().0,
            block_bytes: self.block().0,
            disks: self.tasks.read().iter().map(disk).collect(),
            blocks: evidence.blocks.load(Relaxed),
            misses: evidence.misses.load(Relaxed),
            misses_gross: evidence.misses_gross.load(Relaxed),
            late_max_ns: evidence.late_max.load(Relaxed),
            late_net_max_ns: evidence.late_net_max.load(Relaxed),
            early: evidence.early.load(Relaxed),
            overruns: evidence.overruns.load(Relaxed),
            errors: evidence.errors.load(Relaxed),
            recent_blocks_ns: evidence.recent(),
            failed: evidence.failed.lock().clone(),
        }
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

/// What happened to a stream's blocks. Counted on the disks' threads, without a lock.
#[derive(Default)]
pub(crate) struct Evidence {
    in_flight: AtomicU64,
    leaving: AtomicBool,
    blocks: AtomicU64,
    misses: AtomicU64,
    misses_gross: AtomicU64,
    late_max: AtomicU64,
    late_net_max: AtomicU64,
    early: AtomicU64,
    overruns: AtomicU64,
    errors: AtomicU64,
    /// Of a recording, from its beginning.
    pub(crate) durable_bytes: AtomicU64,
    recent: Recent,
    failed: Mutex<Option<String>>,
}

/// The times of the latest blocks, in a ring.
struct Recent([AtomicU64; RECENT_BLOCKS]);

impl Default for Recent {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; RECENT_BLOCKS])
    }
}

impl Evidence {
    /// A disk has answered one request of a block.
    pub(crate) fn answered(&self, completion: &Completion) {
        let timing = &completion.timing;
        if timing.served == Some(Served::Early) {
            self.early.fetch_add(1, Relaxed);
        }
        if timing.overrun > Nanos::ZERO {
            self.overruns.fetch_add(1, Relaxed);
        }
        let failed = completion.result.err();
        if failed.is_some_and(|error| error != IoError::Cancelled) {
            self.errors.fetch_add(1, Relaxed);
        }
    }

    fn finished(&self, timeliness: Option<&Timeliness>, failure: Option<&IoFailure>) {
        if let Some(failure) = failure {
            // On a disk's thread only after a failure.
            self.failed
                .lock()
                .get_or_insert_with(|| failure.to_string());
            return;
        }
        if let Some(timeliness) = timeliness {
            if timeliness.late_net > Nanos::ZERO {
                self.misses.fetch_add(1, Relaxed);
            }
            if timeliness.late > Nanos::ZERO {
                self.misses_gross.fetch_add(1, Relaxed);
            }
            self.late_max.fetch_max(timeliness.late.0, Relaxed);
            self.late_net_max.fetch_max(timeliness.late_net.0, Relaxed);
            let at = self.blocks.load(Relaxed) as usize % RECENT_BLOCKS;
            self.recent.0[at].store(timeliness.completed.0, Relaxed);
        }
        self.blocks.fetch_add(1, Relaxed);
    }

    fn recent(&self) -> Vec<u64> {
        let blocks = self.blocks.load(Acquire) as usize;
        let kept = blocks.min(RECENT_BLOCKS);
        let mut times: VecDeque<u64> = VecDeque::with_capacity(kept);
        for index in blocks - kept..blocks {
            times.push_back(self.recent.0[index % RECENT_BLOCKS].load(Relaxed));
        }
        times.into_iter().filter(|time| *time != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_only_the_host_made_late_is_counted_beside_the_misses() {
        let evidence = Evidence::default();
        for (late, late_net) in [(0, 0), (5, 0), (9, 2)] {
            let timeliness = Timeliness {
                deadline: Time(100),
                completed: Time(100 + late),
                late: Nanos(late),
                late_net: Nanos(late_net),
            };
            evidence.finished(Some(&timeliness), None);
        }
        let counted = [&evidence.misses, &evidence.misses_gross].map(|count| count.load(Relaxed));
        assert_eq!(counted, [1, 2]);
        let worst = [&evidence.late_net_max, &evidence.late_max].map(|late| late.load(Relaxed));
        assert_eq!(worst, [2, 9]);
    }
}
