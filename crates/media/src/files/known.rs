//! What the segments of recordings are, noted between requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cuts::{Cut, Place};
use super::parts::{Divided, Listed, Numbered};
use super::{ExportError, Source, TrackHead};

/// Of so many recordings it is known what their segments are.
const KNOWN_MAX: usize = 32;

/// And of so many which numbers they had.
const NUMBERED_MAX: usize = 1_024;

/// A recording, by its archive and number.
type Of = ([u8; 16], u64);

/// What is known of recordings; those that were asked for last are the last.
#[derive(Debug, Default)]
struct Kept {
    divided: VecDeque<(Of, Arc<Mutex<Option<Divided>>>)>,
    /// Of many more of them.
    numbered: VecDeque<(Of, Numbered)>,
}

/// The same for whoever asks.
#[derive(Debug, Default)]
pub struct Known(Mutex<Kept>);

impl Known {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the segments of a recording are now, which ends at this time as yet, or for good.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn list(
        &self,
        source: &mut Source,
        ends_ns: u64,
        is_over: bool,
    ) -> Result<Listed, ExportError> {
        let recording = source.recording;
        let of = of(source);
        let (divided, before) = self.kept().take(of);
        let mut divided = divided.lock().unwrap_or_else(PoisonError::into_inner);
        let divided = match &mut *divided {
            Some(divided) => divided,
            none => none.insert(Divided::new(source, before)?),
        };
        let end = Cut {
            place: Place {
                serial: recording.end,
                packet: 0,
            },
            media_ns: ends_ns,
        };
        let listed = divided.list(source, end, is_over)?;
        if let Some(numbered) = divided.numbered() {
            self.kept().number(of, numbered);
        }
        Ok(listed)
    }

    /// What is said of the tracks of these segments, which are then what the source makes segments of.
    ///
    /// # Errors
    /// When that is not known, or the recording cannot be read.
    pub fn heads(
        &self,
        source: &mut Source,
        listed: &Listed,
    ) -> Result<Arc<Vec<TrackHead>>, ExportError> {
        let (divided, _) = self.kept().take(of(source));
        let mut divided = divided.lock().unwrap_or_else(PoisonError::into_inner);
        let from = listed.first.place;
        let heads = match &mut *divided {
            Some(divided) => divided.heads(source, from)?,
            None => Arc::new(source.segment_heads(from)?),
        };
        source.makes_of(heads.iter().map(TrackHead::track).collect());
        Ok(heads)
    }
}

fn of(source: &Source) -> Of {
    let archive = source.archive.header().archive;
    (archive, source.recording.number)
}

impl Kept {
    /// How a recording is divided, as far as is known, and what number one of its segments had.
    fn take(&mut self, of: Of) -> (Arc<Mutex<Option<Divided>>>, Option<Numbered>) {
        let place = self.divided.iter().position(|(key, _)| *key == of);
        let entry = place.and_then(|place| self.divided.remove(place));
        let entry = entry.unwrap_or_else(|| (of, Arc::default()));
        let divided = Arc::clone(&entry.1);
        push(&mut self.divided, entry, KNOWN_MAX);
        let numbered = self.numbered.iter().find(|(key, _)| *key == of);
        (divided, numbered.map(|(_, numbered)| numbered.clone()))
    }

    fn number(&mut self, of: Of, numbered: Numbered) {
        self.numbered.retain(|(key, _)| *key != of);
        push(&mut self.numbered, (of, numbered), NUMBERED_MAX);
    }
}

/// Adds one, for which the first has to go where there are so many.
fn push<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() == most {
        all.pop_front();
    }
    all.push_back(one);
}
