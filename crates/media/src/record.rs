//! Packets into blocks.
//!
//! A body is received where it stays: behind the one before it, in the block that is being filled. When the next one
//! may not fit another buffer is filled; as soon as a packet is in that one, the block is sealed and handed to the
//! stream's [`BlockWriter`], which writes it at the reserved pace. Without a free buffer nothing is received: the connection's peer feels that, UDP's is
//! lost in the kernel, and the gap in its numbers is in the recording and in the tally.

mod datagrams;
pub mod missing;
mod packets;

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use engine::clock;
use engine::stream::{BlockBuffer, BlockReport, BlockWriter, PaceError, PaceReport, Stream};
use sched::units::{Bytes, BytesPerSecond, Nanos, Time};

use crate::archive::Writing;
use crate::archive::block::{Composer, Kind, Seal};
use crate::archive::index::{self, Indexer};
use crate::archive::wall_clock;
use crate::record::missing::{Missing, Why};
use crate::rtp::packet::Head;
use crate::rtp::packet::{Clocks, HEADER_BYTES, Sequence};
use crate::rtp::parameters::frames_of;
use crate::rtp::reception::{ReceiverReport, Reception};
use crate::sdp::Description;
use crate::session::demand::{LOOK_EVERY, Pressure, RecorderDemand, Seen};
use crate::session::negotiation::Negotiation;
use crate::session::registry::Session;
pub use datagrams::Left;
use packets::Track;

/// The longest packet there is.
const PACKET_BYTES_MAX: usize = 65_536;

/// A block with less room for a body than this is full for who does not know yet how long the next packet is.
const ROOM_MIN: usize = 2_048;

/// A block is written after that long even if it is not full: what is in it could be lost.
const BLOCK_MAX: Nanos = Nanos::from_secs(60);

/// So much memory a recording may borrow beside its own.
const BORROWED_BYTES_MAX: u64 = 32 << 20;

/// How many blocks that is at least and at most.
const BORROWED: RangeInclusive<u64> = 8..=128;

/// So long after its senders have said that they leave a recording is over: by UDP packets overtake each other, and an
/// encoder that begins anew says so as well.
const STRAGGLERS_WITHIN: Nanos = Nanos::from_millis(500);

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// RTP packets in the recording.
    pub packets: u64,
    /// What their senders said of them, which is recorded as well (RTCP).
    pub reports: u64,
    /// Bytes of both, with their headers.
    pub bytes: u64,
    /// Packets that had not come when one behind them did, of which some may have come later, or that came and could not be
    /// recorded.
    pub lost: u64,
    /// Those of them that had no room, or perhaps were not sent, as no buffer was free for some time.
    pub lost_without_buffer: u64,
    /// Packets that came twice, whose second was left out.
    pub duplicates: u64,
    /// Packets of somebody else, or that were none; those of the sender's are among the `lost` as well.
    pub strangers: u64,
    /// Packets that no block has room for; those of the sender's are among the `lost` as well.
    pub too_long: u64,
    /// Bytes of bodies that were copied by this program on their way.
    pub copied_bytes: u64,
}

/// A block that is filled.
struct Filling {
    buffer: BlockBuffer,
    composer: Composer,
    /// The description that it ends with.
    text: Arc<[u8]>,
}

/// A recording on its way to the disks.
pub struct RtpRecorder<'a> {
    writer: BlockWriter<'a>,
    writing: Writing,
    /// The description, in the blocks to come.
    text: Arc<[u8]>,
    /// As long as it can become.
    text_bytes_max: usize,
    description: Description,
    /// The most that was reserved, which the description says.
    said: BytesPerSecond,
    tracks: Vec<Track>,
    clocks: Clocks,
    indexer: Indexer,
    begun: Time,
    /// When its last packet came.
    heard: Option<Time>,
    /// A sender that goes on under another name is still the sender.
    follows: bool,
    filling: Option<Filling>,
    /// What is full, as long as nothing is in the next one: it may be the last.
    full: Option<Filling>,
    /// A part of a body lies where the next one goes; the rest of it has not come.
    is_receiving: bool,
    /// A body of an unknown length that does not fit where it should lie.
    overflow: Vec<u8>,
    tally: Tally,
    missing: Missing,
    stream: &'a Stream,
    demand: RecorderDemand,
    negotiation: Negotiation,
    /// How many buffers it may borrow.
    borrow_most: usize,
    /// There was no free buffer since what it needs was looked at last.
    starved: bool,
    /// When that is looked at again.
    look_at: Time,
    /// Of the packets in the block that was begun last and has any, and missing among them.
    in_block: Seen,
}

