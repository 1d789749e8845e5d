//! Recordings that are played together.
//!
//! Each has a reservation and a [playback](Playback) of its own. One is the master: it says where to begin and when it is
//! over. All are shown by one clock, on which what was recorded at one time, by the wall clock, is shown at one
//! time; one whose blocks are late or missing holds up none. Packets go in the order of their times.
//! Where one of the others is over, the next one that was made in its volume meanwhile is played at the time of that.
//!
//! Each was recorded by its sender's clock, which goes from the host's ([drift](crate::archive::drift)). The master is shown by its
//! own, and the others follow it, by a thousandth of the time at most.

use std::io::{self, IoSlice};

use engine::clock;
use engine::stream::BlockReader;
use sched::units::{Nanos, Time};

use crate::archive::block::Entry;
use crate::archive::drift::Drift;
use crate::archive::start::Place;
use crate::play::{Continuation, PlayError, Playback, Upcoming};
use crate::rtp::packet::HEADER_BYTES;

/// What ends so much later than the master, as it was told to stop with it, is played to its end.
const ENDS_WITHIN_NS: i128 = 1_000_000_000;

/// Others are brought nearer to the master by this part of the time: as fast as clocks drift that are followed.
const STEP_PART: u64 = 1_000;

/// How often that is looked at.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// A time by the wall clock, in a recording that began then, in nanoseconds; below zero before that.
#[must_use]
pub(crate) fn media_ns(unix_ns: i128, begun_ns: i128) -> i128 {
    unix_ns - begun_ns
}

/// A time of a recording that began then, by the wall clock, in nanoseconds since 1970.
#[must_use]
pub(crate) fn unix_ns(media_ns: u64, begun_ns: i128) -> i128 {
    begun_ns + i128::from(media_ns)
}

/// How far a recording's clock has gone from the host's since it is played.
pub(crate) struct Following {
    drift: Drift,
    /// What it was at first.
    was_ns: i64,
    /// What it is.
    is_ns: i64,
    /// What it has been shifted by.
    shifted_ns: i64,
}

impl Following {
    /// From a time of it on.
    pub(crate) fn new(drift: Drift, first_ns: i128) -> Self {
        let was_ns = drift.ns(u64::try_from(first_ns.max(0)).unwrap_or(u64::MAX));
        Self {
            drift,
            was_ns,
            is_ns: was_ns,
            shifted_ns: 0,
        }
    }

    /// The same of a recording that is played behind another one, from a time of it on, and has gone as far as the master
    /// has.
    fn behind(drift: Drift, first_ns: u64, gone_ns: i64) -> Self {
        let mut following = Self::new(drift, i128::from(first_ns));
        following.was_ns -= gone_ns;
        following
    }

    fn note(&mut self, arrival_ns: u64, media_ns: u64) {
        self.drift.note(arrival_ns, media_ns);
        self.is_ns = self.drift.ns(media_ns);
    }

    /// How far it has gone since then.
    fn gone_ns(&self) -> i64 {
        self.is_ns - self.was_ns
    }

    /// What it is to be shifted by now to go along with one that has gone so far, at most so much.
    fn step(&mut self, master_gone_ns: i64, most_ns: i64) -> i64 {
        let wanted = master_gone_ns - self.gone_ns();
        let step = (wanted - self.shifted_ns).clamp(-most_ns, most_ns);
        self.shifted_ns += step;
        step
    }
}

/// A recording among those that are played together.
pub(crate) struct Part<'a> {
    pub(crate) playback: Playback<'a>,
    /// Which of the session's it is.
    pub(crate) number: usize,
    /// The session's number of its first track.
    pub(crate) first_track: usize,
    /// How many it has.
    pub(crate) tracks: usize,
    /// When the recording that is sent began, by its own clock where it is played, in nanoseconds since 1970.
    pub(crate) begun_ns: i128,
    pub(crate) drift: Following,
}

