//! Why an archive cannot be used.

use engine::volume_io::SyncError;
use sched::units::Bytes;

use super::BLOCKS_MIN;
use crate::archive::block::FormatError;
use crate::archive::retention_record::RANGES_MAX;

/// Why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The volume holds something that is no recording.
    #[error(
        "volume {0:?} holds something that is no recording; recordings need a volume of their own that nothing was written to"
    )]
    Foreign(String),
    /// Its header is damaged or of a later version.
    #[error("the header of the recordings in volume {volume:?}: {error}")]
    Header {
        /// The volume.
        volume: String,
        /// What is wrong.
        error: FormatError,
    },
    /// The volume is smaller than what it holds.
    #[error("volume {volume:?} has {size}, and the recordings in it need {needed}: was it shrunk?")]
    Short {
        /// The volume.
        volume: String,
        /// What it has.
        size: Bytes,
        /// What it should have.
        needed: Bytes,
    },
    /// The volume has no room for an archive.
    #[error(
        "volume {volume:?} is too small for recordings in blocks of {block}: it needs {needed}"
    )]
    Small {
        /// The volume.
        volume: String,
        /// The size of a block.
        block: Bytes,
        /// What it should have.
        needed: Bytes,
    },
    /// Nothing has been recorded yet.
    #[error("nothing has been recorded in volume {0:?}")]
    Empty(String),
    /// Somebody records there.
    #[error("volume {0:?} is being recorded to; end that recording first")]
    Busy(String),
    /// There is no such recording, or not any more.
    #[error("there is no recording {number} in volume {volume:?}")]
    NoSuch {
        /// The volume.
        volume: String,
        /// The recording.
        number: u64,
    },
    /// It is being made.
    #[error(
        "recording {number} in volume {volume:?} goes on; only one that has ended can be deleted"
    )]
    GoesOn {
        /// The volume.
        volume: String,
        /// The recording.
        number: u64,
    },
    /// There is no room to remember it.
    #[error(
        "volume {volume:?} remembers {RANGES_MAX} gaps where recordings were deleted, and has room for no more; delete recordings that lie next to those, the oldest first"
    )]
    Gaps {
        /// The volume.
        volume: String,
    },
    /// So little cannot be kept.
    #[error(
        "volume {volume:?} cannot keep less than {least} of recordings, which are {BLOCKS_MIN} blocks"
    )]
    LittleKept {
        /// The volume.
        volume: String,
        /// The least.
        least: Bytes,
    },
    /// Less would be kept than is there.
    #[error("{bytes} of what is recorded in volume {volume:?} would go at once, and not come back")]
    WouldGo {
        /// The volume.
        volume: String,
        /// How much.
        bytes: Bytes,
    },
    /// Nothing was written to it yet, and somebody else is about to.
    #[error(
        "nothing was written to volume {0:?} yet, and it is in use through its export: recordings and what is written there would destroy each other"
    )]
    Exported(String),
    /// It could not be read or written.
    #[error("volume {volume:?}: {error}")]
    Io {
        /// The volume.
        volume: String,
        /// Why.
        error: SyncError,
    },
}
