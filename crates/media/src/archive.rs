//! An archive: a volume that holds recordings, one after another, as a ring.
//!
//! What is on the volume is said in [`block`]. An archive is opened without reading more of it than a few
//! trailers: the newest block is found by bisection, and each recording's last block names its first. Where a recording
//! is played from a time on, its [index] names the block; those of a group that has none yet are bisected.
//!
//! A volume becomes an archive when something is first recorded on it, if it is blank. One that holds something else is
//! left alone.

pub mod archives;
pub mod block;
pub mod check;
mod deletion;
pub(crate) mod drift;
mod error;
mod finding;
mod frames;
pub mod geometry;
pub(crate) mod growth;
pub mod index;
mod listeners;
mod opening;
mod outline;
mod reading;
mod rebuilding;
mod resizing;
pub mod retention;
pub mod retention_record;
mod sections;
pub mod start;
mod walking;
pub mod wall_clock;
mod writing;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use engine::buffer::Buffer;
use engine::event::EventFd;
use engine::pool::Volume;
use engine::stream::{Changer, Stream};
use engine::volume_io::{Client, VolumeOp, VolumeRequest};
use sched::units::{Bytes, Time};

use crate::archive::block::{BLOCK_BYTES, Block, FormatError, HEADER_BYTES, Header, Trailer};
use crate::archive::geometry::Geometry;
use crate::archive::index::{GROUP, Index};
use crate::archive::retention::RetentionSchedule;
use crate::archive::retention_record::{
    COPIES_AT, COPY_BYTES, Gone, RANGES_MAX, RetentionLimits, RetentionRecord,
};

pub use error::ArchiveError;
use finding::{Reader, newest, recordings};
pub use frames::{FRAMES_MAX, Frame, Frames};
use listeners::Listeners;
pub(crate) use opening::Before;
use outline::Known;
pub use outline::{Group, Window, groups_in};
pub use resizing::Standing;
use sections::Sections;
pub use walking::End;
pub use writing::{Placer, Writing};

/// Trailers are read in so many bytes, which any drive reads whole.
const TRAILER_READ_BYTES: u64 = 4_096;

/// Behind the newest block so many are looked at: blocks that were being written when the server died may have come out
/// of order, and one may be damaged.
const LOOK_BEHIND: u64 = 8;

/// The fewest blocks that are an archive.
pub const BLOCKS_MIN: u64 = 4;

/// The most bytes of which one bit says whether they were written.
const CHUNK_BYTES_MAX: u64 = 2 << 20;

/// So many blocks are discarded at a time: whoever records waits no longer than for that.
const DISCARD_BLOCKS: u64 = 1_024;

/// A recording of an archive, as much of it as is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Its number, from 1.
    pub number: u64,
    /// The serial of its first block that is there.
    pub first: u64,
    /// The serial after its last block.
    pub end: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
}

#[derive(Debug)]
struct State {
    /// The serial of the next block.
    next: u64,
    /// In order.
    recordings: Vec<Recording>,
    is_recorded: bool,
    /// The number of the recording that is made, or was made last.
    number: u64,
    /// The number of the recording that was begun last, and when that was by the clock that nobody sets.
    begun: Option<(u64, Time)>,
    /// The highest number of those that were deleted before it was opened.
    last_number: u64,
    /// What was deleted.
    gone: Gone,
    /// Whether both copies of what is kept say how long the ring is.
    is_ring_twice: bool,
    /// The ring, which becomes another one under the lock of the writer.
    geometry: Geometry,
    /// The stream of who records.
    recorder: Option<Changer>,
    /// Whoever sees to the ring's length looks when this serial is handed to the disks.
    look_at: Option<u64>,
    /// No more blocks than these are kept.
    most: Option<u64>,
    sections: Sections,
    /// What the index says so far of the group that is being recorded, and of those before it that have not been written to
    /// their ends, and of which recording they are.
    so_far: VecDeque<(u64, Arc<Index>)>,
    /// What is known of each recording as a whole, by its number.
    known: HashMap<u64, Known>,
    /// Who is told of each block and of the end.
    listeners: Listeners,
}

impl State {
    /// The number of the recording that is made.
    fn number_made(&self) -> Option<u64> {
        self.is_recorded.then_some(self.number)
    }

    /// A recording, as much of it as is there.
    fn there(&self, of: &Recording) -> Option<Recording> {
        let first = self.gone.after(of.first.max(self.oldest()));
        (first < of.end).then_some(Recording { first, ..*of })
    }

    /// The oldest serial that it has, or is to have.
    fn oldest(&self) -> u64 {
        let oldest = self.geometry.oldest(self.next);
        let most = self.most.map(|most| self.gone.oldest_of(self.next, most));
        oldest.max(most.unwrap_or(0))
    }
}

