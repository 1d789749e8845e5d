//! Playback: sends the packets of recorded blocks.
//!
//! Blocks are read ahead at the reserved rate, as many as the stream has buffers. Packets are sent in the
//! order in which they are stored, each at the media time that was stored with it; a packet with an earlier
//! time than the one before it is sent right after that. All packets that are due, such as those of a frame, are sent
//! with one system call, the bodies from the buffer that the disks filled.

mod continuation;
mod numbering;
mod others;
pub(crate) mod presentation;
mod reading;
mod sending;
pub mod trick;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use engine::buffer::{Buffer, BufferError};
use engine::stream::{BlockReader, BlockReport, Change, Changer, PaceError, Refusal, Stream};
use engine::volume_io::Client;
use sched::units::{Nanos, Time};

use crate::archive::block::{Entry, Kind};
use crate::archive::index::Key;
use crate::archive::start::{Found, Start};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::play::trick::KeyFrames;
use crate::session::Scale;
use crate::session::demand::PlayerDemand;
use crate::session::negotiation::Negotiation;
pub(crate) use continuation::Continuation;
use numbering::Numbering;
pub(crate) use others::FollowingRecordings;
use others::PendingRecording;
pub use sending::OutPacket;

/// Reason why playing ended early.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A block could not be read.
    #[error(transparent)]
    Pace(#[from] PaceError),
    /// A buffer was taken away.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The socket failed.
    #[error("sending failed: {0}")]
    Socket(#[from] io::Error),
    /// The host has no thread that changes the reservation.
    #[error("no thread to change the reservation: {0}")]
    Thread(io::Error),
    /// The recording or its index could not be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The volume has grown, and the reservation cannot be extended to its new end.
    #[error("cannot extend the reservation to the end of the grown volume: {0}")]
    Grown(#[from] Refusal),
}

/// The block whose packets are being sent.
struct CurrentBlock {
    serial: u64,
    buffer: Buffer,
    /// Packets still to be sent: number in the block, entry, and place of the body in the buffer.
    packets: VecDeque<(usize, Entry, Range<usize>)>,
}

/// Speed and limits of a playback.
#[derive(Clone, Debug)]
pub struct PlaybackTerms {
    /// Speed at which the recording is shown; negative backwards (RFC 2326, section 12.34).
    pub scale: Scale,
    /// Speed of sending relative to `scale` (RFC 2326, section 12.35).
    pub speed: Scale,
    /// Media time at which playing ends, in nanoseconds; negative before the recording began.
    pub until_ns: Option<i128>,
    /// The track whose key frames are sent if only key frames are.
    pub track: u8,
    /// Timestamp units per second of each track.
    pub clock_rates: Vec<u32>,
}

impl PlaybackTerms {
    /// Time from showing `first_ns` to showing `media_ns`, both media times, in nanoseconds.
    #[must_use]
    pub fn shown_ns(&self, first_ns: i128, media_ns: u64) -> i128 {
        self.scale.time_for(i128::from(media_ns) - first_ns)
    }
}

/// The instant at which a media time is shown.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The instant.
    pub at: Time,
    /// The media time in nanoseconds; negative before the recording began.
    pub media_ns: i128,
}

/// A block to be read, and the key frame to be sent of it; `None`: all of the block.
type BlockRequest = (u64, Option<Key>);

/// A recording that is being played.
pub struct Playback<'a> {
    reader: BlockReader<'a>,
    changer: Changer,
    /// Extension of the reserved range to the end of the grown archive.
    change: Option<Change>,
    archive: &'a Archive,
    recording: Recording,
    manner: PlaybackTerms,
    keys: Option<KeyFrames<'a>>,
    /// Blocks of the last key frame that are not requested yet.
    parts: VecDeque<BlockRequest>,
    /// Requested blocks in order.
    asked: VecDeque<BlockRequest>,
    /// The next block, while it is outside the reserved range.
    beyond: Option<BlockRequest>,
    next_ask: u64,
    /// Number of the first packet to be sent of the first block.
    skip: usize,
    /// The first block if the search for the beginning has read it, in one of the stream's buffers.
    first: Option<(u64, Buffer)>,
    current: Option<CurrentBlock>,
    origin: Origin,
    last_due: Time,
    /// Media time of the last packet sent.
    reached_ns: Option<u64>,
    /// By track.
    numbering: Vec<Numbering>,
    /// Blocks that were damaged or overwritten.
    missing: u64,
    stream: &'a Stream,
    /// Adapts the reserved rate to the blocks that are read.
    follows: Option<(PlayerDemand, Negotiation)>,
    /// Next time for that.
    look_at: Time,
    /// Arrival and media time of the first packet of the block that was read last.
    seen: Option<(u64, u64)>,
    /// The recordings of the volume that are played after this one.
    others: Option<FollowingRecordings<'a>>,
    /// No more blocks of `recording` are requested; the next recording follows.
    is_passed: bool,
    /// Number of the recording that is sent; `recording` is the one that is read.
    shown: u64,
    /// The first block of another recording is next.
    pending: Option<PendingRecording>,
    /// Packets of the recording that would be shown before this time are left out.
    passes_to: Option<i128>,
    /// It is played along with a master and ends with that.
    pub(crate) is_led: bool,
}

