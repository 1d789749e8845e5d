//! An archive: a volume that holds recordings, one after another, as a ring.
//!
//! What is on the volume is said in [`block`](super::block). An archive is opened without reading more of it than a few
//! trailers: the newest block is found by bisection, and each recording's last block names its first. Where a recording
//! is played from a time on, its [index] names the block; those of a group that has none yet are bisected.
//!
//! A volume becomes an archive when something is first recorded on it, if it is blank. One that holds something else is
//! left alone.

mod deletion;
mod error;
mod finding;
mod listeners;
mod outline;
mod rebuilding;
mod resizing;
mod sections;
mod writing;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use engine::buffer::Buffer;
use engine::event::EventFd;
use engine::front::{Client, VolumeOp, VolumeRequest};
use engine::pool::Volume;
use engine::stream::{Changer, Stream};
use sched::units::{Bytes, Time};

use super::block::{BLOCK_BYTES, Block, FormatError, HEADER_BYTES, Header, Trailer};
use super::geometry::Geometry;
use super::index::{self, GROUP, Index};
use super::keeping::{COPIES_AT, COPY_BYTES, Gone, Keep, Kept, RANGES_MAX};
use super::retention::Looks;
use super::wall;

pub use error::ArchiveError;
use finding::{Reader, newest, recordings};
use listeners::Listeners;
use outline::Known;
pub use outline::{Group, Window, groups_in};
pub use resizing::Standing;
use sections::Sections;
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
    /// What the index says so far of the group that is being recorded, and of which recording it is.
    so_far: Option<(u64, Arc<Index>)>,
    /// What is known of each recording as a whole, by its number.
    known: HashMap<u64, Known>,
    /// Who is told of each block and of the end.
    listeners: Listeners,
}

