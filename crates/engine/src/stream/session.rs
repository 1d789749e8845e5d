//! The common part of recorders and players: a session's position in its stream, its blocks in flight, and its
//! durable bytes.

mod done;
mod places;
mod track;

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::MutexGuard;
use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, Time};
use smallvec::{SmallVec, smallvec};

use self::track::TrackBuffer;
use super::pace::{PaceError, PaceReport};
use crate::buffer::{Buffer, Segments};
use crate::state::request::VolumeOp;
use crate::state::stream::core::{BUFFERS_PER_DISK, ByteSession, op_name};
use crate::volume_io::request::VolumeRequest;
use crate::volume_io::stream::Stream;

/// Interval of flushes of a recording.
const FLUSH_EVERY: Nanos = Nanos::from_secs(2);

/// The user data of a flush; buffers are numbered from 0.
const FLUSH: u64 = u64::MAX;

/// A session of a stream.
pub(super) struct Session<'a> {
    pub(super) stream: &'a Stream,
    /// Begin of the reservation: the earliest time for the first block.
    pub(super) begin: Time,
    /// End of the reservation, if it has one.
    until: Option<Time>,
    /// The session has seen the end of the reservation, so `sleep` need not wake for it.
    knows_end: Cell<bool>,
    /// Start of the next block, in bytes of the volume; `None` after the range's end.
    at: Option<u64>,
    next_index: u64,
    in_flight: Vec<BlockInFlight>,
    /// Completed buffers that the caller has not taken.
    finished: VecDeque<CompletedBuffer>,
    track: TrackBuffer,
    /// Bytes submitted.
    submitted_bytes: u64,
    /// Bytes submitted before the first block that failed.
    broken_at: Option<u64>,
    flushing: FlushState,
    pub(super) report: PaceReport,
    failed: Option<PaceError>,
}

/// The earliest times for blocks, a period apart.
pub(super) struct Pace {
    begin: Time,
    /// Time slot of the last block: its begin and duration; `None` before the first.
    last: Option<(Time, Nanos)>,
}

impl Pace {
    pub(super) fn new(begin: Time) -> Self {
        Self { begin, last: None }
    }

    /// The earliest time for the next block: the end of the last slot, or earlier if the period has become shorter.
    pub(super) fn next(&self, period: Nanos) -> Time {
        let next = |(from, lasts): (Time, Nanos)| from.saturating_add(lasts.min(period));
        self.last.map_or(self.begin, next)
    }

    /// Records the submission of a block with this duration. If it is more than a period late, later blocks are
    /// shifted.
    pub(super) fn step(&mut self, now: Time, period: Nanos, lasts: Nanos) {
        let due = self.next(period);
        let is_late = due.saturating_add(period) < now;
        self.last = Some((if is_late { now } else { due }, lasts));
    }
}

/// State of making the data durable.
#[derive(Default)]
struct FlushState {
    /// A flush is under way; it covers this many bytes.
    covers: Option<u64>,
    /// When the next flush may begin.
    next_at: Time,
    /// The flush under way is the last.
    is_last: bool,
}

/// A block in flight.
struct BlockInFlight {
    index: u64,
    /// Bytes submitted before it.
    before: u64,
    offset: u64,
    bytes: u64,
    carried: PartBuffers,
}

/// The buffers of a block, in order.
pub(super) type PartBuffers = SmallVec<[PartBuffer; 1]>;

/// A buffer of a block, and the number of the block's bytes in it.
pub(super) struct PartBuffer {
    pub(super) buffer: Buffer,
    pub(super) bytes: u64,
    pub(super) is_borrowed: bool,
}

/// A full buffer, whose memory is pinned until it is written.
pub(super) struct FullBuffer {
    pub(super) buffer: Buffer,
    pub(super) memory: Segments,
    pub(super) bytes: u64,
    /// Offset from the start of the stream's range; `None`: behind the previous one.
    pub(super) offset: Option<Bytes>,
    /// When it was filled.
    pub(super) since: Time,
    pub(super) is_borrowed: bool,
}

