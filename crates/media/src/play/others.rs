//! Plays the recordings of a volume one after another: after the end of one the next one, or backwards the
//! one before.
//!
//! A publisher that was gone and has come back has made another recording. Its blocks follow in the ring, so
//! they are read ahead through the same reservation. The first block that is there contains the description
//! of the recording and when it began, so nothing else is read. The [presentation](super::presentation) then
//! sets the time at which it is shown ([`Playback::begin_next`]).

use engine::volume_io::Client;

use super::Playback;
use crate::archive::block::Block;
use crate::archive::drift::Drift;
use crate::archive::start::{Place, Start};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::play::trick::KeyFrames;
use crate::sdp::Description;

/// A recording that overlaps the end of the one before it by at most this is shown that much later. If it
/// overlaps by more, its packets up to the end of the one before are left out.
const LATE_NS_MAX: i128 = 1_000_000_000;

/// The recordings of a volume that are played one after another.
pub(crate) struct FollowingRecordings<'a> {
    /// The client that reads their indexes.
    pub(crate) client: &'a Client,
    /// The description that the player was given.
    pub(crate) description: &'a Description,
    /// The master's archive and recording. While the master is being made, more recordings may come.
    pub(crate) master: (&'a Archive, Recording),
    /// Number of the first recording.
    pub(crate) first: u64,
    /// Number of the last recording; `None` if more may come.
    pub(crate) last: Option<u64>,
    /// SSRC with which the packets of each track are sent.
    pub(crate) sources: &'a [u32],
}

impl FollowingRecordings<'_> {
    /// Returns true if the description in the block is like the one that the player was given.
    fn understands(&self, block: &Block<'_>) -> bool {
        let description = Description::parse(block.text());
        description.is_ok_and(|other| self.description.is_like(&other))
    }

    /// The recording that is played after the one with this number.
    fn after(&self, archive: &Archive, number: u64, is_back: bool) -> Option<Recording> {
        let last = self.last.unwrap_or(u64::MAX);
        let mut recordings = archive.recordings().into_iter();
        match is_back {
            true => recordings.rfind(|of| of.number < number && of.number >= self.first),
            false => recordings.find(|of| of.number > number && of.number <= last),
        }
    }

    /// Makes the newest recording the last one.
    fn settle(&mut self, archive: &Archive) {
        if self.last.is_none() {
            let newest = archive.recording(None).map_or(0, |of| of.number);
            self.last = Some(newest);
        }
    }
}

/// A recording whose first block has been read, and whose time of showing is not set yet.
#[derive(Clone, Copy)]
pub(super) struct PendingRecording {
    number: u64,
    begun_unix_ns: u64,
    /// Media time of its first packet that is there.
    media_ns: u64,
}

/// The next recording.
pub(crate) struct NextRecording {
    /// Its beginning in nanoseconds since 1970, by its own clock at `media_ns`.
    pub(crate) begun_ns: i128,
    /// Drift of its clock.
    pub(crate) drift: Drift,
    /// Media time of its first packet, in nanoseconds.
    pub(crate) media_ns: u64,
}

impl<'a> Playback<'a> {
    /// Continues with other recordings of the volume after the end of one.
    pub(crate) fn going_on(mut self, others: FollowingRecordings<'a>) -> Self {
        for (numbering, source) in self.numbering.iter_mut().zip(others.sources) {
            numbering.under(*source);
        }
        self.others = Some(others);
        self
    }

    /// Waits for no more recordings, as the master is over.
    pub(crate) fn wait_no_more(&mut self) {
        if let Some(others) = &mut self.others {
            others.settle(self.archive);
        }
    }

    /// Waits for no more recordings if the master is not being made any more.
    pub(super) fn look_at_master(&mut self) {
        if let Some(others) = &mut self.others
            && !others.master.0.goes_on(&others.master.1)
        {
            others.settle(self.archive);
        }
    }

    /// Returns true if another recording may come and would be played.
    pub(super) fn may_go_on(&self) -> bool {
        self.keys.is_none() && self.others.as_ref().is_some_and(|of| of.last.is_none())
    }

