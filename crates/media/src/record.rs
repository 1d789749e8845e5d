//! From packets to blocks.
//!
//! A body is received where it stays: behind the previous one, in the block that is being filled. If the next body
//! may not fit, another buffer is filled; as soon as that holds a packet, the full block is sealed and handed to
//! the stream's [`BlockWriter`], which writes it at the reserved rate. While no buffer is free nothing is received:
//! over a connection the peer is held up by that, by UDP the kernel drops packets. The gap in their numbers is in
//! the recording and in the [`Tally`].
//!
//! | part | job |
//! |---|---|
//! | `buffers` | the block that is being filled, and the full one before it |
//! | `output` | seals blocks, indexes them, and writes them |
//! | `block_text` | the description that each block ends with |
//! | `rate` | requests another rate when packets arrive faster or slower |
//! | `tracks`, `track` | the sender, order, clock and frames of each track |
//! | `silence` | tells a gap from the usual time between packets |
//! | `counts`, [missing] | counts of packets, and the ranges of missing ones |
//! | `datagrams` | receives by UDP |

mod block_text;
mod buffers;
mod counts;
mod datagrams;
pub mod missing;
mod output;
mod rate;
mod silence;
mod track;
mod tracks;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use engine::clock;
use engine::stream::{BlockWriter, PaceError, PaceReport, Stream};
use sched::units::{Bytes, Time};

use crate::archive::ActiveRecording;
use crate::archive::block::Kind;
use crate::archive::gap::GapCause;
use crate::archive::index::Indexer;
use crate::archive::wall_clock;
use crate::live::{LiveBusy, LivePacket, LiveStreams, LiveWriter};
use crate::record::missing::LossReason;
use crate::rtp::packet::{HEADER_BYTES, PacketHead};
use crate::rtp::reception::ReceiverReport;
use crate::sdp::Description;
use crate::session::registry::Session;
use block_text::BlockText;
use buffers::BlockBuffers;
pub use counts::Tally;
use counts::{LogScope, PacketCounts};
pub use datagrams::EndedSocket;
use output::{BlockOutput, Output};
use rate::RateControl;
use silence::Silence;
use tracks::{Arrival, SenderPolicy, TrackSet};

/// A block with less room for a body than this is full for a packet of unknown length, in bytes.
const ROOM_MIN: usize = 2_048;

/// A report whose arrival is further from the media time of the packets before it takes that time.
const REPORT_APART_NS_MAX: u64 = 1_000_000_000_000;

/// A recording on its way to the disks, and to the players of the live stream.
pub struct RtpRecorder<'a> {
    buffers: BlockBuffers,
    output: Output<'a>,
    live: LiveWriter,
    tracks: TrackSet,
    counts: PacketCounts,
    /// Arrival of the last packet.
    heard: Option<Time>,
    /// Media time of the last RTP packet, in nanoseconds.
    shown_ns: u64,
    silence: Silence,
}

