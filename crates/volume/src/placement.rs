//! Places of new extents.

use sched::units::{Sector, SectorCount};

use crate::place::DiskNumber;

/// A stretch of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskRange {
    /// The disk.
    pub disk: DiskNumber,
    /// Its first sector.
    pub start: Sector,
    /// Its length. Only extents that lie in it whole are used.
    pub count: SectorCount,
}

/// Rule for the places of extents. The default is rotating first fit over all disks, one extent at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The disks to use, in this rotation; empty: all, by number.
    pub disks: Vec<DiskNumber>,
    /// Only within these stretches (a zone, a range of bytes), in this order of preference on a
    /// disk; empty: anywhere. Disks without a stretch are not used.
    pub within: Vec<DiskRange>,
    /// Number of consecutive extents of the volume that lie next to each other on one disk; at least 1.
    pub run: u32,
    /// Every disk in its turn, refuse rather than pass over a full one. Keeps a stream's share of
    /// each disk what admission took it for.
    pub strict: bool,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            disks: Vec::new(),
            within: Vec::new(),
            run: 1,
            strict: false,
        }
    }
}
