//! What is played of a volume behind a recording that is over: the next one, or backwards the one before.
//!
//! A publisher that was gone and has come back has made another recording. Its blocks follow in the ring, so it is read
//! through the same reservation, ahead like any others. What it consists of and when it began says the first of them that
//! is there: nothing else is read for it. Whoever plays it with others says when it is shown ([`Playback::turn`]).

use engine::volume_io::Client;

use super::Playback;
use crate::archive::block::Block;
use crate::archive::drift::Drift;
use crate::archive::start::{Place, Start};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::play::trick::Keys;
use crate::sdp::Description;

/// One that was begun before the one before it was over, by no more than this, begins when that is; of others what is before
/// that is passed over.
const LATE_NS_MAX: i128 = 1_000_000_000;

/// The recordings of a volume that are played one after another.
pub(crate) struct Others<'a> {
    /// Reads their indexes.
    pub(crate) client: &'a Client,
    /// What players were told that they consist of.
    pub(crate) description: &'a Description,
    /// What they are played along with: while that is made others may come.
    pub(crate) master: (&'a Archive, Recording),
    /// The number of the first one.
    pub(crate) first: u64,
    /// The number of the last one; `None`: others may come.
    pub(crate) last: Option<u64>,
    /// Under which SSRC the packets of each track are sent.
    pub(crate) sources: &'a [u32],
}

impl Others<'_> {
    /// Whether packets of a block can be understood.
    fn understands(&self, block: &Block<'_>) -> bool {
        let description = Description::parse(block.text());
        description.is_ok_and(|other| self.description.is_like(&other))
    }

    /// Which one is played behind one that is over.
    fn behind(&self, archive: &Archive, number: u64, is_back: bool) -> Option<Recording> {
        let last = self.last.unwrap_or(u64::MAX);
        let mut recordings = archive.recordings().into_iter();
        match is_back {
            true => recordings.rfind(|of| of.number < number && of.number >= self.first),
            false => recordings.find(|of| of.number > number && of.number <= last),
        }
    }

    /// No more of them come than there are.
    fn settle(&mut self, archive: &Archive) {
        if self.last.is_none() {
            let newest = archive.recording(None).map_or(0, |of| of.number);
            self.last = Some(newest);
        }
    }
}

/// What is read now is of another recording than what was sent, and nobody has said when that is shown.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    number: u64,
    begun_unix_ns: u64,
    /// The time of its first packet that is there.
    media_ns: u64,
}

/// A recording that is next.
pub(crate) struct NextUp {
    /// When it began, by how far its clock is from the host's where it is played.
    pub(crate) begun_ns: i128,
    /// How far that is.
    pub(crate) drift: Drift,
    /// The time of it with which it begins.
    pub(crate) media_ns: u64,
}

impl<'a> Playback<'a> {
    /// Goes on with other recordings of the volume where one is over.
    pub(crate) fn going_on(mut self, others: Others<'a>) -> Self {
        for (numbering, source) in self.numbering.iter_mut().zip(others.sources) {
            numbering.under(*source);
        }
        self.others = Some(others);
        self
    }

    /// What it is played with is over: it goes on with those that are there, and waits for no other.
    pub(crate) fn wait_no_more(&mut self) {
        if let Some(others) = &mut self.others {
            others.settle(self.archive);
        }
    }

    /// Looks whether what it is played with is still made.
    pub(super) fn look_at_master(&mut self) {
        if let Some(others) = &mut self.others
            && !others.master.0.goes_on(&others.master.1)
        {
            others.settle(self.archive);
        }
    }

    /// Whether another recording may come that would be gone on with.
    pub(super) fn may_go_on(&self) -> bool {
        self.keys.is_none() && self.others.as_ref().is_some_and(|of| of.last.is_none())
    }

    /// Whether it waits for what is recorded: at another Scale it ends where it has caught up, unless it ends with another one.
    pub(super) fn waits_for_more(&self) -> bool {
        self.keys.is_none() || self.is_led && !self.is_back()
    }

    /// Whether there is nothing of it any more: the recording was deleted or overwritten, and no other is gone on with.
    pub(super) fn is_gone(&mut self) -> bool {
        let is_read = self.archive.is_there(self.recording.number);
        if self.others.is_none() {
            return !is_read;
        }
        self.is_passed |= !is_read;
        if !self.archive.is_there(self.shown)
            && let Some(gone) = self.current.take()
        {
            self.reader.give_back(gone.buffer);
        }
        false
    }

