//! An archive: a volume that holds recordings, one after another, as a ring.
//!
//! What is on the volume is said in [`block`](super::block). An archive is opened without reading more of it than a few
//! trailers: the newest block is found by bisection, and each recording's last block names its first. Where a recording
//! is played from a time on, its blocks are bisected in the same way.
//!
//! A volume becomes an archive when something is first recorded on it, if it is blank. One that holds something else is
//! left alone.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::event::EventFd;
use engine::front::{Client, SyncError};
use engine::pool::Volume;
use sched::units::Bytes;

use super::block::{BLOCK_BYTES, Block, FormatError, HEADER_BYTES, Header, Trailer};

/// Trailers are read in so many bytes, which any drive reads whole.
const TRAILER_READ_BYTES: u64 = 4_096;

/// Behind the newest block so many are looked at: blocks that were being written when the server died may have come out
/// of order, and one may be damaged.
const LOOK_BEHIND: u64 = 8;

/// The fewest blocks that are an archive.
const BLOCKS_MIN: u64 = 4;

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
    /// It could not be read or written.
    #[error("volume {volume:?}: {error}")]
    Io {
        /// The volume.
        volume: String,
        /// Why.
        error: SyncError,
    },
}

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
    /// Who is told of each block and of the end.
    listeners: Vec<Weak<EventFd>>,
}

impl State {
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

    /// The trailer of the newest block.
    fn newest(&self) -> Result<Option<Trailer>, ArchiveError> {
        let blocks = self.header.blocks;
        let Some(first) = self.trailer_in(0)? else {
            // Nothing, or what is to be overwritten next was being so.
            return self.trailer_in(blocks - 1);
        };
        let round = first.serial / blocks;
        let in_round = |place: u64| {
            let of = self.trailer_in(place)?;
            Ok::<_, ArchiveError>(of.filter(|of| of.serial / blocks == round))
        };
        let (mut newest, mut from, mut to) = (first, 0, blocks);
        loop {
            while from + 1 < to {
                let middle = from + (to - from) / 2;
                match in_round(middle)? {
                    Some(of) => (newest, from) = (of, middle),
                    None => to = middle,
                }
            }
            let mut behind = (from + 1)..blocks.min(from + 1 + LOOK_BEHIND);
            let further = behind.find_map(|place| match in_round(place) {
                Ok(None) => None,
                Ok(Some(of)) => Some(Ok((of, place))),
                Err(error) => Some(Err(error)),
            });
            match further.transpose()? {
                Some((of, place)) => (newest, from, to) = (of, place, blocks),
                None => return Ok(Some(newest)),
            }
        }
    }

    /// All recordings up to the newest block.
    fn recordings(&self, newest: &Trailer) -> Result<Vec<Recording>, ArchiveError> {
        let blocks = self.header.blocks;
        let oldest = (newest.serial + 1).saturating_sub(blocks);
        let mut recordings = Vec::new();
        let mut last = *newest;
        loop {
            recordings.push(Recording {
                number: last.recording,
                first: last.first.max(oldest),
                end: last.serial + 1,
                begun_unix_ns: last.begun_unix_ns,
            });
            // Blocks that are damaged are passed over.
            let before = (oldest..last.first.max(oldest)).rev();
            let mut trailers = before.map(|serial| {
                let found = self.trailer_in(serial % blocks)?;
                Ok(found.filter(|found| found.serial == serial))
            });
            match trailers.find_map(Result::transpose).transpose()? {
                Some(before) => last = before,
                None => break,
            }
        }
        recordings.reverse();
        Ok(recordings)
    }
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
        let newest = reader.newest()?;
        let recordings = newest.map(|newest| reader.recordings(&newest));
        let state = State {
            next: newest.map_or(0, |newest| newest.serial + 1),
            recordings: recordings.transpose()?.unwrap_or_default(),
            is_recorded: false,
            listeners: Vec::new(),
        };
        Ok(Self {
            volume,
            header,
            state: Mutex::new(state),
        })
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
        Ok(Self {
            volume,
            header,
            state: Mutex::new(State {
                next: 0,
                recordings: Vec::new(),
                is_recorded: false,
                listeners: Vec::new(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers and lists, each changed in one step: valid after any panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let oldest = state.next.saturating_sub(self.header.blocks);
        let there = state.recordings.iter().filter(|of| of.end > oldest);
        there
            .map(|of| Recording {
                first: of.first.max(oldest),
                ..*of
            })
            .collect()
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

    /// An event that is signalled when a block was written and when the recording ends, as long as it is kept.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn listen(&self) -> io::Result<Arc<EventFd>> {
        let event = Arc::new(EventFd::new()?);
        self.state().listeners.push(Arc::downgrade(&event));
        Ok(event)
    }

    /// Begins a recording. Until it is dropped nobody else can.
    ///
    /// # Errors
    /// When somebody else has.
    pub fn record(self: &Arc<Self>, begun_unix_ns: u64) -> Result<Writing, ArchiveError> {
        let mut state = self.state();
        if state.is_recorded {
            return Err(ArchiveError::Busy(self.volume.name().to_owned()));
        }
        state.is_recorded = true;
        let number = state.recordings.last().map_or(0, |last| last.number) + 1;
        let first = state.next;
        drop(state);
        Ok(Writing {
            archive: Arc::clone(self),
            number,
            first,
            begun_unix_ns,
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
        let reader = self.reader(client);
        let mut bytes = vec![0; self.header.block_bytes as usize];
        reader.read(self.range().start + self.offset(serial).get(), &mut bytes)?;
        let is_it = Block::parse(&bytes).is_ok_and(|block| self.is_of(&block.trailer, serial));
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
        let reader = self.reader(client);
        let (mut from, mut to) = (recording.first, recording.end);
        while from + 1 < to {
            let middle = from + (to - from) / 2;
            let trailer = reader.trailer_in(middle % self.header.blocks)?;
            // One that is damaged counts as later: what is before it is played then.
            let begins = trailer.filter(|of| of.serial == middle && of.media_ns <= media_ns);
            match begins {
                Some(_) => from = middle,
                None => to = middle,
            }
        }
        Ok(from)
    }
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

    /// When it began, in nanoseconds since 1970.
    #[must_use]
    pub fn begun_unix_ns(&self) -> u64 {
        self.begun_unix_ns
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
