//! What a reservation needs of one disk.

use sched::task::{TaskError, TaskParams};
use sched::units::{Bytes, BytesPerSecond, Nanos};

/// What a stream's blocks need of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The disk.
    pub disk: usize,
    /// Which of a block's requests to the disk, from 0.
    pub lane: usize,
    /// The worst-case service time of one.
    pub service: Nanos,
    /// The least number of blocks from one to the next.
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
    /// When not even alone could the disk carry it.
    pub(crate) fn task(&self, block: Bytes, rate: BytesPerSecond) -> Result<TaskParams, TaskError> {
        // Times beyond this would not add up in an admission test, and serve nobody.
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
