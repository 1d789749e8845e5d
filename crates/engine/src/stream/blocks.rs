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

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, Time};
use smallvec::SmallVec;

use super::buffers::{BlockBuffer, BufferUse, Buffers};
use super::pace::{BlockReport, PaceError, PaceReport};
use super::reserve::Stream;
use super::session::{Carried, Carrier, Finished, Held, Pace, Session};
use crate::buffer::Buffer;
use crate::clock;

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

/// A buffer into which a block has been read, or what there is place for of it.
#[derive(Debug)]
pub struct ReadBlock {
    /// It is in the first `bytes` of this.
    pub buffer: Buffer,
    /// Where it begins, from the beginning of the stream's range.
    pub offset: Bytes,
    /// How long it is.
    pub bytes: Bytes,
}

/// Of what is asked for, how long each is, in bytes.
type Lengths = SmallVec<[u64; 1]>;

/// Reads blocks of a stream in any order that is asked for, one a period.
pub struct BlockReader<'a> {
    session: Session<'a>,
    buffers: Buffers<'a>,
    /// Offsets that are asked for and not handed to the disks yet.
    asked: VecDeque<u64>,
    /// More will be asked for when there are buffers.
    more_follow: bool,
    /// Offsets of those that are, by index.
    offsets: BTreeMap<u64, u64>,
    read: BTreeMap<u64, Finished>,
    next: u64,
    pace: Pace,
}

impl<'a> BlockReader<'a> {
    /// A session that has asked for nothing.
    ///
    /// # Errors
    /// When the stream records, or there is no memory for the buffers.
    pub fn new(stream: &'a Stream) -> Result<Self, PaceError> {
        Self::begin(stream, None)
    }

