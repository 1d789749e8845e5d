//! Live streams in parts for browsers: low-latency HLS (RFC 8216bis, section 4.4.4.9).
//!
//! A [`Packager`] follows a live stream. It makes MP4 fragments of four tenths of a second, the *parts*, and groups them
//! into segments, which begin at key frames as far as these are at most six seconds apart. All players share the parts,
//! which stay in memory for as long as playlists name them. It does no input or output: the caller gives it packets, and
//! asks for playlists and parts.

mod playlist;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::files::mp4::{self, Run, Sample, TrackHead};
use crate::files::track::Track;
use crate::files::{ExportError, exports, is_for_browsers};
use crate::live::LivePacket;
use crate::sdp::Description;
pub use playlist::PlaylistRequest;

/// A part ends with the first picture after this time.
const PART_NS: u64 = 400_000_000;

/// A segment ends at the first key frame after this time.
const SEGMENT_MIN_NS: u64 = 2_000_000_000;

/// A segment without another key frame ends after this time, at any picture.
const SEGMENT_MAX_NS: u64 = 6_000_000_000;

/// The first part waits this long for the first sound: it defines which tracks there are.
const FIRST_PART_NS: u64 = 1_000_000_000;

/// Bytes of sound that wait for a picture. Beyond that it is left out: the pictures have stopped.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Segments that are kept behind the one that is being made.
const SEGMENTS_KEPT: usize = 8;

/// The most bytes of segments that are kept.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A piece of a segment.
#[derive(Clone, Debug)]
pub struct LivePart {
    /// An MP4 fragment.
    pub bytes: Arc<[u8]>,
    /// Its duration in nanoseconds.
    pub length_ns: u64,
    /// True if it begins with a key frame.
    pub is_independent: bool,
}

/// A segment.
#[derive(Clone, Debug)]
struct LiveSegment {
    /// The time of its first picture, in nanoseconds since the stream began.
    begins_ns: u64,
    parts: Vec<LivePart>,
}

impl LiveSegment {
    fn length_ns(&self) -> u64 {
        self.parts.iter().map(|part| part.length_ns).sum()
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }
}

/// A track, and its samples that are in no part yet.
#[derive(Debug)]
struct PackagedTrack {
    track: Track,
    waiting: Vec<Sample>,
    waiting_bytes: usize,
}

impl PackagedTrack {
    fn clear(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }
}

/// Makes the parts of a live stream.
#[derive(Debug)]
pub struct Packager {
    tracks: Vec<PackagedTrack>,
    /// The index of the track whose frames end parts.
    main: usize,
    /// The beginning of the stream in nanoseconds since 1970.
    begun_unix_ns: u64,
    /// The tracks that parts have; fixed with the first part.
    heads: Option<Vec<TrackHead>>,
    /// Complete segments and, as the last one, the segment that is being made.
    segments: VecDeque<LiveSegment>,
    /// The sequence number of the first of `segments`.
    first: u64,
    /// The time of the first sample of the part that is being made.
    part_begins_ns: Option<u64>,
    is_part_independent: bool,
    /// The number of the next fragment.
    number: u32,
}

impl Packager {
    /// A packager of a stream that began at this time, in nanoseconds since 1970.
    ///
    /// Sequence numbers begin with `now_s`, the present seconds since 1970. A segment lasts longer than a second, so the
    /// numbers of an earlier packager of the stream are not used again.
    ///
    /// # Errors
    /// When MP4 supports none of its tracks.
    pub fn new(
        description: &Description,
        begun_unix_ns: u64,
        now_s: u64,
    ) -> Result<Self, ExportError> {
        let tracks = description.tracks().iter().enumerate();
        let tracks = tracks.filter(|(_, of)| exports(of).mp4.is_ok() && is_for_browsers(of));
        let tracks = tracks.filter_map(|(number, of)| {
            Some(PackagedTrack {
                track: Track::new(number, of, 0)?,
                waiting: Vec::new(),
                waiting_bytes: 0,
            })
        });
        let tracks: Vec<_> = tracks.collect();
        if tracks.is_empty() {
            return Err(ExportError::Empty);
        }
        let video = usize::from(description.video_track());
        let main = tracks.iter().position(|of| of.track.number == video);
        Ok(Self {
            tracks,
            main: main.unwrap_or(0),
            begun_unix_ns,
            heads: None,
            segments: VecDeque::new(),
            first: now_s,
            part_begins_ns: None,
            is_part_independent: false,
            number: 1,
        })
    }

    /// Takes a packet; returns true if a part was completed.
    ///
    /// # Errors
    /// When a fragment cannot be encoded.
    pub fn push(&mut self, packet: &LivePacket) -> Result<bool, ExportError> {
        let is_its = |of: &PackagedTrack| of.track.number == usize::from(packet.track);
        let Some(place) = self.tracks.iter().position(is_its) else {
            return Ok(false);
        };
        let of = &mut self.tracks[place];
        of.track.push(packet.header, &packet.body, packet.media_ns);
        let units = of.track.take(&(0..u64::MAX));
        let mut is_new = false;
        for unit in units {
            let (media_ns, is_key) = (unit.media_ns, unit.is_key);
            let sample = self.tracks[place].track.sample(unit);
            if place == self.main {
                is_new |= self.begin_frame(media_ns, is_key, sample.ticks)?;
            }
            // Nothing can be decoded before the first key frame.
            if self.part_begins_ns.is_some() {
                let of = &mut self.tracks[place];
                of.waiting_bytes += sample.data.len();
                of.waiting.push(sample);
                if place != self.main && of.waiting_bytes > WAITING_BYTES_MAX {
                    of.clear();
                }
            }
        }
        Ok(is_new)
    }

