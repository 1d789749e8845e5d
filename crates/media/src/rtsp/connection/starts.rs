//! The places at which the parts of a presentation begin.

use std::ops::Range;

use sched::units::Nanos;

use super::play_request::Playable;
use super::unwanted::{PlayRefusal, ends_at, range_error};
use super::{Connection, Part};
use crate::archive::drift::Drift;
use crate::archive::start::{self, Found, Start};
use crate::archive::{ArchiveError, Recording};
use crate::play::presentation::unix_ns;
use crate::play::trick::{Direction, KeyFrames};
use crate::session::Scale;

/// Distance in blocks between a live player and the newest block on the disks.
const LIVE_BLOCKS_BEHIND: u64 = 2;

/// Blocks that are read to find the newest time of a recording, if the newest blocks are damaged.
const BLOCKS_READ_MAX: usize = 8;

/// A live player waits for no recording whose newest blocks are older than those of the master by more than this.
const LIVE_BEHIND_NS_MAX: i128 = 20_000_000_000;

/// A recording whose last key frame is earlier than the requested time by more than this begins with its next
/// key frame, so that the master does not wait for it.
const LEAD_NS_MAX: u64 = 2_000_000_000;

/// Groups of blocks in which fast forward searches a key frame before the requested time.
const NEAR_GROUPS: usize = 2;

/// Groups of blocks in which the first key frame is searched whose time the reply to PLAY contains. Each
/// costs one read, or 64 if its section of the index is lost.
const GROUPS_MAX: usize = 16;

/// The beginning of a part.
pub(super) struct PartStart {
    pub(super) recording: Recording,
    pub(super) found: Found,
    /// Beginning of the recording in nanoseconds since 1970, by its own clock at the place that is played.
    pub(super) begun_ns: i128,
    /// Drift of that clock.
    pub(super) drift: Drift,
}

