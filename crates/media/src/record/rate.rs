//! The reserved rate of a recording: it follows the rate at which packets arrive.

use std::ops::RangeInclusive;
use std::sync::Arc;

use engine::clock;
use engine::stream::{BufferUse, Stream};
use sched::units::{BytesPerSecond, Time};

use super::counts::Tally;
use crate::archive::block::ENTRY_BYTES;
use crate::session::demand::{BlockSample, LOOK_EVERY, Pressure, RecorderDemand};
use crate::session::negotiation::Negotiation;
use crate::session::registry::Session;

/// The memory that a recording may borrow beside its own, in bytes.
const BORROWED_BYTES_MAX: u64 = 32 << 20;

/// The number of buffers that this is at least and at most.
const BORROWED: RangeInclusive<u64> = 8..=128;

/// Asks for another rate when the buffers show that the reserved one is too low or higher than needed.
pub(super) struct RateControl<'a> {
    stream: &'a Stream,
    demand: RecorderDemand,
    negotiation: Negotiation,
    borrowed_max: usize,
    /// No buffer was free at some time since the demand was last looked at.
    was_starved: bool,
    look_at: Time,
}

impl<'a> RateControl<'a> {
    pub(super) fn new(stream: &'a Stream, member: Arc<Session>) -> Self {
        let block_bytes = stream.buffer().get();
        let borrowed_max = BORROWED_BYTES_MAX / block_bytes;
        let borrowed_max = borrowed_max.clamp(*BORROWED.start(), *BORROWED.end());
        member.count(|counts| counts.buffers_borrowed_max = borrowed_max);
        let demand = RecorderDemand::new(block_bytes, member.promised(), clock::now());
        let is_guess = member.promised() < stream.rate();
        Self {
            stream,
            demand: if is_guess { demand.guessed() } else { demand },
            negotiation: Negotiation::new(member),
            borrowed_max: borrowed_max as usize,
            was_starved: false,
            look_at: Time::ZERO,
        }
    }

    /// The number of buffers that may be borrowed.
    pub(super) fn borrowed_max(&self) -> usize {
        self.borrowed_max
    }

    /// The rate that is reserved.
    pub(super) fn reserved(&self) -> BytesPerSecond {
        self.stream.rate()
    }

    /// A block is full.
    pub(super) fn note_block(&mut self, seen: BlockSample) {
        self.demand.block(seen);
    }

    /// Packets arrive again after a gap, since this time of the recording.
    pub(super) fn restart(&mut self, arrival_ns: u64) {
        self.demand.restart(arrival_ns);
    }

    /// No buffer is free.
    pub(super) fn note_starved(&mut self) {
        self.was_starved = true;
    }

    /// Takes in the outcome of the last request for a rate.
    pub(super) fn settle(&mut self) {
        if let Some(outcome) = self.negotiation.outcome() {
            self.demand.answered(clock::now(), outcome);
        }
    }

    /// Publishes the counts of the session, and asks for another rate if one is needed.
    pub(super) fn look(&mut self, buffers: BufferUse, tally: Tally) {
        let now = clock::now();
        let member = self.negotiation.member();
        self.demand.promise(member.promised());
        let entries = (tally.packets + tally.reports) * ENTRY_BYTES as u64;
        self.demand.received(now, tally.bytes + entries);
        member.count(|counts| {
            counts.use_buffers(buffers);
            (counts.packets, counts.reports) = (tally.packets, tally.reports);
            counts.bytes = tally.bytes;
            counts.lost = tally.lost;
            counts.lost_without_buffer = tally.lost_without_buffer;
        });
        // Without pressure the rate can only become lower, which is not urgent.
        let is_calm = buffers.borrowed == 0 && !self.was_starved;
        if is_calm && now < self.look_at {
            return;
        }
        self.look_at = now.saturating_add(LOOK_EVERY);
        let pressure = Pressure {
            full: buffers.full,
            borrowed: buffers.borrowed,
            most: self.borrowed_max,
            starved: std::mem::take(&mut self.was_starved),
        };
        let wanted = self.demand.look(now, self.stream.rate(), pressure);
        if let Some(rate) = wanted
            && let Err(fits) = self.negotiation.ask(rate)
        {
            self.demand.answered(now, Err(fits));
        }
    }
}
