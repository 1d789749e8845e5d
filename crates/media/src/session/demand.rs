//! The rate that a session needs, measured while it runs, and when to request another one.
//!
//! A reservation is made before the first packet arrives, for the rate of the description. A recorder that receives
//! more borrows buffers first. When they run out, or have been needed for long, it requests the measured rate and a
//! tenth; packets are lost only if that is refused. A recorder that has more than it first reserved gives that back
//! when it has not needed it for a minute. Where no rate was stated the reservation is a guess, which follows the
//! measured rate down as well: first after ten seconds. A player requests more as soon as it reads blocks faster than it
//! reserved: their recording may have needed more than it says.
//!
//! Pure: times are arguments, and there is no disk.

mod player;
mod recorder;

use std::collections::VecDeque;

use sched::units::{BytesPerSecond, Nanos, Time};

pub use player::{PlayerDemand, RateEstimate};
pub use recorder::{Pressure, RecorderDemand, recorder_rate_min};

/// Interval at which a session looks at its demand.
pub const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// The time over which a rate is measured, in nanoseconds.
const WINDOW_NS: u64 = 60_000_000_000;

/// The most blocks that are remembered, if more arrive within the window.
const BLOCKS_MAX: usize = 4_096;

/// The first pause after a refusal; each further one is twice as long as the one before.
const PAUSE_MIN: Nanos = Nanos::from_secs(2);

/// The longest pause after a refusal.
const PAUSE_MAX: Nanos = Nanos::from_secs(64);

/// The times and counts of a block of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockSample {
    /// Arrival of its first packet, since the recording began.
    pub arrival_ns: u64,
    /// Media time of its first packet.
    pub media_ns: u64,
    /// Packets in it.
    pub packets: u64,
    /// Packets missing among them that a higher rate would have recorded.
    pub missing: u64,
}

/// Measures the rate of successive blocks of a recording.
#[derive(Clone, Debug, Default)]
struct Measure {
    blocks: VecDeque<BlockSample>,
}

impl Measure {
    fn block(&mut self, seen: BlockSample) {
        // After a jump back in the recording the measurement begins anew.
        if self
            .blocks
            .back()
            .is_some_and(|last| last.arrival_ns > seen.arrival_ns)
        {
            self.blocks.clear();
        }
        self.blocks.push_back(seen);
        let is_old = |of: &BlockSample| of.arrival_ns.saturating_add(WINDOW_NS) < seen.arrival_ns;
        while self.blocks.len() > BLOCKS_MAX
            || self.blocks.len() > 3 && self.blocks.front().is_some_and(is_old)
        {
            self.blocks.pop_front();
        }
    }

    /// The time between the first and the last block.
    fn span(&self) -> Nanos {
        let (from, to) = (self.blocks.front(), self.blocks.back());
        let ns = from
            .zip(to)
            .map(|(from, to)| to.arrival_ns - from.arrival_ns);
        Nanos(ns.unwrap_or(0))
    }

    /// The rate of the blocks from `first` on, if there are two intervals at least.
    ///
    /// Measured by media time: a publisher that sends a file as fast as it is accepted needs no more than the rate
    /// of the media, and one that is held up needs more than arrives. If the timestamps are implausible, it is
    /// measured by arrival.
    fn rate(&self, first: usize, block_bytes: u64) -> Option<BytesPerSecond> {
        self.rate_and_basis(first, block_bytes)
            .map(|(rate, _)| rate)
    }

    /// The rate of the blocks from `first` on, and the time by which it is measured.
    fn rate_and_basis(
        &self,
        first: usize,
        block_bytes: u64,
    ) -> Option<(BytesPerSecond, TimeBasis)> {
        let (from, to) = (self.blocks.get(first)?, self.blocks.back()?);
        let intervals = (self.blocks.len() - 1 - first) as u64;
        if intervals < 2 {
            return None;
        }
        let arrival = to.arrival_ns.saturating_sub(from.arrival_ns);
        let media = to.media_ns.saturating_sub(from.media_ns);
        let (time, basis) = match media < arrival / 4 {
            true => (arrival, TimeBasis::Arrival),
            false => (media, TimeBasis::Media),
        };
        let (mut packets, mut missing) = (0_u64, 0_u64);
        for of in self.blocks.iter().skip(first) {
            packets += of.packets;
            missing += of.missing;
        }
        let bytes = u128::from(intervals) * u128::from(block_bytes);
        let all = bytes * u128::from(packets + missing) / u128::from(packets.max(1));
        let rate = (all * 1_000_000_000).checked_div(u128::from(time))?;
        let rate = BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX));
        Some((rate, basis))
    }
}

/// The times by which a rate is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeBasis {
    Media,
    Arrival,
}

/// The request for another rate that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    None,
    /// For the rate that is needed.
    Needed,
    /// For the rate that was said to fit, which is lower.
    Fitting,
}

/// Requests for another rate, and the pauses after refusals.
#[derive(Clone, Copy, Debug)]
struct RateRequests {
    under_way: Request,
    pause: Nanos,
    not_before: Time,
    /// The rate that was said to fit, when a higher one was refused.
    fits: Option<BytesPerSecond>,
}

impl RateRequests {
    const fn new() -> Self {
        Self {
            under_way: Request::None,
            pause: PAUSE_MIN,
            not_before: Time::ZERO,
            fits: None,
        }
    }

    /// Requests `wanted`, or once after each refusal the rate that was said to fit if that is lower. Returns the
    /// requested rate; `None` if nothing is requested now.
    fn ask(
        &mut self,
        now: Time,
        rate: BytesPerSecond,
        wanted: BytesPerSecond,
    ) -> Option<BytesPerSecond> {
        if self.under_way != Request::None {
            return None;
        }
        let fits = self
            .fits
            .take()
            .filter(|fits| fits.0 > rate.0 / 20 * 21 && *fits < wanted);
        if fits.is_none() && now < self.not_before {
            return None;
        }
        self.under_way = match fits {
            Some(_) => Request::Fitting,
            None => Request::Needed,
        };
        Some(fits.unwrap_or(wanted))
    }

    fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        match (
            std::mem::replace(&mut self.under_way, Request::None),
            answer,
        ) {
            // The pause goes on: the needed rate was refused just now.
            (Request::Fitting, Ok(())) => {}
            (_, Ok(())) => *self = Self::new(),
            (_, Err(fits)) => {
                self.fits = fits;
                self.not_before = now.saturating_add(self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A rate and a tenth of it.
fn and_a_tenth(rate: BytesPerSecond) -> BytesPerSecond {
    BytesPerSecond(rate.0.saturating_add(rate.0.div_ceil(10)).max(1))
}

#[cfg(test)]
mod tests;