    /// The same where what is used first has been read before, [by the stream's client](crate::front::Client::read): that
    /// buffer, as long as the stream's are, is one of its own, which is taken and to be [given back](Self::give_back).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn beside(stream: &'a Stream, read: &Buffer) -> Result<Self, PaceError> {
        Self::begin(stream, Some(read))
    }

    fn begin(stream: &'a Stream, taken: Option<&Buffer>) -> Result<Self, PaceError> {
        let session = Session::new(stream, Bytes::ZERO, Direction::Read)?;
        Ok(Self {
            buffers: Buffers::new(&session, taken)?,
            asked: VecDeque::new(),
            more_follow: false,
            offsets: BTreeMap::new(),
            read: BTreeMap::new(),
            next: 0,
            pace: Pace::new(clock::now().max(session.begin)),
            session,
        })
    }

    /// Asks for what begins there, from the beginning of the stream's range, and is as long as a buffer. It comes in the
    /// order in which it is asked for.
    pub fn ask(&mut self, offset: Bytes) {
        self.asked.push_back(offset.0);
    }

    /// Whether more will be asked for as soon as there are buffers: what belongs to the same block as what has been
    /// asked for last is waited for then.
    pub fn more_follow(&mut self, follow: bool) {
        self.more_follow = follow;
    }

    /// Of what is asked for next, how much is in each of the buffers of a block, and whether that is all of it that will
    /// be.
    fn joined(&self) -> (Lengths, bool) {
        let mut lengths = Lengths::new();
        // Where the next one has to begin, and how much of the block is left there.
        let mut open: Option<(u64, u64)> = None;
        for from in &self.asked {
            let left = match open {
                Some((next, left)) if next == *from => left,
                Some(_) => return (lengths, true),
                None => self.session.block_at(*from).unwrap_or(0),
            };
            let len = self.session.len_at(*from).unwrap_or(0);
            lengths.push(len);
            // What follows one that is not full is no part of what is read into memory one after another.
            if len >= left || len != self.session.stream.buffer().0 {
                return (lengths, true);
            }
            open = Some((from + len, left - len));
        }
        (lengths, !self.more_follow)
    }

    /// How many blocks have been asked for and not [taken](Self::take).
    #[must_use]
    pub fn pending(&self) -> usize {
        self.asked.len() + self.offsets.len()
    }

    /// From one block to the next, at the rate that is reserved now.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.session.period()
    }

    /// How long it takes to read what begins there and fills so many buffers.
    #[must_use]
    pub fn time_for(&self, from: Bytes, buffers: u64) -> Nanos {
        let (block, buffer) = (self.session.stream.block(), self.session.stream.buffer());
        let bytes = from.0 % block.0 + buffers.saturating_mul(buffer.0);
        Nanos(
            self.session
                .period()
                .0
                .saturating_mul(bytes.div_ceil(block.0)),
        )
    }

    /// How many buffers there are.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.buffers.own()
    }

    /// How many buffers there are, and how many of them a block is read into, or has been and was not taken.
    #[must_use]
    pub fn use_of_buffers(&self) -> BufferUse {
        BufferUse {
            own: self.buffers.own(),
            borrowed: 0,
            full: self.offsets.len(),
        }
    }

    /// Does what there is to do: takes in what is read, asks the disks for blocks whose turn has come.
    ///
    /// # Errors
    /// When a block has failed or is not taken; nothing is in flight any more.
    pub fn advance(&mut self, on_block: &mut dyn FnMut(&BlockReport)) -> Result<(), PaceError> {
        while let Some(done) = self.session.poll(on_block)? {
            self.read.insert(done.index, done);
        }
        let before = self.buffers.own();
        self.buffers.look();
        if self.buffers.own() > before {
            // Whoever asks does not know of them yet.
            self.more_follow = false;
        }
        while let Some(at) = self.next_at() {
            let now = clock::now();
            if now < at {
                break;
            }
            let Some(_entered) = self.session.enter() else {
                break;
            };
            // As long as it is kept a block stays as long as it is.
            let (lengths, _) = self.joined();
            let count = lengths.len().min(self.buffers.free());
            let Some(from) = self.asked.front().copied().filter(|_| count > 0) else {
                break;
            };
            let asked: SmallVec<[u64; 1]> = self.asked.drain(..count).collect();
            if lengths[0] == 0 {
                // Nothing is there any more.
                continue;
            }
            let carrier = |bytes| {
                Some(Carrier {
                    buffer: self.buffers.take()?,
                    bytes,
                    is_borrowed: false,
                })
            };
            let carried: Carried = lengths.into_iter().take(count).map_while(carrier).collect();
            let index = self.session.submitted();
            let lasts = self.session.lasts(carried.iter().map(|of| of.bytes).sum());
            if self.session.submit_read(from, carried)? {
                self.offsets.extend((index..).zip(asked));
            }
            self.pace.step(now, self.session.period(), lasts);
        }
        Ok(())
    }

    /// When [`advance`](Self::advance) has something to do unless the event comes before.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        let may = !self.session.is_failing()
            && !self.asked.is_empty()
            && self.buffers.free() > 0
            && self.session.has_place();
        if !may {
            return None;
        }
        let (lengths, is_all) = self.joined();
        let own = self.buffers.own();
        let is_there = self.buffers.free() >= lengths.len().min(own);
        let is_whole = is_all || lengths.len() >= own;
        (is_there && is_whole).then(|| self.pace.next(self.session.period()))
    }

    /// The next buffer in the order in which was asked for what is in it, if it is there.
    pub fn take(&mut self) -> Option<ReadBlock> {
        let Finished { bytes, buffer, .. } = self.read.remove(&self.next)?;
        let offset = self.offsets.remove(&self.next).unwrap_or_default();
        self.next += 1;
        Some(ReadBlock {
            buffer,
            offset: Bytes(offset),
            bytes: Bytes(bytes),
        })
    }

    /// Takes back a buffer that has been used. One that is none of the stream's is dropped.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.buffers.give_back(buffer);
    }

    /// Forgets what has been asked for and waits for what is on its way: the next that is asked for is the next that
    /// comes.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn clear(&mut self, on_block: &mut dyn FnMut(&BlockReport)) -> Result<(), PaceError> {
        self.asked.clear();
        while self.session.in_flight() > 0 {
            self.session.wait()?;
            while let Some(done) = self.session.poll(on_block)? {
                self.read.insert(done.index, done);
            }
        }
        let read = std::mem::take(&mut self.read);
        for block in read.into_values() {
            self.buffers.give_back(block.buffer);
        }
        self.offsets.clear();
        self.next = self.session.submitted();
        Ok(())
    }

    /// Readable when a block is done, and when the rate was changed; to be drained by whoever sleeps on it
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

    /// After waking by the event.
    pub fn drain(&self) {
        self.session.stream.client().event().drain();
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> &PaceReport {
        &self.session.report
    }
}

impl Drop for BlockReader<'_> {
    /// Waits for what is on its way: another session of the stream finds its buffers there.
    fn drop(&mut self) {
        // What has failed is over as well.
        let _: Result<(), _> = self.session.drain(&mut |_| {});
    }
}

impl std::fmt::Debug for BlockWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockWriter")
            .field("waiting", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BlockReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockReader")
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