    /// Returns true if it waits at the end of a recording that is being made. At another scale than 1 a
    /// playback ends there, unless it ends with a master.
    pub(super) fn waits_for_more(&self) -> bool {
        self.keys.is_none() || self.is_led && !self.is_back()
    }

    /// Returns true if the recording was deleted or overwritten and no other one is played after it.
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

    /// Goes on to the next recording, after the last block of the one that is read. Returns true if there may
    /// be a block to request.
    pub(super) fn read_on(&mut self) -> bool {
        let Some(others) = &self.others else {
            return false;
        };
        let is_back = self.is_back();
        if !self.is_passed && !is_back {
            if self.is_live() {
                return false;
            }
            // It may have ended, with more blocks, since it was looked up.
            if let Some(now) = self.archive.recording(Some(self.recording.number))
                && now.end > self.recording.end
            {
                self.recording = now;
                return true;
            }
        }
        let Some(next) = others.after(self.archive, self.recording.number, is_back) else {
            return false;
        };
        let from = if is_back { u64::MAX } else { 0 };
        let (client, scale) = (others.client, self.manner.scale);
        self.keys = self
            .keys
            .is_some()
            .then(|| KeyFrames::new(self.archive, client, next, scale, from));
        self.next_ask = next.first;
        self.recording = next;
        self.is_passed = false;
        true
    }

    /// Returns true if a block that was read is played: it belongs to the recording that is shown, or to the
    /// next one.
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
            self.pending = Some(PendingRecording {
                number,
                begun_unix_ns: block.trailer.begun_unix_ns,
                media_ns: block.trailer.media_ns,
            });
        }
        is_it
    }

    /// The recording whose first block is next, if that is another one. Nothing of it is sent before
    /// [`Self::begin_next`].
    ///
    /// # Errors
    /// If its index cannot be read, which is done backwards only.
    pub(crate) fn next_recording(&self) -> Result<Option<NextRecording>, ArchiveError> {
        let (Some(pending), Some(others)) = (self.pending, &self.others) else {
            return Ok(None);
        };
        let media_ns = pending.media_ns;
        let recording = self.archive.recording(Some(pending.number));
        let drift = match recording.filter(|_| self.is_back()) {
            Some(recording) => Drift::at(self.archive, others.client, &recording, media_ns)?,
            None => Drift::from_beginning(),
        };
        Ok(Some(NextRecording {
            begun_ns: i128::from(pending.begun_unix_ns) + i128::from(drift.ns(media_ns)),
            drift,
            media_ns,
        }))
    }

    /// Begins to play the next recording. `first_ns` is its media time at the origin, and `ahead_ns` is added
    /// to media times of the one before to get its own. Returns by how much it is shown later, so that it
    /// does not overlap the one before; all in nanoseconds.
    pub(crate) fn begin_next(&mut self, first_ns: i128, ahead_ns: i128) -> i64 {
        let Some(pending) = self.pending.take() else {
            return 0;
        };
        let reached = self.reached_ns.take();
        let reached = reached.map(|ns| self.manner.shown_ns(self.origin.media_ns, ns));
        self.origin.media_ns = first_ns;
        self.manner.until_ns = self.manner.until_ns.map(|until| until + ahead_ns);
        self.shown = pending.number;
        self.numbering
            .iter_mut()
            .for_each(super::Numbering::begin_recording);
        let begins = self.manner.shown_ns(first_ns, pending.media_ns);
        let early = reached.map_or(0, |reached| (reached - begins).max(0));
        if early > LATE_NS_MAX {
            self.passes_to = reached;
            return 0;
        }
        let late = self.manner.scale.of(early);
        self.origin.media_ns -= late;
        i64::try_from(late).unwrap_or(0)
    }

    /// Leaves out packets that overlap the end of the recording before.
    pub(super) fn leave_out(&mut self) {
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

    /// The position and its recording: at the end of the recording if the next one has not begun. It may have
    /// been overwritten.
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
