//! Proposing a block size for a stream.

use std::collections::BTreeSet;
use std::ops::Range;

use sched::units::{Bytes, BytesPerSecond};

use super::Pool;
use crate::state::disk::core::DiskCore;
use crate::stream::open;
use crate::stream::spec::StreamSpec;
use crate::volume_io::volume::Volume;

/// For ranges of more blocks no rate is searched, because the search looks at each block. A terabyte has as many
/// blocks of 256 KiB.
const BLOCKS_MAX: u64 = 1 << 22;

impl Pool {
    /// The largest rate below that of `spec` at which the stream would be admitted now, with the block size
    /// [proposed](Self::proposed_block) for that rate; `None` if there is none.
    ///
    /// The lower the rate, the smaller the proposed block. Where a block is too long for the existing reservations, a
    /// smaller one may fit. So block sizes are tried in descending order, each for the rates that it is proposed for.
    #[must_use]
    pub fn rate_that_fits_proposed(
        &self,
        spec: &StreamSpec,
        memory_max: Bytes,
    ) -> Option<BytesPerSecond> {
        let whole = 0..spec.volume.size().0;
        let range = spec.range.clone().unwrap_or(whole);
        let proposed =
            |rate: u64| self.proposed_block(&spec.volume, &range, BytesPerSecond(rate), memory_max);
        let mut tried = spec.clone();
        loop {
            tried.block = proposed(tried.rate.0 - 1);
            if (range.end - range.start) / tried.block.0 > BLOCKS_MAX {
                return None;
            }
            let fits = open::rate_that_fits(&self.core, &tried).ok()?;
            if let Some(rate) = fits.filter(|rate| proposed(rate.0) == tried.block) {
                return Some(rate);
            }
            // Searches the largest rate for which a smaller block is proposed.
            let (mut smaller, mut not) = (0, tried.rate.0);
            while smaller + 1 < not {
                let middle = smaller.midpoint(not);
                if proposed(middle) < tried.block {
                    smaller = middle;
                } else {
                    not = middle;
                }
            }
            if smaller == 0 {
                return None;
            }
            tried.rate = BytesPerSecond(smaller + 1);
        }
    }

    /// The largest rate up to that of `spec` at which the stream would be admitted now with its block size; `None` if
    /// there is none. Of a range with many blocks only the first ones are looked at.
    #[must_use]
    pub fn rate_that_fits(&self, spec: &StreamSpec) -> Option<BytesPerSecond> {
        let mut spec = spec.clone();
        let range = spec.range.clone().unwrap_or(0..spec.volume.size().0);
        let most = spec.block.0.saturating_mul(BLOCKS_MAX);
        spec.range = Some(range.start..range.end.min(range.start.saturating_add(most)));
        spec.rate = BytesPerSecond(spec.rate.0.saturating_add(1));
        open::rate_that_fits(&self.core, &spec).ok()?
    }

    /// A block size for a stream of `rate` in a range of a volume: as near to the size that suits the drives as the
    /// memory for its buffers allows (two for each disk of the range), and a divisor of the extent size. The memory is
    /// the smaller of `memory_max` and what new fixed parts can get.
    #[must_use]
    pub fn proposed_block(
        &self,
        volume: &Volume,
        range: &Range<u64>,
        rate: BytesPerSecond,
        memory_max: Bytes,
    ) -> Bytes {
        self.proposed_on(&self.disks_of(volume, range), rate, memory_max)
    }

    /// The disks that a range of a volume lies on.
    fn disks_of(&self, volume: &Volume, range: &Range<u64>) -> BTreeSet<usize> {
        let map = volume.core().map();
        let extent = self.extent().0;
        let first = usize::try_from(range.start / extent).unwrap_or(usize::MAX);
        let after = usize::try_from(range.end.div_ceil(extent)).unwrap_or(usize::MAX);
        let places = map.places().take(after).skip(first);
        places.map(|place| usize::from(place.disk.0)).collect()
    }

    fn proposed_on(
        &self,
        disks: &BTreeSet<usize>,
        rate: BytesPerSecond,
        memory_max: Bytes,
    ) -> Bytes {
        let memory = memory_max.0.min(self.core.io.memory.promisable().0);
        let memory = Bytes(memory / disks.len().max(1) as u64);
        let proposed = |disk: &DiskCore| disk.predictor.block_bytes(rate, memory).0;
        let proposals = disks
            .iter()
            .map(|disk| proposed(&self.core.io.disks[*disk]));
        let extent = self.extent().0;
        let wanted = proposals.max().unwrap_or(extent).clamp(4096, extent);
        // Extents are powers of two, so smaller powers of two divide them.
        Bytes(1 << wanted.ilog2())
    }
}