/// The next thing to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upcoming {
    /// A packet.
    Packet {
        /// Time to send it.
        due: Time,
        /// Its track.
        track: usize,
        /// RTP or RTCP.
        kind: Kind,
    },
    /// The next packet has not been read yet.
    Unread,
    /// Playing is over.
    Nothing,
}

impl<'a> Playback<'a> {
    /// A playback that begins at `found`, at the instant of `origin` at the earliest. A block that was read
    /// to find the beginning is not read again.
    ///
    /// # Errors
    /// If there is no memory for the stream's buffers.
    pub fn new(
        stream: &'a Stream,
        archive: &'a Archive,
        client: &'a Client,
        recording: Recording,
        found: Found,
        manner: PlaybackTerms,
        origin: Origin,
    ) -> Result<Self, PlayError> {
        let Found { start, block, .. } = found;
        let begins = origin.at;
        let (scale, from) = (manner.scale, start.media_ns);
        let keys = scale.is_by_keys();
        let reader = match &block {
            Some(block) => BlockReader::beside(stream, block),
            None => BlockReader::new(stream),
        };
        let reader = reader?;
        if keys {
            // Key frames are chosen as far apart as it takes to read them.
            reader.settle();
        }
        Ok(Self {
            reader,
            changer: stream.changer(),
            change: None,
            archive,
            recording,
            keys: keys.then(|| {
                KeyFrames::new(archive, client, recording, scale, from).near(start.serial)
            }),
            parts: VecDeque::new(),
            asked: VecDeque::new(),
            beyond: None,
            next_ask: start.serial,
            skip: start.packet,
            first: block.map(|block| (start.serial, block)),
            current: None,
            origin,
            last_due: begins,
            reached_ns: None,
            numbering: manner
                .clock_rates
                .iter()
                .map(|of| Numbering::new(*of))
                .collect(),
            manner,
            missing: 0,
            stream,
            follows: None,
            look_at: begins,
            seen: None,
            others: None,
            is_passed: false,
            shown: recording.number,
            pending: None,
            passes_to: None,
            is_led: false,
        })
    }

    /// Asks for another rate if the recording turns out to need one.
    pub(crate) fn following(mut self, demand: PlayerDemand, negotiation: Negotiation) -> Self {
        self.follows = Some((demand, negotiation));
        self
    }

