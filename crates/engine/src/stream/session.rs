//! What a recording and a player have in common: a session's place in its stream, its blocks on their
//! way, and what of them is durable.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use parking_lot::MutexGuard;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, Time};
use smallvec::{SmallVec, smallvec};

use super::pace::{BlockReport, PaceError, PaceReport, Stop};
use super::reserve::Stream;
use crate::buffer::{Buffer, Segments};
use crate::clock;
use crate::state::stream::core::{MovesBytes, op_name};
use crate::volume_io::{IoFailure, VolumeCompletion, VolumeOp, VolumeRequest};

/// How often what was recorded is made durable.
const FLUSH_EVERY: Nanos = Nanos::from_secs(2);

/// What a flush is known by; blocks are counted from 0.
const FLUSH: u64 = u64::MAX;

/// A session's place in its stream.
pub(super) struct Session<'a> {
    pub(super) stream: &'a Stream,
    /// When the first block may be handed over: when the reservation begins.
    pub(super) begin: Time,
    /// When the reservation ends, if that is known.
    until: Option<Time>,
    /// Whoever runs the session knows that it has ended.
    knows_end: Cell<bool>,
    /// Where the next block begins, in bytes of the volume; `None` after the range's end.
    at: Option<u64>,
    next_index: u64,
    in_flight: Vec<Flight>,
    /// What of blocks that are done has not been told.
    finished: VecDeque<Finished>,
    /// Bytes handed to the disks.
    submitted_bytes: u64,
    /// Bytes handed to the disks before the first block that failed.
    broken_at: Option<u64>,
    flushing: Flushing,
    pub(super) report: PaceReport,
    failed: Option<PaceError>,
}

/// The earliest instants for blocks, a period apart.
pub(super) struct Pace {
    begin: Time,
    /// From when on what was handed over last lasts, and how long; `None` before the first.
    last: Option<(Time, Nanos)>,
}

impl Pace {
    pub(super) fn new(begin: Time) -> Self {
        Self { begin, last: None }
    }

    /// When the next block may be handed over: when the last one is over, or sooner if a period has become shorter.
    pub(super) fn next(&self, period: Nanos) -> Time {
        let next = |(from, lasts): (Time, Nanos)| from.saturating_add(lasts.min(period));
        self.last.map_or(self.begin, next)
    }

    /// One is handed over that lasts so long. More than a period late, it moves what comes after it.
    pub(super) fn step(&mut self, now: Time, period: Nanos, lasts: Nanos) {
        let due = self.next(period);
        let is_late = due.saturating_add(period) < now;
        self.last = Some((if is_late { now } else { due }, lasts));
    }
}

/// Making durable what was written.
#[derive(Default)]
struct Flushing {
    /// A flush is under way, and this many bytes were written before it.
    covers: Option<u64>,
    /// When the next may begin.
    next_at: Time,
    /// There is none after it.
    is_last: bool,
}

/// A block on its way.
struct Flight {
    index: u64,
    /// Bytes handed to the disks before it.
    before: u64,
    offset: u64,
    bytes: u64,
    carried: Carried,
}

/// The buffers that a block is in, in order.
pub(super) type Carried = SmallVec<[Carrier; 1]>;

/// A buffer, and how much of a block is in it.
pub(super) struct Carrier {
    pub(super) buffer: Buffer,
    pub(super) bytes: u64,
    pub(super) is_borrowed: bool,
}

/// A buffer that is full, whose memory is held until it is written.
pub(super) struct Held {
    pub(super) buffer: Buffer,
    pub(super) memory: Segments,
    pub(super) bytes: u64,
    /// Where it goes, from the beginning of the stream's range; `None`: behind the one before it.
    pub(super) offset: Option<Bytes>,
    /// Since when it is full.
    pub(super) since: Time,
    pub(super) is_borrowed: bool,
}

