//! Exports of recordings as files: MP4 without re-encoding, or one track as it was sent.
//!
//! # Data path
//!
//! ```text
//! blocks, without a deadline -> packets -> reordered -> frames -> fragments, or raw bytes
//! ```
//!
//! A recording is divided at key frames ([`cuts`]), and each *segment* between two cuts is made on its own. A
//! file is a head and then one segment after another, so any part of it can be made without the parts before
//! it. Browsers play such segments from a [list](Source::list). Blocks are read one after another as best effort: an
//! export uses what the streams leave. Memory holds a block and the frames of a fragment, however long the
//! recording is.
//!
//! Packets that are missing in the recording are missing in the file: a frame lacks the NAL units that did not
//! arrive whole, and an image that did not arrive whole is left out.
//!
//! # Limits
//!
//! Nothing is decoded, and encodings that cameras do not send are not supported: such tracks are left out of
//! an MP4 file, and can be played over RTSP as they were recorded.

pub mod aac;
pub mod av1;
mod bits;
pub mod clips;
pub mod cuts;
mod error;
mod far_cuts;
pub mod gaps;
pub mod jpeg;
pub mod mp4;
pub mod mpeg4;
pub mod nal;
mod parts;
mod segment_cache;
mod segments;
pub mod track;
pub mod unit;
pub mod vp;
mod whole;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use engine::volume_io::Client;

use crate::archive::block::{Block, Entry, Kind};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::sdp::Description;
use cuts::{Cut, Cuts, Place};
pub use error::ExportError;
use mp4::{Run, Sample, TrackHead};
pub use parts::{Division, Part, SegmentList};
pub use segment_cache::{ListId, Numbers, SegmentCache};
use segments::Muxer;
pub use segments::{SegmentFile, Segments};
use track::Track;
pub use track::{exports, is_for_browsers};
pub use whole::FILE_CUT_NS;

/// A fragment ends at this size, wherever that is.
const FRAGMENT_BYTES_MAX: usize = 32 << 20;

/// Bytes of metadata that a sample takes, however short it is.
const SAMPLE_HEAD_BYTES: usize = 128;

/// Largest segment that is made in memory: twice the most that its blocks may have.
const SEGMENT_BYTES_MAX: usize = 128 << 20;

/// A frame whose next one is later than usual by more than this gets an explicit duration.
const LONG_FRAME_NS: u64 = 500_000_000;

/// Blocks that are searched for the decoder parameters of a track.
pub const HEAD_BLOCKS_MAX: u64 = 64;

/// Reason for leaving out a track without decoder parameters.
pub const UNDECODABLE: &str =
    "its decoder parameters are neither in its description nor in the first 64 recorded blocks";

/// Reason for leaving a track out of segments.
const SILENT: &str = "it has no packet in the first 64 blocks of the played range";

/// Packets lie in the order of their arrival: this long after the end of a time span, no packet of it
/// follows.
const BEHIND_NS: u64 = 2_000_000_000;

/// A recording that is being exported.
#[derive(Debug)]
pub struct Source {
    archive: Arc<Archive>,
    client: Arc<Client>,
    recording: Recording,
    description: Description,
    /// The block that was read last, with its serial. The next segment begins where one ends.
    loaded: Option<(u64, Vec<u8>)>,
    /// Serials of blocks that were damaged, or overwritten during the export.
    missing: BTreeSet<u64>,
    /// The blocks that were missing when the length of the file was announced; no others may be missing.
    expected_missing: Option<Arc<BTreeSet<u64>>>,
    /// The tracks that are exported; `None`: all that MP4 supports.
    tracks: Option<Vec<usize>>,
    /// Number of frames, images and NAL units that were left out, because parts of them are missing or their
    /// kind is not supported.
    pub left_out: u64,
}

/// A part of a recording that is made on its own.
#[derive(Clone, Debug)]
pub struct Segment {
    /// From the first packet up to the first packet of the next segment.
    pub places: Range<Place>,
    /// Packets with other times are left out, in nanoseconds of the recording's time.
    pub times_ns: Range<u64>,
    /// Time 0 of the file, in nanoseconds of the recording's time; before 0 if other recordings precede it.
    pub origin_ns: i64,
    /// Time of the next picture after the segment, if it is known, in nanoseconds of the recording's time.
    pub next_ns: Option<u64>,
    /// Sequence number of its first fragment.
    pub number: u32,
}

/// A file that is being made, for the log and its end.
pub trait Export {
    /// Name of the volume.
    fn volume(&self) -> &str;
    /// Number of the recording, or of the first one.
    fn recording(&self) -> u64;
    /// Number of blocks that are missing so far, because they are damaged or were overwritten.
    fn missing_blocks(&self) -> u64;
    /// Number of frames, images and NAL units that were left out so far.
    fn left_out(&self) -> u64;
}

impl Export for Source {
    fn volume(&self) -> &str {
        self.volume()
    }

    fn recording(&self) -> u64 {
        self.recording.number
    }

