//! The block size that is proposed to a stream.

use std::collections::BTreeSet;
use std::ops::Range;

use sched::units::{Bytes, BytesPerSecond};

use super::Pool;
use super::disks::DiskCore;
use super::volumes::Volume;

impl Pool {
    /// The block size proposed for a stream of `rate` in a range of a volume: as near to the size that
    /// suits extents as the memory for its buffers allows, two for each disk that the range lies on, and
    /// such that it divides the extent size. That memory is `memory_max`, or what can still be promised
    /// if that is less.
    #[must_use]
    pub fn proposed_block(
        &self,
        volume: &Volume,
        range: &Range<u64>,
        rate: BytesPerSecond,
        memory_max: Bytes,
    ) -> Bytes {
        let map = volume.core().map();
        let extent = self.extent().0;
        let first = usize::try_from(range.start / extent).unwrap_or(usize::MAX);
        let after = usize::try_from(range.end.div_ceil(extent)).unwrap_or(usize::MAX);
        let places = map.places().take(after).skip(first);
        let disks: BTreeSet<usize> = places.map(|place| usize::from(place.disk.0)).collect();
        let memory = memory_max.0.min(self.core.memory.promisable().0);
        let memory = Bytes(memory / disks.len().max(1) as u64);
        let proposed = |disk: &DiskCore| disk.predictor.block_bytes(rate, memory).0;
        let proposals = disks.iter().map(|disk| proposed(&self.core.disks[*disk]));
        let wanted = proposals.max().unwrap_or(extent).clamp(4096, extent);
        // Extents are powers of two, so every smaller power divides them.
        Bytes(1 << wanted.ilog2())
    }
}
