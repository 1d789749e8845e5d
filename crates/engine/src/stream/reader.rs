//! Reading blocks of a stream, the counterpart of [`BlockWriter`](super::BlockWriter).

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, Time};
use smallvec::SmallVec;

use super::buffers::{BufferUse, Buffers};
use super::pace::{BlockReport, PaceError, PaceReport};
use super::session::{CompletedBuffer, Pace, PartBuffer, PartBuffers, Session};
use crate::buffer::Buffer;
use crate::clock;
use crate::state::stream::ahead::{ReadAheadReader, ReadProgress};
use crate::volume_io::stream::Stream;

/// A buffer with a block that has been read, or a part of it.
#[derive(Debug)]
pub struct ReadBlock {
    /// The data is in the first `bytes` of this buffer.
    pub buffer: Buffer,
    /// Offset of the data from the start of the stream's range.
    pub offset: Bytes,
    /// Length of the data.
    pub bytes: Bytes,
}

/// Lengths of requested pieces, in bytes.
type Lengths = SmallVec<[u64; 1]>;

/// Reads blocks of a stream in any requested order, one per period.
pub struct BlockReader<'a> {
    session: Session<'a>,
    buffers: Buffers<'a>,
    /// Requested offsets that have not been submitted.
    asked: VecDeque<u64>,
    /// More will be requested when there are free buffers.
    more_follow: bool,
    /// Offsets of submitted pieces, by index.
    offsets: BTreeMap<u64, u64>,
    read: BTreeMap<u64, CompletedBuffer>,
    next: u64,
    pace: Pace,
    /// Buffers have been added that the caller has not been told of.
    has_more_buffers: bool,
    read_ahead: ReadAheadReader<'a>,
    /// End of the last submitted piece, in the range.
    handed_to: u64,
}

impl<'a> BlockReader<'a> {
    /// Begins a session without requests.
    ///
    /// # Errors
    /// When the stream records, or there is no memory for the buffers.
    pub fn new(stream: &'a Stream) -> Result<Self, PaceError> {
        Self::begin(stream, None)
    }

