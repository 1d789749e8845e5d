//! Contents of log records.

use sched::units::Bytes;

use crate::chunks::ChunkSet;
use crate::grade::Grade;
use crate::place::{Place, VolumeId};

pub use super::written::Written;

/// Consecutive extents of a volume whose bits have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitRun {
    /// The first of them.
    pub first: u32,
    /// Number of extents; one, if some of its chunks are written and some are not.
    pub count: u32,
    /// Written chunks of these extents.
    pub written: Written,
}

/// A change of the pool's metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The beginning of a full node; [`Change::Extents`] follow until it has all its extents.
    Node {
        /// The volume.
        volume: VolumeId,
        /// Its size.
        size: Bytes,
        /// Number of its extents.
        extents: u32,
        /// Its name.
        name: String,
    },
    /// More extents of the volume of the node or resize before it.
    Extents {
        /// The volume.
        volume: VolumeId,
        /// The index in the volume of the first.
        first: u32,
        /// Places of its extents, and their written chunks.
        extents: Vec<(Place, Written)>,
    },
    /// A new size; when it grows, [`Change::Extents`] follow until it has all its extents.
    Resize {
        /// The volume.
        volume: VolumeId,
        /// Its new size.
        size: Bytes,
        /// Number of its extents after the change.
        extents: u32,
    },
    /// An extent has moved; what of it is written is the same.
    Move {
        /// The volume.
        volume: VolumeId,
        /// The index of the extent.
        index: u32,
        /// Its place after the move.
        to: Place,
    },
    /// The volume is no more.
    Delete {
        /// The volume.
        volume: VolumeId,
    },
    /// The volume has another name.
    Rename {
        /// The volume.
        volume: VolumeId,
        /// Its new name.
        name: String,
    },
    /// Written chunks of these extents of the volume.
    Bits {
        /// The volume.
        volume: VolumeId,
        /// Ascending.
        runs: Vec<BitRun>,
    },
    /// Extents that are not to be used; written up to version 2.
    Bad {
        /// Their places.
        places: Vec<Place>,
    },
    /// Grades of extents.
    Grades {
        /// Their places.
        places: Vec<(Place, Grade)>,
    },
    /// Chunks of an extent whose data was lost.
    Lost {
        /// The volume.
        volume: VolumeId,
        /// The index of the extent.
        index: u32,
        /// All lost chunks of it, or none any more. Those that have a bit again are not lost.
        chunks: Box<ChunkSet>,
    },
    /// The log goes on at the beginning of this extent.
    Link {
        /// The extent.
        to: Place,
    },
}
