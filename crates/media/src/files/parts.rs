//! What the segments of a recording are, as players are told of them.
//!
//! Where a recording can be divided is looked for once, and [kept](super::known); one that goes on is looked at as far as it is longer. A segment
//! goes to where the next one begins, or to where nothing came for long behind it: that time is no part of any, so that
//! players need not wait for as long before they look again (RFC 8216, section 6.3.4).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::cuts::{Cut, Cuts, Most, Place};
use super::gaps::GAP_MIN_NS;
use super::{ExportError, Source, TrackHead};

/// A segment begins with the first key frame of each of these times.
const SEGMENT_CUT_NS: u64 = 4_000_000_000;

/// What players are told of how long segments are, at least: it may not become longer while they play, and does not where
/// key frames are two seconds apart or less.
const TARGET_MIN_NS: u64 = 6_000_000_000;

/// Where key frames are further apart, or there are none any more, a segment ends before the first frame of a later block: they
/// are made in memory, and who plays what is recorded waits for a whole one.
const MOST: Most = Most {
    ns: 30_000_000_000,
    bytes: 64 << 20,
};

/// So many that were told of are remembered by their places.
const FIRSTS_MAX: usize = 16;

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Where it begins.
    pub begins: Cut,
    /// Where and when it ends.
    pub ends: Cut,
    /// Nothing came for long before it.
    pub is_behind_gap: bool,
    /// It can be decoded alone.
    pub is_independent: bool,
}

impl Part {
    /// What is in it.
    #[must_use]
    pub fn places(&self) -> Range<Place> {
        self.begins.place..self.ends.place
    }

    /// In how many blocks it lies.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let Place { serial, packet } = self.ends.place;
        let behind = serial + u64::from(packet > 0);
        behind.saturating_sub(self.begins.place.serial)
    }

    /// How long it is, in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.ends.media_ns.saturating_sub(self.begins.media_ns)
    }
}

/// Where the next segment begins.
#[derive(Clone, Copy, Debug)]
struct Next {
    begins: Cut,
    is_behind_gap: bool,
    is_independent: bool,
}

impl Next {
    /// The segments from there to a place, and what begins there, which is a key frame or in the middle of something.
    fn until(
        self,
        source: &mut Source,
        to: Cut,
        is_key: bool,
    ) -> Result<(Vec<Part>, Self), ExportError> {
        let has_video = source.description().has_video();
        let mut parts = Vec::new();
        let mut next = self;
        let mut by = next.begins;
        while next.begins.place < to.place {
            let begins = next.begins;
            // Not anew behind a gap: it may have been known what is there before it was known what is behind that.
            if begins.place >= by.place {
                by = source.latest(begins, to, MOST)?.unwrap_or(to);
            }
            let gap = match by.media_ns.saturating_sub(begins.media_ns) > GAP_MIN_NS {
                true => source.gap(begins, by)?,
                false => None,
            };
            let ends = gap.map_or(by, |gap| Cut {
                place: gap.behind.place,
                media_ns: gap.ends_ns,
            });
            parts.push(Part {
                begins,
                ends,
                is_behind_gap: next.is_behind_gap,
                is_independent: next.is_independent,
            });
            let begins = gap.map_or(by, |gap| gap.behind);
            next = Self {
                begins,
                is_behind_gap: gap.is_some(),
                is_independent: !has_video,
            };
        }
        next.is_independent |= is_key && next.begins.place == to.place;
        Ok((parts, next))
    }
}

/// What number a segment has, by which others are numbered when their recording is divided anew.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    begins: Place,
    sequence: u64,
    /// How many gaps are before it.
    gaps: u64,
    /// The first segments that were told of.
    firsts: Vec<Place>,
    /// The number of the first one.
    first_sequence: u64,
    /// And how many had been overwritten behind gaps.
    first_gaps: u64,
    target_ns: u64,
}

