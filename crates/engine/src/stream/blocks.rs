//! Blocks of a stream, for whoever fills and uses them itself.
//!
//! A [`Recorder`](super::Recorder) and a [`Player`](super::Player) move a byte stream. Whoever receives packets from
//! several sockets, or plays blocks out of order, has an event loop of its own: it takes buffers, puts them back full,
//! and calls `advance` whenever it wakes. What is reserved is kept to as there: a block each period, not earlier than
//! the pace says.
//!
//! Blocks may become longer while they are moved ([`Wish::block`](super::Wish)). What is filled and taken is a buffer
//! all the same: those that follow each other within a block, as the range is divided into blocks, are transferred
//! together. A writer waits for all of a block's buffers, but not longer than a period, and a reader for all that will be
//! asked for of it.
//!
//! An event loop sleeps until the first of: its own peers, [`event`](BlockWriter::event), and
//! [`next_at`](BlockWriter::next_at), and only if [`arm`](BlockWriter::arm) lets it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use sched::request::Op as Direction;
use sched::units::{Bytes, Time};
use smallvec::SmallVec;

use super::buffers::{BlockBuffer, BufferUse, Buffers};
use super::pace::{BlockReport, PaceError, PaceReport};
use super::session::{Held, Pace, Session};
use crate::clock;
use crate::volume_io::stream::Stream;

/// Of what is handed over, bytes and whether it is borrowed.
type Carriage = SmallVec<[(u64, bool); 1]>;

/// Says where what is in the buffer of an index goes.
type Place<'a> = Box<dyn FnMut(u64) -> Bytes + 'a>;

