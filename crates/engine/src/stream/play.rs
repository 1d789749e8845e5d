//! Playing a byte stream.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use sched::request::Op as Direction;
use sched::units::{Bytes, Nanos, Time};

use super::pace::{BlockReport, NonBlocking, PaceError, PaceReport, Stop};
use super::session::{CompletedBuffer, Pace, Session};
use crate::buffer::Buffer;
use crate::clock;
use crate::state::stream::core::ByteSession;
use crate::volume_io::stream::Stream;

/// Plays a byte stream: reads blocks ahead at the stream's pace and writes them to a sink.
#[derive(Debug)]
pub struct Player<'a> {
    stream: &'a Stream,
    offset: Bytes,
    limit: Option<u64>,
}

impl<'a> Player<'a> {
    /// A session that starts at `offset` of the stream's range, a multiple of the volume's
    /// [alignment](crate::pool::Volume::alignment).
    #[must_use]
    pub fn new(stream: &'a Stream, offset: Bytes) -> Self {
        Self {
            stream,
            offset,
            limit: None,
        }
    }

    /// Ends the session after this many bytes. Without a limit it ends at the range's end, unless the stream
    /// wraps.
    #[must_use]
    pub fn limit(mut self, bytes: impl Into<Option<Bytes>>) -> Self {
        self.limit = bytes.into().map(|bytes| bytes.0);
        self
    }

    /// Runs until the limit, the range's end, the end of the reservation's time, or `stop`. Calls `on_block` for
    /// every block. Meanwhile the sink's file description is in non-blocking mode, also for others that share it.
    ///
    /// # Errors
    /// When the sink or a block fails.
    pub fn run(
        self,
        sink: impl AsFd,
        stop: &Stop,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<PaceReport, PaceError> {
        let session = Session::new(self.stream, self.offset, Direction::Read)?;
        let moves_bytes = session.moves_bytes()?;
        let sink = NonBlocking::new(sink.as_fd()).map_err(PaceError::Peer)?;
        let free = session.buffers(0)?;
        let begin = clock::now().max(session.begin);
        let lead = lead(&session);
        let playing = Playback {
            _moves_bytes: moves_bytes,
            reads: Pace::new(begin),
            play_at: begin.saturating_add(lead),
            lead,
            session,
            sink,
            free,
            read: BTreeMap::new(),
            next_played: 0,
            sent: 0,
            left: self.limit.unwrap_or(u64::MAX),
            is_behind: false,
            is_unchecked: true,
        };
        playing.run_and_drain(stop, on_block)
    }
}

/// Time from the submission of a block to its playing: one period of the disks, after which the block is
/// there, and half a period of the stream, which lets a thread be woken late.
fn lead(session: &Session<'_>) -> Nanos {
    let half = Nanos(session.period().0 / 2);
    session.stream.longest_period().saturating_add(half)
}

struct Playback<'a> {
    _moves_bytes: ByteSession<'a>,
    session: Session<'a>,
    sink: NonBlocking<'a>,
    free: Vec<Buffer>,
    /// Blocks read and not played, by index.
    read: BTreeMap<u64, CompletedBuffer>,
    /// The block being played, and its bytes sent so far.
    next_played: u64,
    sent: usize,
    /// When that block is to be played.
    play_at: Time,
    /// The lead at the rate last seen.
    lead: Nanos,
    reads: Pace,
    /// Bytes that may still be requested.
    left: u64,
    /// The sink had not taken all of a block when the next was due.
    is_behind: bool,
    /// The block to be played next has not been checked for an underrun.
    is_unchecked: bool,
}

