//! Disks that share a link: a USB enclosure, a port multiplier, an expander, a SCSI string.
//!
//! # Problem
//!
//! Service times are those of a disk that has its link to itself. If the disks of a link can move more than the
//! link carries, a request takes longer while others transfer, and no promise holds (thesis 8.1).
//!
//! # Model
//!
//! A link of rate R has m disks. It moves data in bursts, and divides itself fairly: while a disk waits to move data,
//! each other disk gets one burst at most, the burst under way included. So a disk gets at least R / m, after at most
//! m - 1 bursts of others. A burst also takes the data that comes while it lasts. The buffer of a drive holds a whole
//! request.
//!
//! # Two answers
//!
//! * *Inflate*: each service time grows by [`LinkShare::delay`], and all disks promise.
//! * *Lend*: only [`carried`] disks promise, so many as the link carries at their full rate. The others serve best
//!   effort in place of one of these, which lends its slack
//!   ([`DiskScheduler::lend`](crate::disk::DiskScheduler::lend)).
//!
//! Proofs are in docs/design/scheduling.md, section 16.

use crate::units::{BytesPerSecond, Nanos};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The part of a link that a disk can rely on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkShare {
    /// The most disks that transfer at a time, this one included.
    pub disks: u32,
    /// The link's rate.
    pub rate: BytesPerSecond,
    /// Bytes of a burst.
    pub burst_bytes: u64,
}

/// A drive at the end of a link, as far as it matters there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LinkDrive {
    /// The highest rate at which data comes from the medium or goes to it.
    pub(crate) rate: BytesPerSecond,
    /// Bytes that may come at once, after they have been read in any order: a track.
    pub(crate) at_once_bytes: u64,
    /// One rotation; zero if there is none.
    pub(crate) rotation: Nanos,
}

impl LinkShare {
    /// Time by which the transfer of `bytes` ends later than on a link of its own, at most: for the last t bytes, which
    /// come at once, and for all of them, the larger of t m / R and b m / R - (b - t) / r, and (m - 1) burst / R.
    pub(crate) fn delay(self, bytes: u64, drive: LinkDrive) -> Nanos {
        let (disks, rate) = (u128::from(self.disks), u128::from(self.rate.get()));
        let time_up = |bytes: u128| (bytes * NANOS_PER_SECOND).div_ceil(rate);
        let on_link = |bytes: u64| time_up(u128::from(bytes) * disks);
        let at_once = bytes.min(drive.at_once_bytes);
        let in_order = u128::from(bytes - at_once);
        let on_medium = in_order * NANOS_PER_SECOND / u128::from(drive.rate.get());
        let waits = time_up(u128::from(self.burst_bytes) * (disks.saturating_sub(1)));
        let behind = (on_link(bytes).saturating_sub(on_medium)).max(on_link(at_once));
        Nanos(u64::try_from(behind + waits).unwrap_or(u64::MAX))
    }

    /// The same for a write. A drive whose data is late misses its place, so the medium falls back by whole
    /// rotations.
    pub(crate) fn write_delay(self, bytes: u64, drive: LinkDrive) -> Nanos {
        let delay = self.delay(bytes, drive);
        match drive.rotation.get() {
            0 => delay,
            rotation => Nanos(delay.get().div_ceil(rotation).saturating_mul(rotation)),
        }
    }
}

/// The number of disks that a link carries at their full rate, if none is faster than `fastest`.
#[must_use]
pub fn carried(link: BytesPerSecond, fastest: BytesPerSecond) -> u32 {
    u32::try_from(link.get() / fastest.get()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
