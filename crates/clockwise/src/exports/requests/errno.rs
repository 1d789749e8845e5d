//! Errors as numbers of the protocols.

use engine::volume_io::{IoFailure, SubmitError, VolumeOp};

/// Reason for a failed request. The values are those of Linux and of the NBD protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Perm = 1,
    /// The disk failed.
    Io = 5,
    /// Not enough memory.
    NoMemory = 12,
    /// The request is unknown, misaligned or out of range.
    Invalid = 22,
    /// Beyond the end of the export.
    NoSpace = 28,
    /// Too large for one unfragmented reply.
    Overflow = 75,
    /// A fast zero that would not be fast.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// The error of a request that the pool accepted and did not carry out.
    pub(super) fn from_io_failure(failure: &IoFailure) -> Self {
        match failure {
            IoFailure::Disk { .. }
            | IoFailure::Lost
            | IoFailure::Poisoned { .. }
            | IoFailure::NotNow { .. } => Self::Io,
            IoFailure::Cancelled { .. } => Self::Shutdown,
        }
    }

    /// The error of a request that the pool did not accept.
    pub(super) fn from_submit_error(error: &SubmitError, op: VolumeOp) -> Self {
        match error {
            SubmitError::Poisoned { .. } => Self::Io,
            SubmitError::Closed => Self::Shutdown,
            // The volume was cut after the request had been checked.
            SubmitError::PastEnd { .. } => match op {
                VolumeOp::Write { .. } | VolumeOp::WriteZeroes { .. } => Self::NoSpace,
                VolumeOp::Read | VolumeOp::Discard | VolumeOp::Flush => Self::Invalid,
            },
            SubmitError::Busy { .. } => Self::NoMemory,
            _ => Self::Invalid,
        }
    }
}
