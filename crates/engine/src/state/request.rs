//! Volume requests and their results.

use sched::units::{Nanos, SectorCount, Time};

/// Identifies a request of a client from submission to completion; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// An operation on a range of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VolumeOp {
    /// Fill the buffers from the volume. Parts that were never written read as zeros.
    Read,
    /// Write the buffers.
    Write {
        /// Answer only when the data would survive a power cut (FUA).
        durable: bool,
    },
    /// Answer when every write that was answered before this request was submitted is durable.
    /// Takes no range.
    Flush,
    /// The data of this range is no longer needed. Whole chunks become holes, which read as zeros;
    /// the rest of the range may keep its data. Constant work for a whole extent.
    Discard,
    /// The range reads as zeros afterwards. Whole chunks become holes unless `no_hole`.
    WriteZeroes {
        /// Write the zeros, so that later writes to the range need no first-write handling.
        no_hole: bool,
        /// Answer only when the zeros would survive a power cut.
        durable: bool,
    },
}

impl VolumeOp {
    /// True if it may change the volume's content.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Discard | Self::WriteZeroes { .. }
        )
    }

    /// True if it takes buffers.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }
}

/// The reason why an accepted request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IoFailure {
    /// A disk reported an error, or the host could not make its data durable.
    #[error("disk {disk:?}: {op}{}: {reason}", at(*.sector, *.sectors))]
    Disk {
        /// The disk's name.
        disk: String,
        /// The operation: `read`, `write` or `sync`; a sync has no place.
        op: &'static str,
        /// First sector on the disk.
        sector: u64,
        /// Number of sectors; 0 for a sync.
        sectors: SectorCount,
        /// The error.
        reason: String,
    },
    /// The data was on a bad place of a disk and could not be read when its extent was moved away.
    #[error(
        "the data is lost: it was on a bad place of a disk; discarding it, or writing it in whole chunks, makes the range usable"
    )]
    Lost,
    /// The volume is read-only after a failure.
    #[error("volume {volume:?} takes no more writes until the pool is opened again: {reason}")]
    Poisoned {
        /// The volume's name.
        volume: String,
        /// The operation that failed.
        reason: String,
    },
    /// The change is done, but cannot be made durable at the moment: the pool's metadata is frozen, or
    /// the host does not answer. Nothing is lost; a later flush tries again.
    #[error("cannot be made durable now: {reason}; a later flush tries again")]
    NotNow {
        /// The reason.
        reason: String,
    },
    /// While the request waited, the pool was closed, the volume shrank below it, or its stream's time
    /// ended.
    #[error("cancelled: {reason}")]
    Cancelled {
        /// The reason.
        reason: &'static str,
    },
}

fn at(sector: u64, sectors: SectorCount) -> String {
    if sectors.is_zero() {
        return String::new();
    }
    format!(" of {sectors:?} at sector {sector}")
}

/// Completion of a stream's block relative to its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Timeliness {
    /// The deadline.
    pub deadline: Time,
    /// When it was complete.
    pub completed: Time,
    /// Time past the deadline; zero when in time.
    pub late: Nanos,
    /// The same without the part that the host caused, not the disk or the schedule.
    pub late_net: Nanos,
}

/// The result of a request.
#[derive(Debug)]
pub struct VolumeCompletion {
    /// The request.
    pub tag: Tag,
    /// The caller's number.
    pub user_data: u64,
    /// Bytes after the range that a stream's read has also read.
    pub(crate) ahead_bytes: u64,
    /// Success, or the first failure. A read that failed leaves the memory's content unspecified. In both
    /// cases the request holds its buffers no more.
    pub result: Result<(), IoFailure>,
    /// When it was submitted.
    pub submitted: Time,
    /// When the last part of it was complete.
    pub completed: Time,
    /// For a stream's request: its timeliness, the worst of its parts.
    pub timeliness: Option<Timeliness>,
}
