//! The side of a live stream that a player reads.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::feed::{LiveEvent, LiveFeed, LivePacket};
use crate::rtp::packet::HEADER_BYTES;

/// Timestamps of packets that are older than the beginning of playing are this many times closer to the newest one.
const PAST_PART: i32 = 1_000;

/// Reads a live stream from its latest key frame on.
#[derive(Debug)]
pub struct LiveReader {
    feed: Arc<LiveFeed>,
    event: Arc<LiveEvent>,
    position: Position,
    /// True if packets of other tracks that are older than the beginning are given too.
    has_past_sound: bool,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    /// At the next key frame, after `missed` packets were skipped.
    Key { missed: u64 },
    /// At this packet. Packets before `caught_up` were there when the reader began at a key frame.
    Packet {
        next: u64,
        caught_up: u64,
        newest: NewestPicture,
    },
}

/// The newest packet of the picture track when a reader began.
#[derive(Clone, Copy, Debug, Default)]
struct NewestPicture {
    timestamp: u32,
    media_ns: u64,
}

/// A packet for a player.
#[derive(Clone, Debug)]
pub struct LiveOut {
    /// The packet.
    pub packet: Arc<LivePacket>,
    /// The header with which it is sent.
    pub header: [u8; HEADER_BYTES],
    /// The time that its timestamp means, in nanoseconds since the stream began.
    pub media_ns: u64,
    /// It is older than the beginning of playing, and there to decode the packets behind it. All such packets have
    /// timestamps within a thousandth of their real distance, up to the newest one: a player that paces by timestamps
    /// shows them at once, and is not late by the age of the key frame.
    pub is_past: bool,
}

/// Packets of a live stream.
#[derive(Debug, Default)]
pub struct LiveBatch {
    /// In the order of their arrival.
    pub packets: Vec<LiveOut>,
    /// Packets that were skipped before the first one, because the reader was too slow.
    pub missed: u64,
    /// True if `packets` begins at a key frame that does not follow the previous packets.
    pub is_anew: bool,
    /// True if no more packets follow.
    pub is_last: bool,
}

impl LiveReader {
    pub(super) fn new(feed: Arc<LiveFeed>, event: Arc<LiveEvent>) -> Self {
        Self {
            feed,
            event,
            position: Position::Key { missed: 0 },
            has_past_sound: false,
        }
    }

    /// The same, with the packets of all tracks since the key frame, for readers that do not play at once.
    #[must_use]
    pub fn with_past_sound(self) -> Self {
        Self {
            has_past_sound: true,
            ..self
        }
    }

    /// Its stream.
    #[must_use]
    pub fn feed(&self) -> &Arc<LiveFeed> {
        &self.feed
    }

    /// Readable when there are packets, and at the end of the stream.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.fd.as_fd()
    }

    /// Takes at most `count` packets, and drains the event.
    pub fn take(&mut self, count: usize) -> LiveBatch {
        self.event.drain();
        let video_track = self.feed.description().video_track();
        let state = self.feed.state();
        let end = state.end();
        let mut batch = LiveBatch::default();
        if let Position::Packet { next, .. } = self.position
            && next < state.first
        {
            self.position = Position::Key {
                missed: state.first - next,
            };
        }
        if let Position::Key { missed } = self.position {
            let Some(start) = state.start(video_track) else {
                batch.is_last = state.has_ended;
                return batch;
            };
            // Those between the oldest packet and the key frame are skipped as well.
            batch.missed = match missed {
                0 => 0,
                missed => missed + (start - state.first),
            };
            batch.is_anew = true;
            let from = (start - state.first) as usize;
            let of_picture = |of: &&Arc<LivePacket>| of.track == video_track;
            let newest = state.packets.range(from..).rfind(of_picture);
            let newest = newest.map(|of| NewestPicture {
                timestamp: timestamp(&of.header),
                media_ns: of.media_ns,
            });
            self.position = Position::Packet {
                next: start,
                caught_up: end,
                newest: newest.unwrap_or_default(),
            };
        }
        let Position::Packet {
            next,
            caught_up,
            newest,
        } = self.position
        else {
            return batch;
        };
        let taken = (end - next).min(count as u64);
        let from = (next - state.first) as usize;
        for (number, packet) in (next..).zip(state.packets.range(from..from + taken as usize)) {
            let is_past = number < caught_up;
            if is_past && packet.track != video_track && !self.has_past_sound {
                continue;
            }
            let mut header = packet.header;
            if is_past {
                let newest = newest.timestamp;
                let before = newest.wrapping_sub(timestamp(&header)) as i32;
                let near = newest.wrapping_sub((before / PAST_PART) as u32);
                header[4..8].copy_from_slice(&near.to_be_bytes());
            }
            batch.packets.push(LiveOut {
                packet: Arc::clone(packet),
                header,
                media_ns: if is_past {
                    newest.media_ns
                } else {
                    packet.media_ns
                },
                is_past,
            });
        }
        self.position = Position::Packet {
            next: next + taken,
            caught_up,
            newest,
        };
        batch.is_last = state.has_ended && next + taken == end;
        batch
    }
}

/// The timestamp in an RTP header (RFC 3550, section 5.1).
fn timestamp(header: &[u8; HEADER_BYTES]) -> u32 {
    let [_, _, _, _, a, b, c, d, ..] = *header;
    u32::from_be_bytes([a, b, c, d])
}
