//! The times of recordings, and the cause of each gap between them.
//!
//! It comes from the index: each section names the latest gaps up to its end, so a recording takes one or two reads,
//! and one more for every 256 gaps.

use std::ops::Range;

use super::*;
use crate::archive::drift::Drift;
use crate::archive::gap::Gap;

/// A time without a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedTime {
    /// Number of the recording.
    pub recording: u64,
    /// In nanoseconds since 1970.
    pub unix_ns: Range<u64>,
    /// True if it goes on.
    pub goes_on: bool,
}

/// A time in which nothing was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GapTime {
    /// In nanoseconds since 1970.
    pub unix_ns: Range<u64>,
    /// Why.
    pub cause: GapCause,
}

/// The recorded times and the gaps of a range of times, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timeline {
    /// Times without a gap.
    pub recorded: Vec<RecordedTime>,
    /// The gaps between them, and the one after the last recording.
    pub gaps: Vec<GapTime>,
}

/// The recordings that may have packets in a range of times, and the first one after it.
#[must_use]
pub fn candidates(recordings: &[Recording], unix_ns: &Range<u64>) -> Vec<Recording> {
    let mut candidates = Vec::new();
    let mut is_after = false;
    for (place, recording) in recordings.iter().enumerate() {
        let begun = recording.begun_unix_ns;
        // It ended when the next one began, unless the clock was set back meanwhile.
        let next = recordings.get(place + 1).map(|next| next.begun_unix_ns);
        let is_before = next.is_some_and(|next| begun <= next && next <= unix_ns.start);
        let is_first_after = begun >= unix_ns.end && !std::mem::replace(&mut is_after, true);
        if begun < unix_ns.end && !is_before || is_first_after {
            candidates.push(*recording);
        }
    }
    candidates
}

impl Archive {
    /// The recorded times within a range, and the gaps. A gap between recordings before this version has an unknown cause, and
    /// gaps within them are not known. The gap after the last recording ends with the range.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn timeline(
        &self,
        client: &Client,
        unix_ns: &Range<u64>,
    ) -> Result<Timeline, ArchiveError> {
        let mut timeline = Timeline::default();
        let mut before: Option<(u64, Recording)> = None;
        for recording in candidates(&self.recordings(), unix_ns) {
            let times = self.recorded_times(client, &recording)?;
            let Some(begins) = times.first().map(|(times, _)| times.start) else {
                continue;
            };
            if let Some((ends, previous)) = before {
                let cause = self.cause_between(client, &previous, Some(&recording))?;
                timeline.push_gap(unix_ns, ends..begins, cause);
            }
            for (times, after) in times {
                let ends = times.end;
                timeline.push_recorded(unix_ns, recording.number, times);
                if let Some((until, cause)) = after {
                    timeline.push_gap(unix_ns, ends..until, cause);
                }
                before = Some((ends, recording));
            }
        }
        match (before, timeline.recorded.last_mut()) {
            (Some((_, last)), recorded) if self.goes_on(&last) => {
                if let Some(recorded) = recorded.filter(|of| of.recording == last.number) {
                    recorded.goes_on = true;
                }
            }
            // A copy of a locked range ends with it.
            (Some(_), _) if self.lock().is_some() => {}
            (Some((ends, last)), _) => {
                let cause = self.cause_between(client, &last, None)?;
                timeline.push_gap(unix_ns, ends..u64::MAX, cause);
            }
            (None, _) => {}
        }
        Ok(timeline)
    }

    /// The times of a recording without a gap, in nanoseconds since 1970; each with the end and the cause of the gap
    /// after it.
    #[expect(clippy::type_complexity, reason = "used in one place")]
    fn recorded_times(
        &self,
        client: &Client,
        recording: &Recording,
    ) -> Result<Vec<(Range<u64>, Option<(u64, GapCause)>)>, ArchiveError> {
        let extent = self.extent(client, recording)?;
        // A clock drifts evenly, so its drift at the end tells the drift before.
        let drift_ns = Drift::at(self, client, recording, extent.end)?.ns(extent.end);
        let at = |media_ns: u64| {
            let part = i128::from(drift_ns) * i128::from(media_ns) / i128::from(extent.end.max(1));
            let at = recording.begun_unix_ns.saturating_add(media_ns);
            at.saturating_add_signed(i64::try_from(part).unwrap_or(0))
        };
        // A single packet is shown too.
        let span = |from: u64, to: u64| at(from)..at(to).max(at(from) + 1);
        let mut times = Vec::new();
        let mut begins = extent.start;
        for gap in self.gaps(client, recording)? {
            if gap.last_before_ns < begins || gap.first_after_ns > extent.end {
                continue;
            }
            let after = Some((at(gap.first_after_ns), gap.cause));
            times.push((span(begins, gap.last_before_ns), after));
            begins = gap.first_after_ns;
        }
        times.push((span(begins, extent.end), None));
        Ok(times)
    }

    /// The gaps within a recording, in order, as far as its index names them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn gaps(&self, client: &Client, recording: &Recording) -> Result<Vec<Gap>, ArchiveError> {
        let mut gaps: Vec<Gap> = Vec::new();
        let mut serial = recording.end.saturating_sub(1);
        while let Some(index) = self.index_so_far_of(client, recording, serial)? {
            let first = gaps.first().map_or(u64::MAX, |gap| gap.serial);
            let earlier = index.gaps.iter().filter(|gap| gap.serial < first);
            gaps = earlier.copied().chain(gaps.iter().copied()).collect();
            let first = gaps.first().map_or(u64::MAX, |gap| gap.serial);
            if !index.has_earlier_gaps {
                break;
            }
            // The section before that knows of all gaps before it.
            let next = first.min(index.first).saturating_sub(1);
            if next < recording.first || next >= serial {
                break;
            }
            serial = next;
        }
        gaps.retain(|gap| gap.serial > recording.first);
        Ok(gaps)
    }

    /// Why nothing was recorded after a recording, before `next` if there is one.
    fn cause_between(
        &self,
        client: &Client,
        recording: &Recording,
        next: Option<&Recording>,
    ) -> Result<GapCause, ArchiveError> {
        if let Some(next) = next
            && let Some(trailer) = self.trailer(client, next.first)?
            && let Some(gap) = trailer.gap.filter(|_| trailer.first == next.first)
        {
            return Ok(gap.cause);
        }
        let ended = self.state().last_end;
        if let Some(cause) = ended.filter(|_| next.is_none()) {
            return Ok(cause);
        }
        let trailer = self.trailer(client, recording.end.saturating_sub(1))?;
        let trailer = trailer.filter(|of| of.recording == recording.number);
        // A recording without a proper end ended with the server.
        Ok(trailer.map_or(GapCause::Unknown, |of| of.end.unwrap_or(GapCause::Server)))
    }
}

impl Timeline {
    fn push_recorded(&mut self, within: &Range<u64>, recording: u64, times: Range<u64>) {
        if let Some(unix_ns) = common(within, &times) {
            self.recorded.push(RecordedTime {
                recording,
                unix_ns,
                goes_on: false,
            });
        }
    }

    fn push_gap(&mut self, within: &Range<u64>, times: Range<u64>, cause: GapCause) {
        if let Some(unix_ns) = common(within, &times) {
            self.gaps.push(GapTime { unix_ns, cause });
        }
    }
}

/// The part of `times` within a range, if there is one.
fn common(within: &Range<u64>, times: &Range<u64>) -> Option<Range<u64>> {
    let common = within.start.max(times.start)..within.end.min(times.end);
    (!common.is_empty()).then_some(common)
}
