//! Errors of exports.

use super::ArchiveError;

/// Reason why a recording is not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The archive could not be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The blocks that were tried for the description are damaged.
    #[error("the blocks that were read for the recording's description are damaged")]
    Undescribed,
    /// The recording has no track of this number, but this many tracks.
    #[error("the recording has no track {0}; its {1} tracks are numbered from 0")]
    NoTrack(usize, usize),
    /// No track is supported by the file format.
    #[error("no track of the recording can be exported as {form}; its tracks are {tracks}")]
    Nothing {
        /// File format.
        form: &'static str,
        /// Encodings of the tracks.
        tracks: String,
    },
    /// A track has no decoder parameters.
    #[error(
        "the decoder parameters of track {0} are neither in its description nor in the recording"
    )]
    Parameters(usize),
    /// The time span has no packets.
    #[error("nothing was recorded in that time range")]
    Empty,
    /// The recording was deleted or overwritten during the export.
    #[error(
        "recording {number} in volume {volume:?} was deleted or overwritten while it was exported"
    )]
    Gone {
        /// Name of the volume.
        volume: String,
        /// Number of the recording.
        number: u64,
    },
    /// A block has changed since the length of the file was announced.
    #[error(
        "block {serial} of the recording was damaged or overwritten after the length of the file was announced"
    )]
    Changed {
        /// Serial of the block.
        serial: u64,
    },
    /// The segment is too large for memory; the limit in bytes.
    #[error("a segment of the recording is larger than the limit of {} MiB", .0 >> 20)]
    Large(usize),
    /// The client has received nothing for this long.
    #[error("the client has not received any of the file for {0:?}")]
    Stalled(std::time::Duration),
    /// The client has gone or the server stops.
    #[error("the client has closed the connection, or the server is stopping")]
    Disconnected,
    /// A value does not fit in its MP4 box.
    #[error("an MP4 fragment cannot be written: {0}")]
    Fragment(#[from] mp4_atom::Error),
}