impl State {
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
    kept: Mutex<Kept>,
    /// Locked while places are discarded.
    writer: Mutex<Writer>,
    /// Nothing is pending any more.
    settled: Condvar,
    /// Held by who makes the ring longer or shorter.
    resizing: Mutex<()>,
    /// Who looks at it.
    looks: Option<Arc<Looks>>,
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
    /// Whether a volume is one for recordings, whatever has become of them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_in(client: &Client, volume: &Volume) -> Result<bool, ArchiveError> {
        let bytes = Self::head(client, volume)?;
        Ok(!matches!(Header::parse(&bytes), Err(FormatError::NotOne)))
    }

    /// What a volume begins with.
    fn head(client: &Client, volume: &Volume) -> Result<[u8; HEADER_BYTES], ArchiveError> {
        let mut bytes = [0; HEADER_BYTES];
        Self::read_head(client, volume, &mut bytes)?;
        Ok(bytes)
    }

    fn read_head(client: &Client, volume: &Volume, to: &mut [u8]) -> Result<(), ArchiveError> {
        let read = client.read_at(volume, Bytes::ZERO, to);
        read.map_err(|error| ArchiveError::Io {
            volume: volume.name().to_owned(),
            error,
        })
    }

    /// Whether nothing was written to a volume, or what was is discarded. Zeros in its first chunk, which is what is told
    /// of at least, are nothing: they may be what a crash has left of an archive that was being made.
    fn is_blank(client: &Client, volume: &Volume) -> Result<bool, ArchiveError> {
        let size = volume.size().get();
        // More than this is no whole volume, or more than a chunk at its beginning.
        let runs = volume.block_status(0..size, 2);
        let written = match &runs[..] {
            [all] if all.bytes.end == size => (!all.hole).then_some(&all.bytes),
            [first, rest] if rest.bytes.end == size && rest.hole => Some(&first.bytes),
            _ => return Ok(false),
        };
        let Some(written) = written else {
            return Ok(true);
        };
        if written.end > CHUNK_BYTES_MAX {
            return Ok(false);
        }
        let mut bytes = vec![0; written.end as usize];
        Self::read_head(client, volume, &mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == 0))
    }

    /// What has been recorded in a volume.
    ///
    /// # Errors
    /// When that is nothing, or something else.
    pub fn open(client: &Client, volume: Arc<Volume>) -> Result<Self, ArchiveError> {
        let name = || volume.name().to_owned();
        let bytes = Self::head(client, &volume)?;
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(FormatError::NotOne) if Self::is_blank(client, &volume)? => {
                return Err(ArchiveError::Empty(name()));
            }
            Err(FormatError::NotOne) => return Err(ArchiveError::Foreign(name())),
            Err(error) => {
                return Err(ArchiveError::Header {
                    volume: name(),
                    error,
                });
            }
        };
        let reader = Reader {
            client,
            volume: &volume,
            header,
            geometry: Geometry::new(header.blocks),
        };
        let (kept, is_ring_twice) = reader.kept()?;
        let geometry = kept.geometry.unwrap_or(reader.geometry);
        let blocks = geometry.blocks.checked_add(1);
        let needed = blocks.and_then(|blocks| blocks.checked_mul(header.block_bytes));
        let needed = Bytes(needed.unwrap_or(u64::MAX));
        if volume.size() < needed {
            return Err(ArchiveError::Short {
                volume: name(),
                size: volume.size(),
                needed,
            });
        }
        let reader = Reader { geometry, ..reader };
        let serial_in = |place: u64| {
            let found = reader.trailer_in(place)?.map(|of| of.serial);
            Ok(found.or_else(|| kept.gone.in_place(place, &geometry)))
        };
        let newest = newest(&geometry, serial_in)?;
        let next = newest.map_or(0, |newest| newest + 1).max(kept.gone.end());
        let recordings = recordings(next, &geometry, &kept.gone, |place| {
            reader.trailer_in(place)
        })?;
        let archive = Self::new(volume, header, kept, next, recordings);
        archive.state().is_ring_twice = is_ring_twice;
        Ok(archive)
    }

    fn new(
        volume: Arc<Volume>,
        header: Header,
        kept: Kept,
        next: u64,
        recordings: Vec<Recording>,
    ) -> Self {
        let state = State {
            next,
            recordings,
            is_recorded: false,
            number: 0,
            last_number: kept.last_number,
            gone: kept.gone.clone(),
            is_ring_twice: true,
            geometry: kept.geometry.unwrap_or(Geometry::new(header.blocks)),
            begun: None,
            recorder: None,
            look_at: None,
            most: blocks_of(kept.keep, &header),
            sections: Sections::default(),
            so_far: None,
            known: HashMap::new(),
            listeners: Listeners::default(),
        };
        Self {
            volume,
            header,
            state: Mutex::new(state),
            kept: Mutex::new(kept),
            writer: Mutex::new(Writer {
                next,
                is_looked_at: false,
                pending: None,
            }),
            settled: Condvar::new(),
            resizing: Mutex::default(),
            looks: None,
            reads: AtomicU64::new(0),
        }
    }

    /// The same, which makes a blank volume one with blocks of this size.
    ///
    /// # Errors
    /// When it holds something else, or has no room.
    pub fn open_or_create(
        client: &Client,
        volume: Arc<Volume>,
        block: Bytes,
    ) -> Result<Self, ArchiveError> {
        match Self::open(client, Arc::clone(&volume)) {
            Err(ArchiveError::Empty(_)) => {}
            other => return other,
        }
        debug_assert!(BLOCK_BYTES.contains(&block.get()) && block.get().is_power_of_two());
        let blocks = even(&volume, volume.size().get() / block.get(), block.get());
        if blocks < BLOCKS_MIN {
            return Err(ArchiveError::Small {
                volume: volume.name().to_owned(),
                block,
                needed: Bytes((BLOCKS_MIN + 1) * block.get()),
            });
        }
        let mut archive = [0; 16];
        // A number that nobody else has: without one, what was there before could be taken for its blocks.
        let random = rustix::rand::getrandom(&mut archive, rustix::rand::GetRandomFlags::empty());
        debug_assert_eq!(random, Ok(16));
        let header = Header {
            archive,
            block_bytes: block.get(),
            blocks,
        };
        let failed = |error| ArchiveError::Io {
            volume: volume.name().to_owned(),
            error,
        };
        let written = client.write_at(&volume, Bytes::ZERO, &header.encode());
        written.map_err(failed)?;
        client.flush(&volume).map_err(failed)?;
        let kept = Kept {
            archive,
            ..Kept::default()
        };
        Ok(Self::new(volume, header, kept, 0, Vec::new()))
    }

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

    fn kept(&self) -> MutexGuard<'_, Kept> {
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
        let oldest = state.oldest();
        let there = state.recordings.iter().filter_map(|of| {
            let first = state.gone.after(of.first.max(oldest));
            (first < of.end).then_some(Recording { first, ..*of })
        });
        there.collect()
    }

    /// A recording by its number, or the newest.
    #[must_use]
    pub fn recording(&self, number: Option<u64>) -> Option<Recording> {
        let recordings = self.recordings();
        match number {
            None => recordings.last().copied(),
            Some(number) => recordings.into_iter().find(|of| of.number == number),
        }
    }

    /// Whether the newest recording goes on.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.state().is_recorded
    }

    /// Whether a recording is the one that is being made.
    #[must_use]
    pub fn goes_on(&self, recording: &Recording) -> bool {
        let state = self.state();
        let newest = state.recordings.last();
        state.is_recorded && newest.is_some_and(|newest| newest.number == recording.number)
    }

    /// Whether a recording goes on, or did when it was looked up: there is more of it than was known then.
    #[must_use]
    pub fn went_on(&self, recording: &Recording) -> bool {
        let state = self.state();
        let is_it = |of: &&Recording| of.number == recording.number;
        let newest = state.recordings.last().filter(is_it);
        let now = state.recordings.iter().rfind(is_it);
        (state.is_recorded && newest.is_some()) || now.is_some_and(|now| now.end > recording.end)
    }

    /// An event that is signalled when a block was written and when the recording ends, as long as it is kept.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn listen(&self) -> io::Result<Arc<EventFd>> {
        self.state().listeners.add()
    }

    /// A block of it, read without a deadline; `None`: it is not there any more, or damaged.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_block(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Vec<u8>>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(client);
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        let size = self.header.block_bytes;
        let mut bytes = vec![0; size as usize];
        if let Err(error) = reader.read((place + 1) * size, &mut bytes) {
            return self.unless_cut(&reader, error);
        }
        Ok(self.looked_at(&bytes, serial).then_some(bytes))
    }

    /// The same into one of the buffers of the stream that is to play it, where it stays.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_for(&self, stream: &Stream, serial: u64) -> Result<Option<Buffer>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(stream.client());
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        let size = self.header.block_bytes;
        let buffer = match reader.read_whole((place + 1) * size, size) {
            Ok(buffer) => buffer,
            Err(error) => return self.unless_cut(&reader, error),
        };
        let looked_at = buffer.with(|bytes| self.looked_at(bytes, serial));
        let is_it = looked_at.map_err(|error| reader.failed(error.into()))?;
        Ok(is_it.then_some(buffer))
    }

    /// Whether bytes that were read are the block of this serial, whose section is kept then.
    fn looked_at(&self, bytes: &[u8], serial: u64) -> bool {
        let block = Block::parse(bytes).ok();
        let Some(block) = block.filter(|block| self.is_of(&block.trailer, serial)) else {
            return false;
        };
        if let Ok(section) = Index::parse(block.index()) {
            self.keep(block.trailer.recording, serial, Some(Arc::new(section)));
        }
        true
    }

    /// What a block says that was read [for a stream](Self::read_for).
    ///
    /// # Errors
    /// When its memory was taken back.
    pub fn look_into<R>(
        &self,
        buffer: &Buffer,
        reader: impl FnOnce(&Block<'_>) -> R,
    ) -> Result<Option<R>, ArchiveError> {
        let read = buffer.with(|bytes| Block::parse(bytes).ok().map(|block| reader(&block)));
        read.map_err(|error| ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error: error.into(),
        })
    }

    /// Whether a block that was read is the one of this serial.
    #[must_use]
    pub fn is_of(&self, trailer: &Trailer, serial: u64) -> bool {
        trailer.archive == self.header.archive && trailer.serial == serial
    }

    fn reader<'a>(&'a self, client: &'a Client) -> Reader<'a> {
        Reader {
            client,
            volume: &self.volume,
            header: self.header,
            geometry: self.geometry(),
        }
    }

    /// A place that could not be read has nothing that counts if the ring has become another one meanwhile: the volume
    /// may be shorter.
    fn unless_cut<T>(
        &self,
        reader: &Reader<'_>,
        error: ArchiveError,
    ) -> Result<Option<T>, ArchiveError> {
        match self.geometry() == reader.geometry {
            true => Err(error),
            false => Ok(None),
        }
    }

    /// How often it was read without a deadline.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What the trailer of a block says; `None`: it is not there any more, or damaged.
    pub(super) fn trailer(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Trailer>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(client);
        let Some(place) = reader.geometry.place(serial) else {
            return Ok(None);
        };
        match reader.trailer_in(place) {
            Ok(found) => Ok(found.filter(|of| of.serial == serial)),
            Err(error) => self.unless_cut(&reader, error),
        }
    }
}

/// Of so many blocks more than is kept is gone.
fn blocks_of(keep: Keep, header: &Header) -> Option<u64> {
    let size = keep.size?;
    Some((size.get() / header.block_bytes).max(BLOCKS_MIN))
}

#[cfg(test)]
mod tests;
