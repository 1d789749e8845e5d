//! Errors as the numbers that clients know.

use engine::volume_io::{IoFailure, SubmitError, VolumeOp};

/// Why a request failed; the values are Linux's, and the NBD protocol's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to a read-only export.
    Perm = 1,
    /// The disk failed.
    Io = 5,
    /// Not enough memory.
    NoMemory = 12,
    /// The request makes no sense: unknown, misaligned, out of range.
    Invalid = 22,
    /// Beyond the end of the export.
    NoSpace = 28,
    /// Too large for one unfragmented reply.
    Overflow = 75,
    /// A fast zero that would not be fast.
    NotSupported = 95,
    /// The server is going away.
    Shutdown = 108,
}

/// Of a request that the pool took and did not do.
pub(super) fn of_io(failure: &IoFailure) -> Errno {
    match failure {
        IoFailure::Disk { .. } | IoFailure::Poisoned { .. } | IoFailure::NotNow { .. } => Errno::Io,
        IoFailure::Cancelled { .. } => Errno::Shutdown,
    }
}

/// Of one that it did not take.
pub(super) fn of_submit(error: &SubmitError, op: VolumeOp) -> Errno {
    match error {
        SubmitError::Poisoned { .. } => Errno::Io,
        SubmitError::Closed => Errno::Shutdown,
        // Of a volume that has become shorter since the request was checked.
        SubmitError::PastEnd { .. } => match op {
            VolumeOp::Write { .. } | VolumeOp::WriteZeroes { .. } => Errno::NoSpace,
            VolumeOp::Read | VolumeOp::Discard | VolumeOp::Flush => Errno::Invalid,
        },
        SubmitError::Busy { .. } => Errno::NoMemory,
        _ => Errno::Invalid,
    }
}
