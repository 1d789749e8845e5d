//! The reach: the time from the issue of a request until the head is on its track and has settled.
//!
//! A request for one sector completes when the sector passes. It passes once in a rotation, so a request that takes
//! T has a reach of more than T less a rotation, and of at most T. Two sectors are read in turn, and each request is
//! issued at such an instant that its sector passes just behind the longest reach that is known. It is missed, and
//! then the reach is longer than that; or it is caught, and the next try is closer. So the longest reach of some
//! tries is known much better than by reads at random instants.
//!
//! The reach here contains the transfer of the sector. A reach that is later than others by most of a rotation is a
//! late request (a retry, a recalibration) and not counted as a seek.

use sched::request::Op;
use sched::units::{Nanos, Sector, Time};

use crate::exchange::MeasureError;
use crate::findings::SeekFound;
use crate::probe::Probe;

/// A later reach than the fastest by this part of a rotation is a late request.
const LATE_PART: f64 = 0.75;
/// The first distance of tries behind the longest known reach, as a part of a rotation, and the last.
const STEP_FIRST: f64 = 1.0 / 16.0;
const STEP_LAST: f64 = 1.0 / 512.0;
/// Where others use the drive too, up to so many times as many requests are made, because one that comes after theirs
/// tells nothing.
const TRIES_BEHIND_OTHERS: usize = 8;

/// Reaches of one kind.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reach {
    period: f64,
    /// Times of all requests.
    took: Vec<f64>,
    step: f64,
}

impl Reach {
    fn new(period: f64) -> Self {
        Self {
            period,
            took: Vec::new(),
            step: period * STEP_FIRST,
        }
    }

    fn note(&mut self, took: f64) {
        let known = self.longer_than();
        self.took.push(took);
        self.step = if self.longer_than() > known {
            (self.step * 2.0).min(self.period / 4.0)
        } else {
            (self.step / 2.0).max(self.period * STEP_LAST)
        };
    }

    /// A request that took no longer than any other.
    fn fastest(&self) -> f64 {
        self.took.iter().copied().fold(f64::MAX, f64::min)
    }

    fn is_late(&self, took: f64) -> bool {
        took - self.period > self.fastest() + self.period * LATE_PART
    }

    /// The longest time that was too short for a reach.
    fn longer_than(&self) -> f64 {
        let seeks = self.took.iter().filter(|took| !self.is_late(**took));
        seeks.map(|took| took - self.period).fold(0.0, f64::max)
    }

    /// The longest reach.
    pub(crate) fn slowest(&self) -> f64 {
        self.longer_than() + self.step
    }

    /// Requests that were late.
    pub(crate) fn late(&self) -> u64 {
        self.took.iter().filter(|took| self.is_late(**took)).count() as u64
    }

    /// For a report.
    pub(crate) fn found(&self, cylinders: u64, inwards: bool) -> SeekFound {
        SeekFound {
            cylinders,
            inwards,
            fastest: Nanos(self.fastest().min(self.slowest()).max(0.0) as u64),
            slowest: Nanos(self.slowest() as u64),
            bound: Nanos::ZERO,
            samples: u32::try_from(self.took.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Pairs of sectors between which reaches are measured.
pub(crate) struct Pairs<'a> {
    pub(crate) probe: &'a mut Probe,
    pub(crate) period: f64,
    /// The drive answers from a cache, so no sector is read twice.
    pub(crate) has_cache: bool,
}

impl Pairs<'_> {
    /// Reaches to the second sector and back to the first, over all pairs.
    pub(crate) async fn reaches(
        &mut self,
        op: Op,
        pairs: &[(Sector, Sector)],
        tries: u32,
    ) -> Result<[Reach; 2], MeasureError> {
        let mut reaches = [Reach::new(self.period), Reach::new(self.period)];
        let each = (tries / (2 * pairs.len().max(1) as u32)).max(1);
        let before = self.probe.after_others();
        for pair in pairs {
            if self.has_cache {
                for _ in 0..TRIES_BEHIND_OTHERS {
                    if self.once(op, *pair, &mut reaches).await? {
                        break;
                    }
                }
            } else {
                self.in_turn(op, *pair, each, &mut reaches).await?;
            }
        }
        let after_others = self.probe.after_others();
        if after_others > before && reaches.iter().any(|reach| reach.took.is_empty()) {
            return Err(MeasureError::Crowded {
                after_others,
                served: self.probe.served(),
            });
        }
        if self.has_cache {
            // Instants were not chosen, so the longest reach is less certain.
            for reach in &mut reaches {
                reach.step = self.period / 8.0;
            }
        }
        Ok(reaches)
    }

    async fn in_turn(
        &mut self,
        op: Op,
        pair: (Sector, Sector),
        each: u32,
        reaches: &mut [Reach; 2],
    ) -> Result<(), MeasureError> {
        let unit = self.probe.whole();
        let sectors = [pair.1, pair.0];
        // A passing of each sector.
        let mut passings = [Time::ZERO; 2];
        for (sector, passing) in [(1, 1), (0, 0)] {
            let now = self.probe.now();
            let sample = self.probe.one(op, sectors[sector], unit, now).await?;
            passings[passing] = sample.completed;
        }
        // The head is at the second sector, so the first request is for the first one.
        let wanted = 2 * each as usize;
        let turnaround = self.probe.facts.turnaround.get();
        let mut counted = 0;
        for turn in 1..=wanted * TRIES_BEHIND_OTHERS {
            if counted == wanted {
                break;
            }
            let to = turn % 2;
            // Some instants by chance show how short a reach may be.
            let aim = if turn % 6 < 2 {
                self.probe.below(self.period as u64) as f64
            } else {
                reaches[to].slowest()
            };
            let earliest = self.probe.now().get() + turnaround;
            let passing = passings[to].get() as f64;
            let wait = (passing - aim - earliest as f64).rem_euclid(self.period);
            let issue = Time(earliest + wait as u64);
            let sample = self.probe.one(op, sectors[to], unit, issue).await?;
            counted += usize::from(sample.alone);
            if sample.error.is_some() || !sample.alone {
                continue;
            }
            let took = sample.took().get() as f64;
            reaches[to].note(took);
            if !reaches[to].is_late(took) {
                passings[to] = sample.completed;
            }
        }
        Ok(())
    }

    /// One request to each sector of a pair, at instants by chance. False if a request of others came between them.
    async fn once(
        &mut self,
        op: Op,
        pair: (Sector, Sector),
        reaches: &mut [Reach; 2],
    ) -> Result<bool, MeasureError> {
        let unit = self.probe.whole();
        let now = self.probe.now();
        self.probe.one(op, pair.0, unit, now).await?;
        let wait = self.probe.below(self.period as u64);
        let issue = self.probe.now() + Nanos(wait);
        let sample = self.probe.one(op, pair.1, unit, issue).await?;
        if sample.error.is_none() && sample.alone {
            for reach in reaches {
                reach.note(sample.took().get() as f64);
            }
        }
        Ok(sample.alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_reach_is_found_from_both_sides() {
        let period = 8.0e6;
        let mut reach = Reach::new(period);
        // The reach is 3 ms: the sector is caught at the first passing after that.
        for _ in 0..40 {
            let aim = reach.slowest();
            let took = if aim >= 3.0e6 { aim } else { aim + period };
            reach.note(took);
        }
        reach.note(3.0e6 + 3.0 * period);
        let slowest = reach.slowest();
        assert!((3.0e6..3.1e6).contains(&slowest), "{slowest}");
        assert_eq!(reach.late(), 1);
    }
}
