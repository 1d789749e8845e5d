//! Recording a byte stream.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use sched::request::Op as Direction;
use sched::units::{Bytes, Time};

use super::pace::{BlockReport, NonBlocking, PaceError, PaceReport, Stop};
use super::session::{Pace, Session};
use crate::buffer::Buffer;
use crate::clock;
use crate::state::stream::core::ByteSession;
use crate::volume_io::stream::Stream;

/// Records a byte stream: fills blocks from a source and writes them at the stream's pace.
#[derive(Debug)]
pub struct Recorder<'a> {
    stream: &'a Stream,
    offset: Bytes,
    limit: Option<u64>,
}

impl<'a> Recorder<'a> {
    /// A session that starts at `offset` of the stream's range, a multiple of the volume's
    /// [write grain](crate::pool::Volume::write_grain).
    #[must_use]
    pub fn new(stream: &'a Stream, offset: Bytes) -> Self {
        Self {
            stream,
            offset,
            limit: None,
        }
    }

    /// Ends the session cleanly after this many bytes. Without a limit it ends at the source's end, or at the
    /// range's end unless the stream wraps.
    #[must_use]
    pub fn limit(mut self, bytes: impl Into<Option<Bytes>>) -> Self {
        self.limit = bytes.into().map(|bytes| bytes.0);
        self
    }

    /// Runs until the source ends, the limit, the range's end, the end of the reservation's time, or `stop`. All
    /// data received by then is written; the last block is padded with zeros to the end of a physical sector, or
    /// of the block. Data is made durable every two seconds, and at the end. Calls `on_block` for every block.
    /// Meanwhile the source's file description is in non-blocking mode, also for others that share it.
    ///
    /// # Errors
    /// When the stream plays, `offset` is within a physical sector, there is no memory for the buffers, the source
    /// or a block fails, or the data cannot be made durable. [`Stream::durable_bytes`] bytes survive in any case.
    pub fn run(
        self,
        source: impl AsFd,
        stop: &Stop,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<PaceReport, PaceError> {
        let session = Session::new(self.stream, self.offset, Direction::Write)?;
        let moves_bytes = session.moves_bytes()?;
        let source = NonBlocking::new(source.as_fd()).map_err(PaceError::Peer)?;
        let free = session.buffers(0)?;
        let recording = Recording {
            _moves_bytes: moves_bytes,
            pace: Pace::new(session.begin),
            session,
            source,
            free,
            filling: None,
            ready: VecDeque::new(),
            left: self.limit.unwrap_or(u64::MAX),
            ended: false,
        };
        recording.run_and_settle(stop, on_block)
    }
}

/// A buffer that is being filled.
struct PartialBlock {
    buffer: Buffer,
    filled: u64,
    wanted: u64,
}

struct Recording<'a> {
    _moves_bytes: ByteSession<'a>,
    session: Session<'a>,
    source: NonBlocking<'a>,
    free: Vec<Buffer>,
    filling: Option<PartialBlock>,
    /// Full buffers that wait for their time.
    ready: VecDeque<PartialBlock>,
    /// Bytes that may still be received.
    left: u64,
    ended: bool,
    pace: Pace,
}

