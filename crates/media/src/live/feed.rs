//! The packets of a live stream, and the side that adds to them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::event::EventFd;
use sched::units::Time;

use super::reader::LiveReader;
use super::streams::LiveStreams;
use crate::rtp::packet::HEADER_BYTES;
use crate::sdp::Description;

/// The most bytes of packets that a feed keeps.
pub const FEED_BYTES_MAX: usize = 32 << 20;

/// Bytes that a packet takes beside its own: metadata, counts and the allocator's.
const PACKET_HEAD_BYTES: usize = 128;

/// Packets before the latest key frame are kept for this long after their arrival, for readers that are behind.
const KEPT_NS: u64 = 2_000_000_000;

/// A stream without key frames is played from its newest frame on after this time.
const KEY_WITHIN_NS: u64 = 10_000_000_000;

/// An RTP packet as it arrived.
#[derive(Debug)]
pub struct LivePacket {
    /// The number of its track, from 0.
    pub track: u8,
    /// True if a frame begins with it.
    pub begins_frame: bool,
    /// True if that frame can be decoded without any before it.
    pub is_key: bool,
    /// When it arrived, in nanoseconds since the stream began.
    pub arrival_ns: u64,
    /// When it is to be played, in nanoseconds since the stream began.
    pub media_ns: u64,
    /// The fixed header, as received.
    pub header: [u8; HEADER_BYTES],
    /// The rest of the packet.
    pub body: Box<[u8]>,
}

impl LivePacket {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }

    /// False: a packet has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// An event of a reader: signalled at most once until the reader has drained it.
#[derive(Debug)]
pub(super) struct LiveEvent {
    pub(super) fd: EventFd,
    is_signalled: AtomicBool,
}

impl LiveEvent {
    fn signal(&self) {
        if !self.is_signalled.swap(true, Ordering::SeqCst) {
            self.fd.signal();
        }
    }

