//! A cache of the segment lists of recordings, which is kept between requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cuts::{Cut, Place};
use super::parts::{Division, Numbering, SegmentList};
use super::{ExportError, Source, TrackHead};

/// Recordings whose segment lists are cached.
const DIVISIONS_MAX: usize = 32;

/// Recordings whose numbering of segments is kept after their lists.
const NUMBERINGS_MAX: usize = 1_024;

/// Identifier of an archive, and number of a recording in it.
type RecordingKey = ([u8; 16], u64);

/// The most recently used entries are the last.
#[derive(Debug, Default)]
struct Entries {
    divisions: VecDeque<(RecordingKey, Arc<Mutex<Option<Division>>>)>,
    numberings: VecDeque<(RecordingKey, Numbering)>,
}

/// The segment lists of recordings. All requests share it, so that they get the same segments and numbers.
#[derive(Debug, Default)]
pub struct SegmentListCache(Mutex<Entries>);

impl SegmentListCache {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current segment list of a recording that ends at `ends_ns`, in nanoseconds of its time; `is_over`
    /// if it is complete.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn list(
        &self,
        source: &mut Source,
        ends_ns: u64,
        is_over: bool,
    ) -> Result<SegmentList, ExportError> {
        let recording = source.recording;
        let key = key(source);
        let (division, before) = self.entries().division(key);
        let mut division = division.lock().unwrap_or_else(PoisonError::into_inner);
        let division = match &mut *division {
            Some(division) => division,
            none => none.insert(Division::new(source, before)?),
        };
        let end = Cut {
            place: Place {
                serial: recording.end,
                packet: 0,
            },
            media_ns: ends_ns,
        };
        let listed = division.list(source, end, is_over)?;
        if let Some(numbering) = division.numbering() {
            self.entries().keep_numbering(key, numbering);
        }
        Ok(listed)
    }

    /// The track heads for these segments. The source's export is limited to these tracks.
    ///
    /// # Errors
    /// When no track has decoder parameters, or the recording cannot be read.
    pub fn heads(
        &self,
        source: &mut Source,
        listed: &SegmentList,
    ) -> Result<Arc<Vec<TrackHead>>, ExportError> {
        let (division, _) = self.entries().division(key(source));
        let mut division = division.lock().unwrap_or_else(PoisonError::into_inner);
        let from = listed.first.place;
        let heads = match &mut *division {
            Some(division) => division.heads(source, from)?,
            None => Arc::new(source.segment_heads(from)?),
        };
        source.makes_of(heads.iter().map(TrackHead::track).collect());
        Ok(heads)
    }
}

fn key(source: &Source) -> RecordingKey {
    let archive = source.archive.header().archive;
    (archive, source.recording.number)
}

impl Entries {
    /// The division of a recording, which is locked while it is extended, and its earlier numbering.
    fn division(&mut self, key: RecordingKey) -> (Arc<Mutex<Option<Division>>>, Option<Numbering>) {
        let place = self.divisions.iter().position(|(of, _)| *of == key);
        let entry = place.and_then(|place| self.divisions.remove(place));
        let entry = entry.unwrap_or_else(|| (key, Arc::default()));
        let division = Arc::clone(&entry.1);
        push(&mut self.divisions, entry, DIVISIONS_MAX);
        let numbering = self.numberings.iter().find(|(of, _)| *of == key);
        (division, numbering.map(|(_, numbering)| numbering.clone()))
    }

    fn keep_numbering(&mut self, key: RecordingKey, numbering: Numbering) {
        self.numberings.retain(|(of, _)| *of != key);
        push(&mut self.numberings, (key, numbering), NUMBERINGS_MAX);
    }
}

/// Adds an entry. If there are `max` entries, drops the least recently used one.
fn push<T>(entries: &mut VecDeque<T>, entry: T, max: usize) {
    if entries.len() == max {
        entries.pop_front();
    }
    entries.push_back(entry);
}
