//! Where in an archive the block of a serial lies.
//!
//! An archive is a ring of places. The block of serial `s` is in place `(s - base) mod blocks`, and what is before
//! `base` does not count any more. A ring becomes longer or shorter where nothing has to be moved: the blocks that the
//! writer has put down since it was in place 0 last stay where they are, and `base` becomes the serial of the first of
//! them. Those of the round before, which lie from the writer on, are what is lost; in the first round there are none.
//!
//! # Worked example
//!
//! Eight places, and the next serial is 22: the writer is in place 6, and 14 and 15 are left of the round before.
//!
//! ```text
//! place     0  1  2  3  4  5  6  7
//! serial   16 17 18 19 20 21 14 15      base 0, blocks 8
//! longer   16 17 18 19 20 21  .  .  .  .  .  .      base 16, blocks 12: 14 and 15 are lost
//! shorter  16 17 18 19 20 21  .      base 16, blocks 7: so are they here
//! ```
//!
//! With 24 as the next serial nothing would be lost. Until it comes around, the writer's next blocks have the same places
//! before and after the change.

/// A ring of places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The serial that is in place 0 in the first round; those before do not count.
    pub base: u64,
    /// How many places there are.
    pub blocks: u64,
}

impl Geometry {
    /// A ring whose first serial is 0.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        Self { base: 0, blocks }
    }

    /// Where a block lies; `None`: it does not count.
    #[must_use]
    pub fn place(&self, serial: u64) -> Option<u64> {
        Some(serial.checked_sub(self.base)? % self.blocks)
    }

    /// The oldest serial of which the place has not been used again, if this is the next one.
    #[must_use]
    pub fn oldest(&self, next: u64) -> u64 {
        next.saturating_sub(self.blocks).max(self.base)
    }

    /// How many places the writer has used since it was in place 0 last, if this is the next serial: all of them where
    /// it is about to begin again.
    #[must_use]
    pub fn used(&self, next: u64) -> u64 {
        match next.saturating_sub(self.base) {
            0 => 0,
            count => (count - 1) % self.blocks + 1,
        }
    }

    /// The first serial of the round that the writer is in, if this is the next one.
    #[must_use]
    pub fn round_start(&self, next: u64) -> u64 {
        next.max(self.base) - self.used(next)
    }

    /// Whether no place has been used twice.
    #[must_use]
    pub fn is_first_round(&self, next: u64) -> bool {
        self.round_start(next) == self.base
    }

    /// A ring of so many places in which what is of this round is where it was; `None`: that has no room.
    #[must_use]
    pub fn resized(&self, next: u64, blocks: u64) -> Option<Self> {
        let base = self.round_start(next);
        (blocks > 0 && self.used(next) <= blocks).then_some(Self { base, blocks })
    }

    /// The last serial before `end` and not before `start` that was in a place.
    #[must_use]
    pub fn last_in(&self, place: u64, start: u64, end: u64) -> Option<u64> {
        let last = end.checked_sub(1)?;
        let back = (self.place(last)? + self.blocks - place) % self.blocks;
        let serial = last.checked_sub(back)?;
        (serial >= start.max(self.base)).then_some(serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies where, as it was written: against which all of this is held.
    struct Model {
        places: Vec<Option<u64>>,
        at: usize,
        next: u64,
    }

    impl Model {
        fn write(&mut self) {
            if self.at == self.places.len() {
                self.at = 0;
            }
            self.places[self.at] = Some(self.next);
            (self.at, self.next) = (self.at + 1, self.next + 1);
        }

        /// What is left of the round before goes.
        fn resize(&mut self, blocks: usize) {
            self.places.truncate(self.at);
            self.places.resize(blocks, None);
        }

        fn agrees(&self, with: &Geometry) {
            assert_eq!(with.blocks, self.places.len() as u64);
            let there: Vec<u64> = self.places.iter().flatten().copied().collect();
            let oldest = there.iter().min().copied().unwrap_or(self.next);
            assert_eq!(with.oldest(self.next), oldest, "{with:?}");
            for (place, serial) in (0..).zip(&self.places) {
                assert_eq!(with.last_in(place, 0, self.next), *serial, "{with:?}");
                if let Some(serial) = serial {
                    assert_eq!(with.place(*serial), Some(place));
                }
            }
            assert_eq!(with.used(self.next), self.at as u64, "{with:?}");
            let following = if self.at == self.places.len() {
                0
            } else {
                self.at
            };
            assert_eq!(with.place(self.next), Some(following as u64));
        }
    }

    /// All sequences of growing, shrinking and writing on rings of up to six places.
    #[test]
    fn rings_of_all_small_sizes_hold_what_was_written_to_them() {
        fn go(model: &Model, geometry: Geometry, steps: u32) {
            model.agrees(&geometry);
            if steps == 0 {
                return;
            }
            let copy = |places: &[Option<u64>]| Model {
                places: places.to_vec(),
                at: model.at,
                next: model.next,
            };
            for count in [1, 2, 3, 5] {
                let mut written = copy(&model.places);
                (0..count).for_each(|_| written.write());
                go(&written, geometry, steps - 1);
            }
            for blocks in 1..=6_u64 {
                let resized = geometry.resized(model.next, blocks);
                assert_eq!(resized.is_some(), model.at as u64 <= blocks);
                let Some(resized) = resized else {
                    continue;
                };
                // What is written before it comes around goes to the same place.
                for serial in model.next..model.next + geometry.blocks.min(blocks) {
                    if serial - resized.base < geometry.blocks.min(blocks) {
                        assert_eq!(geometry.place(serial), resized.place(serial));
                    }
                }
                let mut changed = copy(&model.places);
                changed.resize(blocks as usize);
                go(&changed, resized, steps - 1);
            }
        }
        for blocks in 1..=4_u64 {
            let model = Model {
                places: vec![None; blocks as usize],
                at: 0,
                next: 0,
            };
            go(&model, Geometry::new(blocks), 5);
        }
    }
}
