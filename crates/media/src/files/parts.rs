//! The segments of a range of a recording, for players of HLS.
//!
//! A segment ends where the next one begins, or before a gap. A gap belongs to no segment, so that players need not
//! wait as long before they reload the list (RFC 8216, section 6.3.4).
//!
//! The segments depend on the recording alone and not on the range, so lists of different ranges name the same ones.
//! Only the sections of the index about the range are read, however long the recording is.

use std::ops::Range;

use super::cuts::{Cut, Cuts, Place};
use super::far_cuts::GRID_BYTES;
use super::gaps::GAP_MIN_NS;
use super::{ExportError, Source};

/// How a recording is divided into segments: one begins at the first key frame of each interval. The cuts of the coarse
/// division are among those of the usual one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// Intervals of four seconds.
    Usual,
    /// Intervals of twelve seconds, for lists of long ranges.
    Coarse,
}

impl Division {
    fn cut_ns(self) -> u64 {
        match self {
            Self::Usual => 4_000_000_000,
            Self::Coarse => 12_000_000_000,
        }
    }
}

/// Time that a coarse segment lasts where key frames are at most four seconds apart.
const COARSE_NS_MAX: u64 = 16_000_000_000;

/// This long before a range the search for its first segment begins, and this long after it the search for the end
/// of its last one ends. No block lasts longer.
const AROUND_NS: u64 = 60_000_000_000;

/// A segment that ends this shortly after the beginning of a range is not in it: players name times in milliseconds.
const ROUNDING_NS: u64 = 50_000_000;

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

/// The segments of a range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SegmentList {
    /// Start of the first segment, or of the segment that will be the first.
    pub first: Cut,
    /// The complete segments that remain.
    pub parts: Vec<Part>,
    /// True if no segment will be added: the range or the recording is over.
    pub is_complete: bool,
}

/// The start of the segment after the last listed one.
#[derive(Clone, Copy, Debug)]
struct SegmentStart {
    begins: Cut,
    is_key: bool,
    is_behind_gap: bool,
    is_independent: bool,
}

/// Where the search for the segments of a range begins.
struct Opening {
    start: SegmentStart,
    cuts: Cuts,
    /// The first cut after `start`.
    next: Option<Cut>,
}

impl SegmentStart {
    /// The segments from here up to `to`, or with `is_open` up to the last cut before it; and the start of the
    /// segment after them. Segments that end before the time `since_ns` may be left out.
    fn until(
        self,
        source: &mut Source,
        to: Cut,
        is_open: bool,
        since_ns: u64,
    ) -> Result<(Vec<Part>, Self), ExportError> {
        let has_video = source.description().has_video();
        let far = source.far_cuts(self.begins, self.is_key, to, since_ns)?;
        let mut ends = far.cuts;
        ends.extend((!is_open).then_some(to));
        let mut parts = Vec::new();
        let mut start = self;
        for (number, by) in ends.into_iter().enumerate() {
            if far.is_rest && number == 0 {
                start.begins = by;
                start.is_independent = !has_video;
            }
            while start.begins.place < by.place {
                let begins = start.begins;
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
                start = Self {
                    begins: gap.map_or(by, |gap| gap.first_after),
                    is_key: self.is_key,
                    is_behind_gap: gap.is_some(),
                    is_independent: !has_video,
                };
            }
        }
        Ok((parts, start))
    }
}

impl Source {
    /// The coarsest division whose segments are not cut for their size; the recording lasts this long.
    #[must_use]
    pub fn coarsest_division(&self, length_ns: u64) -> Division {
        let blocks = self.recording.end - self.recording.first;
        let bytes = u128::from(blocks * self.archive.header().block_bytes);
        let bytes_of_segment = bytes * u128::from(COARSE_NS_MAX) / u128::from(length_ns.max(1));
        match bytes_of_segment <= u128::from(GRID_BYTES) {
            true => Division::Coarse,
            false => Division::Usual,
        }
    }