/// How far whoever records has come.
#[derive(Debug)]
struct Writer {
    /// The serial after the last one that goes to the disks, or is about to.
    next: u64,
    /// It has come so far that it is being looked at, to make the ring longer if that may be.
    is_looked_at: bool,
    /// The ring as it is about to be: places that are other ones there are not used.
    pending: Option<Geometry>,
}

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    volume: Arc<Volume>,
    header: Header,
    state: Mutex<State>,
    /// What is on the disks of it; locked before the state, and while it is changed there.
    kept: Mutex<RetentionRecord>,
    /// Locked while places are discarded.
    writer: Mutex<Writer>,
    /// Nothing is pending any more.
    settled: Condvar,
    /// Held by who makes the ring longer or shorter.
    resizing: Mutex<()>,
    /// Who looks at it.
    looks: Option<Arc<RetentionSchedule>>,
    /// Reads without a deadline.
    reads: AtomicU64,
}

/// As [`Archive::even`], of the volume's first so many blocks of this size, of which the first is no place.
fn even(volume: &Volume, blocks: u64, block_bytes: u64) -> u64 {
    if blocks <= BLOCKS_MIN + 1 {
        return blocks.saturating_sub(1);
    }
    let ring = volume.ring(block_bytes..blocks * block_bytes, Bytes(block_bytes));
    ((ring.end - ring.start) / block_bytes).max(BLOCKS_MIN)
}

impl Archive {
    /// As many blocks of so many, behind the first place of a volume, as make a ring that takes no more of the disks where it
    /// begins anew than anywhere else.
    #[must_use]
    pub fn even(&self, blocks: u64) -> u64 {
        even(
            &self.volume,
            blocks.saturating_add(1),
            self.header.block_bytes,
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers and lists, each changed in one step: valid after any panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, RetentionRecord> {
        // It is replaced as a whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// What its header says.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The bytes of the volume that its blocks lie in now.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        let size = self.header.block_bytes;
        size..(self.geometry().blocks + 1) * size
    }

    /// The ring as it is now.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.state().geometry
    }

    /// Where in that range the block of a serial lies; `None`: it does not count any more.
    #[must_use]
    pub fn offset(&self, serial: u64) -> Option<Bytes> {
        let place = self.geometry().place(serial)?;
        Some(Bytes(place * self.header.block_bytes))
    }

    /// Its recordings in order, as much of each as is there.
    #[must_use]
    pub fn recordings(&self) -> Vec<Recording> {
        let state = self.state();
        let there = state.recordings.iter().filter_map(|of| state.there(of));
        there.collect()
    }

    /// A recording by its number, or the newest.
    #[must_use]
    pub fn recording(&self, number: Option<u64>) -> Option<Recording> {
        let state = self.state();
        let mut there = state
            .recordings
            .iter()
            .rev()
            .filter_map(|of| state.there(of));
        there.find(|of| number.is_none_or(|number| of.number == number))
    }

    /// Whether something else lies where this block was, or is about to.
    #[must_use]
    pub fn is_overwritten(&self, serial: u64) -> bool {
        let writer = self.writer();
        serial < self.state().geometry.oldest(writer.next)
    }

    /// The first block that is there of a recording, where nothing is about to be written.
    #[must_use]
    pub fn first_there(&self, recording: &Recording) -> u64 {
        let writer = self.writer();
        let state = self.state();
        let oldest = state.geometry.oldest(writer.next).max(state.oldest());
        state.gone.after(recording.first.max(oldest))
    }

    /// Whether the newest recording goes on.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.state().is_recorded
    }

    /// Whether a recording is the one that is being made.
    #[must_use]
    pub fn goes_on(&self, recording: &Recording) -> bool {
        // The next one may have begun, of which no block is there yet.
        self.state().number_made() == Some(recording.number)
    }

    /// Whether a recording goes on, or did when it was looked up: there is more of it than was known then.
    #[must_use]
    pub fn went_on(&self, recording: &Recording) -> bool {
        let state = self.state();
        let is_it = |of: &&Recording| of.number == recording.number;
        let now = state.recordings.iter().rfind(is_it);
        let goes_on = state.number_made() == Some(recording.number);
        goes_on || now.is_some_and(|now| now.end > recording.end)
    }

    /// An event that is signalled when a block was written and when the recording ends, as long as it is kept.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn listen(&self) -> io::Result<Arc<EventFd>> {
        self.state().listeners.add()
    }
}

/// Of so many blocks more than is kept is gone.
fn blocks_of(keep: RetentionLimits, header: &Header) -> Option<u64> {
    let size = keep.size?;
    Some((size.get() / header.block_bytes).max(BLOCKS_MIN))
}

#[cfg(test)]
mod tests;
