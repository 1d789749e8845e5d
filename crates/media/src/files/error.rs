//! Why a recording is not exported.

use super::ArchiveError;

/// Why a recording is not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It could not be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The blocks that could say what it consists of are damaged.
    #[error("the blocks that say what the recording consists of are damaged")]
    Undescribed,
    /// There is no such track.
    #[error("the recording has no track {0}: it has {1}, counted from 0")]
    NoTrack(usize, usize),
    /// Nothing of it can be in such a file.
    #[error("nothing of the recording can be in {form}: it has {tracks}")]
    Nothing {
        /// In what.
        form: &'static str,
        /// What it has.
        tracks: String,
    },
    /// How to decode it is not said.
    #[error(
        "how track {0} is to be decoded is said neither in its description nor in what was recorded there"
    )]
    Parameters(usize),
    /// Nothing lies between those times.
    #[error("nothing was recorded between those times")]
    Empty,
    /// It was deleted, or overwritten, before all of it was read.
    #[error(
        "recording {number} in volume {volume:?} was deleted or overwritten while it was exported"
    )]
    Gone {
        /// Its volume.
        volume: String,
        /// Its number.
        number: u64,
    },
    /// It is not what it was when it was said how long it is.
    #[error(
        "block {serial} of the recording was there when it was said how long its file is, and has been damaged or overwritten since"
    )]
    Changed {
        /// The block's serial.
        serial: u64,
    },
    /// What is made in memory would be too long.
    #[error("a segment of the recording would have more than {} MiB", .0 >> 20)]
    Large(usize),
    /// Who asked for it has taken nothing for too long.
    #[error("nothing of the file has been taken for {0:?}")]
    Stalled(std::time::Duration),
    /// Nobody waits for it.
    #[error("nobody waits for the file any more, or the server ends")]
    Unwanted,
    /// More than a file can say.
    #[error("a fragment cannot be written: {0}")]
    Fragment(#[from] mp4_atom::Error),
}
