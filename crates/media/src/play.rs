//! Blocks into packets.
//!
//! Blocks are read ahead at the reserved pace, as many as the stream has buffers. A packet is sent when its time has
//! come, by the media time that was found when it was recorded; in the order in which they lie, so that one whose time
//! is earlier goes with the one before it. Headers and bodies go out in one call, the body from where the disks put it.

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
use crate::play::trick::Keys;
use crate::session::Scale;
use crate::session::demand::PlayerDemand;
use crate::session::negotiation::Negotiation;
pub(crate) use continuation::Continuation;
use numbering::Numbering;
pub(crate) use others::Others;
use others::Turn;

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
    /// Nobody could be had who changes what is reserved.
    #[error("the host has no thread for a change of what is reserved: {0}")]
    Thread(io::Error),
    /// What was recorded could not be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The volume has grown.
    #[error("what the recording's volume has grown by cannot be reserved: {0}")]
    Grown(#[from] Refusal),
}

/// A block whose packets are being sent.
struct Current {
    serial: u64,
    /// The key frame of which this is, if not all of it is sent.
    key: Option<Key>,
    buffer: Buffer,
    /// With their numbers in the block.
    packets: VecDeque<(usize, Entry, Range<usize>)>,
}

/// How it is to be played.
#[derive(Clone, Debug)]
pub struct Manner {
    /// How fast it is shown.
    pub scale: Scale,
    /// How fast it is sent, of how fast it is shown.
    pub speed: Scale,
    /// What is not played then, in nanoseconds of the recording; backwards what is before. Below zero before it began.
    pub until_ns: Option<i128>,
    /// The track whose key frames are shown.
    pub track: u8,
    /// Of each track, units of its timestamps in a second.
    pub clock_rates: Vec<u32>,
}

impl Manner {
    /// How long after that which is shown first a time of the recording is shown, in nanoseconds.
    #[must_use]
    pub fn shown_ns(&self, first_ns: i128, media_ns: u64) -> i128 {
        self.scale.time_for(i128::from(media_ns) - first_ns)
    }
}

/// When what of a recording is shown.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Then.
    pub at: Time,
    /// This, in nanoseconds of the recording; below zero before it began.
    pub media_ns: i128,
}

/// A block that is asked for, and of which key frame if not for all that is in it.
type Ask = (u64, Option<Key>);

