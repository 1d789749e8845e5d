//! Faults of a pool on its disks: the fault, the disk, and the remedy.

use std::fmt::Write as _;

use sched::units::{Bytes, SECTOR_BYTES};

use crate::place::{Place, Uuid};

/// Why a pool does not open: everything that is wrong, a line each.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct OpenError {
    /// Faults.
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Identities are shown as UUIDs are.
fn uuid(id: &Uuid) -> String {
    let mut text = String::new();
    for (index, byte) in id.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn size(sectors: u64) -> String {
    // A superblock may say anything.
    match sectors.checked_mul(SECTOR_BYTES) {
        Some(bytes) => Bytes(bytes).to_string(),
        None => format!("{sectors} sectors"),
    }
}

fn graded(bad: usize, slow: usize) -> String {
    let extents = |count: usize, word: &str| match count {
        0 => None,
        1 => Some(format!("1 extent is {word}")),
        _ => Some(format!("{count} extents are {word}")),
    };
    let [bad, slow] = [extents(bad, "bad"), extents(slow, "slow")];
    let parts: Vec<String> = bad.into_iter().chain(slow).collect();
    parts.join(", ")
}

/// Something that keeps a pool from opening, or that a check has found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No disks were given.
    #[error("no disks were given")]
    NoDisks,
    /// A disk cannot be read.
    #[error("{disk}: cannot be read at sector {at}: {reason}")]
    Unreadable {
        /// The disk.
        disk: String,
        /// The sector.
        at: u64,
        /// The disk's error.
        reason: String,
    },
    /// Nothing of ours on it.
    #[error("{disk}: not a Clockwise disk (no superblock)")]
    NotOurs {
        /// The disk.
        disk: String,
    },
    /// Both superblocks torn.
    #[error("{disk}: both copies of its superblock are damaged")]
    SuperblocksDamaged {
        /// The disk.
        disk: String,
    },
    /// One superblock torn; no harm.
    #[error("{disk}: the {} copy of its superblock is damaged; the other copy is used, and starting the pool rewrites both", ["first", "second"][*copy])]
    OneCopyDamaged {
        /// The disk.
        disk: String,
        /// The copy, 0 or 1.
        copy: usize,
    },
    /// A superblock that is intact and makes no sense.
    #[error("{disk}: its superblock is intact but impossible: {what}")]
    Impossible {
        /// The disk.
        disk: String,
        /// The impossible value.
        what: &'static str,
    },
    /// Written by a later program.
    #[error("{disk}: has format version {version}, which is newer than this program knows")]
    NewerVersion {
        /// The disk.
        disk: String,
        /// Its version.
        version: u32,
    },
    /// Smaller than it was.
    #[error("{disk}: has shrunk to {} from {}", size(*.now), size(*.was))]
    Shrunk {
        /// The disk.
        disk: String,
        /// Sectors now.
        now: u64,
        /// Sectors when the pool was made.
        was: u64,
    },
    /// A disk of another pool.
    #[error("{disk}: belongs to another pool ({}), not to {}", uuid(.pool), uuid(.expected))]
    Foreign {
        /// The disk.
        disk: String,
        /// Its pool.
        pool: Uuid,
        /// The pool of the others.
        expected: Uuid,
    },
    /// Says it is disk n, but the pool knows another disk n.
    #[error(
        "{disk}: its superblock names it disk {number} of the pool, but the pool has another disk {number}"
    )]
    Replaced {
        /// The disk.
        disk: String,
        /// Its number.
        number: usize,
    },
    /// The same disk twice, or a copy of it.
    #[error(
        "{first} and {second}: both are disk {number} of the pool; one is a copy of the other, or the same disk was given twice"
    )]
    Duplicate {
        /// The one that came first.
        first: String,
        /// The other.
        second: String,
        /// The number of both.
        number: usize,
    },
    /// Not there.
    #[error("disk {number} of the pool's {of} is missing (its identity is {})", uuid(.id))]
    Missing {
        /// Its number.
        number: usize,
        /// Number of disks of the pool.
        of: usize,
        /// Its identity.
        id: Uuid,
    },
    /// Behind the others.
    #[error(
        "{disk}: disk {number} of the pool is stale: it was left at generation {generation}, but the pool is at {newest}"
    )]
    Stale {
        /// The disk.
        disk: String,
        /// Its number.
        number: usize,
        /// Its generation.
        generation: u64,
        /// The newest generation in the pool.
        newest: u64,
    },
    /// No table.
    #[error("{disk}: neither copy of the volume table is readable")]
    NoTable {
        /// The disk.
        disk: String,
    },
    /// The newest table is lost, which is more than a crash does.
    #[error(
        "{disk}: the newest copy of the volume table is damaged; the older one (generation {generation}) is out of date"
    )]
    TableLost {
        /// The disk.
        disk: String,
        /// The generation of the readable one.
        generation: u64,
    },
    /// One table torn; no harm.
    #[error(
        "{disk}: copy {copy} of the volume table is damaged, as after a crash; the other copy is used"
    )]
    OneTableDamaged {
        /// The disk.
        disk: String,
        /// The copy, 0 or 1.
        copy: usize,
    },
    /// A node is not where the table says.
    #[error("{disk}: the node of volume {volume} at {at} is damaged: {what}")]
    NodeDamaged {
        /// The disk.
        disk: String,
        /// The volume's number.
        volume: u64,
        /// Its place.
        at: String,
        /// The fault.
        what: String,
    },
    /// The list of bad and slow extents is damaged.
    #[error("{disk}: the list of bad and slow extents at {at} is damaged: {what}")]
    BadListDamaged {
        /// The disk.
        disk: String,
        /// Its place.
        at: String,
        /// The fault.
        what: String,
    },
    /// Extents with a grade.
    #[error("{disk}: {}", graded(*.bad, *.slow))]
    Graded {
        /// The disk.
        disk: String,
        /// The number of bad ones.
        bad: usize,
        /// The number of slow ones.
        slow: usize,
    },
    /// Data that a move could not read.
    #[error(
        "volume {volume:?}: chunks of its extent {extent} are lost ({chunks} of them): they were on a bad place of a disk"
    )]
    Lost {
        /// The volume's name.
        volume: String,
        /// The index of the extent.
        extent: u32,
        /// The number of lost chunks.
        chunks: u32,
    },
    /// The log breaks off before its end.
    #[error(
        "{disk}: the metadata log is damaged at {at}: record {sequence} is lost, but later ones are there"
    )]
    LogDamaged {
        /// The disk.
        disk: String,
        /// Its place.
        at: String,
        /// The record.
        sequence: u64,
    },
    /// A record that is intact and makes no sense.
    #[error("{disk}: record {sequence} of the metadata log at {at} is impossible: {what}")]
    LogImpossible {
        /// The disk.
        disk: String,
        /// Its place.
        at: String,
        /// The record.
        sequence: u64,
        /// The fault.
        what: String,
    },
    /// One extent, two owners.
    #[error("{place} belongs to {first} and to {second}")]
    OwnedTwice {
        /// The extent.
        place: Place,
        /// One owner.
        first: String,
        /// The other.
        second: String,
    },
    /// An extent that is not there.
    #[error("{owner} has {place}, which does not exist")]
    OutOfRange {
        /// The owner.
        owner: String,
        /// The extent.
        place: Place,
    },
    /// Volumes at odds with each other.
    #[error("the volumes are inconsistent: {what}")]
    Inconsistent {
        /// The fault.
        what: String,
    },
}

