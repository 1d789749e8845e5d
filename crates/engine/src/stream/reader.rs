//! Reading blocks of a stream, for whoever uses them itself: as [`BlockWriter`](super::BlockWriter) writes them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, Time};
use smallvec::SmallVec;

use super::buffers::{BufferUse, Buffers};
use super::pace::{BlockReport, PaceError, PaceReport};
use super::session::{Carried, Carrier, Finished, Pace, Session};
use crate::buffer::Buffer;
use crate::clock;
use crate::state::stream::ahead::{Progress, Reading};
use crate::volume_io::stream::Stream;

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
    /// There are buffers of which whoever asks does not know yet.
    has_more_buffers: bool,
    ahead: Reading<'a>,
    /// Where in the range that ends which was handed over last.
    handed_to: u64,
}

impl<'a> BlockReader<'a> {
    /// A session that has asked for nothing.
    ///
    /// # Errors
    /// When the stream records, or there is no memory for the buffers.
    pub fn new(stream: &'a Stream) -> Result<Self, PaceError> {
        Self::begin(stream, None)
    }

    /// The same where what is used first has been read before, [by the stream's client](crate::volume_io::Client::read): that
    /// buffer, as long as the stream's are, is one of its own, which is taken and to be [given back](Self::give_back).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn beside(stream: &'a Stream, read: &Buffer) -> Result<Self, PaceError> {
        Self::begin(stream, Some(read))
    }

    fn begin(stream: &'a Stream, taken: Option<&Buffer>) -> Result<Self, PaceError> {
        let session = Session::new(stream, Bytes::ZERO, Direction::Read)?;
        let buffers = Buffers::new(&session, taken)?;
        Ok(Self {
            buffers,
            asked: VecDeque::new(),
            more_follow: false,
            offsets: BTreeMap::new(),
            read: BTreeMap::new(),
            next: 0,
            pace: Pace::new(clock::now().max(session.begin)),
            has_more_buffers: false,
            ahead: Reading::new(&stream.core().ahead),
            handed_to: 0,
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
        self.has_more_buffers = false;
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
        self.ahead.notice();
        let before = self.buffers.own();
        self.buffers.look();
        if self.buffers.own() > before {
            // Whoever asks does not know of them yet.
            self.more_follow = false;
            self.has_more_buffers = true;
        }
        loop {
            self.ahead.look(|| self.progress());
            let Some(at) = self.next_at() else { break };
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
            self.handed_to = self.session.next_from().unwrap_or(0);
            self.pace.step(now, self.session.period(), lasts);
        }
        Ok(())
    }

    /// How far it reads ahead.
    fn progress(&self) -> Progress {
        Progress {
            read: self.read.len(),
            in_flight: self.session.in_flight(),
            most: self.buffers.own().saturating_sub(1),
            next: self.asked.front().copied().unwrap_or(self.handed_to),
        }
    }

    /// Whether there are buffers of which whoever asks does not know yet: more may be asked for at once.
    #[must_use]
    pub fn has_more_buffers(&self) -> bool {
        self.has_more_buffers
    }

    /// Whether it reads ahead before blocks become longer, at a rate that is not going to stay.
    #[must_use]
    pub fn is_to_read_ahead(&self) -> bool {
        self.ahead.is_wanted()
    }

    /// Nothing more is going to be read ahead: a change does not wait for it any more.
    pub fn settle(&self) {
        self.ahead.settle();
    }

    /// When [`advance`](Self::advance) has something to do unless the event comes before.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        let may = !self.session.is_failing()
            && !self.ahead.holds()
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
        // Those of a block are asked for together.
        let wanted = self.joined().0.len().clamp(1, self.buffers.own().max(1));
        let is_full = self.buffers.free() < wanted;
        let more_come = self.more_follow || self.has_more_buffers;
        let is_all = self.asked.is_empty() && !more_come && !is_full;
        self.ahead.tell(is_all, is_full, || self.progress());
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
        self.settle();
        // What has failed is over as well.
        let _: Result<(), _> = self.session.drain(&mut |_| {});
    }
}

impl std::fmt::Debug for BlockReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockReader")
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
