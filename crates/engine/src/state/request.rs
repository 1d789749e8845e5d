//! What can be asked of a volume, and what comes of it.

use sched::units::{Nanos, SectorCount, Time};

/// Names a request of a client from its submission to its completion; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// What is to be done to a range of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VolumeOp {
    /// Fill the buffers from the volume. What was never written reads as zeros.
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
    /// Whether the volume's content may change.
    #[must_use]
    pub const fn is_change(self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Discard | Self::WriteZeroes { .. }
        )
    }

    /// Whether buffers go with it.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }
}

/// Why a request that was taken failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IoFailure {
    /// A disk reported an error, or the host could not make its data durable.
    #[error("disk {disk:?}: {op}{}: {reason}", at(*.sector, *.sectors))]
    Disk {
        /// The disk's name.
        disk: String,
        /// What it was doing: `read`, `write` or `sync`, which has no place.
        op: &'static str,
        /// Where on the disk.
        sector: u64,
        /// How much.
        sectors: SectorCount,
        /// What it said.
        reason: String,
    },
    /// The volume is read-only after a failure.
    #[error("volume {volume:?} takes no more writes until the pool is opened anew: {reason}")]
    Poisoned {
        /// The volume's name.
        volume: String,
        /// What failed.
        reason: String,
    },
    /// What was asked is done, but cannot be made durable at the moment: the pool's metadata is frozen, or the
    /// host does not answer. It is not lost, and a later flush tries again.
    #[error("cannot be made durable now: {reason}; a later flush tries again")]
    NotNow {
        /// Why not.
        reason: String,
    },
    /// The pool was closed, the volume shrunk below the request, or the time of its stream was over, while
    /// it waited.
    #[error("cancelled: {reason}")]
    Cancelled {
        /// Why.
        reason: &'static str,
    },
}

fn at(sector: u64, sectors: SectorCount) -> String {
    if sectors.is_zero() {
        return String::new();
    }
    format!(" of {sectors:?} at sector {sector}")
}

/// How a stream's block fared against its deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Timeliness {
    /// When it was due.
    pub deadline: Time,
    /// When it was complete.
    pub completed: Time,
    /// How much later than due; zero when in time.
    pub late: Nanos,
    /// The same without the part of it in which the host was late, not the disk or the schedule.
    pub late_net: Nanos,
}

/// A request that is done.
#[derive(Debug)]
pub struct VolumeCompletion {
    /// Which request.
    pub tag: Tag,
    /// The caller's number.
    pub user_data: u64,
    /// Success, or the first thing that failed. A read that failed leaves the memory's content
    /// unspecified. Either way the request's pins on its buffers are gone.
    pub result: Result<(), IoFailure>,
    /// When it was submitted.
    pub submitted: Time,
    /// When the last part of it was complete.
    pub completed: Time,
    /// For a stream's request: against its deadline, the worst of its parts.
    pub timeliness: Option<Timeliness>,
}
