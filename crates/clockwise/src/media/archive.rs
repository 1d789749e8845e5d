//! An archive: a volume that holds recordings, one after another, as a ring.
//!
//! What is on the volume is said in [`block`](super::block). An archive is opened without reading more of it than a few
//! trailers: the newest block is found by bisection, and each recording's last block names its first. Where a recording
//! is played from a time on, its blocks are bisected in the same way.
//!
//! A volume becomes an archive when something is first recorded on it, if it is blank. One that holds something else is
//! left alone.

mod deletion;
mod sections;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::event::EventFd;
use engine::front::{Client, SyncError, VolumeOp, VolumeRequest};
use engine::pool::Volume;
use sched::units::Bytes;

use super::block::{BLOCK_BYTES, Block, FormatError, HEADER_BYTES, Header, Trailer};
use super::index::{self, GROUP, Index};
use super::keeping::{COPIES_AT, COPY_BYTES, Gone, Keep, Kept, RANGES_MAX};
pub use sections::{Group, Window, groups_in};

/// Trailers are read in so many bytes, which any drive reads whole.
const TRAILER_READ_BYTES: u64 = 4_096;

/// Behind the newest block so many are looked at: blocks that were being written when the server died may have come out
/// of order, and one may be damaged.
const LOOK_BEHIND: u64 = 8;

/// The fewest blocks that are an archive.
const BLOCKS_MIN: u64 = 4;

/// So many blocks are discarded at a time: whoever records waits no longer than for that.
const DISCARD_BLOCKS: u64 = 1_024;

/// Why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The volume holds something that is no recording.
    #[error(
        "volume {0:?} holds something that is no recording; recordings need a volume of their own that nothing was written to"
    )]
    Foreign(String),
    /// Its header is damaged or of a later version.
    #[error("the header of the recordings in volume {volume:?}: {error}")]
    Header {
        /// The volume.
        volume: String,
        /// What is wrong.
        error: FormatError,
    },
    /// The volume is smaller than what it holds.
    #[error("volume {volume:?} has {size}, and the recordings in it need {needed}: was it shrunk?")]
    Short {
        /// The volume.
        volume: String,
        /// What it has.
        size: Bytes,
        /// What it should have.
        needed: Bytes,
    },
    /// The volume has no room for an archive.
    #[error(
        "volume {volume:?} is too small for recordings in blocks of {block}: it needs {needed}"
    )]
    Small {
        /// The volume.
        volume: String,
        /// The size of a block.
        block: Bytes,
        /// What it should have.
        needed: Bytes,
    },
    /// Nothing has been recorded yet.
    #[error("nothing has been recorded in volume {0:?}")]
    Empty(String),
    /// Somebody records there.
    #[error("volume {0:?} is being recorded to; end that recording first")]
    Busy(String),
    /// There is no such recording, or not any more.
    #[error("there is no recording {number} in volume {volume:?}")]
    NoSuch {
        /// The volume.
        volume: String,
        /// The recording.
        number: u64,
    },
    /// It is being made.
    #[error(
        "recording {number} in volume {volume:?} goes on; only one that has ended can be deleted"
    )]
    GoesOn {
        /// The volume.
        volume: String,
        /// The recording.
        number: u64,
    },
    /// There is no room to remember it.
    #[error(
        "volume {volume:?} remembers {RANGES_MAX} gaps where recordings were deleted, and has room for no more; delete recordings that lie next to those, the oldest first"
    )]
    Gaps {
        /// The volume.
        volume: String,
    },
    /// So little cannot be kept.
    #[error(
        "volume {volume:?} cannot keep less than {least} of recordings, which are {BLOCKS_MIN} blocks"
    )]
    LittleKept {
        /// The volume.
        volume: String,
        /// The least.
        least: Bytes,
    },
    /// It could not be read or written.
    #[error("volume {volume:?}: {error}")]
    Io {
        /// The volume.
        volume: String,
        /// Why.
        error: SyncError,
    },
}

