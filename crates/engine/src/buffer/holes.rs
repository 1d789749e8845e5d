//! Free pages, as holes in the mapping.
//!
//! Long-lived memory is taken from the low end and short-lived memory from the high end, so that the latter
//! does not fragment the former. There are as many holes as gaps between buffers, tens to hundreds; at that
//! size a sorted list is faster than a tree.

use std::ops::Range;

/// Free pages of the mapping.
#[derive(Clone, Debug)]
pub(crate) struct Holes {
    /// Sorted, not empty, not adjacent.
    free: Vec<Range<u32>>,
}

impl Holes {
    /// All of `pages` are free.
    pub(crate) fn new(pages: Range<u32>) -> Self {
        let mut free = Vec::with_capacity(1024);
        if !pages.is_empty() {
            free.push(pages);
        }
        Self { free }
    }

    /// Takes `count` contiguous pages from as low as possible.
    pub(crate) fn take_low(&mut self, count: u32) -> Option<Range<u32>> {
        let at = self
            .free
            .iter()
            .position(|hole| hole.len() >= count as usize)?;
        let start = self.free[at].start;
        self.free[at].start += count;
        self.drop_if_empty(at);
        Some(start..start + count)
    }

    /// Takes `count` contiguous pages from as high as possible.
    pub(crate) fn take_high(&mut self, count: u32) -> Option<Range<u32>> {
        let at = self
            .free
            .iter()
            .rposition(|hole| hole.len() >= count as usize)?;
        let end = self.free[at].end;
        self.free[at].end -= count;
        self.drop_if_empty(at);
        Some(end - count..end)
    }

    /// Takes up to `count` contiguous pages: the largest multiple of `unit` pages that fits into a hole.
    pub(crate) fn take_units(&mut self, count: u32, unit: u32) -> Option<Range<u32>> {
        let largest = self.free.iter().map(ExactSizeIterator::len).max()?;
        let units = count.min(largest as u32) / unit;
        (units > 0).then(|| self.take_low(units * unit)).flatten()
    }

    /// The sum over all holes of their sizes rounded down to multiples of `unit` pages.
    pub(crate) fn total_in_units(&self, unit: u32) -> u32 {
        let whole = |hole: &Range<u32>| hole.len() as u32 / unit * unit;
        self.free.iter().map(whole).sum()
    }

    /// Returns pages.
    pub(crate) fn give(&mut self, pages: Range<u32>) {
        let at = self.free.partition_point(|hole| hole.start < pages.start);
        let joins_before = at > 0 && self.free[at - 1].end == pages.start;
        let joins_after = self
            .free
            .get(at)
            .is_some_and(|hole| hole.start == pages.end);
        debug_assert!(
            at == 0 || self.free[at - 1].end <= pages.start,
            "pages given back twice"
        );
        debug_assert!(
            self.free.get(at).is_none_or(|hole| pages.end <= hole.start),
            "pages given back twice"
        );
        match (joins_before, joins_after) {
            (true, true) => {
                self.free[at - 1].end = self.free[at].end;
                self.free.remove(at);
            }
            (true, false) => self.free[at - 1].end = pages.end,
            (false, true) => self.free[at].start = pages.start,
            (false, false) => self.free.insert(at, pages),
        }
    }

    /// The number of free pages.
    pub(crate) fn total(&self) -> u32 {
        self.free.iter().map(|hole| hole.len() as u32).sum()
    }

    fn drop_if_empty(&mut self, at: usize) {
        if self.free[at].is_empty() {
            self.free.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_two_ends_are_kept_apart() {
        let mut holes = Holes::new(0..10);
        assert_eq!(holes.take_low(3), Some(0..3));
        assert_eq!(holes.take_high(2), Some(8..10));
        assert_eq!(holes.take_high(6), None);
        assert_eq!(holes.take_units(9, 2), Some(3..7));
        assert_eq!(holes.take_units(9, 2), None);
        assert_eq!(holes.take_units(9, 1), Some(7..8));
        assert_eq!(holes.take_units(1, 1), None);
    }

    proptest! {
        #![proptest_config(testkit::cases(256))]

        #[test]
        fn holes_agree_with_a_bitmap(steps in proptest::collection::vec((0u8..4, 1u32..20, 1u32..6, any::<prop::sample::Index>()), 1..200)) {
            const PAGES: u32 = 100;
            let mut holes = Holes::new(0..PAGES);
            let mut used = [false; PAGES as usize];
            let mut held: Vec<Range<u32>> = Vec::new();
            for (kind, count, unit, which) in steps {
                let free_in = |pages: u32| {
                    let gaps = used.split(|&page| page);
                    gaps.map(|gap| gap.len() as u32 / pages * pages).collect::<Vec<_>>()
                };
                let pieces = free_in(unit);
                prop_assert_eq!(holes.total_in_units(unit), pieces.iter().sum::<u32>());
                let fits = free_in(1).into_iter().any(|gap| gap >= count);
                let most = pieces.into_iter().max().unwrap_or(0).min(count / unit * unit);
                let taken = match kind {
                    0 => holes.take_low(count),
                    1 => holes.take_high(count),
                    2 => holes.take_units(count, unit),
                    _ if held.is_empty() => None,
                    _ => {
                        let back = held.swap_remove(which.index(held.len()));
                        used[back.start as usize..back.end as usize].fill(false);
                        holes.give(back);
                        None
                    }
                };
                if kind == 2 {
                    prop_assert_eq!(taken.as_ref().map_or(0, |pages| pages.len() as u32), most);
                }
                if let Some(taken) = taken {
                    prop_assert!(used[taken.start as usize..taken.end as usize].iter().all(|&page| !page));
                    used[taken.start as usize..taken.end as usize].fill(true);
                    held.push(taken);
                } else if kind < 2 {
                    prop_assert!(!fits, "{count} pages would fit");
                }
                prop_assert_eq!(holes.total() as usize, used.iter().filter(|&&page| !page).count());
            }
        }
    }
}