    /// The reader of the stream, whose events wake the thread.
    #[must_use]
    pub fn reader(&self) -> &BlockReader<'a> {
        &self.reader
    }

    /// Blocks that were damaged or overwritten before they were played.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Requests and takes blocks, also while nothing can be sent.
    ///
    /// # Errors
    /// If a block cannot be read.
    pub fn read_ahead(&mut self) -> Result<(), PlayError> {
        self.reader.advance(&mut |_: &BlockReport| {})?;
        let is_begun = self.first.is_none() && self.pending.is_none();
        let may_ask = self.reader.has_more_buffers() || self.beyond.is_some();
        if is_begun && self.keys.is_none() && may_ask {
            self.ask()?;
            self.reader.advance(&mut |_: &BlockReport| {})?;
        }
        Ok(())
    }

    /// Reads ahead, and finds the next packet to be sent.
    ///
    /// # Errors
    /// If a block cannot be read.
    pub fn advance(&mut self) -> Result<Upcoming, PlayError> {
        self.read_ahead()?;
        self.negotiate();
        self.look_at_master();
        if self.is_gone() {
            return Ok(Upcoming::Nothing);
        }
        loop {
            if self.pending.is_some() {
                return Ok(Upcoming::Unread);
            }
            self.leave_out();
            if let Some(upcoming) = self.upcoming() {
                return Ok(upcoming);
            }
            if let Some(done) = self.current.take() {
                self.reader.give_back(done.buffer);
            }
            if self.take_first()? {
                // The blocks after it have the deadlines that they would have if it had been read with them.
                self.ask()?;
                self.read_ahead()?;
                continue;
            }
            // Before asking: the recording may end after that, with more blocks.
            let is_live = self.is_live();
            self.ask()?;
            self.read_ahead()?;
            let Some(read) = self.reader.take() else {
                let is_waiting = !self.asked.is_empty() || self.beyond.is_some();
                let goes_on = is_live && self.waits_for_more() || self.may_go_on();
                return Ok(match is_waiting || goes_on {
                    true => Upcoming::Unread,
                    false => Upcoming::Nothing,
                });
            };
            let ask = self.asked.pop_front().unwrap_or_default();
            self.begin_block(ask, read.buffer)?;
        }
    }

    /// Time from the origin to showing a packet, in nanoseconds.
    fn shown_ns(&self, entry: &Entry) -> i128 {
        self.shown_at(entry.media_ns)
    }

    /// Time from the origin to showing a media time, in nanoseconds.
    fn shown_at(&self, media_ns: u64) -> i128 {
        self.manner.shown_ns(self.origin.media_ns, media_ns)
    }

    fn upcoming(&mut self) -> Option<Upcoming> {
        let (_, entry, _) = self.current.as_ref()?.packets.front()?;
        Some(match self.due(entry) {
            None => Upcoming::Nothing,
            Some(due) => Upcoming::Packet {
                due,
                track: usize::from(entry.track),
                kind: entry.kind,
            },
        })
    }

    /// True if a packet is behind the end.
    fn is_past_end(&self, entry: &Entry) -> bool {
        let is_back = self.manner.scale < Scale(0);
        self.manner.until_ns.is_some_and(|until| match is_back {
            true => i128::from(entry.media_ns) < until,
            false => i128::from(entry.media_ns) >= until,
        })
    }

    /// The time to send a packet of the current block, not before the last one.
    fn sent_at(&self, entry: &Entry) -> Time {
        let after = self.manner.speed.time_for(self.shown_ns(entry));
        let after = Nanos(u64::try_from(after).unwrap_or(0));
        self.origin.at.saturating_add(after).max(self.last_due)
    }

    /// As [`sent_at`](Self::sent_at); `None` behind the end.
    fn due(&self, entry: &Entry) -> Option<Time> {
        (!self.is_past_end(entry)).then(|| self.sent_at(entry))
    }

    /// The time that the timestamp of the next packet means. The packet is sent later if the one stored
    /// before it has a later time.
    #[must_use]
    pub fn plays_at(&self) -> Option<Time> {
        let after = self.manner.speed.time_for(self.shown_ns(self.packet()?));
        let at = i128::from(self.origin.at.get()) + after;
        u64::try_from(at).ok().map(Time)
    }

    /// The entry of the next packet, if it has been read.
    #[must_use]
    pub fn packet(&self) -> Option<&Entry> {
        Some(&self.current.as_ref()?.packets.front()?.1)
    }

    /// The place of the next packet. If its block has not been read, the time is that of the packet before.
    #[must_use]
    pub fn position(&self) -> Start {
        let current = self.current.as_ref();
        if let Some((current, (packet, entry, _))) =
            current.and_then(|of| Some((of, of.packets.front()?)))
        {
            return Start {
                serial: current.serial,
                packet: *packet,
                media_ns: entry.media_ns,
            };
        }
        let asked = self.asked.front().or(self.beyond.as_ref());
        let asked = asked.or(self.parts.front());
        let begins = u64::try_from(self.origin.media_ns.max(0)).unwrap_or(u64::MAX);
        Start {
            serial: asked.map_or(self.next_ask, |(serial, _)| *serial),
            packet: match asked {
                // A frame may continue in the blocks after its first one.
                Some((serial, Some(key))) if key.serial == *serial => key.packet as usize,
                Some((_, Some(_))) => 0,
                _ => self.skip,
            },
            media_ns: self.reached_ns.unwrap_or(begins),
        }
    }

    /// Arrival and media time of the first packet of the last block, in nanoseconds of the recording, if a
    /// block has been read since the last call.
    pub fn take_seen(&mut self) -> Option<(u64, u64)> {
        self.seen.take()
    }

    /// Moves the media time that is shown at the origin, in nanoseconds: forward if positive.
    pub fn shift(&mut self, ns: i64) {
        self.origin.media_ns += i128::from(ns);
    }

    /// Time at which the end that was set has been played; `None` without such an end.
    #[must_use]
    pub fn past_end(&self) -> Option<Time> {
        let until = self.manner.until_ns?;
        let shown = self.manner.scale.time_for(until - self.origin.media_ns);
        let after = self.manner.speed.time_for(shown);
        let after = Nanos(u64::try_from(after).unwrap_or(0));
        Some(self.origin.at.saturating_add(after))
    }

    /// Returns true if an end was set.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.manner.until_ns.is_some()
    }

    /// Returns true if it plays backwards.
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.manner.scale < Scale(0)
    }

    /// Media time of the last packet sent, in nanoseconds.
    #[must_use]
    pub fn reached_ns(&self) -> Option<u64> {
        self.reached_ns
    }

    /// Ends playing at this media time, in nanoseconds.
    pub fn end_at(&mut self, until_ns: i128) {
        self.manner.until_ns = Some(until_ns);
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