/// So many sections of the index are kept.
const SECTIONS_KEPT: usize = 64;

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
    /// The highest number of those that were deleted before it was opened.
    last_number: u64,
    /// What was deleted.
    gone: Gone,
    /// No more blocks than these are kept.
    most: Option<u64>,
    /// Sections of the index by the serials of their blocks, those used last at the end; `None`: there is none.
    sections: VecDeque<(u64, Option<Arc<Index>>)>,
    /// Who is told of each block and of the end.
    listeners: Vec<Weak<EventFd>>,
}

impl State {
    /// The oldest serial that a ring of so many has, or is to have.
    fn oldest(&self, blocks: u64) -> u64 {
        let oldest = self.next.saturating_sub(blocks);
        let most = self.most.map(|most| self.gone.oldest_of(self.next, most));
        oldest.max(most.unwrap_or(0))
    }

    fn tell(&mut self) {
        self.listeners.retain(|listener| {
            let listener = listener.upgrade();
            if let Some(listener) = &listener {
                listener.signal();
            }
            listener.is_some()
        });
    }
}

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    volume: Arc<Volume>,
    header: Header,
    state: Mutex<State>,
    /// What is on the disks of it; locked before the state, and while it is changed there.
    kept: Mutex<Kept>,
    /// The serial after the last one that was handed to the disks; locked while places are discarded.
    claimed: Mutex<u64>,
    /// Reads without a deadline.
    reads: AtomicU64,
}

/// Reads a volume without a deadline.
struct Reader<'a> {
    client: &'a Client,
    volume: &'a Volume,
    header: Header,
}

impl Reader<'_> {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ArchiveError> {
        let read = self.client.read_at(self.volume, Bytes(offset), out);
        read.map_err(|error| ArchiveError::Io {
            volume: self.volume.name().to_owned(),
            error,
        })
    }

    /// What is remembered of it.
    fn kept(&self) -> Result<Kept, ArchiveError> {
        let mut copies = vec![0; 2 * COPY_BYTES];
        self.read(COPIES_AT[0], &mut copies)?;
        let (first, second) = copies.split_at(COPY_BYTES);
        let archive = self.header.archive;
        match Kept::newest(archive, [first, second]) {
            Err(FormatError::Damaged) => {
                let volume = self.volume.name();
                tracing::warn!(
                    volume,
                    "what was deleted there, and how long recordings are kept, is damaged in both copies and forgotten"
                );
                Ok(Kept {
                    archive,
                    ..Kept::default()
                })
            }
            found => found.map_err(|error| ArchiveError::Header {
                volume: self.volume.name().to_owned(),
                error,
            }),
        }
    }

    /// The trailer of the block in this place, if there is one of the archive.
    fn trailer_in(&self, place: u64) -> Result<Option<Trailer>, ArchiveError> {
        let mut bytes = [0; TRAILER_READ_BYTES as usize];
        let size = self.header.block_bytes;
        self.read((place + 2) * size - TRAILER_READ_BYTES, &mut bytes)?;
        let found = Trailer::parse(&bytes, size).ok();
        Ok(found.filter(|found| {
            found.archive == self.header.archive && found.serial % self.header.blocks == place
        }))
    }
}

/// The serial of the newest block of a ring of so many, given those of what is in each place.
fn newest<E>(
    blocks: u64,
    mut serial_in: impl FnMut(u64) -> Result<Option<u64>, E>,
) -> Result<Option<u64>, E> {
    // What begins or ends the ring may be damaged, was being overwritten, or has been deleted.
    let mut first = None;
    for place in 0..blocks.min(LOOK_BEHIND) {
        first = first.max(serial_in(place)?);
    }
    let mut last = None;
    for place in blocks - blocks.min(LOOK_BEHIND)..blocks {
        last = last.max(serial_in(place)?);
    }
    let Some(first) = first else {
        return Ok(last);
    };
    let round = first / blocks;
    if last.is_some_and(|last| last / blocks > round) {
        return Ok(last);
    }
    let mut in_round = |place: u64| {
        let of = serial_in(place)?;
        Ok(of.filter(|of| of / blocks == round))
    };
    let (mut newest, mut from, mut to) = (first, first % blocks, blocks);
    loop {
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            match in_round(middle)? {
                Some(of) => (newest, from) = (of, middle),
                None => to = middle,
            }
        }
        let mut further = None;
        for place in (from + 1)..blocks.min(from + 1 + LOOK_BEHIND) {
            further = in_round(place)?.map(|of| (of, place));
            if further.is_some() {
                break;
            }
        }
        match further {
            Some((of, place)) => (newest, from, to) = (of, place, blocks),
            None => return Ok(Some(newest)),
        }
    }
}

