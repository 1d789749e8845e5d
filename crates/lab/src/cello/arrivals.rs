//! When requests come within a slot of which the number is known.
//!
//! The file system of the machine sends requests in two ways (thesis, 3.2.2): a number of them at once, or each when
//! the one before it is done. Here reads are of the second kind: runs of them, one after another, each about a
//! service time after the one before. Writes are of the first: what was written is flushed every half minute, one
//! request every few milliseconds, and some goes in between.

use sched::request::Op;
use sched::units::{Nanos, Time};

use crate::dice::Dice;

/// Per mille of requests that are reads.
const READS_PERMILLE: u64 = 440;
/// Reads in a run, on average, and the time from one to the next.
const RUN_MEAN: u64 = 12;
const READ_GAP: Nanos = Nanos::from_millis(25);
/// Dirty blocks are written every so often.
const FLUSH_EVERY: Nanos = Nanos::from_secs(30);
/// Per mille of writes that wait for a flush; the others come a few at a time.
const FLUSHED_PERMILLE: u64 = 250;
const FEW_MEAN: u64 = 5;
/// Per mille of following writes that come at once, and the mean delay of the others.
const AT_ONCE_PERMILLE: u64 = 250;
const AT_ONCE: Nanos = Nanos::from_millis(1);
const WRITE_GAP: Nanos = Nanos::from_millis(15);

/// When a disk's dirty blocks are written.
pub(super) struct Flushes {
    /// The first time.
    first: Nanos,
}

impl Flushes {
    pub(super) fn new(dice: &mut Dice) -> Self {
        Self {
            first: Nanos(dice.below(FLUSH_EVERY.get())),
        }
    }

    /// Adds `count` instants of the slot that begins at `begin`, in no order.
    pub(super) fn times(
        &self,
        begin: Time,
        slot: Nanos,
        count: u64,
        dice: &mut Dice,
        times: &mut Vec<(Time, Op)>,
    ) {
        let end = begin + slot;
        let reads = (0..count).filter(|_| dice.below(1_000) < READS_PERMILLE);
        let reads = reads.count() as u64;
        let mut left = reads;
        while left > 0 {
            let run = dice.geometric(RUN_MEAN).min(left);
            left -= run;
            let mut at = begin + Nanos(dice.below(slot.get()));
            for _ in 0..run {
                times.push((within(at, begin, end, dice), Op::Read));
                at += dice.exponential(READ_GAP);
            }
        }
        let writes = count - reads;
        let flushes = self.in_slot(begin, end);
        let flushed = if flushes.is_empty() {
            0
        } else {
            writes * FLUSHED_PERMILLE / 1_000
        };
        for (index, at) in (0..).zip(&flushes) {
            let of = flushes.len() as u64;
            let share = flushed / of + u64::from(index < flushed % of);
            burst(*at, share, (begin, end), dice, times);
        }
        let mut left = writes - flushed;
        while left > 0 {
            let few = dice.geometric(FEW_MEAN).min(left);
            left -= few;
            let at = begin + Nanos(dice.below(slot.get()));
            burst(at, few, (begin, end), dice, times);
        }
    }

    fn in_slot(&self, begin: Time, end: Time) -> Vec<Time> {
        let before = (begin - Time::ZERO)
            .saturating_sub(self.first)
            .get()
            .div_ceil(FLUSH_EVERY.get());
        (before..)
            .map(|number| Time::ZERO + self.first + FLUSH_EVERY * number)
            .take_while(|at| *at < end)
            .filter(|at| *at >= begin)
            .collect()
    }
}

/// A burst of writes from `at` on.
fn burst(
    mut at: Time,
    count: u64,
    (begin, end): (Time, Time),
    dice: &mut Dice,
    times: &mut Vec<(Time, Op)>,
) {
    for _ in 0..count {
        times.push((within(at, begin, end, dice), Op::Write));
        at += if dice.below(1_000) < AT_ONCE_PERMILLE {
            Nanos(dice.below(AT_ONCE.get()))
        } else {
            dice.exponential(WRITE_GAP)
        };
    }
}

/// An instant of the slot: what would come after its end comes somewhere in it, so that numbers by slot are kept.
fn within(at: Time, begin: Time, end: Time, dice: &mut Dice) -> Time {
    if at < end {
        at
    } else {
        begin + Nanos(dice.below((end - begin).get()))
    }
}
