//! Errors of an archive.

use engine::volume_io::SyncError;
use sched::units::Bytes;

use super::BLOCKS_MIN;
use crate::archive::block::FormatError;
use crate::archive::retention_record::RANGES_MAX;

/// Reason why an archive cannot be used or changed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The volume has content that is not an archive.
    #[error(
        "volume {0:?} has data that is not a recording; recordings need a volume of their own that nothing was written to"
    )]
    Foreign(String),
    /// The header is damaged or of a later version.
    #[error("header of the recordings in volume {volume:?} cannot be used: {error}")]
    Header {
        /// Name of the volume.
        volume: String,
        /// Reason.
        error: FormatError,
    },
    /// The volume is smaller than its ring.
    #[error(
        "volume {volume:?} has {size}, but the recordings in it need {needed}; it was probably shrunk"
    )]
    Short {
        /// Name of the volume.
        volume: String,
        /// Size of the volume.
        size: Bytes,
        /// Size that the ring needs.
        needed: Bytes,
    },
    /// The volume has no room for an archive.
    #[error(
        "volume {volume:?} is too small for recordings in blocks of {block}: it needs {needed}"
    )]
    Small {
        /// Name of the volume.
        volume: String,
        /// Size of a block.
        block: Bytes,
        /// Least size of the volume.
        needed: Bytes,
    },
    /// The volume is blank.
    #[error("nothing has been recorded in volume {0:?}")]
    Empty(String),
    /// A recording is being made in the volume.
    #[error("volume {0:?} is being recorded to; end that recording first")]
    Busy(String),
    /// The recording does not exist.
    #[error("there is no recording {number} in volume {volume:?}")]
    NoSuch {
        /// Name of the volume.
        volume: String,
        /// Number of the recording.
        number: u64,
    },
    /// The recording is being made.
    #[error("recording {number} in volume {volume:?} is in progress; end it before deleting it")]
    StillRecorded {
        /// Name of the volume.
        volume: String,
        /// Number of the recording.
        number: u64,
    },
    /// The retention record has no room for another range of deleted blocks.
    #[error(
        "volume {volume:?} cannot record another deletion: it has {RANGES_MAX} gaps where recordings were deleted; delete recordings next to those gaps first, beginning with the oldest"
    )]
    TooManyGaps {
        /// Name of the volume.
        volume: String,
    },
    /// The size limit is below the smallest ring.
    #[error(
        "volume {volume:?} cannot be limited to less than {least} of recordings, the size of {BLOCKS_MIN} blocks"
    )]
    SizeLimitTooSmall {
        /// Name of the volume.
        volume: String,
        /// Least size limit.
        least: Bytes,
    },
    /// The new limits would delete blocks at once.
    #[error("these limits would delete {bytes} of the recordings in volume {volume:?} at once")]
    WouldDelete {
        /// Name of the volume.
        volume: String,
        /// Bytes that would be deleted.
        bytes: Bytes,
    },
    /// The volume is blank and exported as a disk.
    #[error(
        "volume {0:?} is blank and in use through its export; recordings and data written through the export would destroy each other"
    )]
    Exported(String),
    /// It is a lock, or a part of it is locked.
    #[error("{volume:?} is a lock{}", reason(.note))]
    Locked {
        /// Name of the volume with the locked copy.
        volume: String,
        /// Why it was locked.
        note: String,
    },
    /// The volume could not be read or written.
    #[error("volume {volume:?}: {error}")]
    Io {
        /// Name of the volume.
        volume: String,
        /// Reason.
        error: SyncError,
    },
}

fn reason(note: &str) -> String {
    match note {
        "" => String::new(),
        note => format!(": {note}"),
    }
}
