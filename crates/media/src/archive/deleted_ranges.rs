//! Serials of the blocks of an archive that were deleted.

use std::ops::Range;

use crate::archive::geometry::Geometry;

/// Serials of deleted blocks: sorted ranges that neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeletedRanges(pub(super) Vec<Range<u64>>);

impl DeletedRanges {
    /// The ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Adds a range.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = |of: &Range<u64>| of.start <= range.end && range.start <= of.end;
        let joined = self.0.iter().filter(|of| touched(of));
        let joined = joined.fold(range.clone(), |all, of| {
            all.start.min(of.start)..all.end.max(of.end)
        });
        self.0.retain(|of| !touched(of));
        let place = self.0.partition_point(|of| of.start < joined.start);
        self.0.insert(place, joined);
    }

    /// The range that contains a serial.
    #[must_use]
    pub fn range_of(&self, serial: u64) -> Option<&Range<u64>> {
        let place = self.0.partition_point(|of| of.end <= serial);
        self.0.get(place).filter(|of| of.contains(&serial))
    }

    /// The first serial from this one on that is not deleted.
    #[must_use]
    pub fn first_kept(&self, serial: u64) -> u64 {
        self.range_of(serial).map_or(serial, |range| range.end)
    }

    /// The serial after the last deleted one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.end)
    }

    /// The last deleted serial that was in a place of the ring.
    #[must_use]
    pub fn last_in_place(&self, place: u64, geometry: &Geometry) -> Option<u64> {
        let ranges = self.0.iter().rev();
        ranges
            .map(|range| geometry.last_serial_in(place, range.start, range.end))
            .find_map(|found| found)
    }

    /// The first serial from which on at most `blocks_max` blocks are not deleted, if `next` is the next
    /// serial.
    #[must_use]
    pub fn oldest_within(&self, next: u64, blocks_max: u64) -> u64 {
        let (mut at, mut left) = (next, blocks_max);
        for range in self.0.iter().rev() {
            let kept = at.saturating_sub(range.end);
            if kept >= left {
                break;
            }
            left -= kept;
            at = range.start.min(at);
        }
        at.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn serials(deleted: &DeletedRanges) -> BTreeSet<u64> {
        deleted.ranges().iter().cloned().flatten().collect()
    }

    /// Compared with sets of serials.
    #[test]
    fn deleted_ranges_agree_with_a_set_of_serials() {
        let mut rng = StdRng::seed_from_u64(11);
        for _ in 0..400 {
            let (mut deleted, mut model) = (DeletedRanges::default(), BTreeSet::new());
            for _ in 0..rng.random_range(1..9) {
                let start = rng.random_range(0..40);
                let range = start..start + rng.random_range(0..9);
                deleted.add(range.clone());
                model.extend(range);
                assert_eq!(serials(&deleted), model);
                let apart = |pair: &[Range<u64>]| pair[0].end < pair[1].start;
                assert!(deleted.ranges().windows(2).all(apart), "{deleted:?}");
            }
            for serial in 0..60 {
                assert_eq!(deleted.range_of(serial).is_some(), model.contains(&serial));
                let after = (serial..).find(|of| !model.contains(of));
                assert_eq!(Some(deleted.first_kept(serial)), after);
            }
            assert_eq!(deleted.end(), model.last().map_or(0, |last| last + 1));
            for blocks in 1..12 {
                for place in 0..blocks {
                    let last = model.iter().rev().find(|of| **of % blocks == place);
                    assert_eq!(
                        deleted.last_in_place(place, &Geometry::new(blocks)),
                        last.copied()
                    );
                }
            }
            for (next, most) in [(50, 3), (50, 20), (60, 60), (49, 0)] {
                let oldest = deleted.oldest_within(next, most);
                let count = |from: u64| (from..next).filter(|of| !model.contains(of)).count();
                let is_oldest = oldest == 0 || count(oldest - 1) as u64 > most;
                // A start in a deleted range is as good as one at the end of the range.
                let is_all = count(oldest) as u64 == most || count(0) == count(oldest);
                assert!(
                    count(oldest) as u64 <= most && (is_oldest || is_all),
                    "{deleted:?}"
                );
            }
        }
    }
}