/// Writes blocks of a stream one after another, each when its turn has come.
pub struct BlockWriter<'a> {
    session: Session<'a>,
    buffers: Buffers<'a>,
    /// How many may be borrowed.
    borrow_most: usize,
    /// Full, waiting for their time.
    ready: VecDeque<Held>,
    /// Says where each block goes, if they do not follow each other.
    place: Option<Place<'a>>,
    /// Nothing more comes: what there is goes as early as it may.
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

    /// Has somebody say where what is in each buffer goes, by its index, when its turn has come: from the beginning of the stream's
    /// range, a multiple of the volume's [write grain](crate::pool::Volume::write_grain).
    #[must_use]
    pub fn placed(mut self, place: impl FnMut(u64) -> Bytes + 'a) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// Lets it borrow so many buffers beside the stream's own, while nobody else wants their memory: for blocks that
    /// come faster than they may be written. Each goes back when it is written. What is wanted back before has its
    /// blocks handed over before their time, where they do nobody harm, and is kept until they are written.
    pub fn borrow_at_most(&mut self, count: usize) {
        self.borrow_most = count;
    }

    /// A buffer to be filled; `None` while all of them are full or on their way and none can be borrowed.
    pub fn take(&mut self) -> Option<BlockBuffer> {
        self.buffers.look();
        self.buffers.fill(self.borrow_most)
    }

    /// Takes back a buffer of which nothing is to be written.
    pub fn give_back(&mut self, block: BlockBuffer) {
        let buffer = block.filling.into_buffer();
        self.buffers.emptied(buffer, block.is_borrowed);
    }

    /// How many buffers there are, and how many of them are in use.
    #[must_use]
    pub fn buffers(&self) -> BufferUse {
        BufferUse {
            own: self.buffers.own(),
            borrowed: self.buffers.borrowed,
            full: self.ready.len() + self.session.in_flight(),
        }
    }

    /// Whether borrowed buffers are wanted back: one that is being filled should be put.
    #[must_use]
    pub fn are_wanted_back(&self) -> bool {
        self.buffers.are_wanted_back()
    }

    /// Readable when that may have changed; to be drained by whoever sleeps on it ([`drain`](Self::drain)).
    #[must_use]
    pub fn memory_event(&self) -> BorrowedFd<'_> {
        self.session.stream.client().account().event().as_fd()
    }

    /// The next block: so many bytes of a buffer that was taken, which is what follows in it filled up with to the end
    /// of a physical sector.
    pub fn put(&mut self, block: BlockBuffer, bytes: Bytes) {
        self.session.report.bytes += bytes.0;
        let (buffer, memory) = block.filling.into_source();
        self.ready.push_back(Held {
            buffer,
            memory,
            bytes: bytes.0,
            offset: None,
            since: clock::now(),
            is_borrowed: block.is_borrowed,
        });
    }

    /// Has those that may be in the next block be told where they go, as long as they follow each other.
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

    /// How many of those that are full and placed are one block, the next.
    fn joined(&self) -> usize {
        let mut count = 0;
        // Where the next one has to begin, and how much of the block is left there.
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
            // One that is not full is filled up, and nothing follows it: the next begins in another buffer.
            if left == 0 || held.bytes != self.session.stream.buffer().0 {
                break;
            }
            open = Some((from + held.bytes, left));
        }
        count.max(usize::from(!self.ready.is_empty()))
    }

    /// When the next block is to be handed over; `None`: there is nothing of it.
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

    /// Does what there is to do: takes back buffers that are written, hands over blocks whose turn has come, and has
    /// what is written made durable every two seconds. `on_block` is told of every block that is done.
    ///
    /// # Errors
    /// When a block has failed or is not taken, or what was written cannot be made durable; nothing is in flight any
    /// more.
    pub fn advance(&mut self, on_block: &mut dyn FnMut(&BlockReport)) -> Result<(), PaceError> {
        while let Some(done) = self.session.poll(on_block)? {
            self.buffers.emptied(done.buffer, done.is_borrowed);
        }
        if self.session.is_failing() {
            return Ok(());
        }
        self.buffers.look();
        while self.session.has_place() {
            let now = clock::now();
            let is_due = self.due_at().is_some_and(|due| due <= now);
            let is_wanted = self.ready.iter().any(|held| held.is_borrowed);
            let is_wanted = is_wanted && self.buffers.are_wanted_back();
            if !is_due && !self.is_ending && !is_wanted {
                break;
            }
            // Whoever says where it goes may have to wait, which nobody else has to who changes the rate.
            self.place();
            let Some(_entered) = self.session.enter() else {
                break;
            };
            // As long as it is kept a block stays as long as it is.
            let count = self.joined();
            if count == 0 {
                break;
            }
            let gone = self.ready.iter().take(count);
            let gone: Carriage = gone.map(|held| (held.bytes, held.is_borrowed)).collect();
            let lasts = self
                .session
                .lasts(gone.iter().map(|(bytes, _)| *bytes).sum());
            if !self.session.submit_held(self.ready.drain(..count))? {
                for (bytes, is_borrowed) in gone {
                    self.session.report.bytes -= bytes;
                    self.buffers.dropped(is_borrowed);
                }
            }
            self.pace.step(now, self.session.period(), lasts);
        }
        self.session.flush_due()
    }

    /// When [`advance`](Self::advance) has something to do unless the [event](Self::event) comes before.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        if self.session.is_failing() {
            return None;
        }
        let due = self.due_at().filter(|_| self.session.has_place());
        let due = due.map(|due| if self.is_ending { Time::ZERO } else { due });
        due.into_iter().chain(self.session.flush_at()).min()
    }

    /// Readable when a block or a flush is done, and when the rate was changed; to be drained by whoever sleeps on it
    /// ([`drain`](Self::drain)).
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.session.event()
    }

    /// Says that the caller is about to sleep on the event; if it must not, because something is done, `false`.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.session.stream.client().arm()
    }

    /// After waking by an event.
    pub fn drain(&self) {
        let client = self.session.stream.client();
        client.event().drain();
        client.account().event().drain();
    }

    /// How many buffers are full and not yet handed to the disks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> &PaceReport {
        &self.session.report
    }

    /// From now on what was put goes to the disks before its time where that does nobody harm, as it does when it
    /// [finishes](Self::finish).
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Writes what was put, waits for it, and makes it durable. It goes to the disks before its time where that does nobody harm.
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
