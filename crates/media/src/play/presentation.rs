//! Presentation: recordings that are played together.
//!
//! Each has its own reservation and [playback](Playback). The first one is the master: it sets the beginning
//! and the end. What was recorded at one time by the wall clock is shown at one time. Late or missing blocks
//! of one recording delay no other. Packets are sent in the order of their times. After the end of a
//! recording that is not the master, the next one that was made in its volume meanwhile is played, at its
//! time.
//!
//! Each recording has the clock of its sender, which drifts from the host's ([drift](crate::archive::drift)).
//! The master is shown by its own clock. The others are moved along with it, by at most a thousandth of the
//! time that passes.

use engine::clock;
use engine::stream::BlockReader;
use sched::units::{Nanos, Time};

use crate::archive::block::Entry;
use crate::archive::drift::Drift;
use crate::archive::start::Place;
use crate::play::{Continuation, OutPacket, PlayError, Playback, Upcoming};
use crate::rtp::packet::HEADER_BYTES;

/// A recording that ends later than the master by at most this is played to its end: both were stopped together.
const ENDS_WITHIN_NS: i128 = 1_000_000_000;

/// The others are moved towards the master by at most this fraction of the time, the largest drift of a clock.
const STEP_PART: u64 = 1_000;

/// Interval of these moves.
const LOOK_EVERY: Nanos = Nanos::from_secs(1);

/// Media time of a wall-clock time in a recording that began at `begun_ns`, in nanoseconds; negative before that.
#[must_use]
pub(crate) fn media_ns(unix_ns: i128, begun_ns: i128) -> i128 {
    unix_ns - begun_ns
}

/// Wall-clock time of a media time in a recording that began at `begun_ns`, in nanoseconds since 1970.
#[must_use]
pub(crate) fn unix_ns(media_ns: u64, begun_ns: i128) -> i128 {
    begun_ns + i128::from(media_ns)
}

/// Drift of a recording's clock from the host's while it is played.
pub(crate) struct DriftFollower {
    drift: Drift,
    /// Drift at the beginning of playing.
    was_ns: i64,
    /// Drift at the last block.
    is_ns: i64,
    /// Sum of the shifts so far.
    shifted_ns: i64,
}

impl DriftFollower {
    /// From this media time on.
    pub(crate) fn new(drift: Drift, first_ns: i128) -> Self {
        let was_ns = drift.ns(u64::try_from(first_ns.max(0)).unwrap_or(u64::MAX));
        Self {
            drift,
            was_ns,
            is_ns: was_ns,
            shifted_ns: 0,
        }
    }

    /// From this media time on, of a recording that is played after another one: it begins with the drift of
    /// the master.
    fn behind(drift: Drift, first_ns: u64, gone_ns: i64) -> Self {
        let mut following = Self::new(drift, i128::from(first_ns));
        following.was_ns -= gone_ns;
        following
    }

    fn note(&mut self, arrival_ns: u64, media_ns: u64) {
        self.drift.note(arrival_ns, media_ns);
        self.is_ns = self.drift.ns(media_ns);
    }

    /// Drift since the beginning of playing.
    fn gone_ns(&self) -> i64 {
        self.is_ns - self.was_ns
    }

    /// The next shift, of at most `most_ns`, towards a master with this drift.
    fn step(&mut self, master_gone_ns: i64, most_ns: i64) -> i64 {
        let wanted = master_gone_ns - self.gone_ns();
        let step = (wanted - self.shifted_ns).clamp(-most_ns, most_ns);
        self.shifted_ns += step;
        step
    }
}

/// One of the recordings that are played together.
pub(crate) struct Part<'a> {
    pub(crate) playback: Playback<'a>,
    /// Its number in the session.
    pub(crate) number: usize,
    /// Number of its first track in the session.
    pub(crate) first_track: usize,
    /// Number of its tracks.
    pub(crate) tracks: usize,
    /// Beginning of the recording that is sent, by its own clock where it is played, in nanoseconds since 1970.
    pub(crate) begun_ns: i128,
    pub(crate) drift: DriftFollower,
}

