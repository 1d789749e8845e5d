//! Requests to a volume, and reasons for refusing them.

use sched::request::Urgency;
use sched::units::Bytes;

use crate::buffer::Segments;
use crate::state::request::{Tag, VolumeOp};
use crate::stream::Stream;
use crate::volume_io::volume::Volume;

/// The largest transfer of one request. Callers have to divide longer ones, because a request holds its buffers
/// until all of it is done.
pub const REQUEST_BYTES_MAX: Bytes = Bytes::from_mib(64);

/// The most earlier requests that one request can name in [`VolumeRequest::after`].
pub const AFTER_MAX: usize = 8;

/// A request to a volume.
#[derive(Debug)]
pub struct VolumeRequest<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// The operation.
    pub op: VolumeOp,
    /// Offset in the volume; a multiple of 512.
    pub offset: Bytes,
    /// Length; a multiple of 512, and for a transfer the size of `data`. Zero for a flush.
    pub len: Bytes,
    /// The memory, pinned until the request is complete. It must belong to the submitting client and have the
    /// direction of the operation. `None` for operations without data.
    pub data: Option<Segments>,
    /// Of a stream's read: memory for the rest of the track after its range, which is read too if that keeps to
    /// the stream's promise. `ahead_bytes` of the completion tells how much was read.
    pub(crate) ahead: Option<Segments>,
    /// [`Urgency::Sync`] if a thread waits for it. Durable writes and flushes are always `Sync`.
    pub urgency: Urgency,
    /// Earlier requests of this client to the same volume that must complete before this one starts, at most
    /// [`AFTER_MAX`]. Completed ones are ignored.
    pub after: &'a [Tag],
    /// A barrier: all requests submitted to the volume before complete first, and all submitted later start
    /// after its completion.
    pub barrier: bool,
    /// The stream whose reservation it uses; `None` is best effort.
    pub stream: Option<&'a Stream>,
    /// A value for the caller, returned with the completion.
    pub user_data: u64,
}

impl<'a> VolumeRequest<'a> {
    /// A read or write that a thread waits for, without order and reservation. Its length is that of the
    /// memory.
    #[must_use]
    pub fn transfer(volume: &'a Volume, op: VolumeOp, offset: Bytes, data: Segments) -> Self {
        let len = Bytes(data.size() as u64);
        Self {
            data: Some(data),
            ..Self::command(volume, op, offset, len)
        }
    }

    /// A flush (of length zero), discard or write-zeroes that a thread waits for.
    #[must_use]
    pub fn command(volume: &'a Volume, op: VolumeOp, offset: Bytes, len: Bytes) -> Self {
        Self {
            volume,
            op,
            offset,
            len,
            data: None,
            ahead: None,
            urgency: Urgency::Sync,
            after: &[],
            barrier: false,
            stream: None,
            user_data: 0,
        }
    }

    /// Sets the caller's value.
    #[must_use]
    pub fn user_data(mut self, user_data: u64) -> Self {
        self.user_data = user_data;
        self
    }

    /// Makes it use the reservation of `stream`.
    #[must_use]
    pub fn on(mut self, stream: &'a Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Gives it memory for the rest of the track after its range.
    #[must_use]
    pub(crate) fn ahead(mut self, memory: Option<Segments>) -> Self {
        self.ahead = memory;
        self
    }

    /// Makes it one that no thread waits for.
    #[must_use]
    pub fn asynchronous(mut self) -> Self {
        self.urgency = Urgency::Async;
        self
    }
}

/// The reason why a request was refused.
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
        /// The requested offset in bytes.
        offset: u64,
        /// The requested length in bytes.
        len: u64,
    },
    /// Not whole sectors.
    #[error("{what} is {bytes} B; it must be a multiple of {}", Bytes(*.alignment))]
    Misaligned {
        /// The parameter.
        what: &'static str,
        /// Its value in bytes.
        bytes: u64,
        /// The required alignment in bytes.
        alignment: u64,
    },
    /// The memory does not have the request's length, is missing, or came with an operation that takes none.
    #[error("the request is for {len} B, but its memory has {memory} B")]
    LengthMismatch {
        /// The size of the memory in bytes.
        memory: u64,
        /// The request's length in bytes.
        len: u64,
    },
    /// The memory was pinned for a transfer in the other direction.
    #[error("the memory was pinned for the other direction")]
    WrongDirection,
    /// A transfer longer than [`REQUEST_BYTES_MAX`].
    #[error("the request is for {}; the maximum is {REQUEST_BYTES_MAX}", Bytes(*.bytes))]
    TooLarge {
        /// The request's length in bytes.
        bytes: u64,
    },
    /// Nothing to transfer.
    #[error("the request is empty")]
    Empty,
    /// A buffer that belongs to another client.
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
    /// The stream has another direction or volume, or the range is not within one of its blocks.
    #[error("stream {stream:?} is reserved to {reserved}; this request is {asked}")]
    NotOfStream {
        /// The stream's name.
        stream: String,
        /// Description of the reservation.
        reserved: String,
        /// Description of the request.
        asked: String,
    },
    /// More entries in `after` than [`AFTER_MAX`].
    #[error("the request depends on {given} earlier requests; the maximum is {AFTER_MAX}")]
    TooManyAfter {
        /// The number of entries.
        given: usize,
    },
    /// The client's limit of requests in flight is reached.
    #[error("the client has {limit} requests in flight, the maximum; poll for completions first")]
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The host could not make data of the volume durable. Acknowledged data may be lost, and further writes
    /// would hide that.
    #[error("volume {volume:?} takes no more writes until the pool is opened again: {reason}")]
    Poisoned {
        /// The volume's name.
        volume: String,
        /// The failure.
        reason: String,
    },
    /// The pool is closed.
    #[error("the pool is closed")]
    Closed,
}
