//! The room that a camera needs, and the blocks in which the disks carry it.

use engine::pool::Pool;
use engine::stream::StreamSpec;
use sched::units::{Bytes, BytesPerSecond, Nanos};

use crate::archive::block::{BLOCK_BYTES, TRAILER_BYTES};

/// How long a camera's recordings are kept if nothing else is asked for.
pub const KEEP_DEFAULT: Nanos = Nanos::from_secs(7 * 86_400);

/// The memory that the buffers of a camera may take when a block size is proposed for it.
const BUFFERS_MAX: Bytes = Bytes::from_mib(8);

/// Room beyond the measured rate: a scene that moves more needs more.
const ABOVE_MEASURED_PERCENT: u64 = 25;

/// What the end of each block takes beside packets and entries: the trailer, the description, and the packet that
/// does not fit any more.
const BLOCK_OVERHEAD_BYTES: u64 = TRAILER_BYTES as u64 + 1_024 + 1_500;

/// A block is written after this many seconds even if it is not full.
const BLOCK_SECONDS_MAX: u128 = 60;

/// Blocks for which there is room beside those that are kept: the header, and those that are about to be dropped.
const SPARE_BLOCKS: u128 = 8;

/// The room for recordings of this duration. `rate` is that of packets with their entries.
#[must_use]
pub fn room(rate: BytesPerSecond, keep: Nanos) -> Bytes {
    // The smallest blocks have the largest overhead.
    let block = BLOCK_BYTES.start;
    let rate = u128::from(rate.0.max(1)) * u128::from(100 + ABOVE_MEASURED_PERCENT) / 100;
    // A 256th part of all blocks is index.
    let usable = u128::from(block - BLOCK_OVERHEAD_BYTES - block / 256);
    let seconds = u128::from(keep.get()).div_ceil(1_000_000_000);
    let full = (rate * seconds).div_ceil(usable);
    let blocks = full.max(seconds.div_ceil(BLOCK_SECONDS_MAX)) + SPARE_BLOCKS;
    Bytes(u64::try_from(blocks * u128::from(block)).unwrap_or(u64::MAX))
}

/// The longest duration for which [`room`] is at most `bytes`, in whole seconds.
#[must_use]
pub fn lasts(rate: BytesPerSecond, bytes: Bytes) -> Nanos {
    let (mut fits, mut too_long) = (0, u64::MAX / 1_000_000_000);
    while fits + 1 < too_long {
        let middle = fits.midpoint(too_long);
        match room(rate, Nanos::from_secs(middle)) <= bytes {
            true => fits = middle,
            false => too_long = middle,
        }
    }
    Nanos::from_secs(fits)
}

/// The block size that suits the disks of a volume for a recording of this rate.
#[must_use]
pub fn proposed_block(pool: &Pool, spec: &StreamSpec) -> Bytes {
    let range = spec.range.clone().unwrap_or(0..spec.volume.size().0);
    let proposed = pool.proposed_block(&spec.volume, &range, spec.rate, BUFFERS_MAX);
    Bytes(proposed.get().clamp(BLOCK_BYTES.start, BLOCK_BYTES.end - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_the_rate_times_the_duration_and_a_third_more_at_most() {
        let day = Nanos::from_secs(86_400);
        let mega = BytesPerSecond(1_000_000);
        let ratio = room(mega, day * 30).get() as f64 / (1e6 * 86_400.0 * 30.0);
        assert!((1.25..1.34).contains(&ratio), "{ratio}");
        // A camera that hardly sends anything has a block in a minute.
        let little = room(BytesPerSecond(1), day).get();
        assert_eq!(little, (1_440 + 8) * BLOCK_BYTES.start);
        for seconds in [0, 59, 3_600, 86_400] {
            let bytes = room(mega, Nanos::from_secs(seconds));
            let lasts = lasts(mega, bytes).get() / 1_000_000_000;
            assert!(lasts.abs_diff(seconds) <= 1, "{lasts} {seconds}");
        }
        assert_eq!(lasts(mega, Bytes(1)), Nanos::ZERO);
    }
}
