//! What a session keeps of its blocks.

use std::collections::VecDeque;

use super::BLOCKS_KEPT_MAX;
use crate::wire::streams::BlockView;

/// The latest blocks, in their order.
#[derive(Default)]
pub(super) struct Blocks {
    kept: VecDeque<BlockView>,
    /// How many are not kept any more.
    forgotten: u64,
}

impl Blocks {
    /// Adds one. Blocks on several disks may be complete in another order than they were asked for in.
    pub(super) fn add(&mut self, block: BlockView) {
        let place = self.kept.partition_point(|kept| kept.index < block.index);
        self.kept.insert(place, block);
        if self.kept.len() > BLOCKS_KEPT_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.forgotten = oldest.index + 1;
        }
    }

    /// From number `from` on, at most `limit`; while some are `under_way`, those before the first of
    /// them.
    pub(super) fn from(&self, from: u64, limit: usize, under_way: bool) -> Vec<BlockView> {
        let in_turn = |(index, block): &(u64, &BlockView)| !under_way || *index == block.index;
        (self.forgotten..)
            .zip(&self.kept)
            .take_while(in_turn)
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
    fn blocks_are_told_of_in_order_and_none_is_passed_that_is_not_done_yet() {
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
        let told = |blocks: &Blocks, from, under_way| -> Vec<u64> {
            let told = blocks.from(from, 4, under_way);
            told.iter().map(|block| block.index).collect()
        };
        blocks.add(block(1));
        assert!(told(&blocks, 0, true).is_empty());
        assert_eq!(told(&blocks, 0, false), [1]);
        for index in [0, 3, 4] {
            blocks.add(block(index));
        }
        assert_eq!(told(&blocks, 0, true), [0, 1]);
        assert_eq!(told(&blocks, 1, false), [1, 3, 4]);
        blocks.add(block(2));
        assert_eq!(told(&blocks, 0, true), [0, 1, 2, 3]);
        assert_eq!(told(&blocks, 4, true), [4]);
        let kept = BLOCKS_KEPT_MAX as u64;
        (5..kept + 3).for_each(|index| blocks.add(block(index)));
        // The oldest are forgotten, which is not to be under way.
        assert_eq!(told(&blocks, 0, true), [3, 4, 5, 6]);
        assert_eq!(told(&blocks, kept + 2, true), [kept + 2]);
    }
}
