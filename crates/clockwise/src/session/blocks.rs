//! The blocks in the report of a session.

use std::collections::VecDeque;

use super::BLOCKS_KEPT_MAX;
use crate::wire::streams::BlockView;

/// The latest blocks in order of number.
#[derive(Default)]
pub(super) struct Blocks {
    kept: VecDeque<BlockView>,
    /// Number of the oldest block that is kept; blocks before it have been dropped.
    first_kept: u64,
}

/// The handling of missing numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockOrder {
    /// The list ends before the first missing block, which is still in flight.
    Contiguous,
    /// The list passes over missing blocks: none is in flight.
    WithGaps,
}

impl Blocks {
    /// Adds a block. Blocks on several disks may complete out of order.
    pub(super) fn add(&mut self, block: BlockView) {
        let place = self.kept.partition_point(|kept| kept.index < block.index);
        self.kept.insert(place, block);
        if self.kept.len() > BLOCKS_KEPT_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.first_kept = oldest.index + 1;
        }
    }

    /// Lists blocks from number `from` on, at most `limit`.
    pub(super) fn list(&self, from: u64, limit: usize, order: BlockOrder) -> Vec<BlockView> {
        let may_follow = |(index, block): &(u64, &BlockView)| {
            order == BlockOrder::WithGaps || *index == block.index
        };
        (self.first_kept..)
            .zip(&self.kept)
            .take_while(may_follow)
            .map(|(_, block)| *block)
            .filter(|block| block.index >= from)
            .take(limit)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_listed_in_order_up_to_the_first_in_flight() {
        let mut blocks = Blocks::default();
        let block = |index| BlockView {
            index,
            offset: 0,
            bytes: 512,
            submitted_ns: 0,
            deadline_ns: None,
            completed_ns: 0,
            late_ns: 0,
            late_net_ns: 0,
        };
        let list = |blocks: &Blocks, from, order| -> Vec<u64> {
            let listed = blocks.list(from, 4, order);
            listed.iter().map(|block| block.index).collect()
        };
        blocks.add(block(1));
        assert!(list(&blocks, 0, BlockOrder::Contiguous).is_empty());
        assert_eq!(list(&blocks, 0, BlockOrder::WithGaps), [1]);
        for index in [0, 3, 4] {
            blocks.add(block(index));
        }
        assert_eq!(list(&blocks, 0, BlockOrder::Contiguous), [0, 1]);
        assert_eq!(list(&blocks, 1, BlockOrder::WithGaps), [1, 3, 4]);
        blocks.add(block(2));
        assert_eq!(list(&blocks, 0, BlockOrder::Contiguous), [0, 1, 2, 3]);
        assert_eq!(list(&blocks, 4, BlockOrder::Contiguous), [4]);
        let kept = BLOCKS_KEPT_MAX as u64;
        (5..kept + 3).for_each(|index| blocks.add(block(index)));
        // The oldest have been dropped, which is no gap.
        assert_eq!(list(&blocks, 0, BlockOrder::Contiguous), [3, 4, 5, 6]);
        assert_eq!(list(&blocks, kept + 2, BlockOrder::Contiguous), [kept + 2]);
    }
}
