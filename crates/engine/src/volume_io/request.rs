//! What a client asks of a volume, and why it is not taken.

use sched::request::Urgency;
use sched::units::Bytes;

use crate::buffer::Segments;
use crate::state::request::{Tag, VolumeOp};
use crate::stream::Stream;
use crate::volume_io::volume::Volume;

/// The largest transfer of one request. Longer ones are the caller's to divide: an in-flight request
/// holds its buffers until all of it is done.
pub const REQUEST_BYTES_MAX: Bytes = Bytes::from_mib(64);

/// The most earlier requests that one request can name in [`VolumeRequest::after`].
pub const AFTER_MAX: usize = 8;

/// A request to a volume.
#[derive(Debug)]
pub struct VolumeRequest<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// What to do.
    pub op: VolumeOp,
    /// Where in the volume; a multiple of 512.
    pub offset: Bytes,
    /// How much; a multiple of 512, and for a transfer the size of `data`. Zero for a flush.
    pub len: Bytes,
    /// The memory, pinned until the request is complete; of the submitting client's account, and
    /// going the way of the operation. `None` for operations without data.
    pub data: Option<Segments>,
    /// Whether somebody waits for it. Durable writes and flushes are always [`Urgency::Sync`].
    pub urgency: Urgency,
    /// Earlier requests of this client to the same volume that must be complete before this one
    /// starts, at most [`AFTER_MAX`]. Ones that are complete already are no matter.
    pub after: &'a [Tag],
    /// Everything submitted to the volume before this request completes first, and nothing that is
    /// submitted after it starts before it is complete.
    pub barrier: bool,
    /// The reservation on whose account it is; `None` is best effort.
    pub stream: Option<&'a Stream>,
    /// The caller's; comes back with the completion.
    pub user_data: u64,
}

impl<'a> VolumeRequest<'a> {
    /// A read or write that somebody waits for, without order to keep and without reservation. The
    /// length is that of the memory.
    #[must_use]
    pub fn transfer(volume: &'a Volume, op: VolumeOp, offset: Bytes, data: Segments) -> Self {
        let len = Bytes(data.size() as u64);
        Self {
            data: Some(data),
            ..Self::command(volume, op, offset, len)
        }
    }

    /// A flush (of no length), discard or write-zeroes that somebody waits for.
    #[must_use]
    pub fn command(volume: &'a Volume, op: VolumeOp, offset: Bytes, len: Bytes) -> Self {
        Self {
            volume,
            op,
            offset,
            len,
            data: None,
            urgency: Urgency::Sync,
            after: &[],
            barrier: false,
            stream: None,
            user_data: 0,
        }
    }

    /// The same with the caller's number.
    #[must_use]
    pub fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }

    /// The same on the account of `stream`.
    #[must_use]
    pub fn on(mut self, stream: &'a Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// The same with nobody waiting for it.
    #[must_use]
    pub fn asynchronous(mut self) -> Self {
        self.urgency = Urgency::Async;
        self
    }
}

/// Why a request was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// Part of the range lies past the end.
    #[error(
        "{} at offset {offset} B reach past the end of volume {volume:?}, which has {}", Bytes(*.len), Bytes(*.size)
    )]
    PastEnd {
        /// The volume's name.
        volume: String,
        /// The volume's size in bytes.
        size: u64,
        /// The offset asked for, in bytes.
        offset: u64,
        /// The length asked for, in bytes.
        len: u64,
    },
    /// Not whole sectors.
    #[error("{what} is {bytes} B; it must be a multiple of {}", Bytes(*.alignment))]
    Misaligned {
        /// Which of the numbers.
        what: &'static str,
        /// Its value in bytes.
        bytes: u64,
        /// What it must be a multiple of, in bytes.
        alignment: u64,
    },
    /// The memory is not of the request's length, is missing, or came with an operation that takes
    /// none.
    #[error("the request is for {len} B, its memory has {memory} B")]
    LengthMismatch {
        /// The size of the memory in bytes.
        memory: u64,
        /// The request's length in bytes.
        len: u64,
    },
    /// The memory was pinned for a transfer in the other direction.
    #[error("the memory was pinned for the other direction")]
    WrongDirection,
    /// A transfer longer than a request may be.
    #[error("the request is for {}; the most is {REQUEST_BYTES_MAX}", Bytes(*.bytes))]
    TooLarge {
        /// The request's length in bytes.
        bytes: u64,
    },
    /// Nothing to transfer.
    #[error("the request is for nothing")]
    Empty,
    /// A buffer that belongs to somebody else.
    #[error(
        "a buffer belongs to another client; I/O is done only with the submitting client's own buffers"
    )]
    ForeignBuffer,
    /// The volume belongs to another pool than the client.
    #[error("volume {volume:?} is not of the client's pool")]
    ForeignVolume {
        /// The volume's name.
        volume: String,
    },
    /// The stream reads and the request writes, or the other way round, or it is of another volume.
    #[error("stream {stream:?} is reserved to {reserved}; this request is {asked}")]
    NotOfStream {
        /// The stream's name.
        stream: String,
        /// What it is reserved for.
        reserved: String,
        /// What was asked.
        asked: String,
    },
    /// More names in `after` than [`AFTER_MAX`].
    #[error("{given} earlier requests are named; the most is {AFTER_MAX}")]
    TooManyAfter {
        /// How many were named.
        given: usize,
    },
    /// The client has as many requests in flight as it may.
    #[error(
        "the client has {limit} requests in flight, the most it may have; poll for completions first"
    )]
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The host could not make data of the volume durable: what was acknowledged may not be all there any more,
    /// and writing on would hide that.
    #[error("volume {volume:?} takes no more writes until the pool is opened anew: {reason}")]
    Poisoned {
        /// The volume's name.
        volume: String,
        /// What failed.
        reason: String,
    },
    /// The pool is closed.
    #[error("the pool is closed")]
    Closed,
}