/// A buffer of a completed block.
pub(super) struct CompletedBuffer {
    pub(super) index: u64,
    pub(super) bytes: u64,
    /// When the transfer was complete.
    pub(super) completed: Time,
    pub(super) buffer: Buffer,
    pub(super) is_borrowed: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        stream: &'a Stream,
        offset: Bytes,
        direction: Direction,
    ) -> Result<Self, PaceError> {
        if stream.op() != direction {
            return Err(PaceError::Direction {
                reserved: op_name(stream.op()),
            });
        }
        let grain = stream.volume().write_grain();
        if direction == Direction::Write && !offset.0.is_multiple_of(grain.0) {
            return Err(PaceError::Offset { offset, grain });
        }
        let range = stream.range();
        let at = range
            .start
            .checked_add(offset.0)
            .filter(|at| *at < range.end);
        let span = stream.span();
        stream.set_durable(0);
        Ok(Self {
            stream,
            begin: span.map_or(Time::ZERO, |span| span.from),
            until: span.and_then(|span| span.until),
            knows_end: Cell::new(false),
            at,
            next_index: 0,
            in_flight: Vec::new(),
            finished: VecDeque::new(),
            track: TrackBuffer::new(stream),
            submitted_bytes: 0,
            broken_at: None,
            flushing: FlushState::default(),
            report: PaceReport::default(),
            failed: None,
        })
    }

    /// Begins to move bytes.
    ///
    /// # Errors
    /// When blocks span several buffers.
    pub(super) fn moves_bytes(&self) -> Result<ByteSession<'a>, PaceError> {
        let moves = self.stream.core().moves_bytes();
        moves.ok_or_else(|| PaceError::Block {
            buffer: self.stream.buffer(),
            block: self.stream.block(),
        })
    }

    /// The buffers of the admission, except `taken` of them. Waits for buffers that are still in use.
    ///
    /// # Errors
    /// When there is no room for a buffer and none of the stream's can come back.
    pub(super) fn buffers(&self, taken: u32) -> Result<Vec<Buffer>, PaceError> {
        let account = self.stream.client().account();
        let size = self.stream.buffer().0 as usize;
        let disks = self.stream.core().disks_max.max(1);
        let count = BUFFERS_PER_DISK as u32 * disks as u32;
        (taken..count)
            .map(|held| account.allocate_own(size, held).map_err(PaceError::Memory))
            .collect()
    }

    /// Submits the next block of `bytes`, padded with the buffer's following bytes. Returns false if the
    /// reservation has ended, so that it was not submitted.
    pub(super) fn submit(&mut self, buffer: Buffer, bytes: u64) -> Result<bool, PaceError> {
        let Some((offset, len)) = self.next_place(bytes) else {
            return Ok(false);
        };
        let memory = buffer.segments(self.stream.op(), 0..len as usize)?;
        let carrier = PartBuffer {
            buffer,
            bytes,
            is_borrowed: false,
        };
        self.submit_at(offset, memory, smallvec![carrier])
    }

    /// Submits a read of the next block, which begins at `from` in the range.
    pub(super) fn submit_read(
        &mut self,
        from: u64,
        carried: PartBuffers,
    ) -> Result<bool, PaceError> {
        self.go_to(Bytes(from));
        let bytes = carried.iter().map(|carrier| carrier.bytes).sum();
        let Some((offset, len)) = self.next_place(bytes) else {
            return Ok(false);
        };
        let mut memory = Segments::empty(Direction::Read);
        let mut left = len;
        for carrier in &carried {
            let size = left.min(carrier.buffer.size() as u64);
            left -= size;
            memory.append_own(carrier.buffer.segments(Direction::Read, 0..size as usize)?)?;
        }
        self.submit_at(offset, memory, carried)
    }

    /// Submits the next block, which consists of these full buffers.
    pub(super) fn submit_full(
        &mut self,
        block: impl IntoIterator<Item = FullBuffer>,
    ) -> Result<bool, PaceError> {
        let (mut carried, mut memory) = (PartBuffers::new(), Segments::empty(Direction::Write));
        let mut place = None;
        for held in block {
            place = place.or(held.offset);
            memory.append_own(held.memory)?;
            carried.push(PartBuffer {
                buffer: held.buffer,
                bytes: held.bytes,
                is_borrowed: held.is_borrowed,
            });
        }
        let bytes = carried.iter().map(|carrier| carrier.bytes).sum();
        if let Some(offset) = place {
            self.go_to(offset);
            let grain = self.stream.volume().write_grain();
            let is_inside = self.block_at(offset.0).is_some_and(|len| bytes <= len);
            if !is_inside || !offset.0.is_multiple_of(grain.0) {
                return Err(PaceError::Place { offset });
            }
        }
        let Some((offset, len)) = self.next_place(bytes) else {
            return Ok(false);
        };
        let memory = memory.slice(0..len as usize)?;
        self.submit_at(offset, memory, carried)
    }

    fn submit_at(
        &mut self,
        offset: u64,
        memory: Segments,
        carried: PartBuffers,
    ) -> Result<bool, PaceError> {
        let bytes = carried.iter().map(|carrier| carrier.bytes).sum();
        let volume = self.stream.volume();
        let len = memory.size() as u64;
        let op = match self.stream.op() {
            Direction::Read => VolumeOp::Read,
            Direction::Write => VolumeOp::Write { durable: false },
        };
        let (kept, memory, ahead) = self.through_track_buffer(offset, memory);
        let request = VolumeRequest::transfer(volume, op, Bytes(offset + kept), memory)
            .on(self.stream)
            .ahead(ahead)
            .user_data(self.next_index);
        if let Err(error) = self.stream.client().submit(request) {
            self.track.not_submitted(self.next_index);
            if self.is_over() {
                return Ok(false);
            }
            return Err(error.into());
        }
        self.in_flight.push(BlockInFlight {
            index: self.next_index,
            before: self.submitted_bytes,
            offset,
            bytes,
            carried,
        });
        let flight = self.in_flight.last();
        self.next_index += flight.map_or(0, |flight| flight.carried.len() as u64);
        self.submitted_bytes += bytes;
        let range = self.stream.range();
        let next = offset + len;
        self.at = if next < range.end {
            Some(next)
        } else {
            self.stream.wraps().then_some(range.start)
        };
        Ok(true)
    }

    /// Readable when a block or a flush is done.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.stream.client().event().as_fd()
    }

    /// Time from one block to the next at the current rate.
    pub(super) fn period(&self) -> Nanos {
        let period = self.stream.rate().period_of(self.stream.block());
        period.unwrap_or(Nanos::MAX)
    }

    /// The duration of `bytes` at the current rate. A part of a block costs the disks as much as all of it, but that
    /// is made up for where they have time.
    pub(super) fn lasts(&self, bytes: u64) -> Nanos {
        let block = self.stream.block().0.max(1);
        let lasts = u128::from(self.period().0) * u128::from(bytes.min(block)) / u128::from(block);
        Nanos(u64::try_from(lasts).unwrap_or(u64::MAX))
    }

    /// True if another block can be submitted: the stream is not being changed, and fewer requests are in flight
    /// than its client may have.
    pub(super) fn has_place(&self) -> bool {
        let of_flush = 1;
        let places = self.stream.client().core().limit() - of_flush;
        self.in_flight.len() < places && !self.stream.is_changing()
    }

    /// A guard for submitting a block without waiting; `None` while the stream is being changed.
    pub(super) fn enter(&self) -> Option<MutexGuard<'a, ()>> {
        self.stream.core().enter()
    }

    /// Number of buffers in flight.
    pub(super) fn in_flight(&self) -> usize {
        let carried = self.in_flight.iter().map(|flight| flight.carried.len());
        carried.sum()
    }

    /// Number of buffers submitted so far.
    pub(super) fn submitted(&self) -> u64 {
        self.next_index
    }
}

#[cfg(test)]
mod tests;
