//! The rate that a session needs, measured while it runs, and when to request another one.
//!
//! A reservation is made before the first packet arrives, for the rate of the description. A recorder that receives
//! more borrows buffers first. When they run out, or have been needed for long, it requests the measured rate and a
//! tenth; packets are lost only if that is refused. A recorder that has more than it first reserved gives that back
//! when it has not needed it for a minute. A player requests more as soon as it reads blocks faster than it
//! reserved: their recording may have needed more than it says.
//!
//! Pure: times are arguments, and there is no disk.

use std::collections::VecDeque;

use sched::units::{BytesPerSecond, Nanos, Time};

/// Interval at which a session looks at its demand.
pub const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// A recorder that has borrowed buffers for this long needs a higher rate.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// The time over which a rate is measured, in nanoseconds.
const WINDOW_NS: u64 = 60_000_000_000;

/// The most blocks that are remembered, if more arrive within the window.
const BLOCKS_MAX: usize = 4_096;

/// A player's rate is measured over this many of the last blocks.
const PLAYED_BLOCKS: usize = 16;

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

/// The use of a recorder's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// Buffers that hold received blocks that are not written.
    pub full: usize,
    /// Borrowed buffers.
    pub borrowed: usize,
    /// Buffers that may be borrowed.
    pub most: usize,
    /// There was no free buffer at some time since the last look.
    pub starved: bool,
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

/// The demand of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderDemand {
    block_bytes: u64,
    /// The rate that was asked for from outside. It reserves no less.
    promised: BytesPerSecond,
    measure: Measure,
    /// Since when more than its own buffers are needed, and the number of the block with which that began.
    pressed: Option<(Time, u64)>,
    /// Blocks so far.
    count: u64,
    /// `count` at the last look that found a new block, and the time of that look.
    heard: (u64, Time),
    requests: RateRequests,
    /// When the last request was granted.
    changed: Time,
}

impl RecorderDemand {
    /// Of a recorder with blocks of this length in bytes, which has reserved `promised`.
    #[must_use]
    pub fn new(block_bytes: u64, promised: BytesPerSecond, now: Time) -> Self {
        Self {
            block_bytes,
            promised,
            measure: Measure::default(),
            pressed: None,
            count: 0,
            heard: (0, now),
            requests: RateRequests::new(),
            changed: now,
        }
    }

    /// This rate was asked for from outside, and is reserved.
    pub fn promise(&mut self, rate: BytesPerSecond) {
        self.promised = rate;
    }

    /// A block is full.
    pub fn block(&mut self, seen: BlockSample) {
        self.measure.block(seen);
        self.count += 1;
    }

    /// The rate to be requested now, if any. No other one is requested until [`answered`](Self::answered) is called.
    pub fn look(
        &mut self,
        now: Time,
        rate: BytesPerSecond,
        pressure: Pressure,
    ) -> Option<BytesPerSecond> {
        if self.heard.0 != self.count {
            self.heard = (self.count, now);
        }
        if pressure.borrowed == 0 && !pressure.starved {
            self.pressed = None;
            return self.less(now, rate);
        }
        // The pressure began with the blocks that are in the buffers, however many arrived at once.
        let began = self.count.saturating_sub(pressure.full as u64);
        let (since, block) = *self.pressed.get_or_insert((now, began));
        let is_urgent = pressure.starved || pressure.borrowed * 2 >= pressure.most;
        if !is_urgent && now < since.saturating_add(PATIENCE) {
            return None;
        }
        // Measured from two blocks before that.
        let blocks = self.measure.blocks.len();
        let behind = usize::try_from(self.count - block).unwrap_or(blocks) + 2;
        let seen = self
            .measure
            .rate(blocks.saturating_sub(behind), self.block_bytes)?;
        if seen <= rate {
            return None;
        }
        self.requests.ask(now, rate, and_a_tenth(seen))
    }

