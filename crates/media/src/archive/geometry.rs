//! The mapping of serials to places in the ring.
//!
//! An archive is a ring of places. The block of serial `s` is in place `(s - base) mod blocks`; serials
//! before `base` are lost. The ring is resized without moving blocks: the blocks of the current round, that
//! is, since the writer was in place 0 last, stay where they are, and `base` becomes the first serial of this
//! round. Blocks of the previous round, which lie from the writer's place on, are lost. In the first round
//! there are none.
//!
//! # Worked example
//!
//! Eight places, and the next serial is 22: the writer is in place 6, and 14 and 15 are left of the previous
//! round.
//!
//! ```text
//! place     0  1  2  3  4  5  6  7
//! serial   16 17 18 19 20 21 14 15      base 0, blocks 8
//! longer   16 17 18 19 20 21  .  .  .  .  .  .      base 16, blocks 12: 14 and 15 are lost
//! shorter  16 17 18 19 20 21  .      base 16, blocks 7: 14 and 15 are lost
//! ```
//!
//! If the next serial were 24, nothing would be lost. Until the writer reaches the end of the ring, its next
//! blocks have the same places before and after the change.

/// The base and the length of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Serial of place 0 in the first round; earlier serials are lost.
    pub base: u64,
    /// Number of places.
    pub blocks: u64,
}

impl Geometry {
    /// A ring that begins with serial 0.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        Self { base: 0, blocks }
    }

    /// Place of a block; `None` if its serial is before the base.
    #[must_use]
    pub fn place(&self, serial: u64) -> Option<u64> {
        Some(serial.checked_sub(self.base)? % self.blocks)
    }

    /// The oldest serial that has not been overwritten, if `next` is the next one.
    #[must_use]
    pub fn oldest(&self, next: u64) -> u64 {
        next.saturating_sub(self.blocks).max(self.base)
    }

    /// Places that the current round has used, if `next` is the next serial: all of them when the writer is
    /// about to return to place 0.
    #[must_use]
    pub fn used_in_round(&self, next: u64) -> u64 {
        match next.saturating_sub(self.base) {
            0 => 0,
            count => (count - 1) % self.blocks + 1,
        }
    }

    /// First serial of the current round, if `next` is the next serial.
    #[must_use]
    pub fn round_start(&self, next: u64) -> u64 {
        next.max(self.base) - self.used_in_round(next)
    }

    /// True if nothing has been overwritten yet.
    #[must_use]
    pub fn is_first_round(&self, next: u64) -> bool {
        self.round_start(next) == self.base
    }

    /// The ring with another number of places, in which the blocks of the current round keep theirs; `None`
    /// if there is no room for them.
    #[must_use]
    pub fn resized(&self, next: u64, blocks: u64) -> Option<Self> {
        let base = self.round_start(next);
        (blocks > 0 && self.used_in_round(next) <= blocks).then_some(Self { base, blocks })
    }

    /// The last serial in `start..end` that was in a place.
    #[must_use]
    pub fn last_serial_in(&self, place: u64, start: u64, end: u64) -> Option<u64> {
        let last = end.checked_sub(1)?;
        let back = (self.place(last)? + self.blocks - place) % self.blocks;
        let serial = last.checked_sub(back)?;
        (serial >= start.max(self.base)).then_some(serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring as a list of the serials in each place.
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

        /// Drops what is left of the previous round.
        fn resize(&mut self, blocks: usize) {
            self.places.truncate(self.at);
            self.places.resize(blocks, None);
        }

        fn agrees(&self, with: &Geometry) {
            assert_eq!(with.blocks, self.places.len() as u64);
            let present: Vec<u64> = self.places.iter().flatten().copied().collect();
            let oldest = present.iter().min().copied().unwrap_or(self.next);
            assert_eq!(with.oldest(self.next), oldest, "{with:?}");
            for (place, serial) in (0..).zip(&self.places) {
                assert_eq!(
                    with.last_serial_in(place, 0, self.next),
                    *serial,
                    "{with:?}"
                );
                if let Some(serial) = serial {
                    assert_eq!(with.place(*serial), Some(place));
                }
            }
            assert_eq!(with.used_in_round(self.next), self.at as u64, "{with:?}");
            let following = if self.at == self.places.len() {
                0
            } else {
                self.at
            };
            assert_eq!(with.place(self.next), Some(following as u64));
        }
    }

    /// All sequences of resizing and writing in rings of up to six places.
    #[test]
    fn geometry_agrees_with_a_model_in_all_small_rings() {
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
                // Until the writer comes around, blocks have the same places in both rings.
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