    /// The segments between two times, in nanoseconds of the recording's time. The recording ends at `ends_ns` so
    /// far, or with `is_over` finally.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn list(
        &mut self,
        times: &Range<u64>,
        ends_ns: u64,
        is_over: bool,
        division: Division,
    ) -> Result<SegmentList, ExportError> {
        let end = Cut {
            place: Place {
                serial: self.recording.end,
                packet: 0,
            },
            media_ns: ends_ns,
        };
        let after_ns = times.end.saturating_add(AROUND_NS);
        let limit = match after_ns < ends_ns {
            true => self.block_at(after_ns)? + 1,
            false => self.recording.end,
        };
        let Some(Opening {
            mut start,
            mut cuts,
            mut next,
        }) = self.opening(times.start, limit, is_over, division)?
        else {
            return Ok(SegmentList {
                first: end,
                is_complete: is_over,
                ..SegmentList::default()
            });
        };
        let is_searched = limit >= self.recording.end;
        // Behind the searched blocks there may be a key frame.
        let searched = Cut {
            place: Place {
                serial: limit,
                packet: 0,
            },
            media_ns: u64::MAX,
        };
        let first_there = self.first_there();
        let since_ns = times.start.saturating_sub(AROUND_NS);
        let is_listed = |part: &Part| {
            part.ends.media_ns > times.start.saturating_add(ROUNDING_NS)
                && part.begins.media_ns < times.end
                && part.begins.place.serial >= first_there
        };
        let mut parts: Vec<Part> = Vec::new();
        loop {
            let is_whole = next.is_some() || is_over && is_searched;
            let to = next.unwrap_or(if is_searched { end } else { searched });
            let (more, behind) = start.until(self, to, !is_whole, since_ns)?;
            parts.extend(more.into_iter().filter(is_listed));
            start = behind;
            if let Some(next) = next {
                let is_here = start.begins.place == next.place;
                start.is_independent |= is_here;
                start.is_key = true;
            }
            if next.is_none() || start.begins.media_ns >= times.end {
                break;
            }
            next = cuts.next_cut(self)?;
        }
        let is_behind = start.begins.media_ns >= times.end;
        Ok(SegmentList {
            first: parts.first().map_or(start.begins, |of| of.begins),
            is_complete: is_over || is_behind,
            parts,
        })
    }

    /// Where the search for the segments from a time on begins. `None` if no segment has begun yet: packets before
    /// the first key frame are listed only when the recording is over.
    fn opening(
        &mut self,
        from_ns: u64,
        limit: u64,
        is_over: bool,
        division: Division,
    ) -> Result<Option<Opening>, ExportError> {
        let cut_ns = division.cut_ns();
        let has_keys = self.description.has_video();
        let (key, is_key) = self.start(from_ns)?;
        if has_keys && !is_key && key.place.serial > self.recording.first {
            let opening = self.opening_without_key(from_ns, limit, division)?;
            return Ok(Some(opening));
        }
        let key_ns = match has_keys {
            true => key.media_ns,
            false => self.block_begins(key.place.serial)?.unwrap_or(0),
        };
        // The first cut is that of the interval before, or where the recording begins.
        let before_ns = (key_ns / cut_ns * cut_ns).saturating_sub(1);
        let has_before = match has_keys {
            true => self.start(before_ns)?.1,
            false => self.block_begins(self.recording.first)? <= Some(before_ns),
        };
        let mut cuts = Cuts::up_to(self, before_ns, cut_ns, limit)?;
        let is_known = cuts.begin(self)?;
        let mut first = cuts.first();
        // It is the rest of a segment if an earlier key frame of its interval may have been overwritten.
        let oldest_ns = self.block_begins(self.recording.first)?.unwrap_or(0);
        let is_rest = oldest_ns / cut_ns >= first.media_ns / cut_ns
            && !self.archive.is_from_its_start(&self.recording);
        if is_known && !has_before && is_rest {
            match cuts.next_cut(self)? {
                Some(cut) => first = cut,
                None if is_over => {}
                None => return Ok(None),
            }
        }
        let next = cuts.next_cut(self)?;
        Ok((is_known || is_over).then_some(Opening {
            start: SegmentStart {
                begins: first,
                is_key: is_known,
                is_behind_gap: false,
                is_independent: is_known,
            },
            cuts,
            next,
        }))
    }

    /// As [`opening`](Self::opening), where no key frame is near before the time.
    fn opening_without_key(
        &mut self,
        from_ns: u64,
        limit: u64,
        division: Division,
    ) -> Result<Opening, ExportError> {
        let since_ns = from_ns.saturating_sub(AROUND_NS);
        let serial = self.block_at(since_ns)?;
        let begins = Cut {
            place: Place { serial, packet: 0 },
            media_ns: self.block_begins(serial)?.unwrap_or(since_ns),
        };
        let mut cuts = Cuts::up_to(self, from_ns, division.cut_ns(), limit)?;
        let next = cuts.begin(self)?.then(|| cuts.first());
        Ok(Opening {
            start: SegmentStart {
                begins,
                is_key: false,
                is_behind_gap: false,
                is_independent: false,
            },
            cuts,
            next,
        })
    }
}