/// The segments of a recording, as far as that was looked for.
#[derive(Debug)]
pub(super) struct Divided {
    cuts: Cuts,
    /// Whether it is known with what the first one begins.
    is_begun: bool,
    parts: VecDeque<Part>,
    next: Next,
    /// Where that ends, if what is before could not be read.
    cut: Option<Cut>,
    /// The number of the first one.
    sequence: u64,
    /// How many with nothing before them for long have been overwritten.
    gaps: u64,
    target_ns: u64,
    /// By which they have yet to be numbered.
    before: Option<Numbered>,
    /// What is said of their tracks: the same as long as this is kept, as players have it once.
    heads: Option<Arc<Vec<TrackHead>>>,
}

/// What players are told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Where the first segment begins, or will.
    pub first: Cut,
    /// All of them that are there.
    pub parts: Vec<Part>,
    /// The number of the first one, which is one more for each that has been overwritten.
    pub sequence: u64,
    /// The same of those behind gaps.
    pub gaps: u64,
    /// As long as any of them is, in nanoseconds.
    pub target_ns: u64,
}

impl Divided {
    /// Numbered as they were before.
    pub(super) fn new(source: &mut Source, before: Option<Numbered>) -> Result<Self, ExportError> {
        let cuts = Cuts::new(source, 0, SEGMENT_CUT_NS)?;
        Ok(Self {
            is_begun: false,
            parts: VecDeque::new(),
            next: Next {
                begins: cuts.first(),
                is_behind_gap: false,
                is_independent: true,
            },
            cut: None,
            sequence: 0,
            gaps: 0,
            target_ns: before.as_ref().map_or(TARGET_MIN_NS, |of| of.target_ns),
            before,
            cuts,
            heads: None,
        })
    }

    /// What is said of the tracks of segments, from which on these are looked at.
    pub(super) fn heads(
        &mut self,
        source: &mut Source,
        from: Place,
    ) -> Result<Arc<Vec<TrackHead>>, ExportError> {
        if let Some(heads) = &self.heads {
            return Ok(Arc::clone(heads));
        }
        let heads = Arc::new(source.segment_heads(from)?);
        if self.is_begun {
            self.heads = Some(Arc::clone(&heads));
        }
        Ok(heads)
    }

    /// What there is now, up to where the recording ends as yet, or for good.
    pub(super) fn list(
        &mut self,
        source: &mut Source,
        end: Cut,
        is_over: bool,
    ) -> Result<Listed, ExportError> {
        let first = source.first_there();
        if self.is_begun && self.next.begins.place.serial < first {
            // All that was found has been overwritten, and what came since is not read for nothing.
            let before = self.numbered().or_else(|| self.before.clone());
            let heads = self.heads.take();
            *self = Self {
                heads,
                ..Self::new(source, before)?
            };
        }
        if !self.is_begun {
            // Nothing is told of what cannot be decoded as long as something that can be may come.
            let is_known = self.cuts.begin(source)?;
            self.next.begins = self.cuts.first();
            self.next.is_independent = is_known;
            // How many were before nobody knows; no more than this.
            let sequence = self.next.begins.media_ns / SEGMENT_CUT_NS;
            (self.sequence, self.gaps) = match &self.before {
                None => (sequence, 0),
                Some(before) if is_known => (before.first_sequence, before.first_gaps),
                // All that was told of has been overwritten.
                Some(before) => (before.sequence, before.gaps),
            };
            self.is_begun = is_known || is_over;
        }
        if self.is_begun {
            self.go_on(source, end, is_over)?;
            self.number();
        }
        let is_numbered = self.before.is_none();
        let is_gone = |part: &Part| part.begins.place.serial < first;
        while is_numbered && self.parts.front().is_some_and(is_gone) {
            self.drop_first();
        }
        // Others may have seen more of it, or were told of more.
        let is_whole = |part: &&Part| is_numbered && part.ends.place <= end.place;
        let parts: Vec<Part> = self.parts.iter().take_while(is_whole).copied().collect();
        let longest_ns = parts.iter().map(Part::length_ns).max();
        self.target_ns = self.target_ns.max(longest_ns.unwrap_or(0));
        Ok(Listed {
            first: self.parts.front().map_or(self.next.begins, |of| of.begins),
            parts,
            sequence: self.sequence,
            gaps: self.gaps,
            target_ns: self.target_ns,
        })
    }