/// Why a recording ended early.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A block.
    #[error(transparent)]
    Pace(#[from] PaceError),
    /// A socket.
    #[error("receiving: {0}")]
    Socket(#[from] io::Error),
}

impl<'a> RtpRecorder<'a> {
    /// A recording that begins now.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(
        stream: &'a Stream,
        mut writing: Writing,
        description: &Description,
        member: Arc<Session>,
    ) -> Result<Self, RecordError> {
        let begun = clock::now();
        writing.begin(wall_clock::now_unix_ns(), begun, stream.changer());
        let tracks = description.tracks().iter();
        let longest = description.clone().needing_just(BytesPerSecond(u64::MAX));
        let longest = longest.map_or(0, |of| of.text().len());
        let block = stream.buffer().get();
        let most = (BORROWED_BYTES_MAX / block).clamp(*BORROWED.start(), *BORROWED.end()) as usize;
        let placer = writing.placer();
        let writer = BlockWriter::new(stream, Bytes::ZERO)?;
        let mut writer = writer.placed(move |index| placer.place(index));
        writer.borrow_at_most(most);
        member.count(|counts| counts.buffers_borrowed_max = most as u64);
        Ok(Self {
            writer,
            stream,
            demand: RecorderDemand::new(block, member.promised(), clock::now()),
            negotiation: Negotiation::new(member),
            borrow_most: most,
            starved: false,
            look_at: Time::ZERO,
            in_block: Seen::default(),
            indexer: Indexer::new(writing.first(), description.video_track()),
            writing,
            text: description.text().into(),
            text_bytes_max: description.text().len().max(longest),
            description: description.clone(),
            said: stream.rate(),
            clocks: Clocks::new(tracks.clone().map(|track| track.clock_rate)),
            tracks: tracks
                .map(|track| Track {
                    payload_type: track.payload_type,
                    is_of_type: false,
                    sequence: Sequence::new(track.clock_rate),
                    dropped: 0,
                    unfit: 0,
                    frames: frames_of(track),
                    reception: Reception::new(track.clock_rate),
                    before: None,
                    barred: None,
                    came: Time::ZERO,
                    announced: None,
                    left: None,
                    stray: None,
                    starved: false,
                    socket: None,
                    is_drained: false,
                })
                .collect(),
            begun,
            heard: None,
            follows: false,
            filling: None,
            full: None,
            is_receiving: false,
            overflow: vec![0; PACKET_BYTES_MAX],
            tally: Tally::default(),
            missing: Missing::default(),
        })
    }

    /// The stream's side of it, to be slept for.
    #[must_use]
    pub fn writer(&self) -> &BlockWriter<'a> {
        &self.writer
    }

    /// What was recorded so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What is told who sends a track; `None`: nothing has come of it.
    pub fn reception(&mut self, track: usize) -> Option<ReceiverReport> {
        self.tracks.get_mut(track)?.reception.report(clock::now())
    }

    /// Takes every sender for the one that was asked: a camera that is pulled from may begin anew under another SSRC.
    pub fn follow(&mut self) {
        self.follows = true;
    }

    /// When its last packet came.
    #[must_use]
    pub fn heard(&self) -> Option<Time> {
        self.heard
    }

    /// When it is over, as far as its senders say: a while after the last of those that have been heard said that it leaves
    /// (RFC 3550, section 6.6). Stragglers come until then, and who begins anew under another SSRC has not left.
    #[must_use]
    pub fn over_at(&self) -> Option<Time> {
        let heard = self.tracks.iter().filter(|track| track.sender().is_some());
        let left: Option<Vec<Time>> = heard.map(|track| track.left).collect();
        let last = left?.into_iter().max()?;
        Some(last.saturating_add(STRAGGLERS_WITHIN))
    }

    /// What comes from now on is of another session with the same source: numbers and timestamps begin anew, and the
    /// time until its first packet is a gap.
    pub fn restart(&mut self) {
        for track in &mut self.tracks {
            track.sequence = track.sequence.anew();
            track.frames = track.frames.anew();
            (track.before, track.barred) = (None, None);
            track.announced = None;
            track.left = None;
            track.reception.restart();
            (track.stray, track.socket) = (None, None);
        }
        self.clocks.restart_all();
    }

    /// Whether a packet of a track may begin so: its version, and who sends it as far as that is known, or what is said
    /// (RFC 3550, sections 5.1 and 6.4).
    pub(crate) fn may_be_of(&self, track: usize, kind: Kind, head: &Head) -> bool {
        let [first, second, .., a, b, c, d] = *head;
        let sender = self.tracks.get(track).and_then(Track::sender);
        let is_it = match kind {
            Kind::Rtp => sender.is_none_or(|sender| sender == u32::from_be_bytes([a, b, c, d])),
            Kind::Rtcp => (200..=207).contains(&second),
        };
        first >> 6 == 2 && is_it
    }

    /// Does what there is to do for the disks.
    ///
    /// # Errors
    /// When a block has failed.
    pub fn advance(&mut self) -> Result<(), RecordError> {
        let (writer, writing) = (&mut self.writer, &mut self.writing);
        writer.advance(&mut |block: &BlockReport| writing.written(block.index, block.buffers))?;
        if self.writer.are_wanted_back() {
            let is_borrowed = |of: &mut Filling| of.buffer.is_borrowed();
            let full = self.full.take_if(is_borrowed);
            let filling = self
                .filling
                .take_if(|of| !self.is_receiving && is_borrowed(of));
            for block in full.into_iter().chain(filling) {
                self.seal(block, false);
            }
        }
        self.negotiate();
        self.tell_missing(false);
        Ok(())
    }

    /// Has the blocks to come say what is reserved now, if that is the most so far: who plays them goes by that.
    fn say_rate(&mut self) {
        let rate = self.stream.rate();
        if rate <= self.said {
            return;
        }
        self.said = rate;
        // One that is too long with it stays as it is.
        let described = self.description.clone().needing_just(rate).ok();
        let described = described.filter(|of| of.text().len() <= self.text_bytes_max);
        if let Some(described) = described {
            self.text = described.text().into();
        }
    }

    /// Has the rate follow what comes, and says how full the buffers are.
    fn negotiate(&mut self) {
        let now = clock::now();
        if let Some(outcome) = self.negotiation.outcome() {
            self.demand.answered(now, outcome);
        }
        self.say_rate();
        let buffers = self.writer.buffers();
        let member = self.negotiation.member();
        self.demand.promise(member.promised());
        let tally = self.tally;
        member.count(|counts| {
            counts.use_buffers(buffers);
            (counts.packets, counts.reports) = (tally.packets, tally.reports);
            counts.bytes = tally.bytes;
            counts.lost = tally.lost;
            counts.lost_without_buffer = tally.lost_without_buffer;
        });
        // Without need there is only something to be given back, and no hurry.
        let is_calm = buffers.borrowed == 0 && !self.starved;
        if is_calm && now < self.look_at {
            return;
        }
        self.look_at = now.saturating_add(LOOK_EVERY);
        let pressure = Pressure {
            full: buffers.full,
            borrowed: buffers.borrowed,
            most: self.borrow_most,
            starved: std::mem::take(&mut self.starved),
        };
        let asked = self.demand.look(now, self.stream.rate(), pressure);
        if let Some(rate) = asked
            && let Err(fits) = self.negotiation.ask(rate)
        {
            self.demand.answered(now, Err(fits));
        }
    }

    /// Whether there is room for a packet: by UDP for one of an unknown length, and in a connection as long as its length has
    /// not come.
    pub fn has_room(&mut self, by_udp: bool) -> bool {
        self.make_room(if by_udp { ROOM_MIN } else { 0 })
    }

    /// Whether what is filled has too little room for a body as long as `least`.
    fn is_full(&self, least: usize) -> bool {
        let filling = self.filling.as_ref();
        // A packet without a body has an entry as well, for which there is room where there is for a byte.
        let least = least.max(1);
        filling.is_some_and(|of| of.composer.room().len() < least && !of.composer.is_empty())
    }

    /// Whether a body as long as `least` can be received now: there is a block with room for it. Another one is begun where
    /// what is filled has too little, unless a body is being received into it. What is full is kept back until there is a
    /// packet in the next one, where there is another buffer for that: the last block says that it is the last.
    pub fn make_room(&mut self, least: usize) -> bool {
        // What is in a block could be lost for too long.
        let now_ns = clock::now().saturating_since(self.begun).get();
        let is_old = |of: &mut Filling| {
            let begins_ns = of.composer.begins_ns();
            begins_ns.is_some_and(|begins| now_ns.saturating_sub(begins) > BLOCK_MAX.get())
        };
        if let Some(full) = self.full.take_if(is_old) {
            self.seal(full, false);
        }
        if self.is_receiving {
            return true;
        }
        if self.is_full(least) {
            self.full = self.filling.take();
        } else if let Some(old) = self.filling.take_if(is_old) {
            self.seal(old, false);
        }
        if self.filling.is_none() {
            self.filling = self.begin_block();
        }
        if self.filling.is_none() {
            if let Some(full) = self.full.take() {
                self.seal(full, false);
            }
            self.starved = true;
            for track in &mut self.tracks {
                track.starved = true;
                track.is_drained = false;
            }
        }
        self.filling.is_some()
    }

    /// An empty block, behind all others; `None`: no buffer is free.
    fn begin_block(&mut self) -> Option<Filling> {
        let buffer = self.writer.take()?;
        let serial = self.indexer.serial() + u64::from(self.full.is_some());
        let index = match index::ends_group(serial) {
            true => index::section_bytes_max(buffer.len()),
            false => 0,
        };
        Some(Filling {
            composer: Composer::new(buffer.len(), self.text.len(), index),
            text: Arc::clone(&self.text),
            buffer,
        })
    }

    /// The longest body that every block has room for.
    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        let block = self.writing.archive().header().block_bytes as usize;
        let index = index::section_bytes_max(block);
        Composer::new(block, self.text_bytes_max, index)
            .room()
            .len()
    }

    /// A packet came that is longer than that; of one of RTCP there is no header.
    pub fn note_too_long(&mut self, track: usize, header: Option<&[u8; HEADER_BYTES]>) {
        self.tally.too_long += 1;
        if let Some(header) = header {
            self.drop_packet(track, header, Why::TooLong);
        }
    }

    /// Hands over a block that nothing more goes into.
    fn seal(&mut self, block: Filling, is_last: bool) {
        let Filling {
            mut buffer,
            composer,
            text,
        } = block;
        if composer.is_empty() {
            self.writer.give_back(buffer);
            return;
        }
        let seal = Seal {
            archive: self.writing.archive().header().archive,
            serial: self.indexer.serial(),
            recording: self.writing.number(),
            first: self.writing.first(),
            begun_unix_ns: self.writing.begun_unix_ns(),
            is_last,
        };
        self.demand.block(std::mem::take(&mut self.in_block));
        let section = self.indexer.block(is_last, composer.index_room());
        self.indexer.thin(index::keys_max(buffer.len()));
        let (section, index) = section.unzip();
        composer.seal(&mut buffer, &text, &section.unwrap_or_default(), &seal);
        let buffer_bytes = buffer.len();
        self.writer.put(buffer, Bytes(buffer_bytes as u64));
        let archive = self.writing.archive();
        let index = match index {
            Some(mut index) => {
                // In memory it names as many keys as one that is read.
                index.thin(index::keys_max(index::section_bytes_max(buffer_bytes)));
                let index = Arc::new(index);
                archive.keep(seal.recording, seal.serial, Some(Arc::clone(&index)));
                index
            }
            None => Arc::new(self.indexer.so_far()),
        };
        self.writing.indexed(index);
    }

    /// Whether a part of a body has come: nothing else can be received before the rest of it has.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.is_receiving
    }

    /// Receives into the next body, from `filled` of it on, with what `receive` does; there has to be
    /// [room](Self::make_room) for `len`.
    ///
    /// # Errors
    /// What `receive` does.
    pub fn fill(
        &mut self,
        filled: usize,
        len: usize,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, RecordError>,
    ) -> Result<usize, RecordError> {
        let Some(filling) = &mut self.filling else {
            return Ok(0);
        };
        let from = filling.composer.room().start;
        let count = receive(&mut filling.buffer[from + filled..from + len])?;
        self.is_receiving = (1..len).contains(&(filled + count));
        Ok(count)
    }

    /// Notes that so much of a body was copied.
    pub fn note_copied(&mut self, bytes: usize) {
        self.tally.copied_bytes += bytes as u64;
    }

    /// No more comes of the packet that is being received in a connection, which has ended: what lies before it is not kept
    /// waiting for that.
    pub fn cut(&mut self) {
        self.is_receiving = false;
    }

    /// Nothing is to come but what waits to be received: what is full goes to the disks before its time where that does nobody
    /// harm, as it does at the end.
    pub fn end(&mut self) {
        self.cut();
        self.writer.end();
    }

    /// Ends the recording: what was received is written and durable then.
    ///
    /// # Errors
    /// When a block fails.
    pub fn finish(mut self) -> Result<(PaceReport, Tally), RecordError> {
        self.tell_missing(true);
        for block in self.full.take().into_iter().chain(self.filling.take()) {
            self.seal(block, true);
        }
        let Self {
            writer,
            mut writing,
            tally,
            ..
        } = self;
        let report = writer
            .finish(&mut |block: &BlockReport| writing.written(block.index, block.buffers))?;
        Ok((report, tally))
    }
}

impl std::fmt::Debug for RtpRecorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtpRecorder")
            .field("recording", &self.writing.number())
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}
