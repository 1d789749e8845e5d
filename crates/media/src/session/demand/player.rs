//! The demand of a player at the original speed.

use sched::units::{BytesPerSecond, Nanos, Time};

use super::{BlockSample, Measure, RateRequests, TimeBasis, WINDOW_NS, and_a_tenth};

/// A player's rate is measured over this many of the last blocks.
const PLAYED_BLOCKS: usize = 16;

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
