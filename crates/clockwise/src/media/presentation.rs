//! Recordings that are played together.
//!
//! Each has a reservation and a [playback](Playback) of its own. One is the master: it says where to begin and when it is
//! over. All are shown by one clock, on which what was recorded at one time, by the clock on the wall, is shown at one
//! time; so none drifts against another, and one whose blocks are late or missing holds up none. Packets go in the order
//! of their times.

use std::io::{self, IoSlice};

use engine::clock;
use engine::stream::BlockReader;
use sched::units::Time;

use super::block::Entry;
use super::packet::HEADER_BYTES;
use super::play::{PlayError, Playback, Start, Upcoming};

/// What ends so much later than the master, as it was told to stop with it, is played to its end.
const ENDS_WITHIN_NS: u64 = 1_000_000_000;

/// A time by the clock on the wall, in a recording that began then, in nanoseconds; below zero before that.
#[must_use]
pub(super) fn media_ns(unix_ns: i128, begun_unix_ns: u64) -> i128 {
    unix_ns - i128::from(begun_unix_ns)
}

/// A time of a recording that began then, by the clock on the wall, in nanoseconds since 1970.
#[must_use]
pub(super) fn unix_ns(media_ns: u64, begun_unix_ns: u64) -> i128 {
    i128::from(begun_unix_ns) + i128::from(media_ns)
}

/// A recording among those that are played together.
pub(super) struct Part<'a> {
    pub(super) playback: Playback<'a>,
    /// Which of the presentation's it is.
    pub(super) number: usize,
    /// The presentation's number of its first track.
    pub(super) first_track: usize,
    /// When it began, in nanoseconds since 1970.
    pub(super) begun_unix_ns: u64,
}

/// Recordings on their way to who plays them.
pub(super) struct Presentation<'a> {
    /// The master is the first one, and there is one.
    parts: Vec<Part<'a>>,
    /// Whose packet is next.
    next: usize,
    /// The master has ended, and the others have been told.
    is_over: bool,
}

impl<'a> Presentation<'a> {
    /// The first of these and those that follow it; `None`: there is none.
    pub(super) fn new(parts: Vec<Part<'a>>) -> Option<Self> {
        (!parts.is_empty()).then_some(Self {
            parts,
            next: 0,
            is_over: false,
        })
    }

    fn playback(&self) -> &Playback<'a> {
        &self.parts[self.next].playback
    }

    /// The streams' side of it, to be slept for.
    pub(super) fn readers(&self) -> impl Iterator<Item = &BlockReader<'a>> {
        self.parts.iter().map(|part| part.playback.reader())
    }

    /// Before sleeping: whether that may be.
    pub(super) fn arm(&self) -> bool {
        // Each has to be armed, whatever another one says.
        self.readers().filter(|reader| !reader.arm()).count() == 0
    }

    /// Does what there is to do for the disks, which goes on while nothing can be sent.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub(super) fn read_ahead(&mut self) -> Result<(), PlayError> {
        self.parts
            .iter_mut()
            .try_for_each(|part| part.playback.read_ahead())
    }

    /// Does what there is to do for the disks, and finds out what is to be sent next; if a packet has `begun` to go, that
    /// is the rest of it.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub(super) fn advance(&mut self, has_begun: bool) -> Result<Upcoming, PlayError> {
        let (mut first, mut is_unread) = (None, false);
        for number in 0..self.parts.len() {
            let part = &mut self.parts[number];
            match part.playback.advance()? {
                Upcoming::Packet { due, track, kind } => {
                    let is_next = match has_begun {
                        true => number == self.next,
                        false => first.is_none_or(|(_, earliest, _, _)| due < earliest),
                    };
                    if is_next {
                        first = Some((number, due, part.first_track + track, kind));
                    }
                }
                Upcoming::Unread => is_unread = true,
                Upcoming::Nothing if number == 0 => self.follow(),
                Upcoming::Nothing => {}
            }
        }
        if let Some((number, due, track, kind)) = first {
            self.next = number;
            return Ok(Upcoming::Packet { due, track, kind });
        }
        Ok(match is_unread {
            true => Upcoming::Unread,
            false => Upcoming::Nothing,
        })
    }

    /// The master is over: the others end soon behind the time of its last packet.
    fn follow(&mut self) {
        let [master, others @ ..] = &mut self.parts[..] else {
            return;
        };
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if let Some(last) = master.playback.reached_ns() {
            let last = unix_ns(last, master.begun_unix_ns);
            for other in others {
                let last = media_ns(last, other.begun_unix_ns).max(0);
                let last = u64::try_from(last).unwrap_or(u64::MAX);
                other.playback.end_within(last, ENDS_WITHIN_NS);
            }
        }
    }

    /// The packet that is next, if it is there: its entry.
    pub(super) fn packet(&self) -> Option<&Entry> {
        self.playback().packet()
    }

    /// The presentation's number of that packet's track.
    pub(super) fn track(&self) -> usize {
        let track = self.packet().map_or(0, |entry| usize::from(entry.track));
        self.parts[self.next].first_track + track
    }

    /// As of its playback.
    pub(super) fn packet_len(&self) -> usize {
        self.playback().packet_len()
    }

    /// As of its playback.
    pub(super) fn header(&self) -> Option<[u8; HEADER_BYTES]> {
        self.playback().header()
    }

    /// As of its playback; now if nothing is next.
    pub(super) fn plays_at(&self) -> Time {
        self.playback().plays_at().unwrap_or_else(clock::now)
    }

    /// As of its playback.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) fn send(
        &self,
        writev: impl FnOnce(&[IoSlice<'_>]) -> io::Result<Option<usize>>,
        frame: &[u8],
        sent: usize,
    ) -> Result<Option<(usize, usize)>, PlayError> {
        self.playback().send(writev, frame, sent)
    }

    /// The packet that was next, so long, has been sent.
    pub(super) fn sent(&mut self, len: usize) {
        self.parts[self.next].playback.sent(len);
    }

    /// The packet that was next is passed over.
    pub(super) fn done(&mut self) {
        self.parts[self.next].playback.done();
    }

    /// Where each of them is, of so many.
    pub(super) fn positions(&self, count: usize) -> Vec<Option<Start>> {
        let mut positions = vec![None; count];
        for part in &self.parts {
            if let Some(of) = positions.get_mut(part.number) {
                *of = Some(part.playback.position());
            }
        }
        positions
    }
}
