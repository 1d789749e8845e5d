//! Clips: one MP4 file of a range of the wall clock, over recordings, restarts and gaps.
//!
//! A clip is planned first, from the index: its *pieces* are parts of recordings without a gap. So all refusals
//! come before the first byte. Then one piece is made after another, as fragments of the same file. All pieces
//! have the same tracks and decoder parameters, because the head of the file has them once.

use super::cuts::{Cut, Cuts, Place};
use super::gaps::GAP_MIN_NS;
use super::segments::Segments;
use super::*;
use crate::archive::archives::{Archives, OpenError};
use crate::archive::timeline::candidates;

/// Time from the last frame of a piece to the first one of the next, if the gap between them is closed.
const JOIN_NS: u64 = 40_000_000;

/// Packets after a gap that may be earlier than the first one, because tracks are not aligned.
const UNALIGNED_PACKETS: usize = 64;

/// How gaps appear in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GapsInFile {
    /// The next picture follows at once.
    #[default]
    Close,
    /// Times in the file differ as times of the wall clock do: the last picture stands still.
    Keep,
}

/// Reason why there is no clip.
#[derive(Debug, thiserror::Error)]
pub enum ClipError {
    /// The archive cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A recording cannot be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Nothing was recorded in the range.
    #[error("nothing was recorded in that time range")]
    Nothing {
        /// The last time before the range at which something was recorded, in nanoseconds since 1970.
        before_unix_ns: Option<u64>,
        /// The first time after the range at which something was recorded, in nanoseconds since 1970.
        after_unix_ns: Option<u64>,
    },
    /// Recordings in the range have other tracks or formats than the ones before them.
    #[error("recordings {first} and {second} in that time range have different tracks or formats")]
    Mixed {
        /// Number of a recording.
        first: u64,
        /// Number of the next recording, which differs.
        second: u64,
        /// When the one ends and the other begins, in nanoseconds since 1970.
        between_unix_ns: Range<u64>,
    },
}

impl From<ArchiveError> for ClipError {
    fn from(error: ArchiveError) -> Self {
        Self::Export(error.into())
    }
}

/// A part of a recording without a gap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Index of its recording in the clip.
    source: usize,
    pub(super) first: Cut,
    /// Place after its last packet; `None`: the end of the recording.
    pub(super) end: Option<Place>,
    /// Its units, in nanoseconds of the recording's time.
    pub(super) times_ns: Range<u64>,
    /// Time of the first picture of the next piece, if the gap between them is kept.
    pub(super) after_ns: Option<u64>,
    /// The end of its last unit, in nanoseconds of the recording's time.
    ends_ns: u64,
    /// Its begin in the file.
    offset_ns: u64,
    unix_ns: Range<u64>,
}

impl Piece {
    /// Time 0 of the file, in nanoseconds of the recording's time.
    pub(super) fn origin_ns(&self) -> i64 {
        self.times_ns.start as i64 - self.offset_ns as i64
    }

    fn length_ns(&self) -> u64 {
        self.ends_ns.saturating_sub(self.times_ns.start)
    }
}

/// A planned file.
#[derive(Debug)]
pub struct Clip {
    sources: Vec<Source>,
    pieces: Vec<Piece>,
    head: Vec<u8>,
}

/// The times nearest to a range at which something was recorded, in nanoseconds since 1970.
#[derive(Default)]
struct Nearest {
    before: Option<u64>,
    after: Option<u64>,
}

impl Nearest {
    fn note_before(&mut self, unix_ns: u64) {
        self.before = self.before.max(Some(unix_ns));
    }

    fn note_after(&mut self, unix_ns: u64) {
        self.after = Some(self.after.map_or(unix_ns, |after| after.min(unix_ns)));
    }
}