/// A recording on its way to who plays it.
pub struct Playback<'a> {
    reader: BlockReader<'a>,
    changer: Changer,
    /// Its range is being made as long as the archive has become.
    change: Option<Change>,
    archive: &'a Archive,
    recording: Recording,
    manner: Manner,
    keys: Option<Keys<'a>>,
    /// What is to be asked for of the last key frame.
    parts: VecDeque<Ask>,
    /// Of the block that is read first, the packet to go on with, which is within a key frame.
    within: Option<(u64, usize)>,
    /// In order.
    asked: VecDeque<Ask>,
    /// The next one, where the stream's range does not reach.
    beyond: Option<Ask>,
    next_ask: u64,
    /// The packet to begin with in the first block.
    skip: usize,
    /// The first block, as it has been read already, in one of the stream's buffers.
    first: Option<(u64, Buffer)>,
    current: Option<Current>,
    origin: Origin,
    last_due: Time,
    /// The time of the packet that was sent last.
    reached_ns: Option<u64>,
    /// By track.
    numbering: Vec<Numbering>,
    /// Blocks that were not what they should be.
    missing: u64,
    stream: &'a Stream,
    /// What has the rate follow what is read.
    follows: Option<(PlayerDemand, Negotiation)>,
    /// When that looks again.
    look_at: Time,
    /// Of the block that was read last, when its first packet came and when it is to be shown.
    seen: Option<(u64, u64)>,
    /// What is gone on with.
    others: Option<Others<'a>>,
    /// Nothing more of the recording that is read is asked for, which others are behind.
    is_passed: bool,
    /// The number of the recording that is sent.
    shown: u64,
    /// What is next is of another one.
    turn: Option<Turn>,
    /// What of that one would be shown before this is passed over.
    passes_to: Option<i128>,
    /// It ends with another one, which it is played with.
    pub(crate) is_led: bool,
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
    /// Plays from there on, not before the instant that `origin` says. A block that was read to find that is not read
    /// again.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(
        stream: &'a Stream,
        archive: &'a Archive,
        client: &'a Client,
        recording: Recording,
        found: Found,
        manner: Manner,
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
            // What is read then is as far apart as it takes to read it.
            reader.settle();
        }
        Ok(Self {
            reader,
            changer: stream.changer(),
            change: None,
            archive,
            recording,
            keys: keys
                .then(|| Keys::new(archive, client, recording, scale, from).near(start.serial)),
            parts: VecDeque::new(),
            within: None,
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
            turn: None,
            passes_to: None,
            is_led: false,
        })
    }

    /// Asks for another rate where it turns out to take one.
    pub(crate) fn following(mut self, demand: PlayerDemand, negotiation: Negotiation) -> Self {
        self.follows = Some((demand, negotiation));
        self
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
        self.reader.advance(&mut |_: &BlockReport| {})?;
        let is_begun = self.first.is_none() && self.turn.is_none();
        let may_ask = self.reader.has_more_buffers() || self.beyond.is_some();
        if is_begun && self.keys.is_none() && may_ask {
            // However long what is sent lasts.
            self.ask()?;
            self.reader.advance(&mut |_: &BlockReport| {})?;
        }
        Ok(())
    }

    /// Does what there is to do for the disks, and finds out what is to be sent next.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub fn advance(&mut self) -> Result<Upcoming, PlayError> {
        self.read_ahead()?;
        self.negotiate();
        self.look_at_master();
        if self.is_gone() {
            return Ok(Upcoming::Nothing);
        }
        loop {
            if self.turn.is_some() {
                return Ok(Upcoming::Unread);
            }
            self.pass();
            if let Some(upcoming) = self.upcoming() {
                return Ok(upcoming);
            }
            if let Some(done) = self.current.take() {
                self.reader.give_back(done.buffer);
            }
            if self.take_first()? {
                // Those behind it are due as if it had been read with them.
                self.ask()?;
                self.read_ahead()?;
                continue;
            }
            // It may end when it has been looked at, and there is more of it then.
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

    /// When a packet is, from the beginning on, in the time in which it is shown.
    fn shown_ns(&self, entry: &Entry) -> i128 {
        self.shown_at(entry.media_ns)
    }

    /// The same of a time of the recording.
    fn shown_at(&self, media_ns: u64) -> i128 {
        self.manner.shown_ns(self.origin.media_ns, media_ns)
    }

    fn upcoming(&mut self) -> Option<Upcoming> {
        let (_, entry, _) = self.current.as_ref()?.packets.front()?;
        let is_back = self.manner.scale < Scale(0);
        let is_over = self.manner.until_ns.is_some_and(|until| match is_back {
            true => i128::from(entry.media_ns) < until,
            false => i128::from(entry.media_ns) >= until,
        });
        if is_over {
            return Some(Upcoming::Nothing);
        }
        let after = self.manner.speed.time_for(self.shown_ns(entry));
        let after = Nanos(u64::try_from(after).unwrap_or(0));
        let due = self.origin.at.saturating_add(after).max(self.last_due);
        Some(Upcoming::Packet {
            due,
            track: usize::from(entry.track),
            kind: entry.kind,
        })
    }

    /// When the packet that is next would be sent if everything were exact: what its timestamp means. A packet that lies
    /// behind one that is played later is sent later than that.
    #[must_use]
    pub fn plays_at(&self) -> Option<Time> {
        let after = self.manner.speed.time_for(self.shown_ns(self.packet()?));
        let at = i128::from(self.origin.at.get()) + after;
        u64::try_from(at).ok().map(Time)
    }

    /// The packet that is next, if it is there: its entry.
    #[must_use]
    pub fn packet(&self) -> Option<&Entry> {
        Some(&self.current.as_ref()?.packets.front()?.1)
    }

    /// Where it is: what would be sent next. Of a block that has not been read the time is that of the packet before.
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
                // A frame may go on in blocks behind that in which it begins.
                Some((serial, Some(key))) if key.serial == *serial => key.packet as usize,
                Some((_, Some(_))) => 0,
                _ => self.skip,
            },
            media_ns: self.reached_ns.unwrap_or(begins),
        }
    }

    /// Of the block that was read since this was asked, when its first packet came and when it is to be shown, in
    /// nanoseconds of the recording.
    pub fn take_seen(&mut self) -> Option<(u64, u64)> {
        self.seen.take()
    }

    /// Shows so much later of the recording from now on, in nanoseconds; below zero so much earlier.
    pub fn shift(&mut self, ns: i64) {
        self.origin.media_ns += i128::from(ns);
    }

    /// When all would have been sent that is to be played, and nothing more is; `None`: it has no end of its own.
    #[must_use]
    pub fn past_end(&self) -> Option<Time> {
        let until = self.manner.until_ns?;
        let shown = self.manner.scale.time_for(until - self.origin.media_ns);
        let after = self.manner.speed.time_for(shown);
        let after = Nanos(u64::try_from(after).unwrap_or(0));
        Some(self.origin.at.saturating_add(after))
    }

    /// Whether its end is one that was asked for.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.manner.until_ns.is_some()
    }

    /// Whether it goes backwards.
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.manner.scale < Scale(0)
    }

    /// How far it has come: the time of the recording of the packet that was sent last.
    #[must_use]
    pub fn reached_ns(&self) -> Option<u64> {
        self.reached_ns
    }

    /// What is behind that time of the recording is not played, backwards what is before it.
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
