//! What is left out of a section that has too little room.
//!
//! A key that is left out begins in the same block as the ones before and behind it that are named, as long as there is room
//! for these. So whoever looks for the last one up to a time knows its block, and reads no other one.

use super::Index;

/// Which keys a section names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Named {
    /// All.
    #[default]
    All,
    /// Not all, but the first and the last one of each block that has any: between two of different blocks there is none.
    EndsOfBlocks,
    /// Any of them may be missing.
    Some,
}

impl Index {
    /// Leaves out as many keys as there are more than so many, evenly; the first and the last one of each block not, if
    /// that is enough.
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
            true => (Named::EndsOfBlocks, kept),
            false => (Named::Some, 0),
        };
        if self.named != Named::Some {
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
            // Evenly, the first one always.
            (met * room).div_ceil(others) > ((met - 1) * room).div_ceil(others)
        });
    }
}