impl Part<'_> {
    /// What is to be sent next of it, which may be of another recording than before.
    fn advance(&mut self, first_unix_ns: i128, master_gone_ns: i64) -> Result<Upcoming, PlayError> {
        loop {
            let upcoming = self.playback.advance()?;
            let Some(next) = self.playback.next_up()? else {
                return Ok(upcoming);
            };
            let first_ns = media_ns(first_unix_ns, next.begun_ns) + i128::from(master_gone_ns);
            let late_ns = self.playback.turn(first_ns, self.begun_ns - next.begun_ns);
            self.begun_ns = next.begun_ns;
            self.drift = Following::behind(next.drift, next.media_ns, master_gone_ns);
            // It catches up as one does whose clock is slow.
            self.drift.shifted_ns -= late_ns;
        }
    }
}

/// Recordings on their way to who plays them.
pub(crate) struct Presentation<'a> {
    /// The master is the first one, and there is one.
    parts: Vec<Part<'a>>,
    /// What is shown first, by the wall clock, in nanoseconds since 1970.
    first_unix_ns: i128,
    /// Of each, whether nothing more of it is played.
    ended: Vec<bool>,
    /// Whose packet is next.
    next: usize,
    /// The master has ended, and the others have been told.
    is_over: bool,
    /// When the others were brought nearer to the master last.
    steered: Time,
}

impl<'a> Presentation<'a> {
    /// The first of these and those that follow it, from that time on by the wall clock; `None`: there is none.
    pub(crate) fn new(mut parts: Vec<Part<'a>>, first_unix_ns: i128) -> Option<Self> {
        for part in parts.iter_mut().skip(1) {
            part.playback.is_led = true;
        }
        (!parts.is_empty()).then_some(Self {
            ended: vec![false; parts.len()],
            parts,
            first_unix_ns,
            next: 0,
            is_over: false,
            steered: clock::now(),
        })
    }

