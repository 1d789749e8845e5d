//! What the segments of recordings are, as players are told of them, noted between requests.
//!
//! Where a recording can be divided is looked for once; one that goes on is looked at as far as it is longer. A segment
//! goes to where the next one begins, or to where nothing came for long behind it: that time is no part of any, so that
//! players need not wait for as long before they look again (RFC 8216, section 6.3.4).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Opened, Problem};
use crate::media::export::cuts::{Cut, Cuts, Place};
use crate::media::export::lulls::LULL_NS;
use crate::media::export::{ExportError, Source};

/// A segment begins with the first key frame of each of these times.
const SEGMENT_CUT_NS: u64 = 4_000_000_000;

/// What players are told of how long segments are, at least: it may not become longer while they play, and does not where
/// key frames are two seconds apart or less.
const TARGET_MIN_NS: u64 = 6_000_000_000;

/// Of so many recordings it is known what their segments are.
const KNOWN_MAX: usize = 32;

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Where it begins.
    pub(super) begins: Cut,
    /// Where and when it ends.
    pub(super) ends: Cut,
    /// Nothing came for long before it.
    pub(super) is_behind_lull: bool,
    /// It can be decoded alone.
    pub(super) is_independent: bool,
}

impl Part {
    /// What is in it.
    pub(super) fn places(&self) -> Range<Place> {
        self.begins.place..self.ends.place
    }

    /// How long it is, in nanoseconds.
    pub(super) fn length_ns(&self) -> u64 {
        self.ends.media_ns.saturating_sub(self.begins.media_ns)
    }
}

/// Where the next segment begins.
#[derive(Clone, Copy, Debug)]
struct Next {
    begins: Cut,
    is_behind_lull: bool,
    is_independent: bool,
}

impl Next {
    /// The segments from there to a place, and what begins there.
    fn until(self, source: &mut Source, to: Cut) -> Result<(Vec<Part>, Self), ExportError> {
        let mut parts = Vec::new();
        let mut next = self;
        while next.begins.place < to.place {
            let begins = next.begins;
            let lull = match to.media_ns.saturating_sub(begins.media_ns) > LULL_NS {
                true => source.lull(begins, to)?,
                false => None,
            };
            let ends = lull.map_or(to, |lull| Cut {
                place: lull.behind.place,
                media_ns: lull.ends_ns,
            });
            parts.push(Part {
                begins,
                ends,
                is_behind_lull: next.is_behind_lull,
                is_independent: next.is_independent,
            });
            let begins = lull.map_or(to, |lull| lull.behind);
            next = Self {
                begins,
                is_behind_lull: lull.is_some(),
                is_independent: begins.place == to.place || !source.description().has_video(),
            };
        }
        Ok((parts, next))
    }
}

/// The segments of a recording, as far as that was looked for.
#[derive(Debug)]
struct Divided {
    cuts: Cuts,
    parts: VecDeque<Part>,
    next: Next,
    /// Those from there to where the recording has ended.
    last: Option<(Cut, Vec<Part>)>,
    /// The number of the first one.
    sequence: u64,
    /// How many with nothing before them for long have been overwritten.
    lulls: u64,
    target_ns: u64,
}

/// What players are told of.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// Where the first segment begins, or will.
    pub(super) first: Cut,
    pub(super) parts: Vec<Part>,
    /// The number of the first one, which is one more for each that has been overwritten.
    pub(super) sequence: u64,
    /// The same of those behind lulls.
    pub(super) lulls: u64,
    /// As long as any of them is, in nanoseconds.
    pub(super) target_ns: u64,
}

impl Divided {
    fn new(source: &mut Source) -> Result<Self, ExportError> {
        let cuts = Cuts::new(source, 0, SEGMENT_CUT_NS)?;
        let begins = cuts.first();
        Ok(Self {
            parts: VecDeque::new(),
            next: Next {
                begins,
                is_behind_lull: false,
                is_independent: true,
            },
            last: None,
            // How many were before nobody knows; no more than this.
            sequence: begins.media_ns / SEGMENT_CUT_NS,
            lulls: 0,
            target_ns: TARGET_MIN_NS,
            cuts,
        })
    }

    /// What there is now; of one that has ended, up to its end.
    fn list(&mut self, source: &mut Source, end: Option<Cut>) -> Result<Listed, ExportError> {
        while let Some(cut) = self.cuts.next_cut(source)? {
            let (parts, next) = self.next.until(source, cut)?;
            self.parts.extend(parts);
            self.next = next;
        }
        let first = source.recording().first;
        while let Some(gone) = self.parts.front() {
            if gone.begins.place.serial >= first {
                break;
            }
            self.sequence += 1;
            self.lulls += u64::from(gone.is_behind_lull);
            self.parts.pop_front();
        }
        let mut parts: Vec<Part> = self.parts.iter().copied().collect();
        if let Some(end) = end {
            if self.last.as_ref().is_none_or(|(of, _)| *of != end) {
                self.last = Some((end, self.next.until(source, end)?.0));
            }
            let last = self.last.iter().flat_map(|(_, parts)| parts);
            parts.extend(last.filter(|part| part.begins.place.serial >= first));
        }
        let longest_ns = parts.iter().map(Part::length_ns).max();
        self.target_ns = self.target_ns.max(longest_ns.unwrap_or(0));
        Ok(Listed {
            first: parts.first().map_or(self.next.begins, |part| part.begins),
            parts,
            sequence: self.sequence,
            lulls: self.lulls,
            target_ns: self.target_ns,
        })
    }
}

type Entry = (([u8; 16], u64), Arc<Mutex<Divided>>);

/// What is known of recordings, by archive and number; those that were asked for last are the last.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<VecDeque<Entry>>);

impl Known {
    fn take(&self, of: ([u8; 16], u64)) -> Option<Arc<Mutex<Divided>>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|(key, _)| *key == of)?;
        let entry = known.remove(place)?;
        let divided = Arc::clone(&entry.1);
        known.push_back(entry);
        Some(divided)
    }

    /// What the segments of a recording are now.
    pub(super) fn list(&self, opened: &mut Opened) -> Result<Listed, Problem> {
        let source = &mut opened.source;
        let recording = *source.recording();
        let of = (opened.archive.header().archive, recording.number);
        let divided = match self.take(of) {
            Some(divided) => divided,
            None => {
                let divided = Arc::new(Mutex::new(Divided::new(source)?));
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() == KNOWN_MAX {
                    known.pop_front();
                }
                known.push_back((of, Arc::clone(&divided)));
                divided
            }
        };
        // What is being recorded has no end yet.
        let end = (!opened.described.is_recorded).then_some(Cut {
            place: Place {
                serial: recording.end,
                packet: 0,
            },
            media_ns: opened.described.ends_ns,
        });
        let mut divided = divided.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(divided.list(source, end)?)
    }
}
