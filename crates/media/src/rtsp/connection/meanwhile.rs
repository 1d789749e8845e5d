//! Recordings of other volumes that were made at the same time as the master.
//!
//! A volume has one recording at a time. If its publisher was gone and has come back it has several, which
//! are played one after another.

use super::starts::PartStart;
use super::unwanted::PlayRefusal;
use super::{Connection, Part};
use crate::archive::archives::OpenError;
use crate::archive::drift::Drift;
use crate::archive::start::{Found, Start};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::play::presentation::media_ns;
use crate::session::Scale;

/// The recordings that are played from a wall-clock time on, or backwards from it, in the order of playing.
fn played_from(recordings: &[Recording], at_unix_ns: i128, is_back: bool) -> Vec<Recording> {
    let begun = |of: &Recording| i128::from(of.begun_unix_ns) <= at_unix_ns;
    // A recording is over when the next one begins.
    let last_begun = recordings.iter().rposition(begun);
    match (is_back, last_begun) {
        (true, Some(last)) => recordings[..=last].iter().rev().copied().collect(),
        (true, None) => Vec::new(),
        (false, first) => recordings[first.unwrap_or(0)..].to_vec(),
    }
}

/// The recording with the longest duration; the first of equals.
pub(super) fn longest(made: &[(Recording, u64)]) -> Option<Recording> {
    let longest = made.iter().rev().max_by_key(|(_, ns)| ns);
    longest.map(|(recording, _)| *recording)
}

impl Connection<'_> {
    /// The recordings of a volume that overlap a recording of the master's volume, in order, each with the
    /// overlap in nanoseconds.
    pub(super) fn made_with(
        &self,
        archive: &Archive,
        (master_archive, master): (&Archive, &Recording),
    ) -> Result<Vec<(Recording, u64)>, ArchiveError> {
        let time_of = |archive: &Archive, recording: &Recording| {
            let end = match archive.goes_on(recording) {
                true => u64::MAX,
                false => {
                    let length = archive.extent(&self.shared.client, recording)?.end;
                    recording.begun_unix_ns.saturating_add(length)
                }
            };
            Ok::<_, ArchiveError>(recording.begun_unix_ns..end)
        };
        let of_master = time_of(master_archive, master)?;
        let mut made = Vec::new();
        let recordings = archive.recordings();
        for (number, recording) in recordings.iter().enumerate() {
            // It is over when the next one begins.
            let next = recordings.get(number + 1);
            let is_before = next.is_some_and(|next| next.begun_unix_ns <= of_master.start);
            if is_before || recording.begun_unix_ns >= of_master.end {
                continue;
            }
            let of_this = time_of(archive, recording)?;
            let begins = of_this.start.max(of_master.start);
            let both = of_this.end.min(of_master.end).saturating_sub(begins);
            if both > 0 {
                made.push((*recording, both));
            }
        }
        Ok(made)
    }

    /// Returns true if a recording has a description like the one that the player was given of the part.
    fn is_like(&self, part: &Part, recording: &Recording) -> Result<bool, OpenError> {
        if recording.number == part.recording.number {
            return Ok(true);
        }
        let archives = &self.shared.archives;
        let description = archives.describe(&part.archive, *recording)?.description;
        Ok(description.is_some_and(|of| part.description.is_like(&of)))
    }

    /// The place of a part from which it shows a wall-clock time: in the first of these recordings that has
    /// something from there on, `None` if none has.
    pub(super) fn start_at_time(
        &self,
        part: &Part,
        recordings: &[Recording],
        at_unix_ns: i128,
        scale: Scale,
    ) -> Result<Option<PartStart>, PlayRefusal> {
        for recording in played_from(recordings, at_unix_ns, scale < Scale(0)) {
            if !self.is_like(part, &recording)? {
                continue;
            }
            let about = media_ns(at_unix_ns, i128::from(recording.begun_unix_ns));
            let about = u64::try_from(about.max(0)).unwrap_or(u64::MAX);
            let (begun_ns, drift) = self.clock_of(part, &recording, about)?;
            let at = media_ns(at_unix_ns, begun_ns);
            if let Some(found) = self.start_in_recording(part, &recording, at, scale)? {
                return Ok(Some(PartStart {
                    recording,
                    found,
                    begun_ns,
                    drift,
                }));
            }
        }
        Ok(None)
    }

    /// The end of the last recording of a part that has nothing from a wall-clock time on, but may have when
    /// its publisher comes back.
    pub(super) fn start_at_end(
        &self,
        part: &Part,
        recordings: &[Recording],
        at_unix_ns: i128,
    ) -> Result<Option<PartStart>, PlayRefusal> {
        let mut last = None;
        for recording in recordings.iter().rev() {
            if self.is_like(part, recording)? {
                last = Some(*recording);
                break;
            }
        }
        let Some(recording) = last else {
            return Ok(None);
        };
        let begun_ns = i128::from(recording.begun_unix_ns);
        let at = media_ns(at_unix_ns, begun_ns).max(0);
        let start = Start {
            serial: recording.end,
            packet: 0,
            media_ns: u64::try_from(at).unwrap_or(u64::MAX),
        };
        Ok(Some(PartStart {
            recording,
            found: Found::from(start),
            begun_ns,
            drift: Drift::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(number: u64, begun_unix_ns: u64) -> Recording {
        Recording {
            number,
            first: 0,
            end: 1,
            begun_unix_ns,
        }
    }

    #[test]
    fn the_recording_at_a_time_is_played_first_and_then_the_later_ones() {
        let all = [recording(3, 100), recording(4, 200), recording(7, 300)];
        let numbers = |at, is_back| -> Vec<u64> {
            let found = played_from(&all, at, is_back).into_iter();
            found.map(|of| of.number).collect()
        };
        assert_eq!(numbers(50, false), [3, 4, 7]);
        assert_eq!(numbers(150, false), [3, 4, 7]);
        assert_eq!(numbers(200, false), [4, 7]);
        assert_eq!(numbers(900, false), [7]);
        assert!(numbers(50, true).is_empty());
        assert_eq!(numbers(200, true), [4, 3]);
        assert_eq!(numbers(900, true), [7, 4, 3]);
        assert!(played_from(&[], 5, false).is_empty());
    }

    #[test]
    fn the_longest_recording_is_the_first_of_equals() {
        let made = [3, 5, 5, 1].map(|ns| (recording(ns, 0), ns));
        assert_eq!(longest(&made), Some(recording(5, 0)));
        let equals = [(recording(1, 0), 5), (recording(2, 0), 5)];
        assert_eq!(longest(&equals), Some(recording(1, 0)));
        assert_eq!(longest(&[]), None);
    }
}