/// All recordings up to the block before `next` that were not deleted as a whole, in order.
fn recordings<E>(
    next: u64,
    blocks: u64,
    gone: &Gone,
    mut trailer_in: impl FnMut(u64) -> Result<Option<Trailer>, E>,
) -> Result<Vec<Recording>, E> {
    let oldest = next.saturating_sub(blocks);
    let mut recordings = Vec::new();
    let mut at = next;
    while let Some(serial) = at.checked_sub(1).filter(|serial| *serial >= oldest) {
        if let Some(range) = gone.range_of(serial) {
            at = range.start;
            continue;
        }
        let found = trailer_in(serial % blocks)?;
        // Blocks that are damaged are passed over.
        let Some(last) = found.filter(|found| found.serial == serial) else {
            at = serial;
            continue;
        };
        let first = last.first.max(oldest);
        recordings.push(Recording {
            number: last.recording,
            first,
            end: serial + 1,
            begun_unix_ns: last.begun_unix_ns,
        });
        at = first;
    }
    recordings.reverse();
    Ok(recordings)
}

impl Archive {
    /// What has been recorded in a volume.
    ///
    /// # Errors
    /// When that is nothing, or something else.
    pub fn open(client: &Client, volume: Arc<Volume>) -> Result<Self, ArchiveError> {
        let name = || volume.name().to_owned();
        let mut bytes = [0; HEADER_BYTES];
        let read = client.read_at(&volume, Bytes::ZERO, &mut bytes);
        read.map_err(|error| ArchiveError::Io {
            volume: name(),
            error,
        })?;
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(FormatError::NotOne) if bytes.iter().all(|byte| *byte == 0) => {
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
        let needed = Bytes((header.blocks + 1) * header.block_bytes);
        if volume.size() < needed {
            return Err(ArchiveError::Short {
                volume: name(),
                size: volume.size(),
                needed,
            });
        }
        let reader = Reader {
            client,
            volume: &volume,
            header,
        };
        let kept = reader.kept()?;
        let serial_in = |place: u64| {
            let found = reader.trailer_in(place)?.map(|of| of.serial);
            Ok(found.or_else(|| kept.gone.in_place(place, header.blocks)))
        };
        let newest = newest(header.blocks, serial_in)?;
        let next = newest.map_or(0, |newest| newest + 1).max(kept.gone.end());
        let recordings = recordings(next, header.blocks, &kept.gone, |place| {
            reader.trailer_in(place)
        })?;
        Ok(Self::new(volume, header, kept, next, recordings))
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
            most: blocks_of(kept.keep, &header),
            sections: VecDeque::new(),
            listeners: Vec::new(),
        };
        Self {
            volume,
            header,
            state: Mutex::new(state),
            kept: Mutex::new(kept),
            claimed: Mutex::new(next),
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
        let blocks = (volume.size().get() / block.get()).saturating_sub(1);
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

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers and lists, each changed in one step: valid after any panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claimed(&self) -> MutexGuard<'_, u64> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The bytes of the volume that its blocks lie in.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        let size = self.header.block_bytes;
        size..(self.header.blocks + 1) * size
    }

    /// Where in that range the block of a serial lies.
    #[must_use]
    pub fn offset(&self, serial: u64) -> Bytes {
        Bytes(serial % self.header.blocks * self.header.block_bytes)
    }

    /// Its recordings in order, as much of each as is there.
    #[must_use]
    pub fn recordings(&self) -> Vec<Recording> {
        let state = self.state();
        let oldest = state.oldest(self.header.blocks);
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

    /// An event that is signalled when a block was written and when the recording ends, as long as it is kept.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn listen(&self) -> io::Result<Arc<EventFd>> {
        let event = Arc::new(EventFd::new()?);
        self.state().listeners.push(Arc::downgrade(&event));
        Ok(event)
    }

    /// Takes the archive for a recording. Until it is dropped nobody else can have one made.
    ///
    /// # Errors
    /// When somebody else has.
    pub fn record(self: &Arc<Self>) -> Result<Writing, ArchiveError> {
        let mut state = self.state();
        if state.is_recorded {
            return Err(ArchiveError::Busy(self.volume.name().to_owned()));
        }
        state.is_recorded = true;
        let last = state.recordings.last().map_or(0, |last| last.number);
        let number = last.max(state.last_number) + 1;
        state.number = number;
        let first = state.next;
        drop(state);
        Ok(Writing {
            archive: Arc::clone(self),
            number,
            first,
            begun_unix_ns: 0,
            written: Vec::new(),
        })
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
        let mut bytes = vec![0; self.header.block_bytes as usize];
        reader.read(self.range().start + self.offset(serial).get(), &mut bytes)?;
        let block = Block::parse(&bytes).ok();
        let block = block.filter(|block| self.is_of(&block.trailer, serial));
        let section = block.filter(|block| !block.index().is_empty() || index::ends_group(serial));
        let is_it = block.is_some();
        if let Some(block) = section {
            self.keep(serial, Index::parse(block.index()).ok().map(Arc::new));
        }
        Ok(is_it.then_some(bytes))
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
        }
    }