impl Playback<'_> {
    /// Runs the session to its end and waits for blocks in flight.
    fn run_and_drain(
        mut self,
        stop: &Stop,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<PaceReport, PaceError> {
        let result = self.run(stop, on_block);
        let drained = self.session.drain(on_block);
        result?;
        drained?;
        Ok(self.session.report)
    }

    fn run(
        &mut self,
        stop: &Stop,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<(), PaceError> {
        let mut stopped = false;
        loop {
            while let Some(done) = self.session.poll(on_block)? {
                self.read.insert(done.index, done);
            }
            if stopped || self.session.is_failing() {
                if self.session.in_flight() == 0 && !self.session.is_failing() {
                    return Ok(());
                }
                self.wait_for_rest(on_block)?;
                continue;
            }
            self.note_rate();
            self.read_ahead()?;
            let is_over = !self.is_more();
            if is_over && self.session.in_flight() == 0 && self.read.is_empty() {
                return Ok(());
            }
            self.note_underrun();
            let now = clock::now();
            let is_read = self.read.contains_key(&self.next_played);
            let due = is_read && now >= self.play_at;
            let until = match (self.next_read(), is_read && !due) {
                (Some(read), true) => Some(read.min(self.play_at)),
                (read, false) => read,
                (None, true) => Some(self.play_at),
            };
            // With nothing due, the sink is still polled for an error, such as a closed peer.
            let wanted = if due {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            let peer = Some((self.sink.fd(), wanted));
            let (ready, told) = self.session.sleep(peer, until, Some(stop))?;
            stopped = told;
            if ready && due {
                self.send()?;
            } else if ready && !told {
                return Err(PaceError::Peer(ErrorKind::BrokenPipe.into()));
            }
        }
    }

    /// Adapts to a changed rate. At a lower rate the disks have longer for a block, so blocks are played that much
    /// later. At a higher rate the next block is played at most a new lead from now. That is too early if the
    /// deadlines of the old rate are not over; the underrun counter then shows it.
    fn note_rate(&mut self) {
        let lead = lead(&self.session);
        if lead < self.lead {
            self.play_at = self.play_at.min(clock::now().saturating_add(lead));
        } else {
            self.play_at = self.play_at.saturating_add(lead - self.lead);
        }
        self.lead = lead;
    }

    /// Counts an underrun if the block to be played has arrived late.
    fn note_underrun(&mut self) {
        if self.is_unchecked
            && let Some(block) = self.read.get(&self.next_played)
        {
            self.is_unchecked = false;
            self.session.report.underruns += u64::from(block.completed > self.play_at);
        }
    }

    /// Waits for blocks in flight after a stop or a failure.
    fn wait_for_rest(&mut self, on_block: &mut dyn FnMut(&BlockReport)) -> Result<(), PaceError> {
        while self.session.in_flight() > 0 {
            self.session.wait()?;
            while let Some(done) = self.session.poll(on_block)? {
                self.free.push(done.buffer);
            }
        }
        Ok(())
    }

    /// When the next block is to be submitted; `None` if there is none or no buffer is free.
    fn next_read(&self) -> Option<Time> {
        (self.is_more() && !self.free.is_empty()).then(|| self.reads.next(self.session.period()))
    }

    /// True if more blocks will be submitted.
    fn is_more(&self) -> bool {
        // Always evaluates the end of the reservation, because after that the end wakes no sleeper.
        !self.session.is_over() && self.left > 0 && self.session.len_after(0).is_some()
    }

    /// Submits blocks whose time has come.
    fn read_ahead(&mut self) -> Result<(), PaceError> {
        while let Some(read_at) = self.next_read() {
            let now = clock::now();
            if now < read_at {
                break;
            }
            let (Some(len), Some(buffer)) = (self.session.len_after(0), self.free.pop()) else {
                break;
            };
            let bytes = len.min(self.left);
            if !self.session.submit(buffer, bytes)? {
                break;
            }
            self.left -= bytes;
            let period = self.session.period();
            self.reads.step(now, period, period);
        }
        Ok(())
    }

    /// Writes as much of the block being played as the sink takes.
    fn send(&mut self) -> Result<(), PaceError> {
        let Some(block) = self.read.get(&self.next_played) else {
            return Ok(());
        };
        let range = self.sent..block.bytes as usize;
        let sink = self.sink.fd();
        let written = block
            .buffer
            .with(|bytes| rustix::io::write(sink, &bytes[range]))?;
        match written {
            Ok(count) => {
                self.sent += count;
                self.session.report.bytes += count as u64;
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(PaceError::Peer(error.into())),
        }
        let now = clock::now();
        let due = self.play_at.saturating_add(self.session.period());
        if now > due && !self.is_behind {
            self.is_behind = true;
            self.session.report.waited_for_peer += 1;
        }
        if self.sent as u64 == block.bytes {
            let played = self.read.remove(&self.next_played);
            self.free.extend(played.map(|block| block.buffer));
            self.next_played += 1;
            self.sent = 0;
            self.is_behind = false;
            self.is_unchecked = true;
            // If the sink was late by more than a period, later blocks are shifted.
            let shifted = now > due.saturating_add(self.session.period());
            self.play_at = if shifted { now } else { due };
        }
        Ok(())
    }
}
