//! How far a sender's clock has gone from the host's.
//!
//! A recording's time is its sender's. Packets are late now and then and never early, so of the differences between when
//! packets came and when they are to be shown the least of many tells how far the two clocks are apart. Those of a camera
//! go apart by some millionths, which is seconds in a day. What was published from a file, as fast as it was taken, went
//! much faster than any clock does, and its time is left as it is.

use std::collections::VecDeque;

use engine::volume_io::Client;

use crate::archive::index::Index;
use crate::archive::{Archive, ArchiveError, Recording};

/// Blocks of which the least is taken.
const BLOCKS: usize = 64;

/// More than this, in a million, is no drift. Quartz has up to 100.
const PPM_MAX: i64 = 1_000;

/// What packets are late by, at their earliest, beside that.
const JITTER_NS: i64 = 50_000_000;

/// A recording whose time begins later than this has lost its first blocks.
const BEGINS_WITHIN_NS: u64 = 10_000_000_000;

/// How far a recording's time is from the host's, where it is played.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drift {
    /// What it was at the beginning, which is nobody's drift.
    base_ns: i64,
    /// Of the last blocks, how much later they came than they are to be shown.
    recent: VecDeque<i64>,
    /// So many of the blocks that come are still of the beginning.
    begins: usize,
}

impl Drift {
    /// Of a recording that is read from its beginning on.
    pub(crate) fn from_beginning() -> Self {
        Self {
            begins: BLOCKS,
            ..Self::default()
        }
    }

    /// At a time of a recording, by the section of the index that this is in; of what has none, what is read from there
    /// on.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn at(
        archive: &Archive,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<Self, ArchiveError> {
        let mut drift = Self::default();
        let begins_ns = archive.begins(client, recording)?;
        if begins_ns < BEGINS_WITHIN_NS {
            let first = archive.index_at(client, recording, begins_ns)?;
            let least = first.as_deref().and_then(|index| late(index).min());
            drift.base_ns = least.unwrap_or(0);
        }
        if let Some(index) = archive.index_at(client, recording, media_ns)? {
            drift.recent = late(&index).collect();
        }
        Ok(drift)
    }

    /// A block was read: when its first packet came, and when it is to be shown.
    pub(crate) fn note(&mut self, arrival_ns: u64, media_ns: u64) {
        self.recent.push_back(apart(arrival_ns, media_ns));
        while self.recent.len() > BLOCKS {
            self.recent.pop_front();
        }
        if self.begins > 0 {
            self.begins -= 1;
            self.base_ns = self.recent.iter().min().copied().unwrap_or(0);
        }
    }

    /// So much later it is by the host's clock than by the recording's, at this time of it: 0 where that is no drift.
    pub(crate) fn ns(&self, media_ns: u64) -> i64 {
        let least = self.recent.iter().min().copied().unwrap_or(self.base_ns);
        let drift = least.saturating_sub(self.base_ns);
        let media_ns = i64::try_from(media_ns).unwrap_or(i64::MAX);
        let most = media_ns / 1_000_000 * PPM_MAX + JITTER_NS;
        if drift.abs() <= most { drift } else { 0 }
    }
}

fn apart(arrival_ns: u64, media_ns: u64) -> i64 {
    let apart = i128::from(arrival_ns) - i128::from(media_ns);
    i64::try_from(apart).unwrap_or(0)
}

fn late(index: &Index) -> impl Iterator<Item = i64> + '_ {
    let records = index.records.iter();
    records.map(|record| apart(record.arrival_ns, record.media_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Of a clock that is fast by so many millionths, with packets that are late by up to `late_ns`.
    fn after(seconds: u64, ppm: i64, late_ns: u64) -> i64 {
        let mut drift = Drift::default();
        for second in 0..seconds {
            let arrival = second * SECOND;
            let media = arrival as i64 + arrival as i64 / 1_000_000 * ppm;
            let late = if second.is_multiple_of(7) { 0 } else { late_ns };
            drift.note(arrival + late, media as u64);
        }
        drift.ns(seconds * SECOND)
    }

    #[test]
    fn a_clock_that_is_fast_or_slow_is_followed_whatever_is_late() {
        let day = 86_400;
        for ppm in [-900, -50, 0, 50, 900] {
            for late_ns in [0, 300_000_000] {
                let expected = -(day as i64 * 1_000 * ppm);
                let found = after(day, ppm, late_ns);
                // The least is of one of the last 64 blocks.
                let within = 64 * 1_000 * ppm.abs();
                assert!(
                    (found - expected).abs() <= within,
                    "{ppm} ppm, late by {late_ns}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn what_no_clock_does_is_left_as_it_is() {
        // Published twice as fast as it is shown, and a clock that is off by more than any.
        assert_eq!(after(3_600, 1_000_000, 0), 0);
        assert_eq!(after(3_600, 5_000, 0), 0);
        // What was so at the beginning is not gone from it.
        let mut drift = Drift {
            base_ns: -700_000_000,
            ..Drift::default()
        };
        assert_eq!(drift.ns(SECOND), 0);
        drift.note(SECOND, SECOND + 700_000_000);
        assert_eq!(drift.ns(SECOND), 0);
    }

    #[test]
    fn what_the_first_blocks_of_a_recording_are_late_by_is_no_drift() {
        let mut drift = Drift::from_beginning();
        let mut note = |second: u64, late_ms: i64| {
            let media = second * SECOND;
            let arrival = media as i64 + late_ms * 1_000_000;
            drift.note(arrival.max(0) as u64, media);
            drift.ns(media)
        };
        // The first packet came late, and those behind it by less; then the clock goes.
        assert_eq!(note(0, 400), 0);
        for second in 1..BLOCKS as u64 {
            assert_eq!(note(second, 100), 0);
        }
        for second in 1_000..1_000 + BLOCKS as u64 {
            note(second, 150);
        }
        assert_eq!(drift.ns(2_000 * SECOND), 50_000_000);
    }
}