impl Recording<'_> {
    /// Runs the session to its end and makes the recording durable.
    fn run_and_settle(
        mut self,
        stop: &Stop,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<PaceReport, PaceError> {
        let result = self.run(stop, on_block);
        let settled = self.session.settle(on_block);
        match (result, settled) {
            // The block was refused because an earlier one failed; report that one.
            (Err(PaceError::Submit(_)), Err(failed @ PaceError::Io { .. })) => Err(failed),
            (Err(error), _) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(())) => Ok(self.session.report),
        }
    }

    fn run(
        &mut self,
        stop: &Stop,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<(), PaceError> {
        let mut stop = Some(stop);
        loop {
            while let Some(done) = self.session.poll(on_block)? {
                self.free.push(done.buffer);
            }
            if self.session.is_failing() {
                self.session.wait()?;
                continue;
            }
            if self.session.is_over() {
                self.drop_rest();
            }
            self.submit_due()?;
            let fill = self.may_fill();
            let at_rest = self.ready.is_empty() && self.session.in_flight() == 0;
            if self.ended && at_rest {
                return Ok(());
            }
            self.session.flush_due()?;
            let due = self.ready.front().map(|_| self.next_at());
            let until = due.into_iter().chain(self.session.flush_at()).min();
            let peer = fill.then(|| (self.source.fd(), PollFlags::IN));
            let (readable, stopped) = self.session.sleep(peer, until, stop)?;
            if readable {
                self.receive()?;
            }
            if stopped {
                // The signal stays set, so it must not be polled again. The rest ends by itself.
                stop = None;
                if clock::now() < self.session.begin {
                    self.drop_rest();
                } else if !self.ended {
                    self.end();
                }
            }
        }
    }

    /// True if there is a buffer to fill and more data may come.
    fn may_fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        if self.filling.is_none() {
            let Some(wanted) = self.next_wanted() else {
                self.end();
                return false;
            };
            let Some(buffer) = self.free.pop() else {
                return false;
            };
            self.filling = Some(PartialBlock {
                buffer,
                filled: 0,
                wanted,
            });
        }
        true
    }

    /// Size of the next block to be filled, behind the full ones.
    fn next_wanted(&self) -> Option<u64> {
        let ready: u64 = self.ready.iter().map(|block| block.wanted).sum();
        let room = self.session.len_after(ready)?;
        let wanted = room.min(self.left);
        (wanted > 0).then_some(wanted)
    }

    fn receive(&mut self) -> Result<(), PaceError> {
        let Some(filling) = &mut self.filling else {
            return Ok(());
        };
        let range = filling.filled as usize..filling.wanted as usize;
        let source = self.source.fd();
        let received = filling
            .buffer
            .with_mut(|bytes| rustix::io::read(source, &mut bytes[range]))?;
        match received {
            Ok(0) => self.end(),
            Ok(count) => {
                filling.filled += count as u64;
                self.left -= count as u64;
                self.session.report.bytes += count as u64;
                if filling.filled == filling.wanted {
                    self.complete();
                    self.note_late_source();
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(PaceError::Peer(error.into())),
        }
        Ok(())
    }

    /// The earliest time for the next block.
    fn next_at(&self) -> Time {
        self.pace.next(self.session.period())
    }

    fn note_late_source(&mut self) {
        let waited = self.ready.len() == 1 && self.session.submitted() > 0;
        if waited && clock::now() > self.next_at() {
            self.session.report.waited_for_peer += 1;
            self.session.report.underruns += 1;
        }
    }

    /// Ends receiving: the data received so far becomes the last block.
    fn end(&mut self) {
        self.ended = true;
        match &mut self.filling {
            Some(filling) if filling.filled > 0 => {
                filling.wanted = filling.filled;
                self.complete();
            }
            _ => self
                .free
                .extend(self.filling.take().map(|filling| filling.buffer)),
        }
    }

    /// Queues the block that is being filled, padded with zeros.
    fn complete(&mut self) {
        let Some(mut filling) = self.filling.take() else {
            return;
        };
        let sector = self.session.stream.volume().write_grain().0;
        let filled = filling.filled as usize;
        // The buffer was just filled, so this cannot fail.
        let _: Result<(), _> = filling.buffer.with_mut(|bytes| {
            let end = bytes.len().min(filled + sector as usize);
            bytes[filled..end].fill(0);
        });
        self.ready.push_back(filling);
    }

    /// Ends receiving and drops data that has not been submitted.
    fn drop_rest(&mut self) {
        self.ended = true;
        let dropped = self.ready.drain(..).chain(self.filling.take());
        let dropped: u64 = dropped.map(|block| block.filled).sum();
        self.session.report.bytes -= dropped;
    }

    /// Submits blocks whose time has come.
    fn submit_due(&mut self) -> Result<(), PaceError> {
        while !self.ready.is_empty() {
            let now = clock::now();
            if now < self.next_at() {
                break;
            }
            if let Some(block) = self.ready.pop_front()
                && !self.session.submit(block.buffer, block.filled)?
            {
                self.session.report.bytes -= block.filled;
            }
            let period = self.session.period();
            self.pace.step(now, period, period);
        }
        Ok(())
    }
}