/// A buffer of a block that is done.
pub(super) struct Finished {
    pub(super) index: u64,
    pub(super) bytes: u64,
    /// When the disks were done with it.
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
            submitted_bytes: 0,
            broken_at: None,
            flushing: Flushing::default(),
            report: PaceReport::default(),
            failed: None,
        })
    }

    /// Bytes are to be moved.
    ///
    /// # Errors
    /// When blocks are in several buffers.
    pub(super) fn moves_bytes(&self) -> Result<MovesBytes<'a>, PaceError> {
        let moves = self.stream.core().moves_bytes();
        moves.ok_or_else(|| PaceError::Block {
            buffer: self.stream.buffer(),
            block: self.stream.block(),
        })
    }

    /// Buffers, as many as the stream was admitted with, less so many that are taken: waits for those that are still in
    /// use.
    ///
    /// # Errors
    /// When none of the stream's is out, and there is no room for a block.
    pub(super) fn buffers(&self, taken: u32) -> Result<Vec<Buffer>, PaceError> {
        let account = self.stream.client().account();
        let size = self.stream.buffer().0 as usize;
        let disks = self.stream.core().disks_max.max(1);
        let count = crate::state::stream::core::BUFFERS_PER_DISK as u32 * disks as u32;
        (taken..count)
            .map(|held| account.allocate_own(size, held).map_err(PaceError::Memory))
            .collect()
    }

    /// How much is put in a buffer at most that follows the next `ready` bytes: to the end of the part as long as one of
    /// the range's grid in which it begins. `None` after the range's end.
    pub(super) fn len_after(&self, ready: u64) -> Option<u64> {
        let range = self.stream.range();
        let size = range.end - range.start;
        let mut from = self.at? - range.start + ready;
        if from >= size {
            if !self.stream.wraps() {
                return None;
            }
            from %= size;
        }
        self.len_at(from)
    }

    /// The same of what begins there in the range.
    pub(super) fn len_at(&self, from: u64) -> Option<u64> {
        self.left_of(from, self.stream.buffer())
    }

    /// How much is left there in the range to the end of the block.
    pub(super) fn block_at(&self, from: u64) -> Option<u64> {
        self.left_of(from, self.stream.block())
    }

    fn left_of(&self, from: u64, part: Bytes) -> Option<u64> {
        let range = self.stream.range();
        let left = (range.end - range.start).checked_sub(from)?;
        (left > 0).then(|| left.min(part.0 - from % part.0))
    }

    /// Where in the range the next block begins, unless it is told to begin somewhere else; `None` after its end.
    pub(super) fn next_from(&self) -> Option<u64> {
        Some(self.at? - self.stream.range().start)
    }

    /// Where a block of so many bytes ends, filled up, that begins at `offset` of the volume: where a
    /// physical sector does, or the block of the range's grid that it is in, whichever is first.
    fn filled_up(&self, offset: u64, bytes: u64) -> u64 {
        let (range, block) = (self.stream.range(), self.stream.block().0);
        let of_grid = (offset - range.start) / block * block + block;
        let grid_end = range.end.min(range.start + of_grid);
        let sector = self.stream.volume().write_grain().0;
        (offset + bytes).next_multiple_of(sector).min(grid_end)
    }

    /// Whether the reservation's time is over.
    pub(super) fn is_over(&self) -> bool {
        let is_over = self.until.is_some_and(|until| until <= clock::now());
        self.knows_end.set(is_over);
        is_over
    }

    /// Hands the next block of `bytes`, filled up with what follows in the buffer, to the disks. Says
    /// whether it went: none does after the end of the reservation.
    pub(super) fn submit(&mut self, buffer: Buffer, bytes: u64) -> Result<bool, PaceError> {
        let Some((offset, len)) = self.next_place(bytes) else {
            return Ok(false);
        };
        let memory = buffer.segments(self.stream.op(), 0..len as usize)?;
        let carrier = Carrier {
            buffer,
            bytes,
            is_borrowed: false,
        };
        self.submit_at(offset, memory, smallvec![carrier])
    }

    /// Has the next block, which begins there in the range, read into buffers.
    pub(super) fn submit_read(&mut self, from: u64, carried: Carried) -> Result<bool, PaceError> {
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

    /// Hands over the next block, whose buffers are held already, all of them.
    pub(super) fn submit_held(
        &mut self,
        block: impl IntoIterator<Item = Held>,
    ) -> Result<bool, PaceError> {
        let (mut carried, mut memory) = (Carried::new(), Segments::empty(Direction::Write));
        let mut place = None;
        for held in block {
            place = place.or(held.offset);
            memory.append_own(held.memory)?;
            carried.push(Carrier {
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

    /// Where the next block begins, and how long it is filled up; `None`: none goes any more.
    fn next_place(&self, bytes: u64) -> Option<(u64, u64)> {
        let offset = self.at.filter(|_| !self.is_over())?;
        Some((offset, self.filled_up(offset, bytes) - offset))
    }

    fn submit_at(
        &mut self,
        offset: u64,
        memory: Segments,
        carried: Carried,
    ) -> Result<bool, PaceError> {
        let bytes = carried.iter().map(|carrier| carrier.bytes).sum();
        let volume = self.stream.volume();
        let len = memory.size() as u64;
        let op = match self.stream.op() {
            Direction::Read => VolumeOp::Read,
            Direction::Write => VolumeOp::Write { durable: false },
        };
        let request = VolumeRequest::transfer(volume, op, Bytes(offset), memory)
            .on(self.stream)
            .user_data(self.next_index);
        match self.stream.client().submit(request) {
            Ok(_) => {}
            Err(_) if self.is_over() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.in_flight.push(Flight {
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

    /// The next block is the one that begins there, from the beginning of the stream's range.
    pub(super) fn go_to(&mut self, offset: Bytes) {
        let range = self.stream.range();
        let at = range.start.checked_add(offset.0);
        self.at = at.filter(|at| *at < range.end);
    }

    /// Readable when a block or a flush is done.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.stream.client().event().as_fd()
    }

    /// From one block to the next, at the rate that is reserved now.
    pub(super) fn period(&self) -> Nanos {
        let period = self.stream.rate().period_of(self.stream.block());
        period.unwrap_or(Nanos::MAX)
    }

    /// How long so many bytes last at the rate that is reserved now: part of a block takes as much of the disks as all of
    /// it, but where they have time it is made up for.
    pub(super) fn lasts(&self, bytes: u64) -> Nanos {
        let block = self.stream.block().0.max(1);
        let lasts = u128::from(self.period().0) * u128::from(bytes.min(block)) / u128::from(block);
        Nanos(u64::try_from(lasts).unwrap_or(u64::MAX))
    }

    /// Whether another block can be handed over: not while the stream is being changed, or as many are in flight as the
    /// stream was admitted with buffers.
    pub(super) fn has_place(&self) -> bool {
        let of_flush = 1;
        let places = self.stream.client().core().limit() - of_flush;
        self.in_flight.len() < places && !self.stream.is_changing()
    }

    /// Kept while a block is handed over that must not wait; `None`: the stream is being changed.
    pub(super) fn enter(&self) -> Option<MutexGuard<'a, ()>> {
        self.stream.core().enter()
    }

    /// How many buffers are on their way.
    pub(super) fn in_flight(&self) -> usize {
        let carried = self.in_flight.iter().map(|flight| flight.carried.len());
        carried.sum()
    }

    /// How many buffers have been handed over.
    pub(super) fn submitted(&self) -> u64 {
        self.next_index
    }

    /// A buffer that is done, if one is. `on_block` is told of whole blocks.
    ///
    /// # Errors
    /// When it failed; those still in flight are waited for before.
    pub(super) fn poll(
        &mut self,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<Option<Finished>, PaceError> {
        loop {
            if let Some(finished) = self.finished.pop_front() {
                return Ok(Some(finished));
            }
            let Some(completion) = self.stream.client().poll() else {
                break;
            };
            if completion.user_data == FLUSH {
                self.flushed(completion.result);
                continue;
            }
            self.finish(completion, on_block);
            if self.failed.is_some() {
                self.finished.clear();
            }
        }
        if self.in_flight.is_empty()
            && self.flushing.covers.is_none()
            && let Some(failure) = self.failed.take()
        {
            return Err(failure);
        }
        Ok(None)
    }

    /// Bytes from the beginning that are on the disks.
    fn written(&self) -> u64 {
        let in_flight = self.in_flight.iter().map(|flight| flight.before);
        let ends = in_flight.chain(self.broken_at).min();
        ends.unwrap_or(self.submitted_bytes)
    }

    /// When what has been written is to be made durable, if there is something to.
    pub(super) fn flush_at(&self) -> Option<Time> {
        let is_due = self.flushing.covers.is_none() && self.written() > self.report.durable_bytes;
        is_due.then_some(self.flushing.next_at)
    }

    /// Has what is written made durable if it is time to.
    pub(super) fn flush_due(&mut self) -> Result<(), PaceError> {
        let now = clock::now();
        if self.flush_at().is_some_and(|at| at <= now) {
            self.flush()?;
            // At the same instants as other recordings: one record of the log serves them all.
            let past = now.0 % FLUSH_EVERY.0;
            self.flushing.next_at = now.saturating_add(FLUSH_EVERY - Nanos(past));
        }
        Ok(())
    }

    /// Waits for what is in flight, and has all that is written made durable.
    pub(super) fn settle(
        &mut self,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<(), PaceError> {
        loop {
            while self.poll(on_block)?.is_some() {}
            if self.in_flight.is_empty() && self.flushing.covers.is_none() {
                if self.written() == self.report.durable_bytes {
                    return Ok(());
                }
                self.flushing.is_last = true;
                self.flush()?;
            }
            self.wait()?;
        }
    }

    /// Waits for what is in flight, whatever comes of it.
    pub(super) fn drain(
        &mut self,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<(), PaceError> {
        while !self.in_flight.is_empty() {
            self.wait()?;
            while matches!(self.poll(on_block), Ok(Some(_))) {}
        }
        Ok(())
    }

    /// Sleeps until a block or a flush is done, and for nothing else.
    pub(super) fn wait(&self) -> Result<(), PaceError> {
        // Once it is known that the reservation's time is over, that does not wake.
        self.is_over();
        self.sleep(None, None, None).map(drop)
    }

    fn flush(&mut self) -> Result<(), PaceError> {
        let volume = self.stream.volume();
        let request = VolumeRequest::command(volume, VolumeOp::Flush, Bytes::ZERO, Bytes::ZERO);
        self.stream.client().submit(request.user_data(FLUSH))?;
        self.flushing.covers = Some(self.written());
        Ok(())
    }

    fn flushed(&mut self, result: Result<(), IoFailure>) {
        let covers = self.flushing.covers.take().unwrap_or(0);
        match result {
            Ok(()) => {
                self.report.durable_bytes = covers;
                self.stream.set_durable(covers);
            }
            // What is written is not lost, and is said of none of it to be durable. The next one tries again.
            Err(IoFailure::NotNow { .. }) if !self.flushing.is_last => {}
            Err(failure) => {
                self.failed.get_or_insert(PaceError::Flush(failure));
            }
        }
    }

    /// Whether a block has failed and the session ends when nothing is in flight.
    pub(super) fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    fn finish(&mut self, completion: VolumeCompletion, on_block: &mut dyn FnMut(&BlockReport)) {
        let is_it = |flight: &Flight| flight.index == completion.user_data;
        let Some(place) = self.in_flight.iter().position(is_it) else {
            return;
        };
        let flight = self.in_flight.swap_remove(place);
        if let Err(failure) = completion.result {
            let index = flight.index;
            self.failed.get_or_insert(PaceError::Io { index, failure });
            let before = self.broken_at.unwrap_or(u64::MAX);
            self.broken_at = Some(before.min(flight.before));
            return;
        }
        let timeliness = completion.timeliness;
        let late = timeliness.map_or(Nanos::ZERO, |of| of.late);
        let late_net = timeliness.map_or(Nanos::ZERO, |of| of.late_net);
        let report = BlockReport {
            index: flight.index,
            buffers: flight.carried.len() as u64,
            offset: flight.offset,
            bytes: flight.bytes,
            submitted: completion.submitted,
            deadline: timeliness.map(|of| of.deadline),
            completed: completion.completed,
            late,
            late_net,
        };
        self.report.blocks += 1;
        self.report.misses += u64::from(!late_net.is_zero());
        self.report.misses_gross += u64::from(!late.is_zero());
        self.report.late_max = self.report.late_max.max(late);
        self.report.late_net_max = self.report.late_net_max.max(late_net);
        on_block(&report);
        let carried = flight.carried.into_iter().zip(flight.index..);
        let finished = carried.map(|(carrier, index)| Finished {
            index,
            bytes: carrier.bytes,
            completed: completion.completed,
            buffer: carrier.buffer,
            is_borrowed: carrier.is_borrowed,
        });
        self.finished.extend(finished);
    }

    /// Sleeps until the peer is ready (if it is given), a block is done, `until`, the end of the
    /// reservation, or the signal to stop (if it is given). Returns whether the peer is ready and whether
    /// to stop.
    pub(super) fn sleep(
        &self,
        peer: Option<(BorrowedFd<'_>, PollFlags)>,
        until: Option<Time>,
        stop: Option<&Stop>,
    ) -> Result<(bool, bool), PaceError> {
        let client = self.stream.client();
        let armed = client.arm();
        let end = self.until.filter(|_| !self.knows_end.get());
        let until = until.into_iter().chain(end).min();
        let left = until.map(|until| until.saturating_since(clock::now()));
        let left = if armed { left } else { Some(Nanos::ZERO) };
        let timeout = left.map(clock::timespec_of);
        let mut fds = Vec::with_capacity(3);
        let event = PollFd::from_borrowed_fd(client.event().as_fd(), PollFlags::IN);
        fds.push(event);
        fds.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop.fd(), PollFlags::IN)));
        fds.extend(peer.map(|(peer, flags)| PollFd::from_borrowed_fd(peer, flags)));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(PaceError::Peer(error.into())),
        }
        let mut is_ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if is_ready.next() == Some(true) {
            client.event().drain();
        }
        let stopped = stop.is_some() && is_ready.next() == Some(true);
        let ready = is_ready.next() == Some(true);
        Ok((ready, stopped))
    }
}

#[cfg(test)]
mod tests;
