//! What players of HLS were told, kept between requests: the numbers of segments, and the heads of tracks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cuts::Place;
use super::parts::Part;
use super::{ExportError, Source, TrackHead};

/// Lists whose numbers are kept.
const NUMBERINGS_MAX: usize = 1_024;

/// Recordings whose heads are kept.
const HEADS_MAX: usize = 256;

/// Least target duration. Players may not be told a longer one later. It stays the same when key frames are
/// at most two seconds apart.
const TARGET_MIN_NS: u64 = 6_000_000_000;

/// Identifier of an archive, and number of a recording in it.
type RecordingKey = ([u8; 16], u64);

/// A list that players load repeatedly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListId {
    /// The end of a recording, as it grows.
    End(u64),
    /// A range of a recording, in nanoseconds of its time.
    Range(u64, u64, u64),
    /// The newest recording of the archive.
    Newest,
}

/// Numbers of a list (RFC 8216, section 6.2.2). They continue those of the list before, and otherwise begin with a
/// number that is larger, whatever was counted before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Number of the first segment.
    pub sequence: u64,
    /// Number of gaps before the first segment, for `EXT-X-DISCONTINUITY-SEQUENCE`.
    pub gaps: u64,
    /// Target duration in nanoseconds: no segment is longer.
    pub target_ns: u64,
    /// The position of each segment, and the number of gaps up to its beginning.
    listed: Vec<(Place, u64)>,
}

impl Numbers {
    /// The numbers of a list of these segments after a list with these numbers. The first segment begins at
    /// `unix_ns`.
    #[must_use]
    pub fn after(before: Option<&Self>, parts: &[Part], unix_ns: u64) -> Self {
        let found = parts.iter().enumerate().find_map(|(place, part)| {
            let listed = &before?.listed;
            let was = listed.iter().position(|(of, _)| *of == part.begins.place)?;
            Some((place as u64, was))
        });
        let gaps_up_to = |place: u64| {
            let parts = parts.iter().take(place as usize + 1);
            parts.filter(|of| of.is_behind_gap).count() as u64
        };
        let (sequence, gaps) = match (before, found) {
            (Some(before), Some((place, was))) => (
                (before.sequence + was as u64).saturating_sub(place),
                before.listed[was].1.saturating_sub(gaps_up_to(place)),
            ),
            (before, _) => {
                let next = before.map_or(0, |of| of.sequence + of.listed.len() as u64);
                let gaps = before.map_or(0, |of| of.listed.last().map_or(of.gaps, |of| of.1));
                // Segments are seldom shorter than a second, so fewer were counted before.
                (next.max(unix_ns / 1_000_000_000), gaps)
            }
        };
        let mut up_to = gaps;
        let listed = parts.iter().map(|part| {
            up_to += u64::from(part.is_behind_gap);
            (part.begins.place, up_to)
        });
        let longest_ns = parts.iter().map(Part::length_ns).max().unwrap_or(0);
        let target_ns = before.map_or(TARGET_MIN_NS, |of| of.target_ns);
        Self {
            sequence,
            gaps,
            target_ns: target_ns.max(longest_ns),
            listed: listed.collect(),
        }
    }

    /// True if the list ends before one with the numbers `of`: its request was slower than a later one.
    fn is_older(&self, of: &Self) -> bool {
        self.listed.last().map(|of| of.0) < of.listed.last().map(|of| of.0)
    }
}

/// The most recently used entries are the last.
#[derive(Debug, Default)]
struct Entries {
    numbers: VecDeque<(([u8; 16], ListId), Numbers)>,
    heads: VecDeque<(RecordingKey, Arc<Vec<TrackHead>>)>,
}

/// What players were told. All requests share it.
#[derive(Debug, Default)]
pub struct SegmentCache(Mutex<Entries>);

