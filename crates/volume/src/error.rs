//! Errors of volumes and pools, in words that say what to do.

use sched::units::{Bytes, SECTOR_BYTES, SectorCount};

use crate::place::{DiskNumber, Place, VolumeId};

/// Why a change was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// A transaction is being carried out.
    #[error("another change of the pool is being carried out")]
    Busy,
    /// The pool was opened for reading.
    #[error("the pool has been opened but not started: changes need PoolState::start first")]
    NotStarted,
    /// Started already.
    #[error("the pool has been started already")]
    AlreadyStarted,
    /// A step failed.
    #[error(
        "a write of the pool's metadata failed; the pool must be opened again before it can be changed"
    )]
    Poisoned,
    /// No such volume.
    #[error("there is no volume with number {}", .0.0)]
    NoSuchVolume(VolumeId),
    /// The name is taken.
    #[error("a volume named {0:?} exists already")]
    NameTaken(String),
    /// The name is not one.
    #[error("{name:?} cannot be a volume's name: {reason}")]
    BadName {
        /// The name asked for.
        name: String,
        /// The fault of the name.
        reason: &'static str,
    },
    /// Nothing asked for.
    #[error("a volume's size must be more than zero")]
    SizeZero,
    /// Not a number of sectors.
    #[error("{0} is larger than the largest size in whole sectors")]
    SizeOverflows(Bytes),
    /// More than the pool holds.
    #[error(
        "{asked} are requested, but {free} are free ({good} in the pool, {reserved} kept for metadata)"
    )]
    NoSpace {
        /// The additional bytes needed, whole extents.
        asked: Bytes,
        /// Free space on all disks.
        free: Bytes,
        /// All extents of the pool.
        good: Bytes,
        /// Space kept so that metadata can always be rewritten.
        reserved: Bytes,
    },
    /// Enough free, but not where it was asked for.
    #[error(
        "no room at the requested place: {missing} of {wanted} extents could not be placed {place}"
    )]
    NoRoomThere {
        /// Extents asked for.
        wanted: u32,
        /// Extents that found no place.
        missing: u32,
        /// On which disks, in which range, in what runs.
        place: String,
    },
    /// The placement itself is at fault.
    #[error("bad placement: {0}")]
    BadPlacement(String),
    /// To grow is to become larger.
    #[error("the volume has {now} already; {asked} would not make it {direction}")]
    WrongDirection {
        /// The present size.
        now: Bytes,
        /// The size asked for.
        asked: Bytes,
        /// `larger` or `smaller`.
        direction: &'static str,
    },
    /// A volume of more extents than there can be.
    #[error("{asked} need more than {max} extents of {extent}, the maximum of a volume")]
    TooManyExtents {
        /// The size asked for.
        asked: Bytes,
        /// The limit.
        max: u32,
        /// The pool's extent size.
        extent: Bytes,
    },
    /// The table is full.
    #[error("the pool has {0} volumes, the maximum")]
    TooManyVolumes(usize),
    /// No such extent of the volume.
    #[error("the volume has {have} extents; there is no extent {asked}")]
    NoSuchExtent {
        /// The index asked for.
        asked: u32,
        /// The extents it has.
        have: u32,
    },
    /// No such disk.
    #[error("the pool has no disk {}", .0.0)]
    NoSuchDisk(DiskNumber),
    /// No such place.
    #[error("the pool has no {0}")]
    NoSuchPlace(Place),
    /// Grades that say nothing new.
    #[error("the extents have these grades or worse ones already")]
    NoWorse,
    /// The extent is being moved.
    #[error("extent {extent} of the volume is being moved")]
    BeingMoved {
        /// Its index in the volume.
        extent: u32,
    },
    /// Reads are on their way to where the extent was before its last move.
    #[error("requests to the previous place of extent {extent} are still under way")]
    StillRead {
        /// Its index in the volume.
        extent: u32,
    },
    /// The move is not at the point where it can be finished.
    #[error("the move is not finished: {0}")]
    MoveUnfinished(&'static str),
    /// The extent size is not one.
    #[error("{0} is not a valid extent size: it must be a power of two from 64 KiB to 1 GiB")]
    BadExtentSize(Bytes),
    /// A pool of no disks or too many.
    #[error("a pool has 1 to {max} disks, not {asked}")]
    BadDiskCount {
        /// Asked for.
        asked: usize,
        /// The limit.
        max: usize,
    },
    /// A disk too small.
    #[error("disk {name} is too small: it has {}, and at least {} are needed", SectorCount(*.sectors).bytes(), SectorCount(*.least).bytes())]
    DiskTooSmall {
        /// The disk.
        name: String,
        /// Its size.
        sectors: u64,
        /// Smallest number that would do.
        least: u64,
    },
    /// Disks too small all together.
    #[error("the disks have {extents} extents in all; at least {least} are needed")]
    PoolTooSmall {
        /// Number of extents.
        extents: u64,
        /// Smallest number that would do.
        least: u64,
    },
    /// A disk too large.
    #[error("disk {name} has more than {max} extents")]
    DiskTooLarge {
        /// The disk.
        name: String,
        /// The limit.
        max: u64,
    },
}

/// Why a request to a volume cannot be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// Not whole sectors.
    #[error("offset {offset} B and length {length} B must be multiples of {SECTOR_BYTES} B")]
    Misaligned {
        /// The offset, bytes.
        offset: u64,
        /// The length, bytes.
        length: u64,
    },
    /// Beyond the end.
    #[error("offset {offset} B plus length {length} B is past the end of the volume at {}", Bytes(*.size))]
    PastEnd {
        /// The offset, bytes.
        offset: u64,
        /// The length, bytes.
        length: u64,
        /// The volume's size, bytes.
        size: u64,
    },
}

/// Why I/O on an extent cannot begin now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Another first write to the same chunk is in flight, or the extent is about to change place:
    /// try again when a write of this volume completes or a move of it ends.
    #[error("the chunk is being written for the first time, or its extent is changing place")]
    Busy,
    /// The extent has been cut off the volume: the map is out of date.
    #[error("the extent no longer belongs to the volume")]
    Gone,
    /// A write of part of a chunk that has lost its data. The rest of the chunk must not read as zeros.
    #[error("the chunk has lost its data, and only a write of all of it makes it usable")]
    Lost,
}