    /// How often it was read without a deadline.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Keeps the section of the index that is in a block, or that it has none.
    pub(super) fn keep(&self, serial: u64, section: Option<Arc<Index>>) {
        let mut state = self.state();
        state.sections.retain(|(of, _)| *of != serial);
        if state.sections.len() == SECTIONS_KEPT {
            state.sections.pop_front();
        }
        state.sections.push_back((serial, section));
    }

    /// The section of the index that is in a block of a recording.
    pub(super) fn section(
        &self,
        client: &Client,
        recording: &Recording,
        serial: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        if !(recording.first..recording.end).contains(&serial) {
            return Ok(None);
        }
        let mut state = self.state();
        if let Some(place) = state.sections.iter().position(|(of, _)| *of == serial)
            && let Some(kept) = state.sections.remove(place)
        {
            let section = kept.1.clone();
            state.sections.push_back(kept);
            return Ok(section);
        }
        drop(state);
        let section = self.read_section(client, serial)?.map(Arc::new);
        self.keep(serial, section.clone());
        Ok(section)
    }

    /// The section of the index before another, if that one is not the first of its recording.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_before(
        &self,
        client: &Client,
        recording: &Recording,
        index: &Index,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        match index.first.checked_sub(1) {
            Some(serial) => self.section(client, recording, serial),
            None => Ok(None),
        }
    }

    /// The section of the index after another, as far as there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_after(
        &self,
        client: &Client,
        recording: &Recording,
        index: &Index,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        let group_end = (index.end() / GROUP + 1) * GROUP - 1;
        let serial = group_end.min(recording.end.saturating_sub(1));
        if serial < index.end() || (serial < group_end && self.goes_on(recording)) {
            return Ok(None);
        }
        self.section(client, recording, serial)
    }

    /// The section of the index that is about this time of a recording; `None`: that has to be found without.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn index_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<Option<Arc<Index>>, ArchiveError> {
        let Some(last) = recording.end.checked_sub(1) else {
            return Ok(None);
        };
        // The last block of what was ended has one, and the last one of each group.
        let group_end = |group: u64| (group + 1) * GROUP - 1;
        let newest = (last / GROUP).checked_sub(1).map(group_end);
        let mut section = None;
        if !self.goes_on(recording) || index::ends_group(last) {
            section = self.section(client, recording, last)?;
        }
        if section.is_none()
            && let Some(newest) = newest.filter(|newest| *newest < last)
        {
            section = self.section(client, recording, newest)?;
            // It is behind that.
            if let Some(found) = &section
                && found.begins_ns() <= media_ns
                && self.begins_by(client, found.end(), media_ns)?
            {
                return Ok(None);
            }
        }
        while let Some(found) = section {
            if found.begins_ns() <= media_ns {
                return Ok(Some(found));
            }
            let before = found.groups.iter().position(|begin| *begin <= media_ns);
            let back = match before {
                Some(place) => place as u64 + 1,
                // The first of them all, or further back than this one knows.
                None => (found.groups.len() as u64).max(1),
            };
            let Some(group) = (found.first / GROUP).checked_sub(back) else {
                return Ok(Some(found));
            };
            let earlier = group_end(group);
            if earlier < recording.first {
                return Ok(Some(found));
            }
            section = self.section(client, recording, earlier)?;
        }
        Ok(None)
    }

    /// Whether a block is there that begins no later than this time.
    fn begins_by(&self, client: &Client, serial: u64, media_ns: u64) -> Result<bool, ArchiveError> {
        let trailer = self.trailer(client, serial)?;
        Ok(trailer.is_some_and(|of| of.media_ns <= media_ns))
    }

    /// What the trailer of a block says; `None`: it is not there any more, or damaged.
    pub(super) fn trailer(
        &self,
        client: &Client,
        serial: u64,
    ) -> Result<Option<Trailer>, ArchiveError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let reader = self.reader(client);
        let found = reader.trailer_in(serial % self.header.blocks)?;
        Ok(found.filter(|of| of.serial == serial))
    }

    /// The serial of the last block of a recording that begins no later than this time of its; of its first if none
    /// does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn block_at(
        &self,
        client: &Client,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<u64, ArchiveError> {
        if let Some(index) = self.index_at(client, recording, media_ns)? {
            return Ok(index.block_at(media_ns).max(recording.first));
        }
        let (mut from, mut to) = (recording.first, recording.end);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            // One that is damaged counts as later: what is before it is played then.
            match self.begins_by(client, middle, media_ns)? {
                true => from = middle,
                false => to = middle,
            }
        }
        Ok(from)
    }
}

