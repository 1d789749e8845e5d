//! The drift of a sender's clock against the host's.
//!
//! A recording's time is measured by its sender's clock. Packets may be late but never early, so the least
//! difference between arrival time and media time over many packets is the offset of the two clocks. Clocks
//! of cameras drift by some millionths, which is seconds in a day. A file that was published as fast as
//! possible deviates far more than any clock; that counts as no drift, and its time is left as it is.

use std::collections::VecDeque;

use engine::volume_io::Client;

use crate::archive::index::Index;
use crate::archive::{Archive, ArchiveError, Recording};

/// Number of recent blocks of which the least lateness is taken.
const BLOCKS: usize = 64;

/// Highest drift of a clock, in millionths. Quartz clocks have up to 100.
const PPM_MAX: i64 = 1_000;

/// Lateness that is tolerated beside the drift: even the least late of the packets may be late.
const JITTER_NS: i64 = 50_000_000;

/// A recording whose remaining part begins later than this has lost its first blocks.
const BEGINS_WITHIN_NS: u64 = 10_000_000_000;

/// Estimate of the clocks' offset at the place that is played.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drift {
    /// Lateness at the start of the recording: the offset that is not drift.
    base_ns: i64,
    /// Lateness of the last blocks.
    recent: VecDeque<i64>,
    /// Blocks to come that still belong to the start of the recording.
    start_blocks_left: usize,
}

impl Drift {
    /// The estimate for a recording that is read from its start.
    pub(crate) fn from_beginning() -> Self {
        Self {
            start_blocks_left: BLOCKS,
            ..Self::default()
        }
    }

    /// The estimate at a time of a recording, from the section of the index about this time. Without such a
    /// section it comes from the blocks that are read later.
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
            let least = first.as_deref().and_then(|index| latenesses(index).min());
            drift.base_ns = least.unwrap_or(0);
        }
        if let Some(index) = archive.index_at(client, recording, media_ns)? {
            drift.recent = latenesses(&index).collect();
        }
        Ok(drift)
    }

    /// Adds a block that was read: when its first packet arrived, and when it is to be shown, in nanoseconds
    /// of the recording's time.
    pub(crate) fn note(&mut self, arrival_ns: u64, media_ns: u64) {
        self.recent.push_back(lateness(arrival_ns, media_ns));
        while self.recent.len() > BLOCKS {
            self.recent.pop_front();
        }
        if self.start_blocks_left > 0 {
            self.start_blocks_left -= 1;
            self.base_ns = self.recent.iter().min().copied().unwrap_or(0);
        }
    }

    /// How much later the host's clock shows this time of the recording than the recording's clock, in
    /// nanoseconds; 0 if the difference is too large to be drift.
    pub(crate) fn ns(&self, media_ns: u64) -> i64 {
        let least = self.recent.iter().min().copied().unwrap_or(self.base_ns);
        let drift = least.saturating_sub(self.base_ns);
        let media_ns = i64::try_from(media_ns).unwrap_or(i64::MAX);
        let max = media_ns / 1_000_000 * PPM_MAX + JITTER_NS;
        if drift.abs() <= max { drift } else { 0 }
    }
}

impl Archive {
    /// The time of the host's clock at a media time of a recording, in nanoseconds since 1970.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn unix_ns_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<u64, ArchiveError> {
        let drift = Drift::at(self, client, recording, media_ns)?;
        let unix_ns = recording.begun_unix_ns.saturating_add(media_ns);
        Ok(unix_ns.saturating_add_signed(drift.ns(media_ns)))
    }

    /// The media time of a recording at a time of the host's clock, in nanoseconds; 0 before the recording.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn media_ns_at(
        &self,
        client: &Client,
        recording: &Recording,
        unix_ns: u64,
    ) -> Result<u64, ArchiveError> {
        let since_ns = unix_ns.saturating_sub(recording.begun_unix_ns);
        let drift = Drift::at(self, client, recording, since_ns)?;
        Ok(since_ns.saturating_add_signed(drift.ns(since_ns).saturating_neg()))
    }
}

/// Nanoseconds from media time to arrival time.
fn lateness(arrival_ns: u64, media_ns: u64) -> i64 {
    let lateness = i128::from(arrival_ns) - i128::from(media_ns);
    i64::try_from(lateness).unwrap_or(0)
}

fn latenesses(index: &Index) -> impl Iterator<Item = i64> + '_ {
    let records = index.records.iter();
    records.map(|record| lateness(record.arrival_ns, record.media_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The estimate for a clock that is fast by `ppm` millionths, after packets that are late by up to
    /// `late_ns`.
    fn estimate(seconds: u64, ppm: i64, late_ns: u64) -> i64 {
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
    fn drift_is_followed_when_packets_are_late() {
        let day = 86_400;
        for ppm in [-900, -50, 0, 50, 900] {
            for late_ns in [0, 300_000_000] {
                let expected = -(day as i64 * 1_000 * ppm);
                let found = estimate(day, ppm, late_ns);
                // The least lateness is of one of the last 64 blocks.
                let within = 64 * 1_000 * ppm.abs();
                assert!(
                    (found - expected).abs() <= within,
                    "{ppm} ppm, late by {late_ns}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn deviation_beyond_any_clock_is_no_drift() {
        // Published at twice the speed, and a clock with an impossible drift.
        assert_eq!(estimate(3_600, 1_000_000, 0), 0);
        assert_eq!(estimate(3_600, 5_000, 0), 0);
        // An offset that the recording began with is not drift.
        let mut drift = Drift {
            base_ns: -700_000_000,
            ..Drift::default()
        };
        assert_eq!(drift.ns(SECOND), 0);
        drift.note(SECOND, SECOND + 700_000_000);
        assert_eq!(drift.ns(SECOND), 0);
    }

    #[test]
    fn lateness_of_the_first_blocks_is_no_drift() {
        let mut drift = Drift::from_beginning();
        let mut note = |second: u64, late_ms: i64| {
            let media = second * SECOND;
            let arrival = media as i64 + late_ms * 1_000_000;
            drift.note(arrival.max(0) as u64, media);
            drift.ns(media)
        };
        // The first packet is later than the next ones; after that the clock drifts.
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
