//! What a session needs of the disks, as it turns out, and when to ask for that.
//!
//! A reservation is made before the first packet is there, for what a description says. A recorder that meets more
//! borrows buffers first; when they run out, or have been needed for long, it asks for what it has seen and a tenth; and
//! only where that is refused are packets left out. One that has been given more than it asked for at first gives it
//! back when it has not needed it for a while. A player asks as soon as it sees that it reads blocks faster than it
//! reserved: what it plays may have been recorded by somebody who needed more.
//!
//! Nothing here knows a clock or a disk: times are arguments.

use std::collections::VecDeque;

use sched::units::{BytesPerSecond, Nanos, Time};

/// How often a session looks at what it needs: not with each packet.
pub const LOOK_EVERY: Nanos = Nanos::from_millis(100);

/// How long buffers are borrowed before that counts as what it takes.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// What has been seen within so long counts.
const WINDOW_NS: u64 = 60_000_000_000;

/// The most blocks that are remembered, if more than that came within the window.
const BLOCKS_MAX: usize = 4_096;

/// So many of the last blocks tell a player what it takes.
const PLAYED_BLOCKS: usize = 16;

/// The first pause after a refusal; each is twice as long as the one before.
const PAUSE_MIN: Nanos = Nanos::from_secs(2);

/// The longest one.
const PAUSE_MAX: Nanos = Nanos::from_secs(64);

/// A block of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// When its first packet came, since the recording began.
    pub arrival_ns: u64,
    /// When that is to be played.
    pub media_ns: u64,
    /// Packets in it.
    pub packets: u64,
    /// Packets missing among them.
    pub missing: u64,
}

/// How full a recorder's buffers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressure {
    /// How many are full: blocks that have come and are not written.
    pub full: usize,
    /// How many are borrowed.
    pub borrowed: usize,
    /// How many may be.
    pub most: usize,
    /// Since this was asked last there was a time without any.
    pub starved: bool,
}

/// Blocks of a recording, one after another, and what they take.
#[derive(Clone, Debug, Default)]
struct Measure {
    blocks: VecDeque<Seen>,
}

impl Measure {
    fn block(&mut self, seen: Seen) {
        // A recording that goes on from an earlier place is measured anew.
        if self
            .blocks
            .back()
            .is_some_and(|last| last.arrival_ns > seen.arrival_ns)
        {
            self.blocks.clear();
        }
        self.blocks.push_back(seen);
        let is_old = |of: &Seen| of.arrival_ns.saturating_add(WINDOW_NS) < seen.arrival_ns;
        while self.blocks.len() > BLOCKS_MAX
            || self.blocks.len() > 3 && self.blocks.front().is_some_and(is_old)
        {
            self.blocks.pop_front();
        }
    }

    /// What the blocks from `first` on take, if there are two intervals at least.
    ///
    /// The time of what is shown is what counts: who sends a file as fast as it is taken needs no more than who shows
    /// it, and who is held up needs more than comes. Where timestamps say nothing sensible, it is the time in which
    /// they came.
    fn rate(&self, first: usize, block_bytes: u64) -> Option<BytesPerSecond> {
        self.rate_and_how(first, block_bytes).map(|(rate, _)| rate)
    }

    /// The same, and whether it is by when they came.
    fn rate_and_how(&self, first: usize, block_bytes: u64) -> Option<(BytesPerSecond, bool)> {
        let (from, to) = (self.blocks.get(first)?, self.blocks.back()?);
        let intervals = (self.blocks.len() - 1 - first) as u64;
        if intervals < 2 {
            return None;
        }
        let came = to.arrival_ns.saturating_sub(from.arrival_ns);
        let shown = to.media_ns.saturating_sub(from.media_ns);
        let by_arrival = shown < came / 4;
        let time = if by_arrival { came } else { shown };
        let (mut packets, mut missing) = (0_u64, 0_u64);
        for of in self.blocks.iter().skip(first) {
            packets += of.packets;
            missing += of.missing;
        }
        let bytes = u128::from(intervals) * u128::from(block_bytes);
        let all = bytes * u128::from(packets + missing) / u128::from(packets.max(1));
        let rate = (all * 1_000_000_000).checked_div(u128::from(time))?;
        let rate = BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX));
        Some((rate, by_arrival))
    }
}

/// Pauses after refusals.
#[derive(Clone, Copy, Debug)]
struct Asking {
    is_under_way: bool,
    /// What is asked for is what was said to fit, and less than is needed.
    is_less: bool,
    pause: Nanos,
    not_before: Time,
    /// What was said to fit, when more was refused.
    fits: Option<BytesPerSecond>,
}

impl Asking {
    const fn new() -> Self {
        Self {
            is_under_way: false,
            is_less: false,
            pause: PAUSE_MIN,
            not_before: Time::ZERO,
            fits: None,
        }
    }

    /// Asks for so much, or for what was said to fit if that is less: once after each refusal. `None`: not now.
    fn ask(
        &mut self,
        now: Time,
        rate: BytesPerSecond,
        wanted: BytesPerSecond,
    ) -> Option<BytesPerSecond> {
        if self.is_under_way {
            return None;
        }
        let fits = self
            .fits
            .take()
            .filter(|fits| fits.0 > rate.0 / 20 * 21 && *fits < wanted);
        if fits.is_none() && now < self.not_before {
            return None;
        }
        self.is_under_way = true;
        self.is_less = fits.is_some();
        Some(fits.unwrap_or(wanted))
    }

    fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        self.is_under_way = false;
        match answer {
            // The pause goes on: what is needed was refused just now.
            Ok(()) if self.is_less => {}
            Ok(()) => *self = Self::new(),
            Err(fits) => {
                self.fits = fits;
                self.not_before = now.saturating_add(self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A tenth more.
fn and_a_tenth(rate: BytesPerSecond) -> BytesPerSecond {
    BytesPerSecond(rate.0.saturating_add(rate.0.div_ceil(10)).max(1))
}

/// What a recorder needs.
#[derive(Clone, Debug)]
pub struct RecorderDemand {
    block_bytes: u64,
    /// What it was asked to reserve, and what it does not go below.
    promised: BytesPerSecond,
    measure: Measure,
    /// Since when more than its own buffers were needed, and with which block that began.
    pressed: Option<(Time, u64)>,
    /// Blocks so far.
    count: u64,
    /// How many of them there were, and when, when there was a new one last.
    heard: (u64, Time),
    asking: Asking,
    /// When it was given what it has.
    changed: Time,
}

impl RecorderDemand {
    /// Of one whose blocks are so long, and that has reserved what it was asked to.
    #[must_use]
    pub fn new(block_bytes: u64, promised: BytesPerSecond, now: Time) -> Self {
        Self {
            block_bytes,
            promised,
            measure: Measure::default(),
            pressed: None,
            count: 0,
            heard: (0, now),
            asking: Asking::new(),
            changed: now,
        }
    }

    /// Somebody has asked for this rate, and it is reserved.
    pub fn promise(&mut self, rate: BytesPerSecond) {
        self.promised = rate;
    }

    /// A block is full.
    pub fn block(&mut self, seen: Seen) {
        self.measure.block(seen);
        self.count += 1;
    }

    /// What is to be asked for now, if anything; [`answered`](Self::answered) has to follow before it asks for
    /// anything else.
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
        // What is in the buffers now is what began it, however much of it came at once.
        let began = self.count.saturating_sub(pressure.full as u64);
        let (since, block) = *self.pressed.get_or_insert((now, began));
        let is_urgent = pressure.starved || pressure.borrowed * 2 >= pressure.most;
        if !is_urgent && now < since.saturating_add(PATIENCE) {
            return None;
        }
        // From two blocks before it began.
        let blocks = self.measure.blocks.len();
        let behind = usize::try_from(self.count - block).unwrap_or(blocks) + 2;
        let seen = self
            .measure
            .rate(blocks.saturating_sub(behind), self.block_bytes)?;
        if seen <= rate {
            return None;
        }
        self.asking.ask(now, rate, and_a_tenth(seen))
    }

    /// Gives back what has not been needed for a window.
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
        self.asking.ask(now, BytesPerSecond(0), wanted)
    }

    /// What came of asking: with a refusal, what would fit.
    pub fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        if answer.is_ok() {
            self.changed = now;
        }
        self.asking.answered(now, answer);
    }
}

/// What a player needs that plays a recording as it was.
#[derive(Clone, Debug)]
pub struct PlayerDemand {
    block_bytes: u64,
    measure: Measure,
    asking: Asking,
    /// What is reserved is what somebody said, not what was seen.
    is_guess: bool,
    /// What was reserved for recording it, which it was written at.
    recorded: BytesPerSecond,
    /// It reserves no less.
    least: BytesPerSecond,
    /// What it began with, and when that was changed last.
    began: Option<BytesPerSecond>,
    changed: Time,
}

impl PlayerDemand {
    /// Of one whose blocks are so long, and were recorded with so much reserved; it is to reserve `least` at least.
    #[must_use]
    pub fn new(
        block_bytes: u64,
        is_guess: bool,
        recorded: BytesPerSecond,
        least: BytesPerSecond,
    ) -> Self {
        Self {
            block_bytes,
            measure: Measure::default(),
            asking: Asking::new(),
            is_guess,
            recorded,
            least,
            began: None,
            changed: Time::ZERO,
        }
    }

    /// A block has been read.
    pub fn block(&mut self, seen: Seen) {
        self.measure.block(seen);
    }

    /// What is to be asked for now, if anything, where `rate` is reserved for playing it as it was;
    /// [`answered`](Self::answered) has to follow before it asks for anything else.
    pub fn look(&mut self, now: Time, rate: BytesPerSecond) -> Option<BytesPerSecond> {
        let began = *self.began.get_or_insert(rate);
        let blocks = self.measure.blocks.len();
        if blocks <= PLAYED_BLOCKS / 2 {
            return None;
        }
        let last = blocks.saturating_sub(PLAYED_BLOCKS + 1);
        let (seen, by_arrival) = self.measure.rate_and_how(last, self.block_bytes)?;
        // They may have come at any rate, and were not written faster than that.
        let seen = if by_arrival {
            seen.min(self.recorded)
        } else {
            seen
        };
        if seen > rate {
            return self.asking.ask(now, rate, and_a_tenth(seen));
        }
        // Of what somebody said that is too much the rest is given back once, and what was more for a while is.
        let wanted = and_a_tenth(self.measure.rate(0, self.block_bytes)?).max(self.least);
        let is_long_ago = now >= self.changed.saturating_add(Nanos(WINDOW_NS));
        let wanted = match self.is_guess && blocks > PLAYED_BLOCKS {
            true => wanted,
            false if is_long_ago => wanted.max(began),
            false => return None,
        };
        if wanted.0 >= rate.0 / 5 * 4 {
            return None;
        }
        if self.is_guess {
            (self.is_guess, self.began) = (false, Some(wanted));
        }
        self.asking.ask(now, BytesPerSecond(0), wanted)
    }

    /// What came of asking: with a refusal, what would fit.
    pub fn answered(&mut self, now: Time, answer: Result<(), Option<BytesPerSecond>>) {
        if answer.is_ok() {
            self.changed = now;
        }
        self.asking.answered(now, answer);
    }
}

#[cfg(test)]
mod tests;