/// Of so many blocks more than is kept is gone.
fn blocks_of(keep: Keep, header: &Header) -> Option<u64> {
    let size = keep.size?;
    Some((size.get() / header.block_bytes).max(BLOCKS_MIN))
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Writing {
    archive: Arc<Archive>,
    number: u64,
    first: u64,
    begun_unix_ns: u64,
    /// Blocks that are written behind one that is not.
    written: Vec<u64>,
}

impl Writing {
    /// Its archive.
    #[must_use]
    pub fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The serial of its first block.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// It begins now, in nanoseconds since 1970.
    pub fn begin(&mut self, now_unix_ns: u64) {
        self.begun_unix_ns = now_unix_ns;
    }

    /// When it began, in nanoseconds since 1970.
    #[must_use]
    pub fn begun_unix_ns(&self) -> u64 {
        self.begun_unix_ns
    }

    /// The block of that serial is handed to the disks: what was in its place before is not touched from now on.
    pub fn claim(&self, serial: u64) {
        *self.archive.claimed() = serial + 1;
    }

    /// A block of it is on the disks, the `index`th: it can be played when those before it can.
    pub fn written(&mut self, index: u64) {
        let serial = self.first + index;
        self.written.push(serial);
        let mut state = self.archive.state();
        while let Some(place) = self.written.iter().position(|of| *of == state.next) {
            self.written.swap_remove(place);
            state.next += 1;
        }
        let end = state.next;
        if end == self.first {
            return;
        }
        match state
            .recordings
            .last_mut()
            .filter(|last| last.number == self.number)
        {
            Some(last) => last.end = end,
            None => state.recordings.push(Recording {
                number: self.number,
                first: self.first,
                end,
                begun_unix_ns: self.begun_unix_ns,
            }),
        }
        state.tell();
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.archive.state();
        state.is_recorded = false;
        state.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::super::block::{Composer, Seal};
    use super::*;

    /// A trailer as it is on a disk.
    fn trailer(serial: u64, recording: u64, first: u64) -> Trailer {
        let size = BLOCK_BYTES.start as usize;
        let mut block = vec![0; size];
        let seal = Seal {
            archive: [1; 16],
            serial,
            recording,
            first,
            begun_unix_ns: recording,
            is_last: false,
        };
        Composer::new(size, 0, 0).seal(&mut block, b"", b"", &seal);
        Trailer::parse(&block, BLOCK_BYTES.start).unwrap()
    }

    /// Recordings of three blocks each, the second of five.
    fn of(serial: u64) -> (u64, u64) {
        match serial {
            0..3 => (1, 0),
            3..8 => (2, 3),
            later => ((later - 8) / 3 + 3, (later - 8) / 3 * 3 + 8),
        }
    }

    /// A ring to which blocks up to `next` were written, but for those that are missing: there what was before, or
    /// nothing that can be read.
    struct Ring {
        places: Vec<Option<Trailer>>,
    }

    impl Ring {
        fn new(blocks: u64, next: u64, unwritten: &BTreeSet<u64>, damaged: Option<u64>) -> Self {
            let mut places = vec![None; blocks as usize];
            for serial in (0..next).filter(|serial| !unwritten.contains(serial)) {
                let (recording, first) = of(serial);
                places[(serial % blocks) as usize] = Some(trailer(serial, recording, first));
            }
            if let Some(damaged) = damaged {
                places[(damaged % blocks) as usize] = None;
            }
            Self { places }
        }

        /// What is found when it is opened: the serial of the next block, and the recordings.
        fn opened(&self, gone: &Gone) -> (u64, Vec<Recording>) {
            let blocks = self.places.len() as u64;
            let read = |place: u64| Ok::<_, Infallible>(self.places[place as usize]);
            let serial = |place| {
                let found = read(place)?.map(|of| of.serial);
                Ok::<_, Infallible>(found.or_else(|| gone.in_place(place, blocks)))
            };
            let next = newest(blocks, serial).unwrap().map_or(0, |of| of + 1);
            let next = next.max(gone.end());
            (next, recordings(next, blocks, gone, read).unwrap())
        }

        fn newest(&self) -> Option<u64> {
            self.opened(&Gone::default()).0.checked_sub(1)
        }
    }

    #[test]
    fn the_newest_block_is_found_whichever_one_is_damaged() {
        for blocks in [4, 5, 7, 16, 33] {
            for next in 0..blocks * 5 / 2 {
                let whole = Ring::new(blocks, next, &BTreeSet::new(), None);
                let found = whole.newest();
                assert_eq!(
                    found,
                    next.checked_sub(1),
                    "{blocks} blocks, {next} written"
                );
                for damaged in next.saturating_sub(blocks)..next.saturating_sub(1) {
                    let ring = Ring::new(blocks, next, &BTreeSet::new(), Some(damaged));
                    let found = ring.newest();
                    assert_eq!(found, Some(next - 1), "{blocks}, {next}, {damaged} damaged");
                }
            }
        }
    }

    /// The last blocks before a crash may have been written in any order, each whole, not at all, or in part.
    #[test]
    fn after_a_crash_what_was_written_in_order_is_found() {
        for blocks in [8, 12, 19] {
            for flushed in 1..2 * blocks {
                for pattern in 0..3_u32.pow(4) {
                    let state = |index: u64| pattern / 3_u32.pow(index as u32) % 3;
                    let unwritten = (0..4).filter(|index| state(*index) == 1);
                    let torn = (0..4).find(|index| state(*index) == 2);
                    let unwritten = unwritten.map(|index| flushed + index).collect();
                    let torn = torn.map(|index| flushed + index);
                    let ring = Ring::new(blocks, flushed + 4, &unwritten, torn);
                    let found = ring.newest();
                    assert!(
                        found.is_some_and(|found| (flushed - 1..flushed + 4).contains(&found)),
                        "{blocks} blocks, {flushed} flushed, pattern {pattern}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn recordings_are_listed_as_far_as_they_are_there() {
        let blocks = 9;
        for next in 1..30_u64 {
            let ring = Ring::new(blocks, next, &BTreeSet::new(), None);
            let oldest = next.saturating_sub(blocks);
            let mut expected: Vec<Recording> = Vec::new();
            for serial in oldest..next {
                let (number, _) = of(serial);
                match expected.last_mut().filter(|last| last.number == number) {
                    Some(last) => last.end = serial + 1,
                    None => expected.push(Recording {
                        number,
                        first: serial,
                        end: serial + 1,
                        begun_unix_ns: number,
                    }),
                }
            }
            assert_eq!(
                ring.opened(&Gone::default()),
                (next, expected),
                "{next} written"
            );
        }
    }

    /// What is deleted is not found again, whether its places were discarded or not, and everything else is: the newest block
    /// too, and with it the serial that comes next.
    #[test]
    fn what_was_deleted_is_gone_after_a_restart_and_nothing_else_is() {
        for blocks in [4, 9, 16, 33] {
            for next in 1..blocks * 5 / 2 {
                let whole = Ring::new(blocks, next, &BTreeSet::new(), None);
                let (_, all) = whole.opened(&Gone::default());
                let oldest = next.saturating_sub(blocks);
                for pattern in 0..1_u32 << all.len().min(5) {
                    for until in [0, oldest + 1, oldest + 2] {
                        let mut gone = Gone::default();
                        gone.add(0..until.min(next));
                        for (place, of) in all.iter().rev().enumerate() {
                            if pattern >> place & 1 == 1 {
                                gone.add(of.first..of.end);
                            }
                        }
                        reopened(&whole, next, &all, &gone);
                    }
                }
            }
        }
    }

    fn reopened(whole: &Ring, next: u64, all: &[Recording], gone: &Gone) {
        let blocks = whole.places.len() as u64;
        let left = |found: &[Recording]| -> Vec<(u64, u64, u64)> {
            let left = found.iter().filter_map(|of| {
                let first = gone.after(of.first);
                (first < of.end).then_some((of.number, first, of.end))
            });
            left.collect()
        };
        let mut places = whole.places.clone();
        for place in &mut places {
            *place = place.filter(|of| gone.range_of(of.serial).is_none());
        }
        for ring in [
            Ring { places },
            Ring {
                places: whole.places.clone(),
            },
        ] {
            let (found_next, found) = ring.opened(gone);
            assert_eq!(found_next, next, "{blocks} blocks, {gone:?} gone");
            assert_eq!(left(&found), left(all), "{blocks} blocks, {next}, {gone:?}");
        }
    }

    /// A ring goes on over what was deleted: what is remembered of it misleads nobody, whatever a crash has left of the
    /// newest blocks.
    #[test]
    fn what_is_recorded_over_deleted_blocks_is_found() {
        for blocks in [8, 12, 19] {
            for deleted in 1..2_u64 * blocks {
                let mut gone = Gone::default();
                gone.add(deleted.saturating_sub(3)..deleted);
                for next in deleted..deleted + 2 * blocks {
                    for torn in [None, next.checked_sub(2), next.checked_sub(1)] {
                        let torn = torn.filter(|torn| *torn >= deleted);
                        let mut ring = Ring::new(blocks, next, &BTreeSet::new(), torn);
                        for place in &mut ring.places {
                            *place = place.filter(|of| gone.range_of(of.serial).is_none());
                        }
                        let found = ring.opened(&gone).0;
                        let expected = match torn {
                            Some(torn) if torn + 1 == next => next - 1,
                            _ => next,
                        };
                        assert_eq!(found, expected, "{blocks}, {gone:?}, {next}, {torn:?}");
                    }
                }
            }
        }
    }
}
