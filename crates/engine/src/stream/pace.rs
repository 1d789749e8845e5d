//! Moving a byte stream to or from a volume at a reserved pace.
//!
//! # Model
//!
//! A session moves one block in each period P = block / rate, with the buffers that its stream owns: two for
//! every disk that it touches. Its loop sleeps in one `poll` for the first of: the peer (source or sink), a
//! completed block, the pace, and [`Stop`].
//!
//! A *recorder* fills a buffer from its source and submits it no earlier than a period after the previous block.
//! While all buffers are in transfer it reads nothing, which slows the source down.
//!
//! A *player* submits a block each period, and plays it one disk period T and half a period later. The block has
//! arrived T after its submission; the half period lets a thread be woken late without a gap. The player does not
//! read further ahead, although it has buffers. Such requests would be early, would compete with best effort for
//! slack, and would give the stream nothing that it has reserved.
//!
//! A reservation with a time span is respected: the first block is submitted when it begins, and none after its
//! end. Data that a source has sent ahead by then is dropped; data that was read is played.
//!
//! A recorder makes its data durable every two seconds, at the same times as other recorders, so that their flush
//! rounds share a commit; and once more at the end.
//!
//! A peer that is late shifts everything after it: a rate is reserved, not a time of day.
//!
//! Deliberately absent: formats. A session moves bytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sched::units::{Bytes, Nanos, Time};

use crate::buffer::{BufferError, MemoryError};
use crate::event::EventFd;
use crate::volume_io::{IoFailure, SubmitError};

/// Ends sessions from another thread, at once and without polling. Clones share the signal.
#[derive(Clone, Debug)]
pub struct Stop(Arc<EventFd>);

impl Stop {
    /// A signal that is not set.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::new()?)))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sets the signal: all sessions that hold a clone end, current and future ones.
    pub fn stop(&self) {
        self.0.signal();
    }
}

/// The result of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BlockReport {
    /// Number of the block in the session, from 0. If blocks span several buffers, the number of its first buffer.
    pub index: u64,
    /// Number of its buffers: 1, unless blocks have become longer.
    pub buffers: u64,
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Its payload in bytes, without padding.
    pub bytes: u64,
    /// When it was submitted.
    pub submitted: Time,
    /// Its deadline; `None` for a block of holes, which is read from no disk.
    pub deadline: Option<Time>,
    /// When it was complete.
    pub completed: Time,
    /// Time past the deadline; zero when in time.
    pub late: Nanos,
    /// The same net of the host's own lateness.
    pub late_net: Nanos,
}

/// Statistics of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct PaceReport {
    /// Blocks completed.
    pub blocks: u64,
    /// Bytes moved from the source or to the sink.
    pub bytes: u64,
    /// Blocks that were late, net of the host's own lateness.
    pub misses: u64,
    /// Blocks that were late, whatever the cause.
    pub misses_gross: u64,
    /// The largest lateness of a block.
    pub late_max: Nanos,
    /// The same net of the host's own lateness.
    pub late_net_max: Nanos,
    /// Number of times that data was missing: a player's listener was owed a block that had not been read, or a
    /// recorder's source had not filled the block whose time had come. A block may miss its deadline without an
    /// underrun, and a late host can cause an underrun without a miss.
    pub underruns: u64,
    /// Number of times that the peer, not the disks, was not ready in time: a source without data, or a sink that
    /// does not read.
    pub waited_for_peer: u64,
    /// Durable bytes from the beginning of the session; zero for a player.
    pub durable_bytes: u64,
}

/// The reason why a session ended early.
#[derive(Debug, thiserror::Error)]
pub enum PaceError {
    /// The source or sink failed.
    #[error("the data connection failed: {0}")]
    Peer(#[source] std::io::Error),
    /// There was no memory for the session.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A buffer cannot be used.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A block was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A block was to be written outside of the stream's blocks.
    #[error("the stream has reserved no block at {} B of its range", .offset.0)]
    Place {
        /// The offset from the start of the range.
        offset: Bytes,
    },
    /// A block failed.
    #[error("block {index}: {failure}")]
    Io {
        /// The block's index.
        index: u64,
        /// The failure.
        failure: IoFailure,
    },
    /// The data could not be made durable.
    #[error("recorded data could not be made durable: {0}")]
    Flush(IoFailure),
    /// A session that writes would begin within a physical sector.
    #[error(
        "it would begin {offset} into the stream's range; that must be a multiple of {grain}, the drive's sectors"
    )]
    Offset {
        /// The requested start.
        offset: Bytes,
        /// The required alignment.
        grain: Bytes,
    },
    /// Bytes cannot be moved, because blocks have become longer.
    #[error(
        "the session moves blocks of {buffer}, the size at the stream's admission, but the block size was changed to {block}; change it back first"
    )]
    Block {
        /// The block size at admission, which is the buffer size.
        buffer: Bytes,
        /// The current block size.
        block: Bytes,
    },
    /// The stream has the other direction.
    #[error("the stream is reserved to {reserved}")]
    Direction {
        /// The stream's direction.
        reserved: &'static str,
    },
}

/// A descriptor in non-blocking mode; the previous mode is restored when this is dropped.
pub(super) struct NonBlocking<'a> {
    fd: BorrowedFd<'a>,
    before: Option<rustix::fs::OFlags>,
}

impl<'a> NonBlocking<'a> {
    pub(super) fn new(fd: BorrowedFd<'a>) -> io::Result<Self> {
        use rustix::fs::OFlags;
        let flags = rustix::fs::fcntl_getfl(fd)?;
        let before = (!flags.contains(OFlags::NONBLOCK)).then_some(flags);
        if before.is_some() {
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self { fd, before })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'a> {
        self.fd
    }
}

impl Drop for NonBlocking<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // This fails only for a closed descriptor, which has no mode.
            let _: Result<(), _> = rustix::fs::fcntl_setfl(self.fd, before);
        }
    }
}
