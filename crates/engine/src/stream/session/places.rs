//! Where a session's blocks go.

use sched::units::Bytes;

use super::Session;
use crate::clock;

impl Session<'_> {
    /// How much is put in a buffer at most that follows the next `ready` bytes: to the end of the part as long as one of
    /// the range's grid in which it begins. `None` after the range's end.
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

    /// The same of what begins there in the range.
    pub(in crate::stream) fn len_at(&self, from: u64) -> Option<u64> {
        self.left_of(from, self.stream.buffer())
    }

    /// How much is left there in the range to the end of the block.
    pub(in crate::stream) fn block_at(&self, from: u64) -> Option<u64> {
        self.left_of(from, self.stream.block())
    }

    fn left_of(&self, from: u64, part: Bytes) -> Option<u64> {
        let range = self.stream.range();
        let left = (range.end - range.start).checked_sub(from)?;
        (left > 0).then(|| left.min(part.0 - from % part.0))
    }

    /// Where in the range the next block begins, unless it is told to begin somewhere else; `None` after its end.
    pub(in crate::stream) fn next_from(&self) -> Option<u64> {
        Some(self.at? - self.stream.range().start)
    }

    /// Where a block of so many bytes ends, filled up, that begins at `offset` of the volume: where a
    /// physical sector does, or the block of the range's grid that it is in, whichever is first.
    fn filled_up(&self, offset: u64, bytes: u64) -> u64 {
        let (range, block) = (self.stream.range(), self.stream.block().0);
        let of_grid = (offset - range.start) / block * block + block;
        let grid_end = range.end.min(range.start + of_grid);
        let sector = self.stream.volume().write_grain().0;
        (offset + bytes).next_multiple_of(sector).min(grid_end)
    }

    /// Whether the reservation's time is over.
    pub(in crate::stream) fn is_over(&self) -> bool {
        let is_over = self.until.is_some_and(|until| until <= clock::now());
        self.knows_end.set(is_over);
        is_over
    }

    /// Where the next block begins, and how long it is filled up; `None`: none goes any more.
    pub(super) fn next_place(&self, bytes: u64) -> Option<(u64, u64)> {
        let offset = self.at.filter(|_| !self.is_over())?;
        Some((offset, self.filled_up(offset, bytes) - offset))
    }

    /// The next block is the one that begins there, from the beginning of the stream's range.
    pub(in crate::stream) fn go_to(&mut self, offset: Bytes) {
        let range = self.stream.range();
        let at = range.start.checked_add(offset.0);
        self.at = at.filter(|at| *at < range.end);
    }
}