    /// The lower rate to be requested if the reserved one has not been needed for a window.
    fn less(&mut self, now: Time, rate: BytesPerSecond) -> Option<BytesPerSecond> {
        let is_long_ago = now >= self.changed.saturating_add(Nanos(WINDOW_NS));
        if rate <= self.promised || !is_long_ago {
            return None;
        }
        let is_silent = now >= self.heard.1.saturating_add(Nanos(WINDOW_NS));
        let wanted = match is_silent {
            true => self.promised,
            false => and_a_tenth(self.measure.rate(0, self.block_bytes)?).max(self.promised),
        };
        if wanted.0 >= rate.0 / 5 * 4 {
            return None;
        }
        self.requests.ask(now, BytesPerSecond(0), wanted)
    }

    /// The outcome of the last request; of a refusal the rate that would fit, if there is one.
    pub fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        if answer.is_ok() {
            self.changed = now;
        }
        self.requests.answered(now, answer);
    }
}

/// How the rate that a player has reserved is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateEstimate {
    /// It is that of the description, or a default.
    Guessed,
    /// It was measured over the recording.
    Measured,
}

/// The demand of a player at the original speed.
#[derive(Clone, Debug)]
pub struct PlayerDemand {
    block_bytes: u64,
    measure: Measure,
    requests: RateRequests,
    /// How the reserved rate is known.
    estimate: RateEstimate,
    /// The rate that was reserved for recording it: it was not written faster.
    recorded: BytesPerSecond,
    /// It reserves at least this.
    least: BytesPerSecond,
    /// The rate that it began with.
    began: Option<BytesPerSecond>,
    /// When the last request was granted.
    changed: Time,
}

impl PlayerDemand {
    /// Of a player of blocks of this length in bytes, which were recorded with `recorded` reserved. It reserves at
    /// least `least`.
    #[must_use]
    pub fn new(
        block_bytes: u64,
        estimate: RateEstimate,
        recorded: BytesPerSecond,
        least: BytesPerSecond,
    ) -> Self {
        Self {
            block_bytes,
            measure: Measure::default(),
            requests: RateRequests::new(),
            estimate,
            recorded,
            least,
            began: None,
            changed: Time::ZERO,
        }
    }

    /// A block has been read.
    pub fn block(&mut self, seen: BlockSample) {
        self.measure.block(seen);
    }

    /// The rate to be requested now, if any; `rate` is the reserved one at the original speed. No other one is
    /// requested until [`answered`](Self::answered) is called.
    pub fn look(&mut self, now: Time, rate: BytesPerSecond) -> Option<BytesPerSecond> {
        let began = *self.began.get_or_insert(rate);
        let blocks = self.measure.blocks.len();
        if blocks <= PLAYED_BLOCKS / 2 {
            return None;
        }
        let last = blocks.saturating_sub(PLAYED_BLOCKS + 1);
        let (seen, basis) = self.measure.rate_and_basis(last, self.block_bytes)?;
        let seen = match basis {
            // Blocks may be read at any rate, and were not written faster than this.
            TimeBasis::Arrival => seen.min(self.recorded),
            TimeBasis::Media => seen,
        };
        if seen > rate {
            return self.requests.ask(now, rate, and_a_tenth(seen));
        }
        // A guess that is too high is lowered once; a rate that was raised for a while goes back to the first one.
        let wanted = and_a_tenth(self.measure.rate(0, self.block_bytes)?).max(self.least);
        let is_long_ago = now >= self.changed.saturating_add(Nanos(WINDOW_NS));
        let is_guess = self.estimate == RateEstimate::Guessed;
        let wanted = match is_guess && blocks > PLAYED_BLOCKS {
            true => wanted,
            false if is_long_ago => wanted.max(began),
            false => return None,
        };
        if wanted.0 >= rate.0 / 5 * 4 {
            return None;
        }
        if is_guess {
            (self.estimate, self.began) = (RateEstimate::Measured, Some(wanted));
        }
        self.requests.ask(now, BytesPerSecond(0), wanted)
    }

    /// The outcome of the last request; of a refusal the rate that would fit, if there is one.
    pub fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        if answer.is_ok() {
            self.changed = now;
        }
        self.requests.answered(now, answer);
    }
}

#[cfg(test)]
mod tests;