impl Clip {
    /// Plans the clip of a range of times in nanoseconds since 1970. Like an export of a recording it begins with
    /// the key frame before the range.
    ///
    /// # Errors
    /// When nothing was recorded then, tracks or formats differ, or the archive cannot be read.
    pub fn new(
        archives: &Archives,
        volume: &str,
        unix_ns: &Range<u64>,
        gaps: GapsInFile,
    ) -> Result<Self, ClipError> {
        let archive = archives.open(volume, None)?;
        let client = archives.client().map_err(OpenError::from)?;
        let mut nearest = Nearest::default();
        let (mut sources, mut pieces) = (Vec::new(), Vec::new());
        for recording in candidates(&archive.recordings(), unix_ns) {
            let extent = archive.extent(&client, &recording)?;
            let at = |media_ns| archive.unix_ns_at(&client, &recording, media_ns);
            let from = archive.media_ns_at(&client, &recording, unix_ns.start)?;
            let until = archive.media_ns_at(&client, &recording, unix_ns.end)?;
            if extent.end < from {
                nearest.note_before(at(extent.end)?);
                continue;
            }
            if until <= extent.start {
                nearest.note_after(at(extent.start)?);
                continue;
            }
            let description = archives.describe(&archive, recording)?.description;
            let description = description.ok_or(ExportError::Undescribed)?;
            let mut source = Source::new(
                Arc::clone(&archive),
                Arc::clone(&client),
                recording,
                description,
            );
            let count = pieces.len();
            let number = sources.len();
            pieces.extend(source.pieces(number, &(from..until), &mut nearest)?);
            if pieces.len() > count {
                sources.push(source);
            }
        }
        if pieces.is_empty() {
            return Err(ClipError::Nothing {
                before_unix_ns: nearest.before,
                after_unix_ns: nearest.after,
            });
        }
        arrange(&mut pieces, gaps);
        let head = head(&mut sources, &pieces)?;
        Ok(Self {
            sources,
            pieces,
            head,
        })
    }

    /// Makes the file.
    ///
    /// # Errors
    /// When a recording cannot be read, or has been deleted or overwritten meanwhile.
    pub fn make(&mut self, emit: &mut Emit<'_>) -> Result<(), ExportError> {
        // The head is emitted with the first fragment, so that an error is reported before any output.
        let mut head = Some(self.head.as_slice());
        let mut number = 1;
        for piece in &self.pieces {
            let source = &mut self.sources[piece.source];
            let cuts = Cuts::new(source, piece.first.media_ns, FILE_CUT_NS)?;
            let mut segments = Segments::of_piece(cuts, piece, number);
            while let Some((_, segment)) = segments.next_segment(source)? {
                let mut emit = |bytes| {
                    if let Some(head) = head.take() {
                        emit(head.to_vec())?;
                    }
                    emit(bytes)
                };
                if source.segment(&segment, &mut emit)?.is_break() {
                    return Ok(());
                }
            }
            number = segments.number();
        }
        match head {
            Some(_) => Err(ExportError::Empty),
            None => Ok(()),
        }
    }

    /// The times that are in the file, in nanoseconds since 1970; between them nothing was recorded.
    pub fn recorded(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pieces.iter().map(|piece| piece.unix_ns.clone())
    }
}

impl Export for Clip {
    fn volume(&self) -> &str {
        self.sources.first().map_or("", Source::volume)
    }

    fn recording(&self) -> u64 {
        self.sources.first().map_or(0, |of| of.recording.number)
    }

    fn missing_blocks(&self) -> u64 {
        self.sources.iter().map(Source::missing_blocks).sum()
    }

    fn left_out(&self) -> u64 {
        self.sources.iter().map(|of| of.left_out).sum()
    }
}

/// Sets the places of the pieces in the file.
fn arrange(pieces: &mut [Piece], gaps: GapsInFile) {
    for place in 1..pieces.len() {
        let (before, piece) = (&pieces[place - 1], &pieces[place]);
        let mut offset_ns = before.offset_ns + before.length_ns() + JOIN_NS;
        let since_ns = piece.unix_ns.start.saturating_sub(pieces[0].unix_ns.start);
        if gaps == GapsInFile::Keep {
            offset_ns = offset_ns.max(since_ns);
            let after_ns = before.times_ns.start + (offset_ns - before.offset_ns);
            pieces[place - 1].after_ns = Some(after_ns);
        }
        pieces[place].offset_ns = offset_ns;
    }
}

