//! Blocks into packets.
//!
//! Blocks are read ahead at the reserved pace, as many as the stream has buffers. A packet is sent when its time has
//! come, by the media time that was found when it was recorded; in the order in which they lie, so that one whose time
//! is earlier goes with the one before it. Headers and bodies go out in one call, the body from where the disks put it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;

use engine::buffer::{Buffer, BufferError};
use engine::clock;
use engine::front::Client;
use engine::stream::{BlockReader, BlockReport, PaceError, Stream};
use rustix::io::Errno;
use sched::units::{Nanos, Time};

use super::archive::{Archive, ArchiveError, Recording};
use super::block::{Block, Entry, Kind};
use super::packet::HEADER_BYTES;

/// How far a frame that can be decoded alone is looked for before the one that is asked for, in blocks.
const KEY_BLOCKS_MAX: u64 = 16;

/// Why playing ended early.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A block.
    #[error(transparent)]
    Pace(#[from] PaceError),
    /// A buffer was taken away.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A socket.
    #[error("sending: {0}")]
    Socket(#[from] io::Error),
    /// What was recorded could not be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Where in a recording playing begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Start {
    /// The block.
    pub serial: u64,
    /// The packet in it.
    pub packet: usize,
    /// The time of the recording that this is.
    pub media_ns: u64,
}

/// Where a recording begins, and where it ends at this moment, in nanoseconds of its time.
///
/// # Errors
/// When it cannot be read.
pub fn extent(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
) -> Result<Range<u64>, ArchiveError> {
    let mut range = 0..0;
    if let Some(first) = archive.read_block(client, recording.first)?
        && let Ok(block) = Block::parse(&first)
    {
        range = block.trailer.media_ns..block.trailer.media_ns;
    }
    if let Some(last) = archive.read_block(client, recording.end.saturating_sub(1))?
        && let Ok(block) = Block::parse(&last)
    {
        let ends = (0..block.len()).filter_map(|number| block.packet(number));
        range.end = ends
            .map(|(entry, _)| entry.media_ns)
            .max()
            .unwrap_or(range.end);
    }
    Ok(range)
}

/// Where to begin so that what is shown at that time can be decoded: at the last key frame of the track before it.
///
/// # Errors
/// When the recording cannot be read.
pub fn start_at(
    archive: &Archive,
    client: &Client,
    recording: &Recording,
    media_ns: u64,
    track: usize,
) -> Result<Start, ArchiveError> {
    let wanted = archive.block_at(client, recording, media_ns)?;
    let earliest = wanted.saturating_sub(KEY_BLOCKS_MAX).max(recording.first);
    for serial in (earliest..=wanted).rev() {
        let Some(bytes) = archive.read_block(client, serial)? else {
            continue;
        };
        let Ok(block) = Block::parse(&bytes) else {
            continue;
        };
        if let Some((packet, media_ns)) = key_before(&block, media_ns, track) {
            return Ok(Start {
                serial,
                packet,
                media_ns,
            });
        }
    }
    Ok(Start {
        serial: wanted,
        packet: 0,
        media_ns,
    })
}

/// The packet with which the last key frame of a track begins that is to be shown at this time or before.
fn key_before(block: &Block<'_>, media_ns: u64, track: usize) -> Option<(usize, u64)> {
    let mut begins = None;
    let mut found = None;
    for number in 0..block.len() {
        let Some((entry, _)) = block.packet(number) else {
            continue;
        };
        if usize::from(entry.track) != track || entry.kind != Kind::Rtp {
            continue;
        }
        if entry.media_ns > media_ns {
            break;
        }
        if entry.begins_frame {
            begins = Some((number, entry.media_ns));
        }
        if entry.is_key && begins.is_some() {
            found = begins;
        }
    }
    found
}

/// A block whose packets are being sent.
struct Current {
    serial: u64,
    buffer: Buffer,
    /// With their numbers in the block.
    packets: VecDeque<(usize, Entry, Range<usize>)>,
}

/// A recording on its way to who plays it.
pub struct Playback<'a> {
    reader: BlockReader<'a>,
    archive: &'a Archive,
    recording: Recording,
    /// Serials that are asked for, in order.
    asked: VecDeque<u64>,
    next_ask: u64,
    /// The packet to begin with in the first block.
    skip: usize,
    current: Option<Current>,
    /// When the packet of that media time is to be sent.
    origin: (Time, u64),
    last_due: Time,
    /// No packet after this is sent.
    until_ns: Option<u64>,
    /// Blocks that were not what they should be.
    missing: u64,
}

/// What is to be sent next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upcoming {
    /// A packet of a track, then.
    Packet {
        /// When.
        due: Time,
        /// Which track.
        track: usize,
        /// Of which kind.
        kind: Kind,
    },
    /// It has not been read yet.
    Unread,
    /// Nothing more.
    Nothing,
}

