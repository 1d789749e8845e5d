//! The list of a recording's segments, for players of HLS.
//!
//! The cuts of a recording are found once and [cached](super::segment_cache); for an active recording, only
//! the new blocks are searched. A segment ends where the next one begins, or before a gap. A gap belongs to
//! no segment, so that players need not wait as long before they reload the list (RFC 8216, section 6.3.4).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::cuts::{Cut, Cuts, Place, SegmentLimits};
use super::gaps::GAP_MIN_NS;
use super::{ExportError, Source, TrackHead};

/// Interval of the cuts: a segment begins at the first key frame of each.
const SEGMENT_CUT_NS: u64 = 4_000_000_000;

/// Least target duration. Players may not be told a longer one later. It stays the same when key frames are
/// at most two seconds apart.
const TARGET_MIN_NS: u64 = 6_000_000_000;

/// Longest segment. If the next key frame is further away, the segment ends before the first frame of a later
/// block: segments are made in memory, and viewers of an active recording wait for a whole one.
const SEGMENT_MAX: SegmentLimits = SegmentLimits {
    ns: 30_000_000_000,
    bytes: 64 << 20,
};

/// Segments at the start of the list whose positions are kept in a numbering.
const FIRSTS_MAX: usize = 16;

/// A segment of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its first packet.
    pub begins: Cut,
    /// Position and time of its end.
    pub ends: Cut,
    /// True if there is a gap before it.
    pub is_behind_gap: bool,
    /// True if it begins with a key frame, and can be decoded without others.
    pub is_independent: bool,
}

impl Part {
    /// Positions of its packets.
    #[must_use]
    pub fn places(&self) -> Range<Place> {
        self.begins.place..self.ends.place
    }

    /// Number of blocks that it lies in.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let Place { serial, packet } = self.ends.place;
        let behind = serial + u64::from(packet > 0);
        behind.saturating_sub(self.begins.place.serial)
    }

    /// Duration in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.ends.media_ns.saturating_sub(self.begins.media_ns)
    }
}

/// The start of the segment after the last listed one.
#[derive(Clone, Copy, Debug)]
struct SegmentStart {
    begins: Cut,
    is_behind_gap: bool,
    is_independent: bool,
}

impl SegmentStart {
    /// The segments from here to `to`, and the start of the segment after them; `is_key` is true if `to` is a
    /// key frame.
    fn until(
        self,
        source: &mut Source,
        to: Cut,
        is_key: bool,
    ) -> Result<(Vec<Part>, Self), ExportError> {
        let has_video = source.description().has_video();
        let mut parts = Vec::new();
        let mut start = self;
        let mut by = start.begins;
        while start.begins.place < to.place {
            let begins = start.begins;
            // After a gap the limit stays: the list may have been extended when only the segment before the
            // gap was recorded.
            if begins.place >= by.place {
                by = source.latest(begins, to, SEGMENT_MAX)?.unwrap_or(to);
            }
            let gap = match by.media_ns.saturating_sub(begins.media_ns) > GAP_MIN_NS {
                true => source.gap(begins, by)?,
                false => None,
            };
            let ends = gap.map_or(by, |gap| Cut {
                place: gap.first_after.place,
                media_ns: gap.last_before_ns,
            });
            parts.push(Part {
                begins,
                ends,
                is_behind_gap: start.is_behind_gap,
                is_independent: start.is_independent,
            });
            let begins = gap.map_or(by, |gap| gap.first_after);
            start = Self {
                begins,
                is_behind_gap: gap.is_some(),
                is_independent: !has_video,
            };
        }
        start.is_independent |= is_key && start.begins.place == to.place;
        Ok((parts, start))
    }
}

/// The number of a segment, by which segments get the same numbers again when their recording is divided
/// anew.
#[derive(Clone, Debug)]
pub(super) struct Numbering {
    /// Position of the segment.
    begins: Place,
    sequence: u64,
    /// Number of gaps before it.
    gaps: u64,
    /// Positions of the first listed segments.
    firsts: Vec<Place>,
    /// Number of the first listed segment.
    first_sequence: u64,
    /// Number of gaps before the first listed segment.
    first_gaps: u64,
    target_ns: u64,
}

/// The segments of a recording that were found so far.
#[derive(Debug)]
pub(super) struct Division {
    cuts: Cuts,
    /// True once the first position that can be decoded is known.
    is_begun: bool,
    parts: VecDeque<Part>,
    next: SegmentStart,
    /// The next cut, if the segments before it could not be read yet.
    cut: Option<Cut>,
    /// Number of the first segment.
    sequence: u64,
    /// Number of gaps before the first segment.
    gaps: u64,
    target_ns: u64,
    /// The numbering to adopt, as soon as its segment is found.
    before: Option<Numbering>,
    /// The heads that players have: the same as long as the division is cached.
    heads: Option<Arc<Vec<TrackHead>>>,
}

/// The segment list for players.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentList {
    /// Start of the first segment, or of the segment that will be the first.
    pub first: Cut,
    /// The complete segments that remain.
    pub parts: Vec<Part>,
    /// Number of the first segment, which grows with each segment that is overwritten.
    pub sequence: u64,
    /// Number of gaps before the first segment, for `EXT-X-DISCONTINUITY-SEQUENCE`.
    pub gaps: u64,
    /// Target duration in nanoseconds: no segment is longer.
    pub target_ns: u64,
}

