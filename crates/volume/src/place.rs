//! Names of things in a pool, and the arithmetic of extents and chunks.

use core::fmt;

use sched::units::{Bytes, SECTOR_BYTES, Sector, SectorCount};

use crate::limits::{
    CHUNK_BYTES_MIN, CHUNKS_PER_EXTENT_MAX, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, HEADER_BYTES,
};

/// A pool's or a disk's identity: 128 random bits.
pub type Uuid = [u8; 16];

/// A disk's number in its pool, from 0; the same at every opening, in whatever order disks are given.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct DiskNumber(pub u16);

/// Names a volume for as long as the pool exists; never used twice.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct VolumeId(pub u64);

/// Place of an extent: the `extent`th of disk `disk`.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct Place {
    /// The disk.
    pub disk: DiskNumber,
    /// Number of the extent on the disk, from 0.
    pub extent: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {} extent {}", self.disk.0, self.extent)
    }
}

/// The size of extents and chunks of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    extent_bytes: Bytes,
}

impl Geometry {
    /// Geometry for extents of this size: a power of two within the limits, or `None`.
    #[must_use]
    pub fn new(extent_bytes: Bytes) -> Option<Self> {
        let allowed = EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX;
        (allowed.contains(&extent_bytes) && extent_bytes.0.is_power_of_two())
            .then_some(Self { extent_bytes })
    }

    /// The size of an extent.
    #[must_use]
    pub const fn extent_bytes(self) -> Bytes {
        self.extent_bytes
    }

    /// The sectors in an extent.
    #[must_use]
    pub const fn extent_sectors(self) -> SectorCount {
        SectorCount(self.extent_bytes.0 / SECTOR_BYTES)
    }

    /// The size of a chunk, the unit in which an extent is written or not.
    #[must_use]
    pub const fn chunk_bytes(self) -> Bytes {
        let share = self.extent_bytes.0 / CHUNKS_PER_EXTENT_MAX;
        if share > CHUNK_BYTES_MIN.0 {
            Bytes(share)
        } else {
            CHUNK_BYTES_MIN
        }
    }

    /// The sectors in a chunk.
    #[must_use]
    pub const fn chunk_sectors(self) -> SectorCount {
        SectorCount(self.chunk_bytes().0 / SECTOR_BYTES)
    }

    /// The chunks in an extent; at most [`CHUNKS_PER_EXTENT_MAX`].
    #[must_use]
    pub const fn chunks(self) -> u32 {
        (self.extent_bytes.0 / self.chunk_bytes().0) as u32
    }

    /// The extents that hold `size`, rounded up.
    #[must_use]
    pub const fn extents_for(self, size: Bytes) -> u64 {
        size.0.div_ceil(self.extent_bytes.0)
    }

    /// The first sector of an extent, on its disk.
    #[must_use]
    pub const fn sector_of(self, place: Place) -> Sector {
        Sector((HEADER_BYTES + place.extent as u64 * self.extent_bytes.0) / SECTOR_BYTES)
    }

    /// The number of the extent that a sector of a disk lies in; `None`: it lies before the first.
    #[must_use]
    pub const fn extent_at(self, sector: Sector) -> Option<u32> {
        match sector.0.checked_sub(HEADER_BYTES / SECTOR_BYTES) {
            Some(behind) => Some((behind / self.extent_sectors().0) as u32),
            None => None,
        }
    }
}