impl<'a> Playback<'a> {
    /// Plays from there on, as if it had begun at `origin`.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(
        stream: &'a Stream,
        archive: &'a Archive,
        recording: Recording,
        start: Start,
        until_ns: Option<u64>,
    ) -> Result<Self, PlayError> {
        let period = stream.longest_period();
        // The first block is there after a period of the disks.
        let begins = clock::now().saturating_add(period);
        Ok(Self {
            reader: BlockReader::new(stream)?,
            archive,
            recording,
            asked: VecDeque::new(),
            next_ask: start.serial,
            skip: start.packet,
            current: None,
            origin: (begins, start.media_ns),
            last_due: begins,
            until_ns,
            missing: 0,
        })
    }

    /// The stream's side of it, to be slept for.
    #[must_use]
    pub fn reader(&self) -> &BlockReader<'a> {
        &self.reader
    }

    /// Blocks that were damaged or overwritten before they were played.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Does what there is to do for the disks, which goes on while nothing can be sent.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub fn read_ahead(&mut self) -> Result<(), PlayError> {
        Ok(self.reader.advance(&mut |_: &BlockReport| {})?)
    }

    /// Does what there is to do for the disks, and finds out what is to be sent next.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub fn advance(&mut self) -> Result<Upcoming, PlayError> {
        self.read_ahead()?;
        loop {
            if let Some(upcoming) = self.upcoming() {
                return Ok(upcoming);
            }
            if let Some(done) = self.current.take() {
                self.reader.give_back(done.buffer);
            }
            self.ask();
            self.read_ahead()?;
            let Some(read) = self.reader.take() else {
                let is_over = self.asked.is_empty() && !self.is_live();
                return Ok(if is_over {
                    Upcoming::Nothing
                } else {
                    Upcoming::Unread
                });
            };
            let serial = self.asked.pop_front().unwrap_or_default();
            let skip = std::mem::take(&mut self.skip);
            let archive = self.archive;
            let packets = read.buffer.with(|bytes| {
                let block = Block::parse(bytes).ok()?;
                archive.is_of(&block.trailer, serial).then(|| {
                    let packets = (skip..block.len()).filter_map(|number| {
                        let (entry, body) = block.packet(number)?;
                        Some((number, entry, body))
                    });
                    packets.collect::<VecDeque<_>>()
                })
            })?;
            self.missing += u64::from(packets.is_none());
            self.current = Some(Current {
                serial,
                buffer: read.buffer,
                packets: packets.unwrap_or_default(),
            });
        }
    }

    /// Whether the recording goes on.
    fn is_live(&self) -> bool {
        let newest = self.archive.recording(None);
        self.archive.is_recorded() && newest.is_some_and(|of| of.number == self.recording.number)
    }

    /// Asks for as many blocks as there are buffers and blocks.
    fn ask(&mut self) {
        if let Some(now) = self.archive.recording(Some(self.recording.number)) {
            self.recording = now;
        }
        // What has been overwritten meanwhile is passed over.
        self.next_ask = self.next_ask.max(self.recording.first);
        while self.next_ask < self.recording.end && self.asked.len() < self.reader.buffers() {
            self.reader.ask(self.archive.offset(self.next_ask));
            self.asked.push_back(self.next_ask);
            self.next_ask += 1;
        }
    }

    fn upcoming(&mut self) -> Option<Upcoming> {
        let (_, entry, _) = self.current.as_ref()?.packets.front()?;
        if self.until_ns.is_some_and(|until| entry.media_ns >= until) {
            return Some(Upcoming::Nothing);
        }
        let (at, media_ns) = self.origin;
        let after = Nanos(entry.media_ns.saturating_sub(media_ns));
        let due = at.saturating_add(after).max(self.last_due);
        Some(Upcoming::Packet {
            due,
            track: usize::from(entry.track),
            kind: entry.kind,
        })
    }

    /// The packet that is next, if it is there: its entry.
    #[must_use]
    pub fn packet(&self) -> Option<&Entry> {
        Some(&self.current.as_ref()?.packets.front()?.1)
    }

    /// Sends what is next of the packet, from `sent` bytes of it on, behind `frame`; how many bytes went, and how many
    /// there are in all. `None`: not now.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn send(
        &self,
        socket: impl AsFd,
        frame: &[u8],
        sent: usize,
    ) -> Result<Option<(usize, usize)>, PlayError> {
        let Some((current, (_, entry, body))) = self
            .current
            .as_ref()
            .and_then(|current| Some((current, current.packets.front()?)))
        else {
            return Ok(None);
        };
        let header: &[u8] = match entry.kind {
            Kind::Rtp => &entry.header,
            Kind::Rtcp => &[],
        };
        let written = current.buffer.with(|bytes| {
            let mut parts = [
                IoSlice::new(frame),
                IoSlice::new(header),
                IoSlice::new(&bytes[body.clone()]),
            ];
            let mut parts = &mut parts[..];
            IoSlice::advance_slices(&mut parts, sent);
            rustix::io::writev(socket, parts)
        })?;
        let all = frame.len() + header.len() + body.len();
        match written {
            Ok(count) => Ok(Some((count, all))),
            // Nobody listens at a port of the peer: it may have just closed it.
            Err(Errno::CONNREFUSED) => Ok(Some((all - sent, all))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// The length of the packet that is next.
    #[must_use]
    pub fn packet_len(&self) -> usize {
        let front = self.current.as_ref().and_then(|of| of.packets.front());
        front.map_or(0, |(_, entry, body)| {
            let header = if entry.kind == Kind::Rtp {
                HEADER_BYTES
            } else {
                0
            };
            header + body.len()
        })
    }

    /// Where it is: what would be sent next, if that is known.
    #[must_use]
    pub fn position(&self) -> Option<Start> {
        let current = self.current.as_ref()?;
        let (packet, entry, _) = current.packets.front()?;
        Some(Start {
            serial: current.serial,
            packet: *packet,
            media_ns: entry.media_ns,
        })
    }

    /// The packet that was next has been sent, or is passed over.
    pub fn done(&mut self) {
        if let Some(Upcoming::Packet { due, .. }) = self.upcoming() {
            self.last_due = due;
        }
        if let Some(current) = &mut self.current {
            current.packets.pop_front();
        }
    }
}

impl std::fmt::Debug for Playback<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Playback")
            .field("recording", &self.recording)
            .field("next", &self.next_ask)
            .finish_non_exhaustive()
    }
}
