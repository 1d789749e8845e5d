//! Moving a byte stream to or from a volume at a reserved pace.
//!
//! # Model
//!
//! A session moves block after block, one each period of P = block / rate, with the buffers that its
//! stream owns: two for every disk that it touches. Its loop sleeps in one `poll` for whatever comes
//! first of the peer (the source or sink), a completed block, the pace, and [`Stop`].
//!
//! A *recorder* fills a buffer from its source, and hands it to the disk not earlier than a period
//! after the block before. While every buffer is on its way to a disk it reads nothing, and the
//! source feels that. A *player* asks for a block each period, and plays it one disk period T and
//! half a period later. T after it was asked for the block is there; the half lets a thread be woken
//! late without a gap. It does not ask for more ahead than that although it has the buffers: such
//! requests would be early, compete with best effort for slack, and give the stream nothing that it
//! has reserved.
//!
//! A reservation with a time span is kept to: the first block is handed over when it begins, none is
//! after it has ended. What a source had sent ahead by then is dropped; what was read is played.
//!
//! A recorder has what is on the disks made durable every two seconds, at the same instants as other
//! recorders, whose rounds then share a commit, and all of it before it ends.
//!
//! A peer that is late moves everything after it: what was reserved is a rate, not a time of day.
//!
//! Deliberately absent: formats. A session moves bytes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sched::units::{Bytes, Nanos, Time};

use crate::buffer::{BufferError, MemoryError};
use crate::event::EventFd;
use crate::volume_io::{IoFailure, SubmitError};

/// Ends sessions from another thread, at once and without polling. Clones are the same signal.
#[derive(Clone, Debug)]
pub struct Stop(Arc<EventFd>);

impl Stop {
    /// A signal that nobody has given yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::new()?)))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Gives the signal; sessions that hold a clone end, now and later.
    pub fn stop(&self) {
        self.0.signal();
    }
}

/// How one block fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BlockReport {
    /// Which block of the session, from 0; of blocks in several buffers which buffer, as all of them are counted.
    pub index: u64,
    /// In how many buffers it is: 1, unless blocks have become longer.
    pub buffers: u64,
    /// Where in the volume, in bytes.
    pub offset: u64,
    /// How many bytes of it are the stream's.
    pub bytes: u64,
    /// When it was handed to the disks.
    pub submitted: Time,
    /// When it was due; `None` for a block of holes, which is read from no disk.
    pub deadline: Option<Time>,
    /// When it was complete.
    pub completed: Time,
    /// How much later than due; zero when in time.
    pub late: Nanos,
    /// The same without the host's own lateness.
    pub late_net: Nanos,
}

/// What a session did.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct PaceReport {
    /// Blocks done.
    pub blocks: u64,
    /// Bytes moved from the source or to the sink.
    pub bytes: u64,
    /// Blocks that were late net of the host's own lateness.
    pub misses: u64,
    /// Blocks that were late with it.
    pub misses_gross: u64,
    /// The worst lateness of a block.
    pub late_max: Nanos,
    /// The same net of the host's own lateness.
    pub late_net_max: Nanos,
    /// How often there was nothing to go on with: a player's listener was owed a block that had not
    /// been read yet, a recorder's source had not filled the block whose turn it was. A block may
    /// miss its deadline without one, and a late host can cause one although none was missed.
    pub underruns: u64,
    /// How often the byte stream, not the disks, was not ready in time: a source without data, a
    /// sink that does not read.
    pub waited_for_peer: u64,
    /// Bytes from the beginning of the session that survive a power cut: zero for a player.
    pub durable_bytes: u64,
}

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
pub enum PaceError {
    /// The source or sink failed.
    #[error("the byte stream: {0}")]
    Peer(#[source] std::io::Error),
    /// There was no memory for the session.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A buffer could not be used.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A block was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A block was to be written where the stream has reserved none.
    #[error("the stream has reserved no block at {} B of its range", .offset.0)]
    Place {
        /// Where, from the beginning of the range.
        offset: Bytes,
    },
    /// A block failed.
    #[error("block {index}: {failure}")]
    Io {
        /// Which block.
        index: u64,
        /// Why.
        failure: IoFailure,
    },
    /// What was written could not be made durable.
    #[error("what was recorded cannot be kept for certain: {0}")]
    Flush(IoFailure),
    /// A session that writes would begin within a physical sector.
    #[error(
        "it would begin {offset} into the stream's range; that must be a multiple of {grain}, the drive's sectors"
    )]
    Offset {
        /// Where it was to begin.
        offset: Bytes,
        /// What it has to be a multiple of.
        grain: Bytes,
    },
    /// A stream of bytes whose blocks have become longer.
    #[error(
        "bytes are moved in blocks of {buffer}, as the stream reserved them at first, and now they are of {block}: change them back before"
    )]
    Block {
        /// As at first.
        buffer: Bytes,
        /// What they are now.
        block: Bytes,
    },
    /// The stream is of the other direction.
    #[error("the stream is reserved to {reserved}")]
    Direction {
        /// What it is reserved for.
        reserved: &'static str,
    },
}

/// A descriptor whose calls do not block, as it was before when this is dropped.
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
            // A descriptor that is gone needs no flags.
            let _: Result<(), _> = rustix::fs::fcntl_setfl(self.fd, before);
        }
    }
}