    /// Divides what has been recorded meanwhile.
    fn go_on(&mut self, source: &mut Source, end: Cut, is_over: bool) -> Result<(), ExportError> {
        loop {
            if self.cut.is_none() {
                self.cut = self.cuts.next_cut(source)?;
            }
            let Some(cut) = self.cut else {
                break;
            };
            self.add(source, cut, true)?;
            self.cut = None;
        }
        if is_over {
            return self.add(source, end, false);
        }
        // Where no key frame comes for long.
        while let Some(cut) = source.latest(self.next.begins, end, MOST)? {
            self.add(source, cut, false)?;
        }
        Ok(())
    }

    fn add(&mut self, source: &mut Source, to: Cut, is_key: bool) -> Result<(), ExportError> {
        let (parts, next) = self.next.until(source, to, is_key)?;
        self.parts.extend(parts);
        self.next = next;
        Ok(())
    }

    /// The number of the segment that is to be the next one.
    pub(super) fn numbered(&self) -> Option<Numbered> {
        let begins = self.parts.iter().map(|of| of.begins.place);
        (self.is_begun && self.before.is_none()).then(|| Numbered {
            begins: self.next.begins.place,
            sequence: self.sequence + self.parts.len() as u64,
            gaps: self.gaps + self.gaps_to(self.parts.len()),
            firsts: begins.take(FIRSTS_MAX).collect(),
            first_sequence: self.sequence,
            first_gaps: self.gaps,
            target_ns: self.target_ns,
        })
    }

    /// Those up to the one in this place, which may be the next one.
    fn gaps_to(&self, place: usize) -> u64 {
        let parts = self.parts.iter().map(|of| of.is_behind_gap);
        let all = parts.chain([self.next.is_behind_gap]);
        all.take(place + 1).filter(|of| *of).count() as u64
    }

    /// Where the one in this place begins, which may be the next one.
    fn place_of(&self, place: usize) -> Place {
        self.parts
            .get(place)
            .map_or(self.next.begins, |of| of.begins)
            .place
    }

    /// Numbers them as they were before.
    fn number(&mut self) {
        // Who looked before may have seen more of it than is known here.
        let is_known = |before: &mut Numbered| before.begins <= self.next.begins.place;
        let Some(before) = self.before.take_if(is_known) else {
            return;
        };
        let mut all = (0..=self.parts.len()).map(|place| self.place_of(place));
        // Where it has been overwritten, that is the one behind it.
        let behind = all.position(|begins| begins >= before.begins);
        let place = behind.unwrap_or(self.parts.len());
        let is_gone = self.place_of(place) != before.begins;
        let sequence = before.sequence + u64::from(is_gone);
        self.sequence = sequence.saturating_sub(place as u64);
        self.gaps = before.gaps.saturating_sub(self.gaps_to(place));
        // What was not told of any more is not anew.
        while self.sequence < before.first_sequence && !self.parts.is_empty() {
            self.drop_first();
        }
        // The key frame that the first one began with may have been overwritten, and what is left of it is another one.
        let is_other = |of: &Part| !before.firsts.contains(&of.begins.place);
        let may_be = self.sequence < before.sequence && self.parts.len() > 1;
        if may_be && self.parts.front().is_some_and(is_other) {
            self.drop_first();
        }
        self.sequence = self.sequence.max(before.first_sequence);
        self.gaps = self.gaps.max(before.first_gaps);
    }

    fn drop_first(&mut self) {
        let gone = self.parts.pop_front();
        self.sequence += 1;
        self.gaps += u64::from(gone.is_some_and(|gone| gone.is_behind_gap));
    }
}
