//! Completions of a session's blocks, flushes, and sleeping until one of them.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sched::units::{Bytes, Nanos, Time};

use super::{BlockInFlight, CompletedBuffer, FLUSH, FLUSH_EVERY, Session};
use crate::clock;
use crate::state::request::{IoFailure, VolumeCompletion, VolumeOp};
use crate::stream::pace::{BlockReport, PaceError, Stop};
use crate::volume_io::request::VolumeRequest;

impl Session<'_> {
    /// The next completed buffer, if there is one. Calls `on_block` for completed blocks.
    ///
    /// # Errors
    /// When a block failed; only once nothing is in flight any more.
    pub(in crate::stream) fn poll(
        &mut self,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<Option<CompletedBuffer>, PaceError> {
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

    /// Bytes from the beginning that have been written.
    fn written(&self) -> u64 {
        let in_flight = self.in_flight.iter().map(|flight| flight.before);
        let ends = in_flight.chain(self.broken_at).min();
        ends.unwrap_or(self.submitted_bytes)
    }

    /// When the next flush is due, if there is data to flush.
    pub(in crate::stream) fn flush_at(&self) -> Option<Time> {
        let is_due = self.flushing.covers.is_none() && self.written() > self.report.durable_bytes;
        is_due.then_some(self.flushing.next_at)
    }

    /// Begins a flush if one is due.
    pub(in crate::stream) fn flush_due(&mut self) -> Result<(), PaceError> {
        let now = clock::now();
        if self.flush_at().is_some_and(|at| at <= now) {
            self.flush()?;
            // At the same times as other recordings, so that one log record serves all of them.
            let past = now.0 % FLUSH_EVERY.0;
            self.flushing.next_at = now.saturating_add(FLUSH_EVERY - Nanos(past));
        }
        Ok(())
    }

    /// Waits for blocks in flight, and makes all written data durable.
    pub(in crate::stream) fn settle(
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

    /// Waits for blocks in flight, ignoring failures.
    pub(in crate::stream) fn drain(
        &mut self,
        on_block: &mut dyn FnMut(&BlockReport),
    ) -> Result<(), PaceError> {
        while !self.in_flight.is_empty() {
            self.wait()?;
            while matches!(self.poll(on_block), Ok(Some(_))) {}
        }
        Ok(())
    }

    /// Sleeps until a block or a flush is done.
    pub(in crate::stream) fn wait(&self) -> Result<(), PaceError> {
        // Records that the reservation's end is known, so that it does not wake this thread.
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
            // The data is written but not durable; the next flush tries again.
            Err(IoFailure::NotNow { .. }) if !self.flushing.is_last => {}
            Err(failure) => {
                self.failed.get_or_insert(PaceError::Flush(failure));
            }
        }
    }

    /// True if a block has failed; the session ends when nothing is in flight.
    pub(in crate::stream) fn is_failing(&self) -> bool {
        self.failed.is_some()
    }

    fn finish(&mut self, completion: VolumeCompletion, on_block: &mut dyn FnMut(&BlockReport)) {
        let is_it = |flight: &BlockInFlight| flight.index == completion.user_data;
        let Some(place) = self.in_flight.iter().position(is_it) else {
            return;
        };
        let flight = self.in_flight.swap_remove(place);
        let ahead = completion.result.is_ok().then_some(completion.ahead_bytes);
        self.track.block_read(flight.index, ahead);
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
        let finished = carried.map(|(carrier, index)| CompletedBuffer {
            index,
            bytes: carrier.bytes,
            completed: completion.completed,
            buffer: carrier.buffer,
            is_borrowed: carrier.is_borrowed,
        });
        self.finished.extend(finished);
    }

    /// Sleeps until the peer is ready, a block is done, `until`, the end of the reservation, or the stop signal.
    /// Returns true for a ready peer, and true for the stop signal.
    pub(in crate::stream) fn sleep(
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
