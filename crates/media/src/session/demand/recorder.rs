//! The demand of a recorder.

use sched::units::{BytesPerSecond, Nanos, Time};

use super::{BlockSample, Measure, RateRequests, WINDOW_NS, and_a_tenth};

/// A recorder that has borrowed buffers for this long needs a higher rate.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// A rate that is to be lowered is measured over at least this time.
const MEASURED_MIN: Nanos = Nanos::from_secs(10);

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

/// How the rate that a recorder has reserved is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RateBasis {
    /// It was stated from outside.
    Stated,
    /// It is a default, and nothing has been measured.
    Guessed,
    /// It was a default, and is measured.
    Measured,
}

/// The lowest rate that is reserved for a recording with blocks of this length in bytes: a block in a minute, because no
/// block is open for longer.
#[must_use]
pub fn recorder_rate_min(block_bytes: u64) -> BytesPerSecond {
    BytesPerSecond(block_bytes.div_ceil(60))
}

/// The demand of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderDemand {
    block_bytes: u64,
    /// The rate that was asked for from outside. It reserves no less.
    promised: BytesPerSecond,
    /// How the rate is known that was reserved at first.
    basis: RateBasis,
    measure: Measure,
    /// Blocks whose first packet arrived earlier are not measured.
    measured_from_ns: u64,
    /// When the first packet arrived.
    first_at: Option<Time>,
    /// Bytes that the packets so far take in blocks.
    received: u64,
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
            basis: RateBasis::Stated,
            measure: Measure::default(),
            measured_from_ns: 0,
            first_at: None,
            received: 0,
            pressed: None,
            count: 0,
            heard: (0, now),
            requests: RateRequests::new(),
            changed: now,
        }
    }

    /// The reserved rate is a guess.
    #[must_use]
    pub fn guessed(self) -> Self {
        Self {
            basis: RateBasis::Guessed,
            ..self
        }
    }

    /// The packets so far take this many bytes in blocks.
    pub fn received(&mut self, now: Time, bytes: u64) {
        self.received = bytes;
        if bytes > 0 {
            self.first_at.get_or_insert(now);
        }
    }

    /// Packets are there again after a gap: it is not measured, nor is a block that began before it. The time is since
    /// the recording began.
    pub fn restart(&mut self, arrival_ns: u64) {
        self.measure = Measure::default();
        self.measured_from_ns = arrival_ns;
    }

    /// This rate was asked for from outside, and is reserved.
    pub fn promise(&mut self, rate: BytesPerSecond) {
        self.promised = rate;
    }

    /// A block is full.
    pub fn block(&mut self, seen: BlockSample) {
        if seen.arrival_ns >= self.measured_from_ns {
            self.measure.block(seen);
        }
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

    /// The lower rate to be requested if the reserved one has not been needed for a window, or is the first guess.
    fn less(&mut self, now: Time, rate: BytesPerSecond) -> Option<BytesPerSecond> {
        if rate <= self.promised {
            return None;
        }
        let is_long_ago = now >= self.changed.saturating_add(Nanos(WINDOW_NS));
        let is_silent = now >= self.heard.1.saturating_add(Nanos(WINDOW_NS));
        let seen = match self.basis {
            RateBasis::Guessed => self.first_rate(now)?,
            _ if !is_long_ago => return None,
            RateBasis::Stated if is_silent => BytesPerSecond(0),
            // A camera that is away needs its rate when it returns.
            RateBasis::Measured if is_silent => return None,
            _ if self.measure.span() < MEASURED_MIN => return None,
            _ => self.measure.rate(0, self.block_bytes)?,
        };
        let wanted = and_a_tenth(seen).max(self.promised);
        if wanted.0 >= rate.0 / 5 * 4 {
            return None;
        }
        self.requests.ask(now, BytesPerSecond(0), wanted)
    }

    /// The rate since the first packet, when that can be told.
    fn first_rate(&mut self, now: Time) -> Option<BytesPerSecond> {
        let passed = now.saturating_since(self.first_at?);
        if passed < MEASURED_MIN {
            return None;
        }
        self.basis = RateBasis::Measured;
        let rate = u128::from(self.received) * 1_000_000_000 / u128::from(passed.get());
        Some(BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX)))
    }

    /// The outcome of the last request; of a refusal the rate that would fit, if there is one.
    pub fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        if answer.is_ok() {
            self.changed = now;
        }
        self.requests.answered(now, answer);
    }
}