/// Why a recording ended early.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A block could not be written.
    #[error(transparent)]
    Pace(#[from] PaceError),
    /// A socket failed.
    #[error("receiving failed: {0}")]
    Socket(#[from] io::Error),
    /// The stream has another source.
    #[error(transparent)]
    Busy(#[from] LiveBusy),
}

impl<'a> RtpRecorder<'a> {
    /// Begins a recording, whose packets are also the live stream of its volume's name.
    ///
    /// # Errors
    /// When there is no memory for it, or the stream has another source.
    pub fn new(
        stream: &'a Stream,
        mut writing: ActiveRecording,
        description: &Description,
        member: Arc<Session>,
        streams: &Arc<LiveStreams>,
    ) -> Result<Self, RecordError> {
        let begun = clock::now();
        let begun_unix_ns = wall_clock::now_unix_ns();
        let name = writing.archive().volume().name().to_owned();
        let live = streams.begin(
            &name,
            Some(writing.number()),
            description,
            (begun_unix_ns, begun),
        )?;
        writing.begin(begun_unix_ns, begun, stream.changer());
        let follows = writing.follows();
        let placer = writing.placer();
        let writer = BlockWriter::new(stream, Bytes::ZERO)?;
        let mut writer = writer.placed(move |index| placer.place(index));
        let rate = RateControl::new(stream, member);
        writer.borrow_at_most(rate.borrowed_max());
        let output = BlockOutput {
            writer,
            indexer: Indexer::new(writing.first(), description.video_track()),
            writing,
            text: BlockText::new(description, stream.rate()),
            rate,
            end: GapCause::Unknown,
        };
        let output = Output::Disks(Box::new(output));
        let mut recorder = Self::begun(output, live, begun);
        if let Some(cause) = follows {
            recorder.buffers.follow(cause);
        }
        Ok(recorder)
    }

    /// Begins a stream that is live only.
    ///
    /// # Errors
    /// When the stream has another source.
    pub fn live_only(
        name: &str,
        description: &Description,
        streams: &Arc<LiveStreams>,
    ) -> Result<Self, RecordError> {
        let begun = clock::now();
        let live = streams.begin(name, None, description, (wall_clock::now_unix_ns(), begun))?;
        Ok(Self::begun(Output::nowhere(), live, begun))
    }

    fn begun(output: Output<'a>, live: LiveWriter, begun: Time) -> Self {
        Self {
            buffers: BlockBuffers::new(),
            output,
            tracks: TrackSet::new(live.feed().description()),
            live,
            counts: PacketCounts::new(begun),
            heard: None,
            shown_ns: 0,
            silence: Silence::default(),
        }
    }

    /// Events that wake the caller, which then calls [`drain`](Self::drain) and [`advance`](Self::advance).
    pub fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let writer = self.output.disks().map(|output| &output.writer);
        let events = writer.map(|writer| [writer.event(), writer.memory_event()]);
        events.into_iter().flatten()
    }

    /// Full blocks that wait for the disks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.output
            .disks()
            .map_or(0, |output| output.writer.waiting())
    }

    /// The number of players of the live stream.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.live.feed().readers()
    }

    /// Drains the events.
    pub fn drain(&self) {
        if let Some(output) = self.output.disks() {
            output.writer.drain();
        }
    }

    /// Arms the events; returns true if the caller may sleep.
    #[must_use]
    pub fn arm(&self) -> bool {
        self.output.disks().is_none_or(|output| output.writer.arm())
    }

    /// The time at which something is due for the disks.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.output.disks()?.writer.next_at()
    }

    /// Counts so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.counts.tally
    }

    /// The receiver report for the sender of a track; `None` if nothing has arrived of it.
    pub fn reception(&mut self, track: usize) -> Option<ReceiverReport> {
        self.tracks.reception(track)
    }

    /// Takes every SSRC for that of the source: a camera that is pulled from may restart under another one.
    pub fn follow(&mut self) {
        self.tracks.sender_policy = SenderPolicy::Any;
    }

    /// Arrival of the last packet.
    #[must_use]
    pub fn heard(&self) -> Option<Time> {
        self.heard
    }

    /// The time at which the recording is over because its senders have left: half a second after the last of those
    /// that were heard has sent BYE (RFC 3550, section 6.6). `None` if one of them has not. Late packets arrive
    /// until then, and a sender that restarts under another SSRC has not left.
    #[must_use]
    pub fn over_at(&self) -> Option<Time> {
        self.tracks.over_at()
    }

    /// The session with the source has ended for this reason. What follows, another session or the end of the
    /// recording, has the first such reason since the last packet.
    pub fn lose(&mut self, cause: GapCause) {
        self.silence.cause.get_or_insert(cause);
    }

    /// The packets from now on belong to another session with the same source: numbers and timestamps begin anew,
    /// and the time until the first packet is a gap.
    pub fn restart(&mut self) {
        self.tracks.restart();
        if let Some(output) = self.output.disks_mut() {
            output.rate.restart(self.counts.now_ns());
        }
        let cause = self.silence.cause.unwrap_or_default();
        self.buffers.begin_gap(&mut self.output, cause);
    }

    /// True if a packet of a track may begin with these bytes.
    pub(crate) fn may_be_of(&self, track: usize, kind: Kind, head: &PacketHead) -> bool {
        self.tracks.may_begin(track, kind, head)
    }

    /// Does what is due for the disks and for the reservation.
    ///
    /// # Errors
    /// When a block could not be written.
    pub fn advance(&mut self) -> Result<(), RecordError> {
        self.live.publish();
        if let Some(output) = self.output.disks_mut() {
            output.advance()?;
            if output.writer.are_wanted_back() {
                self.buffers.seal_borrowed(&mut self.output);
            }
        }
        if let Some(output) = self.output.disks_mut() {
            output.look(self.counts.tally);
        }
        self.log_missing(LogScope::Due);
        Ok(())
    }

    /// True if there is room for a packet: by UDP for one of unknown length, over a connection for one whose length
    /// has not arrived.
    pub fn has_room(&mut self, by_udp: bool) -> bool {
        self.make_room(if by_udp { ROOM_MIN } else { 0 })
    }

    /// Sees to it that a body of `least` bytes can be received, in a new block if the current one has too little
    /// room; false if no buffer is free for that.
    pub fn make_room(&mut self, least: usize) -> bool {
        let now_ns = self.counts.now_ns();
        if self.silence.is_gap(now_ns) && !self.buffers.is_in_gap() {
            let cause = self.silence.cause.unwrap_or(GapCause::Network);
            self.buffers.begin_gap(&mut self.output, cause);
            if let Some(output) = self.output.disks_mut() {
                output.rate.restart(now_ns);
            }
        }
        let has_room = self.buffers.make_room(&mut self.output, least, now_ns);
        if !has_room {
            if let Some(output) = self.output.disks_mut() {
                output.rate.note_starved();
            }
            self.tracks.note_starved();
            self.silence.interrupt(now_ns);
        }
        has_room
    }

    /// The longest body, in bytes, that every block has room for.
    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        self.output.body_bytes_max()
    }

    /// A packet has arrived that is longer than every block has room for; an RTCP packet has no `header`.
    pub fn note_too_long(&mut self, track: usize, header: Option<&[u8; HEADER_BYTES]>) {
        self.counts.tally.too_long += 1;
        if let Some(header) = header {
            self.drop_packet(track, header, LossReason::TooLong);
        }
    }

    /// True if a part of a body has arrived: nothing else can be received before the rest of it.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        self.buffers.is_receiving()
    }

    /// Receives with `receive` into the next body, from byte `filled` of it on; returns the number of bytes. There
    /// has to be [room](Self::make_room) for `len` bytes.
    ///
    /// # Errors
    /// Those of `receive`.
    pub fn fill(
        &mut self,
        filled: usize,
        len: usize,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, RecordError>,
    ) -> Result<usize, RecordError> {
        self.buffers.fill(filled, len, receive)
    }

    /// Counts bytes of a body that were copied.
    pub fn note_copied(&mut self, bytes: usize) {
        self.counts.tally.copied_bytes += bytes as u64;
    }

    /// Takes in a packet whose body of `len` bytes has been received.
    pub fn packet(&mut self, track: usize, kind: Kind, header: &[u8; HEADER_BYTES], len: usize) {
        let arrival = Arrival {
            track,
            header,
            arrival_ns: self.counts.now_ns(),
        };
        let Some(body) = self.buffers.body(len) else {
            self.buffers.seal_full(&mut self.output);
            if kind == Kind::Rtp {
                self.tracks.track_mut(track).note_starved();
                self.drop_packet(track, header, LossReason::NoBuffer);
            }
            return;
        };
        let entry = match kind {
            Kind::Rtp => self.tracks.packet_entry(&mut self.counts, arrival, body),
            Kind::Rtcp => Some(self.tracks.report_entry(arrival, body)),
        };
        let Some(mut entry) = entry else {
            return;
        };
        // The full block is not the last one: a packet follows it.
        self.buffers.seal_full(&mut self.output);
        match kind {
            Kind::Rtp => self.shown_ns = entry.media_ns,
            // A report has the time of its arrival, unless packets are shown at quite another time.
            Kind::Rtcp if entry.media_ns.abs_diff(self.shown_ns) > REPORT_APART_NS_MAX => {
                entry.media_ns = self.shown_ns;
            }
            Kind::Rtcp => {}
        }
        if !self.buffers.fit(&mut self.output, &mut entry, len) {
            if let Some(output) = self.output.disks_mut() {
                output.rate.note_starved();
            }
            self.tracks.drop_entry(&mut self.counts, &entry);
            return;
        }
        let tally = &mut self.counts.tally;
        tally.bytes += len as u64;
        let fit_losses = match kind {
            Kind::Rtp => {
                tally.packets += 1;
                tally.bytes += HEADER_BYTES as u64;
                self.tracks.take_fit_losses(track, entry.lost)
            }
            Kind::Rtcp => {
                tally.reports += 1;
                0
            }
        };
        if kind == Kind::Rtp
            && let Some(body) = self.buffers.body(len)
        {
            self.live.push(LivePacket {
                track: entry.track,
                begins_frame: entry.begins_frame,
                is_key: entry.is_key,
                arrival_ns: entry.arrival_ns,
                media_ns: entry.media_ns,
                header: entry.header,
                body: body.into(),
            });
        }
        self.silence.end(entry.arrival_ns, self.buffers.is_in_gap());
        self.buffers.push(&entry, len, fit_losses);
        if let Some(output) = self.output.disks_mut() {
            output.indexer.packet(&entry, len);
        }
        self.heard = Some(clock::now());
    }

    /// A packet has arrived and is not recorded.
    fn drop_packet(&mut self, track: usize, header: &[u8; HEADER_BYTES], why: LossReason) {
        let arrival = Arrival {
            track,
            header,
            arrival_ns: self.counts.now_ns(),
        };
        self.tracks.drop_packet(&mut self.counts, arrival, why);
    }

    /// Logs which packets are missing.
    fn log_missing(&mut self, which: LogScope) {
        let Some(missing) = self.counts.take_missing(which) else {
            return;
        };
        let feed = self.live.feed();
        let (volume, recording) = (feed.name(), feed.recording().unwrap_or(0));
        tracing::warn!(volume, recording, "packets are missing: {missing}");
    }

    /// Gives up the packet that is being received: its connection has ended.
    pub fn cut(&mut self) {
        self.buffers.cut();
    }

    /// Only packets that wait to be received follow: full blocks may be written before their time where that harms
    /// no other stream.
    pub fn end(&mut self) {
        self.cut();
        if let Some(output) = self.output.disks_mut() {
            output.writer.end();
        }
    }

    /// Ends the recording: everything received is written and durable when this returns.
    ///
    /// # Errors
    /// When a block could not be written.
    pub fn finish(mut self) -> Result<(PaceReport, Tally), RecordError> {
        self.log_missing(LogScope::All);
        if let Some(output) = self.output.disks_mut() {
            output.end = self.silence.cause.unwrap_or_default();
            output.writing.ends(output.end);
        }
        self.buffers.seal_last(&mut self.output);
        // Players of the live stream do not wait for the disks.
        drop(self.live);
        let report = match self.output {
            Output::Disks(output) => output.finish()?,
            Output::Nowhere(_) => PaceReport::default(),
        };
        Ok((report, self.counts.tally))
    }
}

impl std::fmt::Debug for RtpRecorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtpRecorder")
            .field("live", self.live.feed())
            .field("tally", &self.counts.tally)
            .finish_non_exhaustive()
    }
}
