//! The size of blocks with which a stream would be admitted.

use engine::pool::Pool;
use engine::stream::StreamSpec;
use sched::units::Bytes;

use crate::archive::block::BLOCK_BYTES;

/// The block size next to that of `spec` with which its rate would be admitted now; larger ones are preferred.
#[must_use]
pub fn block_that_fits(pool: &Pool, spec: &StreamSpec) -> Option<Bytes> {
    let all = (0..).map(|power| BLOCK_BYTES.start << power);
    let all: Vec<u64> = all.take_while(|size| BLOCK_BYTES.contains(size)).collect();
    let block = spec.block.get();
    let larger = all.iter().filter(|size| **size > block);
    let smaller = all.iter().rev().filter(|size| **size < block);
    let extent = pool.extent().get();
    let mut sizes = larger.chain(smaller).filter(|size| **size <= extent);
    let fits = |size: &&u64| {
        let tried = StreamSpec {
            block: Bytes(**size),
            ..spec.clone()
        };
        pool.rate_that_fits(&tried)
            .is_some_and(|rate| rate >= spec.rate)
    };
    sizes.find(fits).map(|size| Bytes(*size))
}
