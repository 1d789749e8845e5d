//! An archive: a volume whose blocks form a ring and hold recordings one after another.
//!
//! The on-disk format is described in [`block`]. Opening an archive reads only a few trailers: the newest
//! block is found by bisection, and the last block of each recording names its first. The [index] finds the
//! block of a time in a recording. Groups of blocks whose section of the index does not exist yet are
//! bisected.
//!
//! A blank volume becomes an archive when something is first recorded on it. A volume with other content is
//! left alone.

pub mod archives;
pub mod block;
pub mod check;
pub mod deleted_ranges;
mod deletion;
pub(crate) mod drift;
mod error;
mod finding;
pub mod fitting;
mod frames;
pub mod gap;
pub mod geometry;
pub(crate) mod growth;
pub mod index;
mod listeners;
pub mod locks;
mod opening;
mod outline;
mod reading;
mod rebuilding;
mod resizing;
pub mod retention;
pub mod retention_record;
mod sections;
pub mod start;
pub mod timeline;
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
use crate::archive::deleted_ranges::DeletedRanges;
use crate::archive::gap::GapCause;
use crate::archive::geometry::Geometry;
use crate::archive::index::{GROUP, Index};
use crate::archive::retention::RetentionSchedule;
use crate::archive::retention_record::{
    COPIES_AT, COPY_BYTES, RANGES_MAX, RetentionLimits, RetentionRecord,
};

use crate::sdp::Description;
pub use error::ArchiveError;
use finding::{Reader, find_newest, find_recordings};
pub use frames::{FRAMES_MAX, Frame, Frames};
use listeners::Listeners;
pub(crate) use opening::ArchiveContents;
use outline::RecordingCache;
pub use outline::{Group, Window, groups_in};
pub use resizing::RingState;
use sections::Sections;
pub use walking::End;
use writing::RecordingListener;
pub use writing::{ActiveRecording, PlaceAllocator, RecordingChange};

/// Bytes that are read for a trailer: a whole sector of every drive.
const TRAILER_READ_BYTES: u64 = 4_096;

/// Places behind the newest block that are examined as well: a crash may have left blocks out of order that
/// were being written, and one of them may be damaged.
const LOOK_BEHIND: u64 = 8;

/// Smallest ring, in blocks.
pub const BLOCKS_MIN: u64 = 4;

/// Largest chunk: the pool has one bit for each that tells if it was written.
const CHUNK_BYTES_MAX: u64 = 2 << 20;

/// Blocks that are discarded at a time: the recorder waits no longer than for this many.
const DISCARD_BLOCKS: u64 = 1_024;

/// A recording, as far as its blocks have not been deleted or overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Number, from 1.
    pub number: u64,
    /// Serial of its first remaining block.
    pub first: u64,
    /// Serial after its last block.
    pub end: u64,
    /// Start time in nanoseconds since 1970.
    pub begun_unix_ns: u64,
}

#[derive(Debug)]
struct State {
    /// Serial of the next block to become readable.
    next: u64,
    /// In order of their serials.
    recordings: Vec<Recording>,
    is_recorded: bool,
    /// Number of the recording that is being made, or was made last.
    number: u64,
    /// Number of the recording that began last, and its start on the monotonic clock.
    last_begin: Option<(u64, Time)>,
    /// Highest number among recordings that were deleted before the archive was opened.
    last_number: u64,
    deleted: DeletedRanges,
    /// True if both copies of the retention record have the current geometry.
    is_geometry_in_both_copies: bool,
    /// Changed only with `writer` locked.
    geometry: Geometry,
    /// Handle to the stream of the active recording.
    recorder: Option<Changer>,
    /// Serial at which the writer requests a check of the ring's length.
    check_at: Option<u64>,
    /// Most blocks that are retained, by the size limit.
    blocks_max: Option<u64>,
    sections: Sections,
    /// Sections in the making, with the number of their recording: for the group that is being recorded, and
    /// for earlier groups that are not completely on the disks.
    so_far: VecDeque<(u64, Arc<Index>)>,
    /// Outlines of the recordings that have been read, by their numbers.
    caches: HashMap<u64, RecordingCache>,
    /// Signalled for each block and at the end of a recording.
    listeners: Listeners,
    /// Why the last recording ended, if it ended since the archive was opened.
    last_end: Option<GapCause>,
    /// The number and the description of the recording that was begun last, if it was begun since the archive was
    /// opened.
    described: Option<(u64, Arc<Description>)>,
}

impl State {
    fn active_number(&self) -> Option<u64> {
        self.is_recorded.then_some(self.number)
    }

    /// The part of a recording that remains, if any does.
    fn remaining(&self, recording: &Recording) -> Option<Recording> {
        let first = self.deleted.first_kept(recording.first.max(self.oldest()));
        (first < recording.end).then_some(Recording {
            first,
            ..*recording
        })
    }

    /// The oldest serial that is neither overwritten nor beyond the size limit.
    fn oldest(&self) -> u64 {
        let oldest = self.geometry.oldest(self.next);
        let by_size = self
            .blocks_max
            .map(|max| self.deleted.oldest_within(self.next, max));
        oldest.max(by_size.unwrap_or(0))
    }
}