    fn playback(&self) -> &Playback<'a> {
        &self.parts[self.next].playback
    }

    /// The streams' side of it, to be slept for.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &BlockReader<'a>> {
        self.parts.iter().map(|part| part.playback.reader())
    }

    /// Before sleeping: whether that may be.
    pub(crate) fn arm(&self) -> bool {
        // Each has to be armed, whatever another one says.
        self.readers().filter(|reader| !reader.arm()).count() == 0
    }

    /// Does what there is to do for the disks, which goes on while nothing can be sent.
    ///
    /// # Errors
    /// When a block of the master cannot be read.
    pub(crate) fn read_ahead(&mut self) -> Result<(), PlayError> {
        for number in 0..self.parts.len() {
            if !self.ended[number] {
                let read = self.parts[number].playback.read_ahead();
                self.survive(number, read)?;
            }
        }
        Ok(())
    }

    /// Nothing more of one of them is played, and nobody waits for what it reads.
    fn end(&mut self, number: usize) {
        self.ended[number] = true;
        self.parts[number].playback.reader().settle();
    }

    /// What fails of the master ends all; any other one ends alone.
    fn survive<T>(
        &mut self,
        number: usize,
        done: Result<T, PlayError>,
    ) -> Result<Option<T>, PlayError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if number == 0 => Err(error),
            Err(error) => {
                let track = self.parts[number].first_track;
                tracing::warn!(first_track = track, %error, "one of several recordings is not played any more");
                self.end(number);
                Ok(None)
            }
        }
    }

    /// Does what there is to do for the disks, and finds out what is to be sent next; if a packet has `begun` to go, that
    /// is the rest of it.
    ///
    /// # Errors
    /// When a block of the master cannot be read.
    pub(crate) fn advance(&mut self, has_begun: bool) -> Result<Upcoming, PlayError> {
        if has_begun && let Some(entry) = self.packet() {
            // Whatever becomes of its recording meanwhile.
            let (track, kind) = (self.track(), entry.kind);
            self.read_ahead()?;
            let due = Time::ZERO;
            return Ok(Upcoming::Packet { due, track, kind });
        }
        let (mut first, mut is_unread) = (None, false);
        for number in 0..self.parts.len() {
            if self.ended[number] {
                continue;
            }
            let gone_ns = self.parts[0].drift.gone_ns();
            let advanced = self.parts[number].advance(self.first_unix_ns, gone_ns);
            let Some(upcoming) = self.survive(number, advanced)? else {
                continue;
            };
            let part = &mut self.parts[number];
            if let Some((arrival_ns, media_ns)) = part.playback.take_seen() {
                part.drift.note(arrival_ns, media_ns);
            }
            match upcoming {
                Upcoming::Packet { due, track, kind } => {
                    if first.is_none_or(|(_, earliest, _, _)| due < earliest) {
                        // What is of no track that was described is nobody's.
                        let is_known = track < part.tracks;
                        let track = if is_known {
                            part.first_track + track
                        } else {
                            usize::MAX
                        };
                        first = Some((number, due, track, kind));
                    }
                }
                Upcoming::Unread => {
                    let past_end = part.playback.past_end().filter(|_| self.is_over);
                    let is_past = past_end.is_some_and(|end| end < clock::now());
                    if is_past {
                        self.end(number);
                    }
                    is_unread |= !is_past;
                }
                Upcoming::Nothing => {
                    self.end(number);
                    if number == 0 {
                        self.follow();
                    }
                }
            }
        }
        self.steer();
        if let Some((number, due, track, kind)) = first {
            self.next = number;
            return Ok(Upcoming::Packet { due, track, kind });
        }
        Ok(match is_unread {
            true => Upcoming::Unread,
            false => Upcoming::Nothing,
        })
    }

    /// When nothing more is to be sent, whatever is read until then; `Time::MAX`: that is not known.
    pub(crate) fn past_end(&self) -> Time {
        let playing = self.parts.iter().zip(&self.ended);
        let playing = playing.filter(|(_, ended)| self.is_over && !**ended);
        let ends = playing.filter_map(|(part, _)| part.playback.past_end());
        let end = ends.min().unwrap_or(Time::MAX);
        end.saturating_add(Nanos(1))
    }

    /// Brings the others nearer to the master's clock, from which theirs have gone.
    fn steer(&mut self) {
        let now = clock::now();
        let since = now.saturating_since(self.steered);
        let [master, others @ ..] = &mut self.parts[..] else {
            return;
        };
        if since < LOOK_EVERY || others.is_empty() {
            return;
        }
        self.steered = now;
        let most = i64::try_from(since.get() / STEP_PART).unwrap_or(i64::MAX);
        let gone = master.drift.gone_ns();
        for other in others {
            let step = other.drift.step(gone, most);
            other.playback.shift(step);
        }
    }

    /// The master is over: the others end soon behind the time of its last packet, if they have no end of their own.
    fn follow(&mut self) {
        let [master, others @ ..] = &mut self.parts[..] else {
            return;
        };
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let last = master.playback.position().media_ns;
        let last = unix_ns(last, master.begun_ns);
        let within = match master.playback.is_back() {
            true => -ENDS_WITHIN_NS,
            false => ENDS_WITHIN_NS,
        };
        for other in others {
            other.playback.wait_no_more();
            if !other.playback.has_end() {
                let end = media_ns(last + within, other.begun_ns);
                other.playback.end_at(end);
            }
        }
    }

    /// The packet that is next, if it is there: its entry.
    pub(crate) fn packet(&self) -> Option<&Entry> {
        self.playback().packet()
    }

    /// The presentation's number of that packet's track.
    pub(crate) fn track(&self) -> usize {
        let track = self.packet().map_or(0, |entry| usize::from(entry.track));
        self.parts[self.next].first_track + track
    }

    /// As of its playback.
    pub(crate) fn packet_len(&self) -> usize {
        self.playback().packet_len()
    }

    /// As of its playback.
    pub(crate) fn header(&self) -> Option<[u8; HEADER_BYTES]> {
        self.playback().header()
    }

    /// As of its playback; now if nothing is next.
    pub(crate) fn plays_at(&self) -> Time {
        self.playback().plays_at().unwrap_or_else(clock::now)
    }

    /// As of its playback.
    ///
    /// # Errors
    /// When the socket fails.
    pub(crate) fn send(
        &self,
        writev: impl FnOnce(&[IoSlice<'_>]) -> io::Result<Option<usize>>,
        frame: &[u8],
        sent: usize,
    ) -> Result<Option<(usize, usize)>, PlayError> {
        self.playback().send(writev, frame, sent)
    }

    /// The packet that was next, so long, has been sent.
    pub(crate) fn sent(&mut self, len: usize) {
        self.parts[self.next].playback.sent(len);
    }

    /// The packet that was next is passed over.
    pub(crate) fn done(&mut self) {
        self.parts[self.next].playback.done();
    }

    /// Where each of them is, of so many: `None` of one that has ended, and of all when the master has. Of what has not been
    /// read yet the time is that at which the others are.
    pub(crate) fn positions(&self, count: usize) -> Vec<Option<Place>> {
        if self.is_over {
            return vec![None; count];
        }
        let there = || {
            let parts = self.parts.iter().zip(&self.ended);
            parts.filter(|(_, ended)| !**ended).map(|(part, _)| part)
        };
        let is_back = self.playback().is_back();
        let reached = there().filter_map(|part| {
            let at = part.playback.reached_ns()?;
            Some(unix_ns(at, part.begun_ns))
        });
        let now = if is_back {
            reached.min()
        } else {
            reached.max()
        };
        let mut positions = vec![None; count];
        for part in there() {
            let mut place = part.playback.place();
            let position = &mut place.start;
            if let Some(now) = now.filter(|_| part.playback.packet().is_none()) {
                let now = media_ns(now, part.begun_ns).max(0);
                let now = u64::try_from(now).unwrap_or(u64::MAX);
                position.media_ns = match is_back {
                    true => position.media_ns.min(now),
                    false => position.media_ns.max(now),
                };
            }
            if let Some(of) = positions.get_mut(part.number) {
                *of = Some(place);
            }
        }
        positions
    }

    /// How each of them goes on that does in one of these.
    pub(crate) fn continuations(&self, positions: &[Option<Place>]) -> Vec<Option<Continuation>> {
        let mut continuations = vec![None; positions.len()];
        for part in &self.parts {
            if let (Some(of), Some(Some(place))) = (
                continuations.get_mut(part.number),
                positions.get(part.number),
            ) {
                *of = Some(part.playback.continuation(place.start.media_ns));
            }
        }
        continuations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn another_clock_is_followed_a_step_at_a_time() {
        let mut other = Following::new(Drift::default(), 0);
        // Both are as they were; then the master has gone from the host's by 3 ms, and the other one by 5.
        assert_eq!(other.step(0, MS), 0);
        other.is_ns = 5 * MS;
        let steps: Vec<i64> = (0..4).map(|_| other.step(3 * MS, MS)).collect();
        assert_eq!(steps, [-MS, -MS, 0, 0]);
        // It goes along with the master alone.
        assert_eq!(other.step(3 * MS + 7, MS), 7);
    }

    #[test]
    fn a_recording_behind_another_one_begins_where_the_master_has_gone_to() {
        let mut other = Following::behind(Drift::default(), 0, 5 * MS);
        assert_eq!((other.gone_ns(), other.step(5 * MS, MS)), (5 * MS, 0));
        // What it began too late by it catches up with.
        other.shifted_ns -= 2 * MS;
        let steps: Vec<i64> = (0..3).map(|_| other.step(5 * MS, MS)).collect();
        assert_eq!(steps, [MS, MS, 0]);
    }
}
