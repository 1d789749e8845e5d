//! Demand of a reservation on one disk.

use sched::task::{TaskError, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos};

/// Demand of a stream's blocks on one disk, in one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The disk.
    pub disk: usize,
    /// Index of the request among a block's requests to this disk, from 0.
    pub lane: usize,
    /// The worst-case service time of one request.
    pub service: Nanos,
    /// The least number of blocks from one such request to the next.
    pub gap: u64,
}

impl Need {
    /// The period at a rate.
    pub(crate) fn period(&self, block: Bytes, rate: BytesPerSecond) -> Nanos {
        let bytes = Bytes(block.0.saturating_mul(self.gap));
        rate.period_of(bytes).unwrap_or(Nanos::MAX)
    }

    /// The task at a rate.
    ///
    /// # Errors
    /// When the disk could not carry it even alone.
    pub(crate) fn task(&self, block: Bytes, rate: BytesPerSecond) -> Result<TaskParams, TaskError> {
        // Longer periods could overflow in the admission test, and have no use.
        let longest = Nanos::from_secs(86_400);
        TaskParams::new(self.service, self.period(block, rate).min(longest))
    }

    /// The largest rate with a period no shorter than `period`.
    pub(crate) fn rate(&self, block: Bytes, period: Nanos) -> BytesPerSecond {
        let bytes = u128::from(block.0) * u128::from(self.gap) * 1_000_000_000;
        let rate = bytes.checked_div(u128::from(period.0)).unwrap_or(0);
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