impl Division {
    /// A division without segments, which adopts an earlier numbering.
    pub(super) fn new(source: &mut Source, before: Option<Numbering>) -> Result<Self, ExportError> {
        let cuts = Cuts::new(source, 0, SEGMENT_CUT_NS)?;
        Ok(Self {
            is_begun: false,
            parts: VecDeque::new(),
            next: SegmentStart {
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

    /// The track heads of the segments from this position on. They are cached once the division has begun.
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

    /// The current list up to `end`, where the recording ends so far, or with `is_over` finally.
    pub(super) fn list(
        &mut self,
        source: &mut Source,
        end: Cut,
        is_over: bool,
    ) -> Result<SegmentList, ExportError> {
        let first = source.first_there();
        if self.is_begun && self.next.begins.place.serial < first {
            // All known segments have been overwritten: begin anew, instead of reading blocks that have been
            // overwritten too.
            let before = self.numbering().or_else(|| self.before.clone());
            let heads = self.heads.take();
            *self = Self {
                heads,
                ..Self::new(source, before)?
            };
        }
        if !self.is_begun {
            // Packets before the first key frame are listed only when the recording is over.
            let is_known = self.cuts.begin(source)?;
            self.next.begins = self.cuts.first();
            self.next.is_independent = is_known;
            // The first number is unknown. This one is at least the number of segments before it.
            let sequence = self.next.begins.media_ns / SEGMENT_CUT_NS;
            (self.sequence, self.gaps) = match &self.before {
                None => (sequence, 0),
                Some(before) if is_known => (before.first_sequence, before.first_gaps),
                // All listed segments have been overwritten.
                Some(before) => (before.sequence, before.gaps),
            };
            self.is_begun = is_known || is_over;
        }
        if self.is_begun {
            self.extend(source, end, is_over)?;
            self.adopt_numbering();
        }
        let is_numbered = self.before.is_none();
        let is_gone = |part: &Part| part.begins.place.serial < first;
        while is_numbered && self.parts.front().is_some_and(is_gone) {
            self.drop_first();
        }
        // Another request may have got a longer list.
        let is_whole = |part: &&Part| is_numbered && part.ends.place <= end.place;
        let parts: Vec<Part> = self.parts.iter().take_while(is_whole).copied().collect();
        let longest_ns = parts.iter().map(Part::length_ns).max();
        self.target_ns = self.target_ns.max(longest_ns.unwrap_or(0));
        Ok(SegmentList {
            first: self.parts.front().map_or(self.next.begins, |of| of.begins),
            parts,
            sequence: self.sequence,
            gaps: self.gaps,
            target_ns: self.target_ns,
        })
    }

    /// Divides the blocks that were recorded since the last call.
    fn extend(&mut self, source: &mut Source, end: Cut, is_over: bool) -> Result<(), ExportError> {
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
        // No key frame for long.
        while let Some(cut) = source.latest(self.next.begins, end, SEGMENT_MAX)? {
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

    /// The numbering of the segment after the last one.
    pub(super) fn numbering(&self) -> Option<Numbering> {
        let begins = self.parts.iter().map(|of| of.begins.place);
        (self.is_begun && self.before.is_none()).then(|| Numbering {
            begins: self.next.begins.place,
            sequence: self.sequence + self.parts.len() as u64,
            gaps: self.gaps + self.gaps_to(self.parts.len()),
            firsts: begins.take(FIRSTS_MAX).collect(),
            first_sequence: self.sequence,
            first_gaps: self.gaps,
            target_ns: self.target_ns,
        })
    }

    /// Number of gaps up to the start of the segment with this index, which may be the one after the last.
    fn gaps_to(&self, place: usize) -> u64 {
        let parts = self.parts.iter().map(|of| of.is_behind_gap);
        let all = parts.chain([self.next.is_behind_gap]);
        all.take(place + 1).filter(|of| *of).count() as u64
    }

    /// Start of the segment with this index, which may be the one after the last.
    fn place_of(&self, place: usize) -> Place {
        self.parts
            .get(place)
            .map_or(self.next.begins, |of| of.begins)
            .place
    }

    /// Adopts the earlier numbering, if its segment is found.
    fn adopt_numbering(&mut self) {
        // An earlier request may have seen more of the recording.
        let is_known = |before: &mut Numbering| before.begins <= self.next.begins.place;
        let Some(before) = self.before.take_if(is_known) else {
            return;
        };
        let mut all = (0..=self.parts.len()).map(|place| self.place_of(place));
        // If its segment has been overwritten, the next one takes its place.
        let behind = all.position(|begins| begins >= before.begins);
        let place = behind.unwrap_or(self.parts.len());
        let is_gone = self.place_of(place) != before.begins;
        let sequence = before.sequence + u64::from(is_gone);
        self.sequence = sequence.saturating_sub(place as u64);
        self.gaps = before.gaps.saturating_sub(self.gaps_to(place));
        // Segments before the earlier list do not come back.
        while self.sequence < before.first_sequence && !self.parts.is_empty() {
            self.drop_first();
        }
        // The first segment may be the rest of one whose key frame has been overwritten.
        let is_other = |of: &Part| !before.firsts.contains(&of.begins.place);
        let may_drop = self.sequence < before.sequence && self.parts.len() > 1;
        if may_drop && self.parts.front().is_some_and(is_other) {
            self.drop_first();
        }
        self.sequence = self.sequence.max(before.first_sequence);
        self.gaps = self.gaps.max(before.first_gaps);
    }

    fn drop_first(&mut self) {
        let dropped = self.parts.pop_front();
        self.sequence += 1;
        self.gaps += u64::from(dropped.is_some_and(|part| part.is_behind_gap));
    }
}