    /// Call before packets are taken.
    pub(super) fn drain(&self) {
        self.fd.drain();
        self.is_signalled.store(false, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
pub(super) struct FeedState {
    /// In the order of their arrival.
    pub(super) packets: VecDeque<Arc<LivePacket>>,
    /// The number of the first of `packets`. Packets are numbered from 0.
    pub(super) first: u64,
    /// Bytes of `packets`.
    bytes: usize,
    /// For each track the number of the packet that began its latest frame.
    frames: Vec<u64>,
    /// The number of the packet that began the latest key frame.
    key: Option<u64>,
    /// No more packets follow.
    pub(super) has_ended: bool,
    readers: Vec<Weak<LiveEvent>>,
}

impl FeedState {
    /// The number after the newest packet.
    pub(super) fn end(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// The number of the packet with which a reader begins; `None` while there is no key frame.
    pub(super) fn start(&self, video_track: u8) -> Option<u64> {
        if let Some(key) = self.key.filter(|key| *key >= self.first) {
            return Some(key);
        }
        let is_late = |packet: &Arc<LivePacket>| packet.arrival_ns > KEY_WITHIN_NS;
        let is_keyless = self.key.is_none() && self.packets.back().is_some_and(is_late);
        let frame = *self.frames.get(usize::from(video_track))?;
        (is_keyless && frame >= self.first).then_some(frame)
    }

    fn push(&mut self, packet: LivePacket, video_track: u8) {
        let number = self.end();
        let LivePacket {
            track,
            begins_frame,
            is_key,
            ..
        } = packet;
        if let Some(frame) = self.frames.get_mut(usize::from(track)) {
            if begins_frame {
                *frame = number;
            }
            if is_key && track == video_track {
                self.key = Some(*frame);
            }
        }
        self.bytes += packet.len() + PACKET_HEAD_BYTES;
        self.packets.push_back(Arc::new(packet));
    }

    /// Drops the packets that are not kept.
    fn trim(&mut self) {
        let newest_ns = self.packets.back().map_or(0, |of| of.arrival_ns);
        while let Some(oldest) = self.packets.front() {
            let is_old = oldest.arrival_ns.saturating_add(KEPT_NS) < newest_ns;
            let is_before_key = self.key.is_none_or(|key| self.first < key);
            if self.bytes <= FEED_BYTES_MAX && !(is_old && is_before_key) {
                break;
            }
            self.bytes -= oldest.len() + PACKET_HEAD_BYTES;
            self.packets.pop_front();
            self.first += 1;
        }
    }
}

/// A live stream.
#[derive(Debug)]
pub struct LiveFeed {
    name: String,
    recording: Option<u64>,
    description: Description,
    begun_unix_ns: u64,
    begun: Time,
    state: Mutex<FeedState>,
}

impl LiveFeed {
    pub(super) fn new(
        name: String,
        recording: Option<u64>,
        description: Description,
        (begun_unix_ns, begun): (u64, Time),
    ) -> Self {
        let frames = vec![0; description.tracks().len()];
        Self {
            name,
            recording,
            description,
            begun_unix_ns,
            begun,
            state: Mutex::new(FeedState {
                frames,
                ..FeedState::default()
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FeedState> {
        // Each change leaves a valid state, also if a later one panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the stream: that of its volume, if it is recorded.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its recording; `None` if the stream is live only.
    #[must_use]
    pub fn recording(&self) -> Option<u64> {
        self.recording
    }

    /// The description of its tracks.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The beginning of the stream in nanoseconds since 1970. Times of packets count from there.
    #[must_use]
    pub fn begun_unix_ns(&self) -> u64 {
        self.begun_unix_ns
    }

    /// The beginning on the monotonic clock.
    #[must_use]
    pub fn begun(&self) -> Time {
        self.begun
    }

    /// True if it can be played: a key frame has arrived.
    #[must_use]
    pub fn has_picture(&self) -> bool {
        self.state().start(self.description.video_track()).is_some()
    }

    /// The media time of the newest packet in nanoseconds; 0 before the first one.
    #[must_use]
    pub fn newest_ns(&self) -> u64 {
        self.state().packets.back().map_or(0, |of| of.media_ns)
    }

    /// The arrival of the newest packet, in nanoseconds since 1970; `None` before the first one.
    #[must_use]
    pub fn heard_unix_ns(&self) -> Option<u64> {
        let arrival_ns = self.state().packets.back()?.arrival_ns;
        Some(self.begun_unix_ns.saturating_add(arrival_ns))
    }

    /// A reader that begins with the latest key frame.
    ///
    /// # Errors
    /// When the process has no free file descriptor.
    pub fn read(self: &Arc<Self>) -> io::Result<LiveReader> {
        let event = Arc::new(LiveEvent {
            fd: EventFd::new()?,
            is_signalled: AtomicBool::new(false),
        });
        // The first packets may be there already.
        event.signal();
        let mut state = self.state();
        state.readers.retain(|of| of.strong_count() > 0);
        state.readers.push(Arc::downgrade(&event));
        drop(state);
        Ok(LiveReader::new(Arc::clone(self), event))
    }

    /// The number of its readers.
    #[must_use]
    pub fn readers(&self) -> usize {
        let state = self.state();
        let alive = state.readers.iter().filter(|of| of.strong_count() > 0);
        alive.count()
    }
}

/// Adds packets to a feed. Dropping it ends the feed.
#[derive(Debug)]
pub struct LiveWriter {
    feed: Arc<LiveFeed>,
    streams: Arc<LiveStreams>,
    /// Packets that readers do not see yet.
    batch: Vec<LivePacket>,
    /// It has been told that the stream can be played.
    is_told: bool,
}

impl LiveWriter {
    pub(super) fn new(feed: Arc<LiveFeed>, streams: Arc<LiveStreams>) -> Self {
        Self {
            feed,
            streams,
            batch: Vec::new(),
            is_told: false,
        }
    }

    /// Its feed.
    #[must_use]
    pub fn feed(&self) -> &Arc<LiveFeed> {
        &self.feed
    }

    /// Adds a packet. Readers see it after the next [`publish`](Self::publish).
    pub fn push(&mut self, packet: LivePacket) {
        self.batch.push(packet);
    }

    /// Shows readers the packets that were added.
    pub fn publish(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let video_track = self.feed.description.video_track();
        let mut state = self.feed.state();
        for packet in self.batch.drain(..) {
            state.push(packet, video_track);
        }
        state.trim();
        wake(&state);
        let has_picture = state.start(video_track).is_some();
        drop(state);
        if has_picture && !std::mem::replace(&mut self.is_told, true) {
            self.streams.tell_arrival();
        }
    }
}

impl Drop for LiveWriter {
    fn drop(&mut self) {
        self.publish();
        self.streams.end(&self.feed);
        let mut state = self.feed.state();
        state.has_ended = true;
        wake(&state);
    }
}

fn wake(state: &FeedState) {
    for reader in state.readers.iter().filter_map(Weak::upgrade) {
        reader.signal();
    }
}