impl Part<'_> {
    /// Finds its next packet, which may belong to the next recording.
    fn advance(&mut self, first_unix_ns: i128, master_gone_ns: i64) -> Result<Upcoming, PlayError> {
        loop {
            let upcoming = self.playback.advance()?;
            let Some(next) = self.playback.next_recording()? else {
                return Ok(upcoming);
            };
            let first_ns = media_ns(first_unix_ns, next.begun_ns) + i128::from(master_gone_ns);
            let late_ns = self
                .playback
                .begin_next(first_ns, self.begun_ns - next.begun_ns);
            self.begun_ns = next.begun_ns;
            self.drift = DriftFollower::behind(next.drift, next.media_ns, master_gone_ns);
            // The delay is made up for like the drift of a slow clock.
            self.drift.shifted_ns -= late_ns;
        }
    }
}

/// Recordings that are being played together.
pub(crate) struct Presentation<'a> {
    /// At least one; the first is the master.
    parts: Vec<Part<'a>>,
    /// Wall-clock time that is shown at the origin, in nanoseconds since 1970.
    first_unix_ns: i128,
    /// For each part, true if it is over.
    ended: Vec<bool>,
    /// The part with the next packet.
    next: usize,
    /// When the next packet of the other parts is due.
    others_due: Time,
    /// The master is over, and the ends of the others are set.
    is_over: bool,
    /// Time at which the others were moved last.
    steered: Time,
}

impl<'a> Presentation<'a> {
    /// Plays these from a wall-clock time on; `None` if there are none.
    pub(crate) fn new(mut parts: Vec<Part<'a>>, first_unix_ns: i128) -> Option<Self> {
        for part in parts.iter_mut().skip(1) {
            part.playback.is_led = true;
        }
        (!parts.is_empty()).then_some(Self {
            ended: vec![false; parts.len()],
            parts,
            first_unix_ns,
            next: 0,
            others_due: Time::MAX,
            is_over: false,
            steered: clock::now(),
        })
    }

