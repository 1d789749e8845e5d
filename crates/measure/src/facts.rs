//! Knowledge about a drive before it is measured, and the effort to make.

use std::ops::Range;

use sched::units::{Nanos, Sector, SectorCount};

/// [`Facts::turnaround`] of a driver in this process.
pub const TURNAROUND: Nanos = Nanos(30_000);

/// Facts about a drive that the caller knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The name for the profile.
    pub name: String,
    /// Addressable sectors.
    pub capacity: SectorCount,
    /// The alignment of requests, in sectors: 1, or 8 for drives with logical sectors of 4 KiB.
    pub unit: SectorCount,
    /// The unit in which the drive says that it writes, in sectors.
    pub physical: SectorCount,
    /// The largest request.
    pub request_max: SectorCount,
    /// Sectors whose content may be destroyed. Empty: no writes.
    pub writable: Vec<Range<Sector>>,
    /// True for a file of a host's file system, which gives the profile its kind.
    pub is_file: bool,
    /// True for a device. A file and an emulated drive have no settings, cables or statistics of their own.
    pub is_device: bool,
    /// Time from the completion of a request until the driver can issue one that depends on it.
    pub turnaround: Nanos,
}

/// The effort of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// About 5 minutes for a rotating drive: fewer zones and distances.
    Quick,
    /// About 15 minutes.
    Normal,
    /// About an hour: ten times as many validated requests.
    Thorough,
}

impl Facts {
    /// True if writes are measured; otherwise their times are assumed.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        !self.writable.is_empty()
    }
}

impl Effort {
    /// Requests that are validated without an excess before the measurement ends.
    #[must_use]
    pub const fn validated(self) -> u64 {
        match self {
            Self::Quick | Self::Normal => 10_000,
            Self::Thorough => 100_000,
        }
    }

    /// Places over the drive at which tracks are measured first.
    pub(crate) const fn places(self) -> u64 {
        match self {
            Self::Quick => 17,
            Self::Normal => 33,
            Self::Thorough => 65,
        }
    }

    /// Seeks of each distance.
    pub(crate) const fn seeks(self) -> u32 {
        match self {
            Self::Quick => 48,
            Self::Normal => 96,
            Self::Thorough => 240,
        }
    }

    /// Requests to which the model is fitted before validation.
    pub(crate) const fn calibrated(self) -> u32 {
        match self {
            Self::Quick => 1_000,
            Self::Normal => 3_000,
            Self::Thorough => 8_000,
        }
    }

    /// Length of the observation of the rotation, in seconds.
    pub(crate) const fn rotation_seconds(self) -> u64 {
        match self {
            Self::Quick => 12,
            Self::Normal => 25,
            Self::Thorough => 60,
        }
    }
}
