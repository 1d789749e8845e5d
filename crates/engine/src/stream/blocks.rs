//! Writing blocks of a stream from an event loop.
//!
//! [`Recorder`](super::Recorder) and [`Player`](super::Player) move a byte stream. A caller that receives packets
//! from several sockets, or plays blocks out of order, has an event loop of its own. It takes buffers, puts them
//! back full, and calls `advance` whenever it wakes. The reservation is kept in the same way: one block per
//! period, and not earlier than the pace allows.
//!
//! Blocks may become longer while they are moved ([`StreamChange::block`](super::Wish)). The caller still fills and takes
//! single buffers. Consecutive buffers within a block of the range's grid are transferred together. A writer
//! waits for all of a block's buffers, but no longer than a period; a reader waits for all requests of a block.
//!
//! An event loop sleeps until the first of its own peers, [`event`](BlockWriter::event), and
//! [`next_at`](BlockWriter::next_at), and only if [`arm`](BlockWriter::arm) returns true.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use sched::request::Op as Direction;
use sched::units::{Bytes, Time};
use smallvec::SmallVec;

use super::buffers::{BlockBuffer, BufferUse, Buffers};
use super::pace::{BlockReport, PaceError, PaceReport};
use super::session::{FullBuffer, Pace, Session};
use crate::clock;
use crate::volume_io::stream::Stream;

/// For each submitted buffer: its bytes, and true if it is borrowed.
type SubmittedBuffers = SmallVec<[(u64, bool); 1]>;

/// Chooses the offset for the buffer of an index.
type Place<'a> = Box<dyn FnMut(u64) -> Bytes + 'a>;

/// Writes blocks of a stream in order, each when its time has come.
pub struct BlockWriter<'a> {
    session: Session<'a>,
    buffers: Buffers<'a>,
    /// The most buffers that may be borrowed.
    borrow_most: usize,
    /// Full buffers that wait for their time.
    ready: VecDeque<FullBuffer>,
    /// Chooses the offset of each block, if they are not consecutive.
    place: Option<Place<'a>>,
    /// No more buffers come: the rest is submitted as early as possible.
    is_ending: bool,
    pace: Pace,
}

impl<'a> BlockWriter<'a> {
    /// A session that starts at `offset` of the stream's range, a multiple of the volume's
    /// [write grain](crate::pool::Volume::write_grain).
    ///
    /// # Errors
    /// When the stream plays, `offset` is within a physical sector, or there is no memory for the buffers.
    pub fn new(stream: &'a Stream, offset: Bytes) -> Result<Self, PaceError> {
        let session = Session::new(stream, offset, Direction::Write)?;
        Ok(Self {
            buffers: Buffers::new(&session, None)?,
            borrow_most: 0,
            ready: VecDeque::new(),
            place: None,
            is_ending: false,
            pace: Pace::new(session.begin),
            session,
        })
    }

    /// Sets a function that chooses the offset of each buffer, by its index, when the buffer's time has come. Offsets
    /// are relative to the start of the stream's range and multiples of the volume's
    /// [write grain](crate::pool::Volume::write_grain).
    #[must_use]
    pub fn placed(mut self, place: impl FnMut(u64) -> Bytes + 'a) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// Lets it borrow up to `count` buffers beside the stream's own, from memory that nobody else wants: for blocks
    /// that come faster than they may be written. Each goes back when it is written. If the memory is wanted back
    /// before, its blocks are submitted early, where that harms no deadline, and it is kept until they are written.
    pub fn borrow_at_most(&mut self, count: usize) {
        self.borrow_most = count;
    }

    /// A buffer to be filled; `None` if all are full or in transfer and none can be borrowed.
    pub fn take(&mut self) -> Option<BlockBuffer> {
        self.buffers.refresh();
        self.buffers.fill(self.borrow_most)
    }

    /// Takes back a buffer that is not to be written.
    pub fn give_back(&mut self, block: BlockBuffer) {
        let buffer = block.filling.into_buffer();
        self.buffers.emptied(buffer, block.is_borrowed);
    }

    /// Numbers of buffers.
    #[must_use]
    pub fn buffers(&self) -> BufferUse {
        BufferUse {
            own: self.buffers.own(),
            borrowed: self.buffers.borrowed,
            full: self.ready.len() + self.session.in_flight(),
        }
    }

    /// True if borrowed memory is wanted back: a buffer that is being filled should be put.
    #[must_use]
    pub fn are_wanted_back(&self) -> bool {
        self.buffers.are_wanted_back()
    }

    /// Readable when [`are_wanted_back`](Self::are_wanted_back) may have changed. A thread that sleeps on it has to
    /// [drain](Self::drain) it.
    #[must_use]
    pub fn memory_event(&self) -> BorrowedFd<'_> {
        self.session.stream.client().account().event().as_fd()
    }

    /// Queues a filled buffer: its first `bytes` bytes, padded with the following bytes to the end of a physical
    /// sector.
    pub fn put(&mut self, block: BlockBuffer, bytes: Bytes) {
        self.session.report.bytes += bytes.0;
        let (buffer, memory) = block.filling.into_source();
        self.ready.push_back(FullBuffer {
            buffer,
            memory,
            bytes: bytes.0,
            offset: None,
            since: clock::now(),
            is_borrowed: block.is_borrowed,
        });
    }

