//! Positions of a session's blocks.

use sched::units::Bytes;

use super::Session;
use crate::clock;

impl Session<'_> {
    /// The most bytes for a buffer that follows the next `ready` bytes: up to the next boundary of the range's grid
    /// of buffers. `None` after the range's end.
    pub(in crate::stream) fn len_after(&self, ready: u64) -> Option<u64> {
        let range = self.stream.range();
        let size = range.end - range.start;
        let mut from = self.at? - range.start + ready;
        if from >= size {
            if !self.stream.wraps() {
                return None;
            }
            from %= size;
        }
        self.len_at(from)
    }

    /// The most bytes for a buffer that begins at `from` in the range.
    pub(in crate::stream) fn len_at(&self, from: u64) -> Option<u64> {
        self.left_of(from, self.stream.buffer())
    }

    /// The rest of the block at `from` in the range.
    pub(in crate::stream) fn block_at(&self, from: u64) -> Option<u64> {
        self.left_of(from, self.stream.block())
    }

    fn left_of(&self, from: u64, part: Bytes) -> Option<u64> {
        let range = self.stream.range();
        let left = (range.end - range.start).checked_sub(from)?;
        (left > 0).then(|| left.min(part.0 - from % part.0))
    }

    /// Start of the next block in the range, unless the caller chooses another; `None` after the end.
    pub(in crate::stream) fn next_from(&self) -> Option<u64> {
        Some(self.at? - self.stream.range().start)
    }

    /// The end of a padded block of `bytes` at `offset` of the volume: the next boundary of a physical sector, or of
    /// the block in the range's grid, whichever is first.
    fn filled_up(&self, offset: u64, bytes: u64) -> u64 {
        let (range, block) = (self.stream.range(), self.stream.block().0);
        let of_grid = (offset - range.start) / block * block + block;
        let grid_end = range.end.min(range.start + of_grid);
        let sector = self.stream.volume().write_grain().0;
        (offset + bytes).next_multiple_of(sector).min(grid_end)
    }

    /// True if the reservation's time is over.
    pub(in crate::stream) fn is_over(&self) -> bool {
        let is_over = self.until.is_some_and(|until| until <= clock::now());
        self.knows_end.set(is_over);
        is_over
    }

    /// Offset and padded length of the next block; `None` if there is none.
    pub(super) fn next_place(&self, bytes: u64) -> Option<(u64, u64)> {
        let offset = self.at.filter(|_| !self.is_over())?;
        Some((offset, self.filled_up(offset, bytes) - offset))
    }

    /// Makes the next block begin at `offset` in the stream's range.
    pub(in crate::stream) fn go_to(&mut self, offset: Bytes) {
        let range = self.stream.range();
        let at = range.start.checked_add(offset.0);
        self.at = at.filter(|at| *at < range.end);
    }
}