impl Problem {
    /// The disk that it is about, by the name it was given with, if it is about one.
    #[must_use]
    pub fn disk(&self) -> Option<&str> {
        match self {
            Self::Unreadable { disk, .. }
            | Self::NotOurs { disk }
            | Self::SuperblocksDamaged { disk }
            | Self::OneCopyDamaged { disk, .. }
            | Self::Impossible { disk, .. }
            | Self::NewerVersion { disk, .. }
            | Self::Shrunk { disk, .. }
            | Self::Foreign { disk, .. }
            | Self::Replaced { disk, .. }
            | Self::Duplicate { second: disk, .. }
            | Self::Stale { disk, .. }
            | Self::NoTable { disk }
            | Self::TableLost { disk, .. }
            | Self::OneTableDamaged { disk, .. }
            | Self::NodeDamaged { disk, .. }
            | Self::BadListDamaged { disk, .. }
            | Self::Graded { disk, .. }
            | Self::LogDamaged { disk, .. }
            | Self::LogImpossible { disk, .. } => Some(disk),
            Self::NoDisks
            | Self::Missing { .. }
            | Self::Lost { .. }
            | Self::OwnedTwice { .. }
            | Self::OutOfRange { .. }
            | Self::Inconsistent { .. } => None,
        }
    }

    /// The remedy.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoDisks => "name the pool's disks",
            Self::Unreadable { .. } => {
                "check the disk, its cable and its permissions; if it is broken, copy its readable parts to another disk, and name that disk in its place"
            }
            Self::NotOurs { .. } => {
                "check that it is the intended disk, or name the pool's own disk in its place"
            }
            Self::SuperblocksDamaged { .. } => {
                "another program overwrote both ends of the disk: restore a copy of it that was made while the pool was not open"
            }
            Self::OneCopyDamaged { .. } | Self::OneTableDamaged { .. } => {
                "nothing: it is rewritten when the pool is opened next"
            }
            Self::Graded { .. } => {
                "nothing: the pool does not use bad extents, and uses slow ones for best effort only; replace a disk whose number of them grows"
            }
            Self::Lost { .. } => "restore the file or the recording that they belonged to",
            Self::NewerVersion { .. } => {
                "use the version of Clockwise that wrote it, or a later one"
            }
            Self::Shrunk { .. } => {
                "give the disk (the file, the partition, the logical volume) its former size; no data is lost if nothing was written past its present end since"
            }
            Self::Foreign { .. } => {
                "take it out of the list of disks, and name the pool's own disk in its place"
            }
            Self::Replaced { .. } => {
                "name the disk that was last in the pool; this disk was replaced, or belongs to a copy of the pool"
            }
            Self::Duplicate { .. } => "name only one of the two, the one that was last in the pool",
            Self::Missing { .. } => {
                "bring the disk back and name it, anywhere in the list and by any name"
            }
            Self::Stale { .. } => {
                "name the disk that was last in its place; this disk lacks later writes, and the pool does not open with it"
            }
            Self::NoTable { .. }
            | Self::TableLost { .. }
            | Self::NodeDamaged { .. }
            | Self::BadListDamaged { .. }
            | Self::LogDamaged { .. } => {
                "the disk lost acknowledged writes, or another program wrote to it: check the disk, and restore copies of all disks that were made at the same time"
            }
            Self::Impossible { .. }
            | Self::LogImpossible { .. }
            | Self::OwnedTwice { .. }
            | Self::OutOfRange { .. }
            | Self::Inconsistent { .. } => {
                "this is an error of Clockwise, not of the disk: keep copies of all disks as they are, and report it"
            }
        }
    }
}
