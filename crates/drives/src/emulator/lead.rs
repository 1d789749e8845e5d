//! The lead: time before a completion at which the drive's thread calls the waiting thread.

use sched::units::Nanos;

/// Lead of a new drive.
const FIRST: Nanos = Nanos::from_micros(200);
/// A lead is at least so long.
const MIN: Nanos = Nanos::from_micros(100);
/// And at most so long, for whoever waits spins it away.
const MAX: Nanos = Nanos::from_micros(500);
/// By so much a lead grows when it was too short once.
const GROWTH: Nanos = Nanos::from_micros(40);
/// A lead is to be too short for one completion in so many.
const SHORT_ONCE_IN: u64 = 200;

/// Time that this host takes to wake two threads one after the other, except one time in [`SHORT_ONCE_IN`]: a
/// quantile, followed in steps. A step up is larger than a step down by the factor by which it is to be
/// rarer, so the steps balance at the quantile of any distribution, and follow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    length: Nanos,
    is_fixed: bool,
}

impl Lead {
    /// A lead of `fixed`, or one that follows the host.
    pub(super) fn new(fixed: Option<Nanos>) -> Self {
        Self {
            length: fixed.unwrap_or(FIRST),
            is_fixed: fixed.is_some(),
        }
    }

    pub(super) fn get(self) -> Nanos {
        self.length
    }

    /// Learns from a wake-up: `took` is the time from the planned wake of the drive's thread until the other
    /// thread ran.
    pub(super) fn learn(&mut self, took: Nanos) {
        if self.is_fixed {
            return;
        }
        let down = Nanos(GROWTH.get() / SHORT_ONCE_IN);
        let length = if took > self.length {
            self.length + (GROWTH - down)
        } else {
            self.length - down
        };
        self.length = length.clamp(MIN, MAX);
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn lead_covers_all_but_one_in_200_of_the_hosts_delays() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut lead = Lead::new(None);
        // Any time up to 400 us, first; then up to 200.
        for span_us in [400, 200] {
            let (mut short, mut sum_ns) = (0_u64, 0_u64);
            for round in 0..60_000 {
                let took = Nanos(random.next_u64() % (span_us * 1_000));
                if round >= 20_000 {
                    short += u64::from(took > lead.get());
                    sum_ns += lead.get().get();
                }
                lead.learn(took);
            }
            // One in 200 of 40,000 is 200.
            assert!((150..250).contains(&short), "{short}");
            let mean_us = sum_ns / 40_000 / 1_000;
            assert!(mean_us.abs_diff(span_us) < span_us / 10, "{mean_us}");
        }
    }

    #[test]
    fn lead_has_limits_and_a_fixed_lead_stays() {
        let mut lead = Lead::new(None);
        for (took, limit) in [(Nanos::from_secs(1), MAX), (Nanos(0), MIN)] {
            (0..10_000).for_each(|_| lead.learn(took));
            assert_eq!(lead.get(), limit);
        }
        let mut fixed = Lead::new(Some(Nanos(7)));
        fixed.learn(Nanos::from_secs(1));
        fixed.learn(Nanos(0));
        assert_eq!(fixed.get(), Nanos(7));
    }
}
