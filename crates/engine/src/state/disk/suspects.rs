//! Errors and repeated overruns of a disk's extents, from its completions.
//!
//! Completions are noted on the disk's real-time thread, so everything here is atomic and nothing allocates. A place
//! is told from its disk by what else happens: if the disk fails or is slow everywhere, no place is to blame.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use sched::units::{Nanos, Time};

/// Overruns of an extent within [`WITHIN_S`] that make it slow. One may be a recalibration, or a vibration.
const OVERRUNS: u64 = 3;

/// Seconds within which they count.
const WITHIN_S: u64 = 600;

/// Shorter overruns are not noted: no retry is that short, and host and drive vary by as much.
const OVERRUN_LEAST: Nanos = Nanos::from_micros(500);

/// Extents that fail one after another, without any success of the disk in between, before the disk counts as
/// failing and not its places.
const FAILING_EXTENTS: u32 = 8;

/// Extents that are watched for overruns at a time.
const WATCHED: usize = 256;

/// No extent.
const NONE: u32 = u32::MAX;

/// Errors and overruns of a disk's extents.
pub(crate) struct Suspects {
    /// The last extent with an error.
    failed: AtomicU32,
    /// Extents that have failed since the last success.
    failing: AtomicU32,
    /// By the low bits of the extent: [`Watched`], packed. A newer extent replaces an older one.
    overruns: Box<[AtomicU64]>,
    /// The longest overrun of each, in nanoseconds.
    longest: Box<[AtomicU64]>,
}

/// Overruns of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Watched {
    extent: u32,
    /// Of the first, in seconds of the clock, modulo 2^24.
    since_s: u64,
    /// At most [`OVERRUNS`].
    count: u64,
}

const SECONDS_MASK: u64 = 0xff_ffff;

impl Watched {
    const EMPTY: Self = Self {
        extent: NONE,
        since_s: 0,
        count: 0,
    };

    fn pack(self) -> u64 {
        u64::from(self.extent) << 32 | (self.since_s & SECONDS_MASK) << 8 | self.count
    }

    fn unpack(packed: u64) -> Self {
        Self {
            extent: (packed >> 32) as u32,
            since_s: packed >> 8 & SECONDS_MASK,
            count: packed & 0xff,
        }
    }

    /// After one more overrun.
    fn after(self, extent: u32, now_s: u64) -> Self {
        let age_s = now_s.wrapping_sub(self.since_s) & SECONDS_MASK;
        if self.extent == extent && age_s <= WITHIN_S {
            return Self {
                count: self.count + 1,
                ..self
            };
        }
        Self {
            extent,
            since_s: now_s & SECONDS_MASK,
            count: 1,
        }
    }
}

impl Suspects {
    pub(crate) fn new() -> Self {
        Self {
            failed: AtomicU32::new(NONE),
            failing: AtomicU32::new(0),
            overruns: (0..WATCHED)
                .map(|_| AtomicU64::new(Watched::EMPTY.pack()))
                .collect(),
            longest: (0..WATCHED).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Notes an error of the medium. Returns true if the extent is to blame.
    pub(crate) fn failed(&self, extent: u32) -> bool {
        let failing = if self.failed.swap(extent, Relaxed) == extent {
            self.failing.load(Relaxed).max(1)
        } else {
            self.failing.fetch_add(1, Relaxed) + 1
        };
        failing <= FAILING_EXTENTS
    }

    /// Notes a transfer without an error. Returns the longest overrun of its extent, if that has become slow.
    pub(crate) fn succeeded(&self, extent: u32, overrun: Nanos, now: Time) -> Option<Nanos> {
        if self.failing.load(Relaxed) > 0 {
            self.failing.store(0, Relaxed);
            self.failed.store(NONE, Relaxed);
        }
        if overrun < OVERRUN_LEAST {
            return None;
        }
        let at = extent as usize % WATCHED;
        let now_s = now.0 / Nanos::from_secs(1).0;
        let before = self.overruns[at].load(Relaxed);
        let next = Watched::unpack(before).after(extent, now_s);
        let longest = if next.count == 1 {
            self.longest[at].store(overrun.0, Relaxed);
            overrun.0
        } else {
            self.longest[at]
                .fetch_max(overrun.0, Relaxed)
                .max(overrun.0)
        };
        let is_slow = next.count >= OVERRUNS;
        let next = if is_slow { Watched::EMPTY } else { next };
        // One thread at a time completes requests of a disk; a race with the worker loses one overrun.
        self.overruns[at].store(next.pack(), Relaxed);
        is_slow.then_some(Nanos(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000 * MS)
    }

    #[test]
    fn an_extent_is_slow_after_three_overruns_within_ten_minutes() {
        let suspects = Suspects::new();
        let overran = |extent, ms, seconds| suspects.succeeded(extent, Nanos(ms * MS), at(seconds));
        assert_eq!(overran(7, 8, 100), None);
        assert_eq!(suspects.succeeded(7, Nanos(499_999), at(101)), None);
        assert_eq!(overran(8, 3, 101), None);
        assert_eq!(overran(7, 16, 102), None);
        assert_eq!(overran(7, 2, 700), Some(Nanos(16 * MS)));
        // Anew.
        assert_eq!(overran(7, 1, 701), None);
        assert_eq!(overran(7, 1, 702), None);
        assert_eq!(overran(7, 1, 1_302), None, "too long after the first");
        assert_eq!(overran(7, 1, 1_303), None);
        assert_eq!(overran(7, 4, 1_304), Some(Nanos(4 * MS)));
        // Another extent in the same place of the table.
        assert_eq!(overran(9, 1, 1_400), None);
        assert_eq!(overran(9 + WATCHED as u32, 1, 1_400), None);
        assert_eq!(overran(9, 1, 1_401), None);
        assert_eq!(overran(9, 1, 1_401), None);
    }

    #[test]
    fn a_disk_that_fails_everywhere_is_to_blame_itself() {
        let suspects = Suspects::new();
        let fail = |extents: &[u32]| extents.iter().map(|at| suspects.failed(*at)).collect();
        let told: Vec<bool> = fail(&[1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]);
        let to_blame: Vec<bool> = (0..11).map(|number| number < 9).collect();
        assert_eq!(told, to_blame);
        assert_eq!(suspects.succeeded(1, Nanos::ZERO, at(1)), None);
        let told: Vec<bool> = fail(&[6, 5]);
        assert_eq!(told, [true, true]);
    }
}