impl SegmentCache {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of a list of these segments. The first of them begins at `unix_ns`.
    pub fn numbers(&self, source: &Source, id: ListId, parts: &[Part], unix_ns: u64) -> Numbers {
        let key = (source.archive.header().archive, id);
        let mut entries = self.entries();
        let place = entries.numbers.iter().position(|(of, _)| *of == key);
        let before = place.and_then(|place| entries.numbers.remove(place));
        let before = before.map(|(_, numbers)| numbers);
        let numbers = Numbers::after(before.as_ref(), parts, unix_ns);
        let kept = before.filter(|before| numbers.is_older(before));
        let kept = kept.unwrap_or_else(|| numbers.clone());
        push(&mut entries.numbers, (key, kept), NUMBERINGS_MAX);
        numbers
    }

    /// The heads of a recording's tracks, by its packets at `from`. The source's export is limited to these tracks.
    /// They stay the same as long as they are cached, because players have loaded them.
    ///
    /// # Errors
    /// When no track has decoder parameters, or the recording cannot be read.
    pub fn heads(
        &self,
        source: &mut Source,
        from: Place,
    ) -> Result<Arc<Vec<TrackHead>>, ExportError> {
        let key = (source.archive.header().archive, source.recording.number);
        let known = |entries: &mut Entries| {
            let place = entries.heads.iter().position(|(of, _)| *of == key)?;
            let entry = entries.heads.remove(place)?;
            let heads = Arc::clone(&entry.1);
            push(&mut entries.heads, entry, HEADS_MAX);
            Some(heads)
        };
        let cached = known(&mut self.entries());
        let heads = match cached {
            Some(heads) => heads,
            None => {
                let read = Arc::new(source.segment_heads(from)?);
                let mut entries = self.entries();
                // Another request may have been faster.
                known(&mut entries).unwrap_or_else(|| {
                    push(&mut entries.heads, (key, Arc::clone(&read)), HEADS_MAX);
                    read
                })
            }
        };
        source.makes_of(heads.iter().map(TrackHead::track).collect());
        Ok(heads)
    }
}

/// Adds an entry. If there are `max` entries, drops the least recently used one.
fn push<T>(entries: &mut VecDeque<T>, entry: T, max: usize) {
    if entries.len() == max {
        entries.pop_front();
    }
    entries.push_back(entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::cuts::Cut;

    fn parts(serials: &[u64], behind_gaps: &[u64]) -> Vec<Part> {
        let cut = |serial| Cut {
            place: Place { serial, packet: 0 },
            media_ns: serial * 4_000_000_000,
        };
        let part = |serial: &u64| Part {
            begins: cut(*serial),
            ends: cut(serial + 1),
            is_behind_gap: behind_gaps.contains(serial),
            is_independent: true,
        };
        serials.iter().map(part).collect()
    }

    #[test]
    fn numbers_continue_those_of_the_list_before() {
        let at = |serials: &[u64], before: Option<&Numbers>| {
            Numbers::after(before, &parts(serials, &[3, 7]), 1_000_000_000_000)
        };
        let said = |of: &Numbers| (of.sequence, of.gaps);
        let first = at(&[1, 2, 3, 5], None);
        assert_eq!(said(&first), (1_000, 0));
        // The segment behind a gap has its own tag until it is gone.
        let second = at(&[3, 5, 7], Some(&first));
        assert_eq!(said(&second), (1_002, 0));
        let third = at(&[5, 7, 8], Some(&second));
        assert_eq!(said(&third), (1_003, 1));
        // A slower request lists what was there before.
        assert_eq!(said(&at(&[2, 3, 5], Some(&third))), (1_001, 0));
        assert!(at(&[2, 3, 5], Some(&third)).is_older(&third));
        // None of the listed segments is there any more.
        let later = at(&[20, 21], Some(&third));
        assert_eq!(said(&later), (1_006, 2));
        assert_eq!(said(&at(&[], Some(&later))), (1_008, 2));
    }
}