/// Position of the active recording's writer.
#[derive(Debug)]
struct Writer {
    /// Serial after the last one that was handed to the disks, or is about to be.
    next: u64,
    /// True while the retention thread decides if the ring becomes longer.
    is_check_pending: bool,
    /// The geometry that is being made durable: the writer waits before it uses a place that differs in it.
    pending: Option<Geometry>,
}

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    volume: Arc<Volume>,
    header: Header,
    state: Mutex<State>,
    /// The durable retention record; locked before `state`, also while `state` takes its values over.
    retention_record: Mutex<RetentionRecord>,
    /// Also locked while places are discarded.
    writer: Mutex<Writer>,
    /// Signalled when `pending` or `is_check_pending` of the writer changes.
    settled: Condvar,
    /// Held while the ring's length or the volume's is changed.
    resizing: Mutex<()>,
    /// Where checks of the ring's length are requested.
    schedule: Option<Arc<RetentionSchedule>>,
    /// Number of reads without a deadline.
    reads: AtomicU64,
}

/// Number of places, as [`Archive::balanced`], for the first `blocks` blocks of the volume, of which one is
/// the header.
fn balanced(volume: &Volume, blocks: u64, block_bytes: u64) -> u64 {
    if blocks <= BLOCKS_MIN + 1 {
        return blocks.saturating_sub(1);
    }
    let ring = volume.ring(block_bytes..blocks * block_bytes, Bytes(block_bytes));
    ((ring.end - ring.start) / block_bytes).max(BLOCKS_MIN)
}

impl Archive {
    /// The largest ring of at most `blocks` blocks whose wrap-around costs the disks no more than any other step: its
    /// last and its first block do not lie closer together on a disk than other neighbours do.
    #[must_use]
    pub fn balanced(&self, blocks: u64) -> u64 {
        balanced(
            &self.volume,
            blocks.saturating_add(1),
            self.header.block_bytes,
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each value is changed in one step, so the state is valid after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retention_record(&self) -> MutexGuard<'_, RetentionRecord> {
        // It is replaced as a whole, so it is valid after a panic.
        self.retention_record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The volume that it lies in.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The header, as it was when the archive was opened.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The byte range of the volume that the ring takes.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        let size = self.header.block_bytes;
        size..(self.geometry().blocks + 1) * size
    }

    /// The current geometry of the ring.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.state().geometry
    }

    /// Offset of a block in [`range`](Self::range); `None` if its serial is before the base of the ring.
    #[must_use]
    pub fn offset(&self, serial: u64) -> Option<Bytes> {
        let place = self.geometry().place(serial)?;
        Some(Bytes(place * self.header.block_bytes))
    }

    /// The remaining part of each recording, in order.
    #[must_use]
    pub fn recordings(&self) -> Vec<Recording> {
        let state = self.state();
        let remaining = state.recordings.iter().filter_map(|of| state.remaining(of));
        remaining.collect()
    }

    /// The remaining part of the recording with this number; of the newest one with `None`.
    #[must_use]
    pub fn recording(&self, number: Option<u64>) -> Option<Recording> {
        let state = self.state();
        let mut remaining = state
            .recordings
            .iter()
            .rev()
            .filter_map(|of| state.remaining(of));
        remaining.find(|of| number.is_none_or(|number| of.number == number))
    }

    /// True if no block of the beginning of a recording is gone.
    #[must_use]
    pub fn is_from_its_start(&self, recording: &Recording) -> bool {
        let state = self.state();
        let place = (state.recordings).partition_point(|of| of.number < recording.number);
        let whole = state.recordings.get(place);
        whole.is_some_and(|of| of.number == recording.number && of.first == recording.first)
    }

    /// True if a block was overwritten, or is about to be.
    #[must_use]
    pub fn is_overwritten(&self, serial: u64) -> bool {
        let writer = self.writer();
        serial < self.state().geometry.oldest(writer.next)
    }

    /// Serial of the first remaining block of a recording that is not about to be overwritten.
    #[must_use]
    pub fn first_there(&self, recording: &Recording) -> u64 {
        let writer = self.writer();
        let state = self.state();
        let oldest = state.geometry.oldest(writer.next).max(state.oldest());
        state.deleted.first_kept(recording.first.max(oldest))
    }

    /// True while a recording is being made.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.state().is_recorded
    }

    /// The description of a recording, if it was begun since the archive was opened and no other one was begun after it.
    #[must_use]
    pub fn described(&self, number: u64) -> Option<Arc<Description>> {
        let state = self.state();
        let described = state.described.as_ref().filter(|(of, _)| *of == number);
        described.map(|(_, description)| Arc::clone(description))
    }

    /// True if this recording is the one that is being made.
    #[must_use]
    pub fn goes_on(&self, recording: &Recording) -> bool {
        // Compared by number: the active recording may have no block yet.
        self.state().active_number() == Some(recording.number)
    }

    /// True if the recording is being made, or has got more blocks since `recording` was looked up.
    #[must_use]
    pub fn went_on(&self, recording: &Recording) -> bool {
        let state = self.state();
        let is_same = |of: &&Recording| of.number == recording.number;
        let current = state.recordings.iter().rfind(is_same);
        let is_active = state.active_number() == Some(recording.number);
        is_active || current.is_some_and(|current| current.end > recording.end)
    }

    /// An event that is signalled for each block that becomes readable, when blocks are deleted, and when the recording
    /// ends. Dropping it ends that.
    ///
    /// # Errors
    /// When the process has no free file descriptor.
    pub fn listen(&self) -> io::Result<Arc<EventFd>> {
        self.state().listeners.add()
    }
}

/// The size limit in blocks.
fn blocks_max(keep: RetentionLimits, header: &Header) -> Option<u64> {
    let size = keep.size?;
    Some((size.get() / header.block_bytes).max(BLOCKS_MIN))
}

#[cfg(test)]
mod tests;
