//! What log records say.

use sched::units::Bytes;

use crate::place::{Place, VolumeId};

pub use super::written::Written;

/// Consecutive extents of a volume whose bits have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitRun {
    /// The first of them.
    pub first: u32,
    /// How many; one, if some of its chunks are written and some are not.
    pub count: u32,
    /// What of them is written now.
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
        /// How many extents it has.
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
        /// Where they are and what of them is written.
        extents: Vec<(Place, Written)>,
    },
    /// A new size; when it grows, [`Change::Extents`] follow until it has all its extents.
    Resize {
        /// The volume.
        volume: VolumeId,
        /// Its new size.
        size: Bytes,
        /// How many extents it has then.
        extents: u32,
    },
    /// An extent has moved; what of it is written is the same.
    Move {
        /// The volume.
        volume: VolumeId,
        /// The index of the extent.
        index: u32,
        /// Where it is now.
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
    /// What is written in these extents of the volume.
    Bits {
        /// The volume.
        volume: VolumeId,
        /// Ascending.
        runs: Vec<BitRun>,
    },
    /// Extents that are not to be used.
    Bad {
        /// Where.
        places: Vec<Place>,
    },
    /// The log goes on at the beginning of this extent.
    Link {
        /// The extent.
        to: Place,
    },
}