    fn missing_blocks(&self) -> u64 {
        self.missing_blocks()
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Receives the bytes of a file piece by piece, and returns `Break` if it wants no more.
pub type Emit<'a> = dyn FnMut(Vec<u8>) -> ControlFlow<()> + 'a;

impl Source {
    /// Prepares the export of a recording.
    #[must_use]
    pub fn new(
        archive: Arc<Archive>,
        client: Arc<Client>,
        recording: Recording,
        description: Description,
    ) -> Self {
        Self {
            archive,
            client,
            recording,
            description,
            loaded: None,
            missing: BTreeSet::new(),
            expected_missing: None,
            tracks: None,
            left_out: 0,
        }
    }

    /// Name of the volume.
    #[must_use]
    pub fn volume(&self) -> &str {
        self.archive.volume().name()
    }

    /// The recording.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Its description.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Number of blocks that were missing in the export so far, because they are damaged or were overwritten
    /// during it.
    #[must_use]
    pub fn missing_blocks(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Serials of the blocks that were missing in the export so far.
    #[must_use]
    pub fn missing(&self) -> &BTreeSet<u64> {
        &self.missing
    }

    /// The file was made before with these blocks missing and must come out the same: from now on it is an
    /// error if another block is missing.
    pub fn makes_again(&mut self, missing: Arc<BTreeSet<u64>>) {
        self.expected_missing = Some(missing);
    }

    /// Loads a block; `false` if it is damaged or has gone.
    fn load(&mut self, serial: u64) -> Result<bool, ExportError> {
        if self.loaded.as_ref().is_some_and(|(of, _)| *of == serial) {
            return Ok(true);
        }
        self.loaded = None;
        let expected = self.expected_missing.as_ref();
        if expected.is_some_and(|missing| missing.contains(&serial)) {
            return Ok(false);
        }
        let read = self.archive.read_block(&self.client, serial)?;
        let number = self.recording.number;
        if read.is_none() && !self.archive.is_there(number) {
            return Err(ExportError::Gone {
                volume: self.volume().to_owned(),
                number,
            });
        }
        if read.is_none() && self.expected_missing.is_some() {
            return Err(ExportError::Changed { serial });
        }
        self.loaded = read.map(|bytes| (serial, bytes));
        Ok(self.loaded.is_some())
    }

    /// Calls `take` with each RTP packet between two places, until it returns `Break` or the packets are
    /// later than `until_ns`. Returns the serials of missing blocks.
    fn packets(
        &mut self,
        places: &Range<Place>,
        until_ns: u64,
        mut take: impl FnMut(&Entry, &[u8]) -> Result<ControlFlow<()>, ExportError>,
    ) -> Result<BTreeSet<u64>, ExportError> {
        let mut missing = BTreeSet::new();
        let end = places.end.serial + u64::from(places.end.packet > 0);
        let first = places.start.serial.max(self.recording.first);
        for serial in first..end.min(self.recording.end) {
            self.load(serial)?;
            let Some((_, bytes)) = &self.loaded else {
                missing.insert(serial);
                continue;
            };
            // It was verified when it was read.
            let Ok(block) = Block::parse(bytes) else {
                continue;
            };
            if block.trailer.media_ns > until_ns.saturating_add(BEHIND_NS) {
                break;
            }
            let from = if serial == places.start.serial {
                places.start.packet
            } else {
                0
            };
            let to = if serial == places.end.serial {
                places.end.packet as usize
            } else {
                block.len()
            };
            for number in from as usize..to {
                if let Some((entry, body)) = block.packet(number)
                    && entry.kind == Kind::Rtp
                    && take(&entry, &bytes[body])?.is_break()
                {
                    return Ok(missing);
                }
            }
        }
        Ok(missing)
    }

    /// Limits the export to these tracks: those in the [head](Self::heads) of the file.
    pub fn makes_of(&mut self, tracks: Vec<usize>) {
        self.tracks = Some(tracks);
    }

    /// The tracks that are exported; `None`: all that MP4 supports.
    #[must_use]
    pub fn tracks(&self) -> Option<&Vec<usize>> {
        self.tracks.as_ref()
    }

    /// The exported tracks that MP4 supports.
    fn mp4_tracks(&self, origin_ns: i64) -> Result<Vec<Track>, ExportError> {
        let described = self.description.tracks().iter().enumerate();
        let is_wanted = |number: &usize| {
            let tracks = self.tracks.as_ref();
            tracks.is_none_or(|tracks| tracks.contains(number))
        };
        let tracks: Vec<Track> = described
            .filter(|(number, track)| is_wanted(number) && exports(track).mp4.is_ok())
            .filter_map(|(number, track)| Track::new(number, track, origin_ns))
            .collect();
        match tracks.is_empty() {
            true => Err(self.nothing_for("an MP4 file")),
            false => Ok(tracks),
        }
    }

    fn nothing_for(&self, form: &'static str) -> ExportError {
        let tracks = self.description.tracks().iter();
        let names = tracks.map(|track| match &*track.encoding {
            "" => "an unknown encoding",
            name => name,
        });
        ExportError::Nothing {
            form,
            tracks: names.collect::<Vec<_>>().join(", "),
        }
    }

    /// The track heads of an MP4 file, with decoder parameters from the packets at `from` or else from the
    /// description. A track without decoder parameters is left out, with a warning in the log.
    ///
    /// # Errors
    /// When no track has decoder parameters.
    pub fn heads(&mut self, from: Place) -> Result<Vec<TrackHead>, ExportError> {
        self.heads_of(from, false)
    }

    /// As [`heads`](Self::heads), for segments: tracks without a packet in the first blocks are left out as
    /// well, because browsers wait for each track before they play; and tracks that no browser plays.
    ///
    /// # Errors
    /// When no track is left.
    pub fn segment_heads(&mut self, from: Place) -> Result<Vec<TrackHead>, ExportError> {
        self.heads_of(from, true)
    }

    fn heads_of(
        &mut self,
        from: Place,
        is_for_segments: bool,
    ) -> Result<Vec<TrackHead>, ExportError> {
        let mut tracks = self.mp4_tracks(0)?;
        tracks.retain(|track| !is_for_segments || track.is_for_browsers());
        if tracks.is_empty() {
            return Err(self.nothing_for("a stream for browsers"));
        }
        let is_included = |track: &Track| !is_for_segments || track.has_packet();
        self.begin_tracks(&mut tracks, from, is_included)?;
        let mut heads = Vec::new();
        for track in &tracks {
            let reason = match track.head() {
                Some(head) if is_included(track) => {
                    heads.push(head);
                    continue;
                }
                Some(_) => format!("HLS: {SILENT}"),
                None => format!("MP4 and HLS: {UNDECODABLE}"),
            };
            let (volume, recording) = (self.volume(), self.recording.number);
            let (number, encoding) = (track.number, track.encoding());
            tracing::warn!(
                volume,
                recording,
                "track {number} ({encoding}) is left out of {reason}"
            );
        }
        let unknown = tracks.iter().find(|track| track.head().is_none());
        match unknown {
            _ if !heads.is_empty() => Ok(heads),
            Some(track) => Err(ExportError::Parameters(track.number)),
            None => Err(ExportError::Empty),
        }
    }

    /// Reads packets from a place on until all tracks have decoder parameters and satisfy `is_included`, for
    /// at most [`HEAD_BLOCKS_MAX`] blocks.
    fn begin_tracks(
        &mut self,
        tracks: &mut [Track],
        from: Place,
        is_included: impl Fn(&Track) -> bool,
    ) -> Result<(), ExportError> {
        let is_ready = |of: &Track| of.has_begun() && of.head().is_some() && is_included(of);
        if tracks.iter().all(is_ready) {
            return Ok(());
        }
        let end = Place {
            serial: from.serial.saturating_add(HEAD_BLOCKS_MAX),
            packet: 0,
        };
        self.packets(&(from..end), u64::MAX, |entry, body| {
            let place = push(tracks, entry, body);
            let is_new = place.is_some_and(|place| is_ready(&tracks[place]));
            Ok(match is_new && tracks.iter().all(is_ready) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(())
    }

    /// Numbers of the tracks that are left out of MP4 files for lack of decoder parameters. Blocks are read
    /// only if the description lacks some.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn undecodable(&mut self) -> Result<Vec<usize>, ExportError> {
        let Ok(mut tracks) = self.mp4_tracks(0) else {
            return Ok(Vec::new());
        };
        tracks.retain(|of| of.head().is_none());
        let from = Place {
            serial: self.first_there(),
            packet: 0,
        };
        self.begin_tracks(&mut tracks, from, |_| true)?;
        let unknown = tracks.iter().filter(|of| of.head().is_none());
        Ok(unknown.map(|of| of.number).collect())
    }

    /// Makes the fragments of a segment.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn segment(
        &mut self,
        segment: &Segment,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>, ExportError> {
        let mut tracks = self.mp4_tracks(segment.origin_ns)?;
        let mut muxer = Muxer::new(tracks.len(), segment.number);
        let mut flow = ControlFlow::Continue(());
        let missing = self.packets(&segment.places, segment.times_ns.end, |entry, body| {
            if let Some(place) = push(&mut tracks, entry, body) {
                flow = muxer.take(&mut tracks, place, &segment.times_ns, emit)?;
            }
            Ok(flow)
        })?;
        for place in 0..tracks.len() {
            tracks[place].finish();
            if flow.is_continue() {
                flow = muxer.take(&mut tracks, place, &segment.times_ns, emit)?;
            }
        }
        self.missing.extend(missing);
        self.left_out += tracks.iter().map(Track::left_out).sum::<u64>();
        match flow {
            ControlFlow::Continue(()) => {
                let next = segment
                    .next_ns
                    .and_then(|next| muxer.next_sample(&tracks, next));
                muxer.end_fragment(&tracks, next, emit)
            }
            flow @ ControlFlow::Break(()) => Ok(flow),
        }
    }
}

/// Gives a packet to its track, and returns the track's index.
fn push(tracks: &mut [Track], entry: &Entry, body: &[u8]) -> Option<usize> {
    let place = tracks
        .iter()
        .position(|track| track.number == usize::from(entry.track))?;
    tracks[place].push(entry.header, body, entry.media_ns);
    Some(place)
}