    /// Chooses offsets for the full buffers, as far as they can be part of the next block.
    fn place(&mut self) {
        let Some(place) = &mut self.place else { return };
        let first = self.session.submitted();
        let mut next: Option<u64> = None;
        for (held, index) in self.ready.iter_mut().zip(first..) {
            let offset = *held.offset.get_or_insert_with(|| place(index));
            let follows = next.is_none_or(|next| next == offset.0);
            next = Some(offset.0 + held.bytes);
            let left = self.session.block_at(offset.0);
            if !follows || left.is_none_or(|left| left <= held.bytes) {
                break;
            }
        }
    }

    /// Number of full buffers with offsets that form the next block.
    fn joined(&self) -> usize {
        let mut count = 0;
        // The offset at which the next buffer has to begin, and the rest of the block there.
        let mut open: Option<(u64, u64)> = None;
        for held in &self.ready {
            let follows = open.map(|(next, _)| next).or(self.session.next_from());
            let offset = match (&self.place, held.offset) {
                (Some(_), None) => break,
                (_, offset) => offset.map(|offset| offset.0).or(follows),
            };
            let Some(from) = offset else { break };
            let left = match open {
                Some((next, left)) if next == from && held.bytes <= left => left,
                Some(_) => break,
                None => self.session.block_at(from).unwrap_or(0),
            };
            count += 1;
            let left = left.saturating_sub(held.bytes);
            // A buffer that is not full gets padded, so it must be the last of its block.
            if left == 0 || held.bytes != self.session.stream.buffer().0 {
                break;
            }
            open = Some((from + held.bytes, left));
        }
        count.max(usize::from(!self.ready.is_empty()))
    }

    /// When the next block is to be submitted; `None` if no buffer is full.
    fn due_at(&self) -> Option<Time> {
        let first = self.ready.front()?;
        let period = self.session.period();
        let due = self.pace.next(period);
        let from = first.offset.map(|offset| offset.0);
        let left = from.or(self.session.next_from());
        let left = left.and_then(|from| self.session.block_at(from));
        let full: u64 = self.ready.iter().map(|held| held.bytes).sum();
        if full >= left.unwrap_or(self.session.stream.block().0) {
            return Some(due);
        }
        Some(due.max(first.since.saturating_add(period)))
    }

    /// Takes back written buffers, submits blocks whose time has come, and makes data durable every two seconds.
    /// Calls `on_block` for every completed block.
    ///
    /// # Errors
    /// When a block has failed or was refused, or the data cannot be made durable; then nothing is in flight any
    /// more.
    pub fn advance(&mut self, on_block: &mut dyn FnMut(&BlockReport)) -> Result<(), PaceError> {
        while let Some(done) = self.session.poll(on_block)? {
            self.buffers.emptied(done.buffer, done.is_borrowed);
        }
        if self.session.is_failing() {
            return Ok(());
        }
        self.buffers.refresh();
        while self.session.has_place() {
            let now = clock::now();
            let is_due = self.due_at().is_some_and(|due| due <= now);
            let is_wanted = self.ready.iter().any(|held| held.is_borrowed);
            let is_wanted = is_wanted && self.buffers.are_wanted_back();
            if !is_due && !self.is_ending && !is_wanted {
                break;
            }
            // The placement function may wait, so it is called before `enter`, which holds up rate changes.
            self.place();
            let Some(_entered) = self.session.enter() else {
                break;
            };
            // While `_entered` exists, the block size cannot change.
            let count = self.joined();
            if count == 0 {
                break;
            }
            let gone = self.ready.iter().take(count);
            let gone: SubmittedBuffers = gone.map(|held| (held.bytes, held.is_borrowed)).collect();
            let lasts = self
                .session
                .lasts(gone.iter().map(|(bytes, _)| *bytes).sum());
            if !self.session.submit_full(self.ready.drain(..count))? {
                for (bytes, is_borrowed) in gone {
                    self.session.report.bytes -= bytes;
                    self.buffers.dropped(is_borrowed);
                }
            }
            self.pace.step(now, self.session.period(), lasts);
        }
        self.session.flush_due()
    }

    /// The time of the next action of [`advance`](Self::advance), unless the [event](Self::event) comes before.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        if self.session.is_failing() {
            return None;
        }
        let due = self.due_at().filter(|_| self.session.has_place());
        let due = due.map(|due| if self.is_ending { Time::ZERO } else { due });
        due.into_iter().chain(self.session.flush_at()).min()
    }

    /// Readable when a block or a flush is done, and when the rate was changed. A thread that sleeps on it has to
    /// [drain](Self::drain) it.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.session.event()
    }

    /// Announces that the caller is about to sleep on the event. If it returns false, the caller must not sleep,
    /// because completions are queued.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.session.stream.client().arm()
    }

    /// Resets the events after waking.
    pub fn drain(&self) {
        let client = self.session.stream.client();
        client.event().drain();
        client.account().event().drain();
    }

    /// Number of full buffers that have not been submitted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Statistics of the session so far.
    #[must_use]
    pub fn report(&self) -> &PaceReport {
        &self.session.report
    }

    /// From here on, submits buffers before their time where that harms no deadline, as [`finish`](Self::finish)
    /// does.
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Writes all queued buffers, waits for them, and makes them durable. Buffers are submitted before their time
    /// where that harms no deadline.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn finish(
        mut self,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<PaceReport, PaceError> {
        self.end();
        loop {
            self.advance(on_block)?;
            if self.ready.is_empty() && !self.session.is_failing() {
                break;
            }
            self.session.sleep(None, self.next_at(), None)?;
        }
        self.session.settle(on_block)?;
        Ok(self.session.report)
    }
}

impl std::fmt::Debug for BlockWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWriter")
            .field("waiting", &self.ready.len())
            .finish_non_exhaustive()
    }
}