    /// As [`new`](Self::new), for a caller that has already read data [by the stream's
    /// client](crate::volume_io::Client::read) into a buffer of the stream's size. That buffer counts as one of the
    /// session's own, which the caller has to [give back](Self::give_back).
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
            read_ahead: ReadAheadReader::new(&stream.core().read_ahead),
            handed_to: 0,
            session,
        })
    }

    /// Requests one buffer of data at `offset` from the start of the stream's range. Data arrives in the order of
    /// the requests.
    pub fn ask(&mut self, offset: Bytes) {
        self.asked.push_back(offset.0);
    }

    /// Sets if more will be requested as soon as there are free buffers. If so, requests that belong to the same
    /// block as the last one are awaited.
    pub fn more_follow(&mut self, follow: bool) {
        self.more_follow = follow;
        self.has_more_buffers = false;
    }

    /// The lengths of the next requests that form one block, and true if no further request can join them.
    fn joined(&self) -> (Lengths, bool) {
        let mut lengths = Lengths::new();
        // The offset at which the next request has to begin, and the rest of the block there.
        let mut open: Option<(u64, u64)> = None;
        for from in &self.asked {
            let left = match open {
                Some((next, left)) if next == *from => left,
                Some(_) => return (lengths, true),
                None => self.session.block_at(*from).unwrap_or(0),
            };
            let len = self.session.len_at(*from).unwrap_or(0);
            lengths.push(len);
            // Data behind a buffer that is not full cannot be part of the same transfer.
            if len >= left || len != self.session.stream.buffer().0 {
                return (lengths, true);
            }
            open = Some((from + len, left - len));
        }
        (lengths, !self.more_follow)
    }

    /// Number of requests that have not been [taken](Self::take).
    #[must_use]
    pub fn pending(&self) -> usize {
        self.asked.len() + self.offsets.len()
    }

    /// Time from one block to the next at the current rate.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.session.period()
    }

    /// Duration of reading that many buffers from `from` on.
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

    /// Number of own buffers.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.buffers.own()
    }

    /// Numbers of buffers. `full` counts those in transfer, and those read and not taken.
    #[must_use]
    pub fn use_of_buffers(&self) -> BufferUse {
        BufferUse {
            own: self.buffers.own(),
            borrowed: 0,
            full: self.offsets.len(),
        }
    }

    /// Takes in completed blocks, and submits blocks whose time has come.
    ///
    /// # Errors
    /// When a block has failed or was refused; then nothing is in flight any more.
    pub fn advance(&mut self, on_block: &mut dyn FnMut(&BlockReport)) -> Result<(), PaceError> {
        while let Some(done) = self.session.poll(on_block)? {
            self.read.insert(done.index, done);
        }
        self.read_ahead.load_target();
        let before = self.buffers.own();
        self.buffers.refresh();
        if self.buffers.own() > before {
            // The caller does not know of them yet, so it could not request data for them.
            self.more_follow = false;
            self.has_more_buffers = true;
        }
        loop {
            self.read_ahead.check_target(|| self.progress());
            let Some(at) = self.next_at() else { break };
            let now = clock::now();
            if now < at {
                break;
            }
            let Some(_entered) = self.session.enter() else {
                break;
            };
            // While `_entered` exists, the block size cannot change.
            let (lengths, _) = self.joined();
            let count = lengths.len().min(self.buffers.free());
            let Some(from) = self.asked.front().copied().filter(|_| count > 0) else {
                break;
            };
            let asked: SmallVec<[u64; 1]> = self.asked.drain(..count).collect();
            if lengths[0] == 0 {
                // The range has become shorter: there is no data at this offset.
                continue;
            }
            let carrier = |bytes| {
                Some(PartBuffer {
                    buffer: self.buffers.take()?,
                    bytes,
                    is_borrowed: false,
                })
            };
            let carried: PartBuffers = lengths.into_iter().take(count).map_while(carrier).collect();
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

    /// Progress, for reading ahead.
    fn progress(&self) -> ReadProgress {
        ReadProgress {
            read: self.read.len(),
            in_flight: self.session.in_flight(),
            most: self.buffers.own().saturating_sub(1),
            next: self.asked.front().copied().unwrap_or(self.handed_to),
        }
    }

    /// True if buffers have been added since [`more_follow`](Self::more_follow): more may be requested at once.
    #[must_use]
    pub fn has_more_buffers(&self) -> bool {
        self.has_more_buffers
    }

    /// True while it reads ahead, at a temporary rate, before blocks become longer.
    #[must_use]
    pub fn is_to_read_ahead(&self) -> bool {
        self.read_ahead.is_requested()
    }

    /// Ends reading ahead: a change does not wait for this reader any more.
    pub fn settle(&self) {
        self.read_ahead.settle();
    }

    /// The time of the next action of [`advance`](Self::advance), unless the event comes before.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        let may = !self.session.is_failing()
            && !self.read_ahead.holds()
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

    /// The next buffer in the order of the requests, if it has been read.
    pub fn take(&mut self) -> Option<ReadBlock> {
        let CompletedBuffer { bytes, buffer, .. } = self.read.remove(&self.next)?;
        let offset = self.offsets.remove(&self.next).unwrap_or_default();
        self.next += 1;
        Some(ReadBlock {
            buffer,
            offset: Bytes(offset),
            bytes: Bytes(bytes),
        })
    }

    /// Takes back a used buffer. One that is not the stream's is dropped.
    pub fn give_back(&mut self, buffer: Buffer) {
        self.buffers.give_back(buffer);
    }

    /// Drops all requests and waits for those in flight. The next request is then the next result.
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

    /// Readable when a block is done, and when the rate was changed. A thread that sleeps on it has to
    /// [drain](Self::drain) it.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.session.event()
    }

    /// Announces that the caller is about to sleep on the event. If it returns false, the caller must not sleep,
    /// because completions are queued.
    #[must_use]
    pub fn arm(&self) -> bool {
        // The requests of a block are submitted together.
        let wanted = self.joined().0.len().clamp(1, self.buffers.own().max(1));
        let is_full = self.buffers.free() < wanted;
        let more_come = self.more_follow || self.has_more_buffers;
        let is_all = self.asked.is_empty() && !more_come && !is_full;
        self.read_ahead.report(is_all, is_full, || self.progress());
        self.session.stream.client().arm()
    }

    /// Resets the event after waking.
    pub fn drain(&self) {
        self.session.stream.client().event().drain();
    }

    /// Statistics of the session so far.
    #[must_use]
    pub fn report(&self) -> &PaceReport {
        &self.session.report
    }
}

impl Drop for BlockReader<'_> {
    /// Waits for blocks in flight, so that another session of the stream finds the buffers.
    fn drop(&mut self) {
        self.settle();
        // A failure does not matter any more.
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
