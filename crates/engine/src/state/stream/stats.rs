//! Statistics of a stream's blocks.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use sched::request::Served;
use sched::units::Nanos;

use crate::completion::{Completion, IoError};
use crate::state::request::{IoFailure, Timeliness};

/// Number of the latest blocks whose completion times are kept.
const RECENT_BLOCKS: usize = 64;

/// Statistics of a stream's blocks. Updated on the disks' threads, without a lock.
#[derive(Default)]
pub(crate) struct StreamStats {
    pub(crate) in_flight: AtomicU64,
    pub(crate) leaving: AtomicBool,
    pub(crate) blocks: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) misses_gross: AtomicU64,
    pub(crate) late_max: AtomicU64,
    pub(crate) late_net_max: AtomicU64,
    pub(crate) early: AtomicU64,
    pub(crate) overruns: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// Bytes that were kept from the rests of tracks.
    pub(crate) kept_bytes: AtomicU64,
    /// Durable bytes of a recording, from its beginning.
    pub(crate) durable_bytes: AtomicU64,
    recent: Recent,
    pub(crate) failed: Mutex<Option<String>>,
}

/// Completion times of the latest blocks, in a ring.
struct Recent([AtomicU64; RECENT_BLOCKS]);

impl Default for Recent {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; RECENT_BLOCKS])
    }
}

impl StreamStats {
    /// Bytes of a block were kept from the block before it.
    pub(crate) fn note_kept(&self, bytes: u64) {
        self.kept_bytes.fetch_add(bytes, Relaxed);
    }

    /// A disk has answered one request of a block.
    pub(crate) fn answered(&self, completion: &Completion) {
        let timing = &completion.timing;
        if timing.served == Some(Served::Early) {
            self.early.fetch_add(1, Relaxed);
        }
        if timing.overrun > Nanos::ZERO {
            self.overruns.fetch_add(1, Relaxed);
        }
        let failed = completion.result.err();
        if failed.is_some_and(|error| error != IoError::Cancelled) {
            self.errors.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn finished(&self, timeliness: Option<&Timeliness>, failure: Option<&IoFailure>) {
        if let Some(failure) = failure {
            // A disk's thread takes this lock only after a failure.
            self.failed
                .lock()
                .get_or_insert_with(|| failure.to_string());
            return;
        }
        if let Some(timeliness) = timeliness {
            if timeliness.late_net > Nanos::ZERO {
                self.misses.fetch_add(1, Relaxed);
            }
            if timeliness.late > Nanos::ZERO {
                self.misses_gross.fetch_add(1, Relaxed);
            }
            self.late_max.fetch_max(timeliness.late.0, Relaxed);
            self.late_net_max.fetch_max(timeliness.late_net.0, Relaxed);
            let at = self.blocks.load(Relaxed) as usize % RECENT_BLOCKS;
            self.recent.0[at].store(timeliness.completed.0, Relaxed);
        }
        self.blocks.fetch_add(1, Relaxed);
    }

    pub(crate) fn recent(&self) -> Vec<u64> {
        let blocks = self.blocks.load(Acquire) as usize;
        let kept = blocks.min(RECENT_BLOCKS);
        let mut times: VecDeque<u64> = VecDeque::with_capacity(kept);
        for index in blocks - kept..blocks {
            times.push_back(self.recent.0[index % RECENT_BLOCKS].load(Relaxed));
        }
        times.into_iter().filter(|time| *time != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use sched::units::Time;

    use super::*;

    #[test]
    fn a_block_that_only_the_host_made_late_is_counted_beside_the_misses() {
        let stats = StreamStats::default();
        for (late, late_net) in [(0, 0), (5, 0), (9, 2)] {
            let timeliness = Timeliness {
                deadline: Time(100),
                completed: Time(100 + late),
                late: Nanos(late),
                late_net: Nanos(late_net),
            };
            stats.finished(Some(&timeliness), None);
        }
        let counted = [&stats.misses, &stats.misses_gross].map(|count| count.load(Relaxed));
        assert_eq!(counted, [1, 2]);
        let worst = [&stats.late_net_max, &stats.late_max].map(|late| late.load(Relaxed));
        assert_eq!(worst, [2, 9]);
    }
}