    /// A frame of the main track begins: ends the part or the segment before it, if it is long enough.
    fn begin_frame(
        &mut self,
        media_ns: u64,
        is_key: bool,
        ticks: i64,
    ) -> Result<bool, ExportError> {
        let Some(part_begins_ns) = self.part_begins_ns else {
            if is_key {
                self.begin_segment(media_ns, true);
            }
            return Ok(false);
        };
        let part_ns = media_ns.saturating_sub(part_begins_ns);
        let begun_ns = self.segments.back().map_or(media_ns, |of| of.begins_ns);
        let segment_ns = media_ns.saturating_sub(begun_ns);
        let ends_segment = segment_ns >= SEGMENT_MAX_NS || is_key && segment_ns >= SEGMENT_MIN_NS;
        if !ends_segment && part_ns < PART_NS {
            return Ok(false);
        }
        let is_silent = self.tracks.iter().any(|of| of.waiting.is_empty());
        if self.heads.is_none() && is_silent && part_ns < FIRST_PART_NS {
            return Ok(false);
        }
        self.end_part(part_ns, ticks)?;
        match ends_segment {
            true => self.begin_segment(media_ns, is_key),
            false => (self.part_begins_ns, self.is_part_independent) = (Some(media_ns), is_key),
        }
        Ok(true)
    }

    fn begin_segment(&mut self, begins_ns: u64, is_independent: bool) {
        (self.part_begins_ns, self.is_part_independent) = (Some(begins_ns), is_independent);
        self.segments.push_back(LiveSegment {
            begins_ns,
            parts: Vec::new(),
        });
        let bytes = |segments: &VecDeque<LiveSegment>| -> usize {
            segments.iter().map(LiveSegment::bytes).sum()
        };
        while self.segments.len() > SEGMENTS_KEPT + 1
            || self.segments.len() > 2 && bytes(&self.segments) > KEPT_BYTES_MAX
        {
            self.segments.pop_front();
            self.first += 1;
        }
    }

    /// Makes a part of the waiting samples; the next sample of the main track is at `next_ticks`.
    fn end_part(&mut self, length_ns: u64, next_ticks: i64) -> Result<(), ExportError> {
        if self.heads.is_none() {
            let has_samples = |of: &&PackagedTrack| !of.waiting.is_empty();
            let known = self.tracks.iter().filter(has_samples);
            let heads: Vec<_> = known.filter_map(|of| of.track.head()).collect();
            self.heads = (!heads.is_empty()).then_some(heads);
        }
        let ids: Vec<u32> = self.heads.iter().flatten().map(|of| of.id).collect();
        let main = self.main;
        let runs = self.tracks.iter().enumerate();
        let runs = runs.filter(|(_, of)| !of.waiting.is_empty() && ids.contains(&of.track.id()));
        let runs = runs.map(|(place, of)| Run {
            id: of.track.id(),
            samples: &of.waiting,
            next_ticks: (place == main).then_some(next_ticks),
            usual_ticks: of.track.usual_ticks(),
        });
        let bytes = mp4::fragment(self.number, &runs.collect::<Vec<_>>())?;
        self.number = self.number.wrapping_add(1);
        self.tracks.iter_mut().for_each(PackagedTrack::clear);
        if let Some(segment) = self.segments.back_mut() {
            segment.parts.push(LivePart {
                bytes: bytes.into(),
                length_ns,
                is_independent: self.is_part_independent,
            });
        }
        Ok(())
    }

    /// The initialization section; `None` before the first part.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn init(&self) -> Result<Option<Vec<u8>>, ExportError> {
        let heads = self.heads.as_deref();
        Ok(heads.map(|heads| mp4::init(heads, None)).transpose()?)
    }

    /// The heads of the tracks that parts have; empty before the first part.
    #[must_use]
    pub fn heads(&self) -> &[TrackHead] {
        self.heads.as_deref().unwrap_or_default()
    }

    /// The codecs of the tracks (RFC 6381); empty before the first part.
    #[must_use]
    pub fn codecs(&self) -> String {
        let codecs: Vec<&str> = self.heads.iter().flatten().map(|of| &*of.codec).collect();
        codecs.join(",")
    }

    /// A part by the sequence number of its segment and its number there.
    #[must_use]
    pub fn part(&self, sequence: u64, part: usize) -> Option<Arc<[u8]>> {
        let part = self.segment(sequence)?.parts.get(part)?;
        Some(Arc::clone(&part.bytes))
    }

    /// The parts of a complete segment.
    #[must_use]
    pub fn whole(&self, sequence: u64) -> Option<Vec<Arc<[u8]>>> {
        let is_complete = sequence < self.next().0;
        let segment = self.segment(sequence).filter(|_| is_complete)?;
        Some(
            segment
                .parts
                .iter()
                .map(|of| Arc::clone(&of.bytes))
                .collect(),
        )
    }

    fn segment(&self, sequence: u64) -> Option<&LiveSegment> {
        let place = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.segments.get(place)
    }

    /// The sequence number of the segment that is being made, and the number of its next part.
    #[must_use]
    pub fn next(&self) -> (u64, usize) {
        let parts = self.segments.back().map_or(0, |of| of.parts.len());
        let last = self.first + self.segments.len().saturating_sub(1) as u64;
        (last, parts)
    }
}

#[cfg(test)]
mod tests;