/// The head of the file. All recordings must have the same tracks and parameters.
fn head(sources: &mut [Source], pieces: &[Piece]) -> Result<Vec<u8>, ClipError> {
    let mut heads: Option<Vec<TrackHead>> = None;
    let mut before: Option<&Piece> = None;
    let mut first = 0;
    for piece in pieces {
        let (Some(source), true) = (
            sources.get_mut(piece.source),
            before.is_none_or(|before| before.source != piece.source),
        ) else {
            before = Some(piece);
            continue;
        };
        let of = source.heads(piece.first.place)?;
        source.makes_of(of.iter().map(TrackHead::track).collect());
        let second = source.recording().number;
        if let (Some(heads), Some(before)) = (&heads, before)
            && *heads != of
        {
            return Err(ClipError::Mixed {
                first,
                second,
                between_unix_ns: before.unix_ns.end..piece.unix_ns.start,
            });
        }
        first = second;
        heads.get_or_insert(of);
        before = Some(piece);
    }
    let length_ns = before.map_or(0, |last| last.offset_ns + last.length_ns());
    let heads = heads.unwrap_or_default();
    let head = mp4::init(&heads, Some(length_ns / 1_000_000)).map_err(ExportError::from)?;
    Ok(head)
}

impl Source {
    /// The pieces of a range of times of this recording, from the last key frame before it on.
    fn pieces(
        &mut self,
        number: usize,
        times_ns: &Range<u64>,
        nearest: &mut Nearest,
    ) -> Result<Vec<Piece>, ExportError> {
        let end = self.archive.extent(&self.client, &self.recording)?.end;
        let mut cuts = Cuts::new(self, times_ns.start, FILE_CUT_NS)?;
        let mut pieces = Vec::new();
        let mut begins = cuts.first();
        let mut from = begins;
        let mut starts_ns = begins.media_ns;
        while begins.media_ns < times_ns.end {
            let next = cuts.next_cut(self)?;
            if next.is_some_and(|next| next.place <= from.place) {
                continue;
            }
            let to = next.unwrap_or(Cut {
                place: Place {
                    serial: self.recording.end,
                    packet: 0,
                },
                media_ns: end,
            });
            let is_long = to.media_ns.saturating_sub(from.media_ns) > GAP_MIN_NS;
            let gap = if is_long { self.gap(from, to)? } else { None };
            let is_over = next.is_none_or(|next| next.media_ns >= times_ns.end);
            let (piece_end, ends_ns) = match gap {
                Some(gap) => (Some(gap.first_after.place), gap.last_before_ns),
                None if is_over => (None, end),
                None => {
                    from = to;
                    continue;
                }
            };
            let until_ns = ends_ns.min(times_ns.end);
            let unix_ns = self.unix_ns(starts_ns)?..self.unix_ns(until_ns)?;
            // A piece that a gap ends before the range only precedes it.
            if gap.is_some() && ends_ns < times_ns.start {
                nearest.note_before(unix_ns.end);
            } else {
                pieces.push(Piece {
                    source: number,
                    first: Cut {
                        media_ns: starts_ns,
                        ..begins
                    },
                    end: piece_end,
                    times_ns: starts_ns..times_ns.end,
                    after_ns: None,
                    ends_ns: until_ns,
                    offset_ns: 0,
                    unix_ns,
                });
            }
            let Some(gap) = gap else {
                break;
            };
            begins = gap.first_after;
            starts_ns = self.earliest_ns(begins, gap.last_before_ns)?;
            if begins.media_ns >= times_ns.end {
                nearest.note_after(self.unix_ns(begins.media_ns)?);
            }
            from = begins;
            cuts = Cuts::new(self, begins.media_ns, FILE_CUT_NS)?;
        }
        Ok(pieces)
    }

    fn unix_ns(&self, media_ns: u64) -> Result<u64, ExportError> {
        let (archive, client) = (&self.archive, &self.client);
        Ok(archive.unix_ns_at(client, &self.recording, media_ns)?)
    }

    /// The earliest time after a gap: packets of other tracks may be a little earlier than the first one.
    fn earliest_ns(&self, first: Cut, last_before_ns: u64) -> Result<u64, ExportError> {
        let Place { serial, packet } = first.place;
        let (archive, client) = (&self.archive, &self.client);
        let entries = archive.entries(client, &self.recording, serial)?;
        let entries = entries.iter().flatten().skip(packet as usize);
        let times = entries
            .take(UNALIGNED_PACKETS)
            .filter(|entry| entry.kind == Kind::Rtp)
            .map(|entry| entry.media_ns)
            .filter(|media_ns| *media_ns > last_before_ns);
        Ok(times.min().unwrap_or(first.media_ns).min(first.media_ns))
    }
}