impl Connection<'_> {
    /// Beginning of a recording in nanoseconds since 1970, by its own clock at a media time, and the drift of
    /// that clock from the host's.
    pub(super) fn clock_of(
        &self,
        part: &Part,
        recording: &Recording,
        media_ns: u64,
    ) -> Result<(i128, Drift), ArchiveError> {
        let drift = Drift::at(&part.archive, &self.shared.client, recording, media_ns)?;
        let begun_ns = i128::from(recording.begun_unix_ns) + i128::from(drift.ns(media_ns));
        Ok((begun_ns, drift))
    }

    /// The recordings of each part, in order: of the first part the master alone.
    pub(super) fn recordings(
        &self,
        parts: &[Part],
        master: &Recording,
    ) -> Result<Vec<Vec<Recording>>, ArchiveError> {
        let mut recordings = vec![vec![*master]];
        if let [first, others @ ..] = parts {
            for part in others {
                let made = self.made_with(&part.archive, (&first.archive, master))?;
                recordings.push(made.into_iter().map(|(recording, _)| recording).collect());
            }
        }
        Ok(recordings)
    }

    /// Returns true if the master is being made.
    pub(super) fn goes_on(&self, of: &Playable<'_>) -> bool {
        of.parts[0].archive.goes_on(&of.master)
    }

    /// Numbers of a part's first recording and of its last one, which is `None` if more may come. `None` for
    /// the master, of which no other recording is played.
    pub(super) fn numbers(&self, of: &Playable<'_>, number: usize) -> Option<(u64, Option<u64>)> {
        let recordings = of.recordings.get(number).filter(|_| number > 0)?;
        let (first, last) = (recordings.first()?, recordings.last()?);
        Some((first.number, (!self.goes_on(of)).then_some(last.number)))
    }

    /// The beginning of each part, from a time on or with what is recorded now (`npt=now-`; RFC 2326, section
    /// 3.6); `None` for a part that has nothing there.
    pub(super) fn starts(
        &self,
        of: &Playable<'_>,
        (from, is_now): (Option<u64>, bool),
        scale: Scale,
    ) -> Result<Vec<Option<PartStart>>, PlayRefusal> {
        // Without a Range playing continues where it was paused (RFC 2326, section 10.5).
        let paused = of.paused.filter(|_| from.is_none() && !is_now);
        let paused = paused.unwrap_or_default();
        let is_alone = of.parts.len() == 1;
        let begins = |part: &Part, recording: &Recording, found: Found| {
            // A recording that is played alone is shown by its own clock.
            let (begun_ns, drift) = match is_alone {
                true => (i128::from(recording.begun_unix_ns), Drift::default()),
                false => self.clock_of(part, recording, found.start.media_ns)?,
            };
            Ok::<_, ArchiveError>(PartStart {
                recording: *recording,
                found,
                begun_ns,
                drift,
            })
        };
        let mut starts: Vec<Option<PartStart>> = Vec::with_capacity(of.parts.len());
        for (number, (part, recordings)) in of.parts.iter().zip(&of.recordings).enumerate() {
            let was = paused.get(number).copied().flatten();
            let was = was.and_then(|was| {
                let recording = recordings.iter().find(|of| of.number == was.recording);
                Some((recording?, was.start))
            });
            starts.push(match was {
                // The place was overwritten: no pause for the time until the oldest block.
                Some((recording, was)) if was.serial < recording.first && scale > Scale(0) => {
                    let mut found = self.beginning(part, recording, scale)?;
                    found.start.media_ns = found.start.media_ns.max(was.media_ns);
                    Some(begins(part, recording, found)?)
                }
                Some((recording, was)) => {
                    let shown = self.shown_from(part, recording, was.media_ns, scale)?;
                    Some(begins(part, recording, shown.unwrap_or(was).into())?)
                }
                None => None,
            });
        }
        let was_at = starts
            .iter()
            .flatten()
            .map(|of| unix_ns(of.found.start.media_ns, of.begun_ns));
        let was_at = match scale < Scale(0) {
            true => was_at.max(),
            false => was_at.min(),
        };
        let at_unix_ns = match was_at {
            Some(at) => at,
            None if is_now => self.now_in(of)?,
            None => {
                let found = self.start(&of.parts[0], &of.master, from, scale)?;
                // Each begins at its own key frame before what was asked for.
                let at = from.unwrap_or(0).max(found.start.media_ns);
                let master = begins(&of.parts[0], &of.master, found)?;
                let at = unix_ns(at, master.begun_ns);
                starts[0] = Some(master);
                at
            }
        };
        let may_come = self.goes_on(of) && !scale.is_by_keys();
        for (number, (part, recordings)) in of.parts.iter().zip(&of.recordings).enumerate() {
            if starts[number].is_none() {
                let found = self.start_at_time(part, recordings, at_unix_ns, scale)?;
                starts[number] = match found {
                    None if number > 0 && may_come => {
                        self.start_at_end(part, recordings, at_unix_ns)?
                    }
                    found => found,
                };
            }
        }
        Ok(starts)
    }

    /// The wall-clock time at which a live player begins: the newest that all parts have on the disks.
    fn now_in(&self, of: &Playable<'_>) -> Result<i128, PlayRefusal> {
        let mut newest = Vec::with_capacity(of.parts.len());
        for (part, recordings) in of.parts.iter().zip(&of.recordings) {
            let Some(recording) = recordings.last() else {
                continue;
            };
            let last = recording.end.saturating_sub(1 + LIVE_BLOCKS_BEHIND);
            let serials = recording.first..=last.max(recording.first);
            for serial in serials.rev().take(BLOCKS_READ_MAX) {
                if let Some(trailer) = part.archive.trailer(&self.shared.client, serial)? {
                    let begun_ns = i128::from(recording.begun_unix_ns);
                    newest.push(unix_ns(trailer.media_ns, begun_ns));
                    break;
                }
            }
        }
        let [master, ..] = newest[..] else {
            return Err(range_error("the newest blocks are damaged"));
        };
        let earliest = newest.into_iter().min().unwrap_or(master);
        Ok(earliest.max(master - LIVE_BEHIND_NS_MAX))
    }

    /// The place of a part that shows a media time of a recording; `None` if the recording has nothing there.
    pub(super) fn start_in_recording(
        &self,
        part: &Part,
        recording: &Recording,
        at: i128,
        scale: Scale,
    ) -> Result<Option<Found>, PlayRefusal> {
        let (archive, client) = (&part.archive, &self.shared.client);
        let is_back = scale < Scale(0);
        let Ok(at) = u64::try_from(at) else {
            // The recording begins later.
            return match is_back {
                true => Ok(None),
                false => Ok(Some(self.beginning(part, recording, scale)?)),
            };
        };
        let goes_on = archive.goes_on(recording);
        if !is_back && !goes_on && at > archive.extent(client, recording)?.end {
            return Ok(None);
        }
        let found = self.start_at(part, recording, at, scale)?;
        if is_back || found.start.media_ns.saturating_add(LEAD_NS_MAX) >= at {
            return Ok(Some(found));
        }
        let mut keys = KeyFrames::new(archive, client, *recording, Scale::ONE, at);
        let next = keys
            .next_key(|_, _| Nanos::ZERO)?
            .map(|key| Found::from(Start::from(key)));
        // The next key frame may not have been recorded yet.
        Ok(next.or(goes_on.then_some(found)))
    }

    /// The last key frame up to a media time; at scales of key frames only, the first one that is shown.
    fn start_at(
        &self,
        part: &Part,
        recording: &Recording,
        media_ns: u64,
        scale: Scale,
    ) -> Result<Found, ArchiveError> {
        if let Some(start) = self.first_shown(part, recording, media_ns, scale)? {
            return Ok(start.into());
        }
        let video = usize::from(part.description.video_track());
        let (client, stream) = (&self.shared.client, Some(&*part.reserved));
        start::start_at(&part.archive, client, recording, media_ns, video, stream)
    }

    /// At scales of key frames only, the last key frame up to a media time; forward, if there is none, that
    /// time with the place of the next key frame. `None` at other scales, if no key frame is near, or if
    /// there is no index yet.
    fn first_shown(
        &self,
        part: &Part,
        recording: &Recording,
        media_ns: u64,
        scale: Scale,
    ) -> Result<Option<Start>, ArchiveError> {
        if !scale.is_by_keys() {
            return Ok(None);
        }
        let (archive, client) = (&part.archive, &self.shared.client);
        let is_back = scale < Scale(0);
        let groups = if is_back { GROUPS_MAX } else { NEAR_GROUPS };
        let before = Direction::Back.first_key(archive, client, recording, media_ns, groups)?;
        if let Some(key) = before {
            return Ok(Some(key.into()));
        }
        match is_back {
            true => Ok(None),
            false => self.shown_from(part, recording, media_ns, scale),
        }
    }

    /// At scales of key frames only, a media time with the place of the first key frame from it on.
    fn shown_from(
        &self,
        part: &Part,
        recording: &Recording,
        media_ns: u64,
        scale: Scale,
    ) -> Result<Option<Start>, ArchiveError> {
        if !scale.is_by_keys() {
            return Ok(None);
        }
        let (archive, client) = (&part.archive, &self.shared.client);
        let direction = Direction::of(scale);
        let key = direction.first_key(archive, client, recording, media_ns, GROUPS_MAX)?;
        Ok(key.map(|key| Start {
            media_ns,
            ..key.into()
        }))
    }

    /// Media time of the end of the recording, if that is before the time `from` at which playing would begin.
    fn end_before(
        &self,
        part: &Part,
        recording: &Recording,
        from: u64,
        start: Start,
    ) -> Result<Option<u64>, ArchiveError> {
        let archive = &part.archive;
        let is_near = start.serial + start::KEY_BLOCKS_MAX >= recording.end;
        // Finding the end of a recording that is being made costs a read, which is needed only near its end.
        if !is_near && archive.goes_on(recording) {
            return Ok(None);
        }
        let is_before = |extent: &Range<u64>| from > extent.end;
        match archive.extent(&self.shared.client, recording) {
            Ok(extent) if is_near => Ok(Some(extent).filter(is_before).map(|of| of.end)),
            Err(error) if is_near => Err(error),
            // A damaged end does not matter for a place far before it.
            extent => {
                let extent = extent.ok().filter(|of| !of.is_empty());
                Ok(extent.filter(is_before).map(|of| of.end))
            }
        }
    }

    /// The beginning of what has not been overwritten of a recording.
    fn beginning(
        &self,
        part: &Part,
        recording: &Recording,
        scale: Scale,
    ) -> Result<Found, ArchiveError> {
        let media_ns = part.archive.begins(&self.shared.client, recording)?;
        let start = self.first_shown(part, recording, media_ns, scale)?;
        let first = Start {
            serial: recording.first,
            packet: 0,
            media_ns,
        };
        Ok(start.unwrap_or(first).into())
    }

    /// The beginning of the master for a requested media time.
    fn start(
        &self,
        part: &Part,
        recording: &Recording,
        from: Option<u64>,
        scale: Scale,
    ) -> Result<Found, PlayRefusal> {
        let (archive, client) = (&part.archive, &self.shared.client);
        let at = |time| self.start_at(part, recording, time, scale);
        match from {
            None if scale < Scale(0) => Ok(at(u64::MAX)?),
            None | Some(0) => Ok(self.beginning(part, recording, scale)?),
            Some(from) => {
                let mut found = at(from)?;
                let start = found.start;
                let is_first = start.serial == recording.first && start.packet == 0;
                // A key frame may be before the first packet of its block.
                let is_key = scale.is_by_keys() && start.media_ns < from;
                // No pause for the time before the first packet that is there.
                let begins = match is_first {
                    _ if scale < Scale(0) || is_key => 0,
                    true => found
                        .look_into(archive, &part.reserved, |block| block.trailer.media_ns)?
                        .unwrap_or(0),
                    false if scale.is_by_keys() => archive.begins(client, recording)?,
                    false => 0,
                };
                found.start.media_ns = found.start.media_ns.max(begins);
                if let Some(end) = self.end_before(part, recording, from, start)? {
                    return Err(ends_at(end));
                }
                Ok(found)
            }
        }
    }
}
