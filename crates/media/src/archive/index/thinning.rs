//! Leaving keys out of a section that has too little room.
//!
//! As long as there is room for the first and the last key of each block, these stay. A key that is left out
//! then lies between two keys of its own block, so a search for the last key up to a time knows the block and
//! reads no other one.

use super::Index;

/// Completeness of a section's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeyCoverage {
    /// All keys are present.
    #[default]
    All,
    /// The first and the last key of each block are present.
    EndsOfBlocks,
    /// Any key may be missing.
    Some,
}

impl Index {
    /// Reduces the number of keys to `keys_max`, evenly. The first and the last key of each block stay if
    /// there is room for them.
    pub fn thin(&mut self, keys_max: usize) {
        let count = self.keys.len();
        if count <= keys_max {
            return;
        }
        let serial = |number: usize| self.keys.get(number).map(|key| key.serial);
        let is_end = |number: usize| {
            let of = serial(number);
            number == 0 || serial(number - 1) != of || serial(number + 1) != of
        };
        let ends: Vec<bool> = (0..count).map(is_end).collect();
        let kept = ends.iter().filter(|is_end| **is_end).count();
        let (named, kept) = match kept <= keys_max {
            true => (KeyCoverage::EndsOfBlocks, kept),
            false => (KeyCoverage::Some, 0),
        };
        if self.named != KeyCoverage::Some {
            self.named = named;
        }
        let (room, others) = (keys_max - kept, count - kept);
        let mut ends = ends.into_iter();
        let mut met = 0;
        self.keys.retain(|_| {
            let is_end = ends.next().unwrap_or_default();
            if is_end && kept > 0 {
                return true;
            }
            met += 1;
            // Evenly; the first one always stays.
            (met * room).div_ceil(others) > ((met - 1) * room).div_ceil(others)
        });
    }
}