    fn playback(&self) -> &Playback<'a> {
        &self.parts[self.next].playback
    }

    /// The readers of the streams, whose events wake the thread.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &BlockReader<'a>> {
        self.parts.iter().map(|part| part.playback.reader())
    }

    /// Arms the events of all readers. Returns true if the thread may sleep.
    pub(crate) fn arm(&self) -> bool {
        // No short circuit: each reader has to be armed.
        self.readers().filter(|reader| !reader.arm()).count() == 0
    }

    /// Requests and takes blocks, also while nothing can be sent.
    ///
    /// # Errors
    /// If a block of the master cannot be read.
    pub(crate) fn read_ahead(&mut self) -> Result<(), PlayError> {
        for number in 0..self.parts.len() {
            if !self.ended[number] {
                let read = self.parts[number].playback.read_ahead();
                self.survive(number, read)?;
            }
        }
        Ok(())
    }

    /// Ends a part.
    fn end(&mut self, number: usize) {
        self.ended[number] = true;
        self.parts[number].playback.reader().settle();
    }

    /// Passes on an error of the master, which ends all. An error of another part ends that part alone.
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
                tracing::warn!(first_track = track, %error, "a recording that is played failed and is left out");
                self.end(number);
                Ok(None)
            }
        }
    }

    /// Reads ahead, and finds the next packet to be sent: the rest of one if `has_begun` says that a part of
    /// it has been sent.
    ///
    /// # Errors
    /// If a block of the master cannot be read.
    pub(crate) fn advance(&mut self, has_begun: bool) -> Result<Upcoming, PlayError> {
        if has_begun && let Some(entry) = self.packet() {
            // Also if its recording has ended or was deleted meanwhile.
            let (track, kind) = (self.track(), entry.kind);
            self.read_ahead()?;
            let due = Time::ZERO;
            return Ok(Upcoming::Packet { due, track, kind });
        }
        let (mut first, mut others_due, mut is_unread) = (None, Time::MAX, false);
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
                    let earliest = first.map_or(Time::MAX, |(_, earliest, _, _)| earliest);
                    others_due = others_due.min(due.max(earliest));
                    if first.is_none() || due < earliest {
                        // A packet of a track that is not in the description is left out.
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
            (self.next, self.others_due) = (number, others_due);
            return Ok(Upcoming::Packet { due, track, kind });
        }
        Ok(match is_unread {
            true => Upcoming::Unread,
            false => Upcoming::Nothing,
        })
    }

    /// Time after which nothing more is sent, whatever is read until then; `Time::MAX` if that is not known.
    pub(crate) fn past_end(&self) -> Time {
        let playing = self.parts.iter().zip(&self.ended);
        let playing = playing.filter(|(_, ended)| self.is_over && !**ended);
        let ends = playing.filter_map(|(part, _)| part.playback.past_end());
        let end = ends.min().unwrap_or(Time::MAX);
        end.saturating_add(Nanos(1))
    }

    /// Moves the others towards the master's clock.
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

    /// Sets the ends of the others, as the master is over: soon after the time of its last packet, if they
    /// have no end yet.
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

    /// The entry of the next packet, if it has been read.
    pub(crate) fn packet(&self) -> Option<&Entry> {
        self.playback().packet()
    }

    /// Number of that packet's track in the session.
    pub(crate) fn track(&self) -> usize {
        let track = self.packet().map_or(0, |entry| usize::from(entry.track));
        self.parts[self.next].first_track + track
    }

    /// See [`Playback::header`].
    pub(crate) fn header(&self) -> Option<[u8; HEADER_BYTES]> {
        self.playback().header()
    }

    /// See [`Playback::plays_at`]; the current time if there is no next packet.
    pub(crate) fn plays_at(&self) -> Time {
        self.playback().plays_at().unwrap_or_else(clock::now)
    }

    /// As [`Playback::with_due`]. Tracks are those of the session, and packets are in the order of all parts.
    ///
    /// # Errors
    /// If the buffer of the block was taken away.
    pub(crate) fn with_due<R>(
        &self,
        now: Time,
        count: usize,
        is_taken: impl Fn(usize) -> bool,
        send: impl FnOnce(&[OutPacket<'_>]) -> R,
    ) -> Result<Option<R>, PlayError> {
        let part = &self.parts[self.next];
        let is_taken = |track| track < part.tracks && is_taken(part.first_track + track);
        let now = now.min(self.others_due);
        part.playback.with_due(now, count, is_taken, |packets| {
            let in_session = packets.iter().map(|packet| OutPacket {
                track: part.first_track + packet.track,
                ..*packet
            });
            send(&in_session.collect::<Vec<_>>())
        })
    }

    /// Notes that the next `count` packets have been sent, of `bytes` bytes together.
    pub(crate) fn sent(&mut self, count: usize, bytes: usize) {
        self.parts[self.next].playback.sent(count, bytes);
    }

    /// Leaves out the next packet.
    pub(crate) fn done(&mut self) {
        self.parts[self.next].playback.done();
    }

    /// Positions of the `count` parts of the session: `None` for a part that is over, and for all if the
    /// master is. A part whose next packet has not been read has the time of the others.
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

    /// State for playbacks that continue at these positions.
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
    fn another_clock_is_followed_in_steps() {
        let mut other = DriftFollower::new(Drift::default(), 0);
        // No drift at first; then the master has drifted by 3 ms, and the other one by 5.
        assert_eq!(other.step(0, MS), 0);
        other.is_ns = 5 * MS;
        let steps: Vec<i64> = (0..4).map(|_| other.step(3 * MS, MS)).collect();
        assert_eq!(steps, [-MS, -MS, 0, 0]);
        // Then it follows the master's drift alone.
        assert_eq!(other.step(3 * MS + 7, MS), 7);
    }

    #[test]
    fn a_next_recording_begins_with_the_drift_of_the_master() {
        let mut other = DriftFollower::behind(Drift::default(), 0, 5 * MS);
        assert_eq!((other.gone_ns(), other.step(5 * MS, MS)), (5 * MS, 0));
        // It makes up for the time by which it began too late.
        other.shifted_ns -= 2 * MS;
        let steps: Vec<i64> = (0..3).map(|_| other.step(5 * MS, MS)).collect();
        assert_eq!(steps, [MS, MS, 0]);
    }
}
