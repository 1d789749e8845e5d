//! Workload of a drive in a run: streams and best effort.

use std::ops::Range;

use sched::request::{Op, Urgency};
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::dice::Dice;

/// Positions of a client's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Each where the one before ended, and from the beginning again.
    Sequential,
    /// Anywhere.
    Random,
}

/// A stream: a block every period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamLoad {
    /// The direction.
    pub op: Op,
    /// The size of a block.
    pub block: SectorCount,
    /// A block is asked for every so often.
    pub period: Nanos,
    /// The sectors it uses.
    pub region: Range<Sector>,
    /// Position in the region.
    pub access: Access,
    /// When the first block is asked for.
    pub first: Time,
}

/// Arrivals of best-effort requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// Independent of each other, so far apart on average.
    Poisson {
        /// The mean time between two.
        mean: Nanos,
    },
    /// In bursts, which are independent of each other.
    Bursty {
        /// The mean time between the beginnings of two bursts.
        mean: Nanos,
        /// The mean number of requests in a burst.
        length_mean: u64,
        /// The time between two requests of a burst.
        gap: Nanos,
    },
    /// One at a time: the next is issued so long after the one before has completed.
    Closed {
        /// The mean time in between, random.
        think_mean: Nanos,
    },
}

/// A source of best-effort requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BestEffortLoad {
    /// When they come.
    pub arrivals: Arrivals,
    /// The sizes, each as likely as the others.
    pub sizes: Vec<SectorCount>,
    /// Percentage of reads.
    pub read_percent: u32,
    /// Urgency of writes; reads are always waited for.
    pub write_urgency: Urgency,
    /// The sectors they use, at random, aligned to 8 sectors where the region is.
    pub region: Range<Sector>,
}

/// A place for `count` sectors in `region`.
pub(super) fn place(dice: &mut Dice, region: &Range<Sector>, count: SectorCount) -> Sector {
    const ALIGN_SECTORS: u64 = 8;
    let room = (region.end - region.start).saturating_sub(count).get();
    region.start + SectorCount(dice.below(room / ALIGN_SECTORS + 1) * ALIGN_SECTORS)
}

/// The place of a stream in its region.
pub(super) struct Cursor {
    next: Sector,
}

impl Cursor {
    pub(super) fn new(load: &StreamLoad) -> Self {
        Self {
            next: load.region.start,
        }
    }

    pub(super) fn advance(&mut self, load: &StreamLoad, dice: &mut Dice) -> Sector {
        match load.access {
            Access::Random => place(dice, &load.region, load.block),
            Access::Sequential => {
                if self.next + load.block > load.region.end {
                    self.next = load.region.start;
                }
                let start = self.next;
                self.next = start + load.block;
                start
            }
        }
    }
}

/// The instants at which an open source issues requests.
pub(crate) struct ArrivalProcess {
    left_in_burst: u64,
    burst_begins: Time,
}

impl ArrivalProcess {
    pub(crate) fn new() -> Self {
        Self {
            left_in_burst: 0,
            burst_begins: Time::ZERO,
        }
    }

    /// The instant after `last`, for open sources; for a closed one, of which `last` completed.
    pub(crate) fn next(&mut self, arrivals: Arrivals, last: Time, dice: &mut Dice) -> Time {
        match arrivals {
            Arrivals::Poisson { mean } => last + dice.exponential(mean),
            Arrivals::Closed { think_mean } => last + dice.exponential(think_mean),
            Arrivals::Bursty {
                mean,
                length_mean,
                gap,
            } => {
                if self.left_in_burst > 0 {
                    self.left_in_burst -= 1;
                    return last + gap;
                }
                self.left_in_burst = dice.geometric(length_mean) - 1;
                self.burst_begins += dice.exponential(mean);
                self.burst_begins = self.burst_begins.max(last + Nanos(1));
                self.burst_begins
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    #[test]
    fn arrivals_have_the_rate_that_was_asked_for() {
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(7));
        let ms = Nanos::from_millis;
        for (arrivals, mean) in [
            (Arrivals::Poisson { mean: ms(10) }, ms(10)),
            (
                Arrivals::Bursty {
                    mean: ms(100),
                    length_mean: 10,
                    gap: Nanos(10_000),
                },
                ms(10),
            ),
        ] {
            let mut process = ArrivalProcess::new();
            let mut at = Time::ZERO;
            let n = 200_000;
            for _ in 0..n {
                let next = process.next(arrivals, at, dice);
                assert!(next > at);
                at = next;
            }
            let measured = at.get() / n;
            assert!(
                measured.abs_diff(mean.get()) < mean.get() / 50,
                "{arrivals:?}: {measured}"
            );
        }
    }

    #[test]
    fn places_stay_in_their_region() {
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(7));
        let region = Sector(100)..Sector(164);
        for _ in 0..1_000 {
            let start = place(dice, &region, SectorCount(16));
            assert!(start >= region.start && start + SectorCount(16) <= region.end);
        }
        assert_eq!(place(dice, &region, SectorCount(64)), Sector(100));
    }

    #[test]
    fn a_sequential_stream_begins_again_at_the_end_of_its_region() {
        let dice = &mut Dice(Xoshiro256PlusPlus::seed_from_u64(7));
        let load = StreamLoad {
            op: Op::Read,
            block: SectorCount(10),
            period: Nanos(1),
            region: Sector(5)..Sector(26),
            access: Access::Sequential,
            first: Time::ZERO,
        };
        let mut cursor = Cursor::new(&load);
        let starts: Vec<u64> = (0..3).map(|_| cursor.advance(&load, dice).get()).collect();
        assert_eq!(starts, [5, 15, 5]);
    }
}