    /// Nothing more of the recording that is read is there to be asked for: the next one is, if there is one.
    pub(super) fn read_on(&mut self) -> bool {
        let Some(others) = &self.others else {
            return false;
        };
        let is_back = self.is_back();
        if !self.is_passed && !is_back {
            if self.is_live() {
                return false;
            }
            // It may have ended since it was looked at.
            if let Some(now) = self.archive.recording(Some(self.recording.number))
                && now.end > self.recording.end
            {
                self.recording = now;
                return true;
            }
        }
        let Some(next) = others.behind(self.archive, self.recording.number, is_back) else {
            return false;
        };
        let from = if is_back { u64::MAX } else { 0 };
        let (client, scale) = (others.client, self.manner.scale);
        self.keys = self
            .keys
            .is_some()
            .then(|| Keys::new(self.archive, client, next, scale, from));
        self.next_ask = next.first;
        self.recording = next;
        self.is_passed = false;
        true
    }

    /// Whether a block that was read is played: it is of the recording that is, or of one that is gone on with.
    pub(super) fn takes(&mut self, block: &Block<'_>) -> bool {
        let number = block.trailer.recording;
        let Some(others) = &self.others else {
            return true;
        };
        if !self.archive.is_there(number) {
            return false;
        }
        if number == self.shown {
            return true;
        }
        let is_it = others.understands(block);
        if !is_it && self.recording.number == number {
            self.is_passed = true;
        }
        if is_it {
            self.turn = Some(Turn {
                number,
                begun_unix_ns: block.trailer.begun_unix_ns,
                media_ns: block.trailer.media_ns,
            });
        }
        is_it
    }

    /// The recording that is next, if it is another one than before: nothing of it is sent before that has its
    /// [turn](Self::turn).
    ///
    /// # Errors
    /// When its index cannot be read, which is read only for what is played backwards.
    pub(crate) fn next_up(&self) -> Result<Option<NextUp>, ArchiveError> {
        let (Some(turn), Some(others)) = (self.turn, &self.others) else {
            return Ok(None);
        };
        let media_ns = turn.media_ns;
        let recording = self.archive.recording(Some(turn.number));
        let drift = match recording.filter(|_| self.is_back()) {
            Some(recording) => Drift::at(self.archive, others.client, &recording, media_ns)?,
            None => Drift::from_beginning(),
        };
        Ok(Some(NextUp {
            begun_ns: i128::from(turn.begun_unix_ns) + i128::from(drift.ns(media_ns)),
            drift,
            media_ns,
        }))
    }

    /// The next recording is played, of which this is shown first, in nanoseconds of it, and whose time is ahead by so much of
    /// that of the one before. How much later than that it begins, so as not to begin before that is over.
    pub(crate) fn turn(&mut self, first_ns: i128, ahead_ns: i128) -> i64 {
        let Some(turn) = self.turn.take() else {
            return 0;
        };
        let reached = self.reached_ns.take();
        let reached = reached.map(|ns| self.manner.shown_ns(self.origin.media_ns, ns));
        self.origin.media_ns = first_ns;
        self.manner.until_ns = self.manner.until_ns.map(|until| until + ahead_ns);
        self.shown = turn.number;
        self.numbering.iter_mut().for_each(super::Numbering::turn);
        let begins = self.manner.shown_ns(first_ns, turn.media_ns);
        let early = reached.map_or(0, |reached| (reached - begins).max(0));
        if early > LATE_NS_MAX {
            self.passes_to = reached;
            return 0;
        }
        let late = self.manner.scale.of(early);
        self.origin.media_ns -= late;
        i64::try_from(late).unwrap_or(0)
    }

    /// Packets of a recording that was being made before the one before was over are passed over as far as that.
    pub(super) fn pass(&mut self) {
        let (first_ns, Some(to)) = (self.origin.media_ns, self.passes_to) else {
            return;
        };
        let manner = &self.manner;
        let Some(current) = &mut self.current else {
            return;
        };
        while let Some((_, entry, _)) = current.packets.front() {
            if manner.shown_ns(first_ns, entry.media_ns) > to {
                self.passes_to = None;
                return;
            }
            current.packets.pop_front();
        }
    }

    /// Where it is, and in which recording: behind its end if the next one has not begun. It may have been overwritten.
    pub(crate) fn place(&self) -> Place {
        let mut start = self.position();
        let shown = self.archive.recording(Some(self.shown));
        if self.packet().is_none()
            && let Some(shown) = shown.filter(|of| start.serial >= of.end)
        {
            start = Start {
                serial: shown.end,
                packet: 0,
                ..start
            };
        }
        Place {
            recording: self.shown,
            start,
        }
    }
}
