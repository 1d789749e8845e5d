//! Recordings as files: MP4 without encoding anything anew, or one track as it was sent.
//!
//! # Way
//!
//! ```text
//! blocks, without a deadline -> packets -> in order -> frames -> fragments, or bytes
//! ```
//!
//! A recording is divided at key frames ([`cuts`]), and what lies between two of them is made alone: a segment. A file is
//! what goes before them and one segment after another, so any part of it can be made without what is before, and what a
//! browser plays are such segments, which are [listed](Known). Blocks are read one after another as best effort: an export takes what the
//! streams leave. Nothing is kept but a block and the frames of a fragment, however long the recording is.
//!
//! What is missing of a recording is missing in the file: of a frame what has come, of a NAL unit or an image all or
//! nothing.
//!
//! # Deliberately absent
//!
//! Decoding, and encodings that cameras do not send: what is not known is left out of an MP4 file, and can be played over
//! RTSP as it was recorded.

pub mod aac;
pub mod cuts;
mod error;
pub mod gaps;
pub mod jpeg;
mod known;
pub mod mp4;
pub mod nal;
mod parts;
mod segments;
pub mod track;
pub mod unit;
mod whole;

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use engine::volume_io::Client;
use sched::units::Nanos;

use crate::archive::block::{Block, Entry, Kind};
use crate::archive::{Archive, ArchiveError, Recording};
use crate::sdp::Description;
use cuts::{Cut, Cuts, Place};
pub use error::ExportError;
pub use known::Known;
use mp4::{Run, Sample, TrackHead};
pub use parts::{Listed, Part};
use segments::Muxer;
pub use segments::{Alone, Segments};
use track::Track;
pub use track::exports;
pub use whole::FILE_CUT_NS;

/// A fragment ends when it has so many bytes, wherever that is.
const FRAGMENT_BYTES_MAX: usize = 32 << 20;

/// What is said of a frame takes so many of them, however short it is.
const SAID_BYTES: usize = 128;

/// A segment that is made in memory has no more bytes: twice what it may have in its blocks.
const ALONE_BYTES_MAX: usize = 128 << 20;

/// Of a frame that is shown for so much longer than those before, as nothing came, it is said how long it is.
const LONG_NS: u64 = 500_000_000;

/// In so many blocks it must be said how a picture is to be decoded.
const HEAD_BLOCKS_MAX: u64 = 64;

/// Why a track is left out.
pub const UNDECODABLE: &str = "how it is decoded is said neither in its description nor in the first 64 blocks of what was recorded";

/// Why one is left out of what is played in segments.
const SILENT: &str = "no packet of it came in the first 64 blocks of what is played";

/// Packets lie in the order in which they came: so much after the end of what is wanted, nothing of that comes any more.
const BEHIND_NS: u64 = 2_000_000_000;

/// A recording that is read to be exported.
#[derive(Debug)]
pub struct Source {
    archive: Arc<Archive>,
    client: Arc<Client>,
    recording: Recording,
    description: Description,
    /// What was read last: where a segment ends, the next one begins.
    kept: Option<(u64, Vec<u8>)>,
    /// The serials of blocks that were damaged, or overwritten meanwhile.
    missing: BTreeSet<u64>,
    /// Those that are, of a file whose length has been said; no others may be.
    planned: Option<Arc<BTreeSet<u64>>>,
    /// The tracks that are in what is made; `None`: all that can be in an MP4 file.
    tracks: Option<Vec<usize>>,
    /// Frames, images and NAL units that were left out, as parts of them are missing or of no kind that is known.
    pub left_out: u64,
}

/// What lies between two places, of what is played between two times.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The first packet, and that which is the first of another.
    pub places: Range<Place>,
    /// What is to be played at other times is left out, in nanoseconds of the recording.
    pub times_ns: Range<u64>,
    /// What is time 0, in nanoseconds of the recording.
    pub origin_ns: u64,
    /// When the picture behind it is shown, if that is known.
    pub next_ns: Option<u64>,
    /// The number of its first fragment.
    pub number: u32,
}

/// Takes the bytes of a file one after another, until it says that it wants no more.
pub type Emit<'a> = dyn FnMut(Vec<u8>) -> ControlFlow<()> + 'a;

impl Source {
    /// A recording of an archive.
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
            kept: None,
            missing: BTreeSet::new(),
            planned: None,
            tracks: None,
            left_out: 0,
        }
    }

    /// In which volume.
    #[must_use]
    pub fn volume(&self) -> &str {
        self.archive.volume().name()
    }

    /// Which recording.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// What it consists of.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// How many blocks of what was made are missing: they are damaged, or were overwritten meanwhile.
    #[must_use]
    pub fn missing_blocks(&self) -> u64 {
        self.missing.len() as u64
    }

    /// Which blocks are missing of what was made.
    #[must_use]
    pub fn missing(&self) -> &BTreeSet<u64> {
        &self.missing
    }

    /// From now on these blocks are missing, and it is an error if another one is: what is made is what was made once.
    pub fn makes_again(&mut self, missing: Arc<BTreeSet<u64>>) {
        self.planned = Some(missing);
    }

    /// Makes a block the one that is kept; `false`: it is damaged, or not there any more.
    fn load(&mut self, serial: u64) -> Result<bool, ExportError> {
        if self.kept.as_ref().is_some_and(|(of, _)| *of == serial) {
            return Ok(true);
        }
        self.kept = None;
        let planned = self.planned.as_ref();
        if planned.is_some_and(|missing| missing.contains(&serial)) {
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
        if read.is_none() && self.planned.is_some() {
            return Err(ExportError::Changed { serial });
        }
        self.kept = read.map(|bytes| (serial, bytes));
        Ok(self.kept.is_some())
    }

    /// Each RTP packet between two places that is there, until no more are wanted; the serials of the blocks that are
    /// missing.
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
            let Some((_, bytes)) = &self.kept else {
                missing.insert(serial);
                continue;
            };
            // It was found to be one when it was read.
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

    /// Of the tracks that can be in an MP4 file, only these are in the segments that are made from now on: those that its
    /// [head](Self::heads) tells of.
    pub fn makes_of(&mut self, tracks: Vec<usize>) {
        self.tracks = Some(tracks);
    }

    /// The tracks that are in what is made; `None`: all that can be in an MP4 file.
    #[must_use]
    pub fn tracks(&self) -> Option<&Vec<usize>> {
        self.tracks.as_ref()
    }

    /// The tracks that can be in an MP4 file.
    fn mp4_tracks(&self, origin_ns: u64) -> Result<Vec<Track>, ExportError> {
        let described = self.description.tracks().iter().enumerate();
        let is_wanted = |number: &usize| {
            let tracks = self.tracks.as_ref();
            tracks.is_none_or(|tracks| tracks.contains(number))
        };
        let tracks: Vec<Track> = described
            .filter(|(number, track)| is_wanted(number) && exports(track).mp4.is_ok())
            .filter_map(|(number, track)| Track::new(number, track, Nanos(origin_ns)))
            .collect();
        match tracks.is_empty() {
            true => Err(self.nothing("an MP4 file")),
            false => Ok(tracks),
        }
    }

    fn nothing(&self, form: &'static str) -> ExportError {
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

    /// What an MP4 file says of its tracks before all else, as what is recorded from a place on says it, and the description
    /// where that does not. A track of which neither says how it is decoded is left out, which the log says.
    ///
    /// # Errors
    /// When that is not known of any.
    pub fn heads(&mut self, from: Place) -> Result<Vec<TrackHead>, ExportError> {
        self.heads_of(from, |_| true)
    }

    /// The same of segments, without tracks of which nothing comes from there on: a browser waits for each track before it
    /// plays any. One of which something comes only later is left out as well.
    ///
    /// # Errors
    /// When nothing is left.
    pub fn segment_heads(&mut self, from: Place) -> Result<Vec<TrackHead>, ExportError> {
        self.heads_of(from, Track::has_come)
    }

    fn heads_of(
        &mut self,
        from: Place,
        is_there: impl Fn(&Track) -> bool,
    ) -> Result<Vec<TrackHead>, ExportError> {
        let mut tracks = self.mp4_tracks(0)?;
        self.begin_tracks(&mut tracks, from, &is_there)?;
        let mut heads = Vec::new();
        for track in &tracks {
            let why = match track.head() {
                Some(head) if is_there(track) => {
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
                "track {number} ({encoding}) is left out of {why}"
            );
        }
        let unknown = tracks.iter().find(|track| track.head().is_none());
        match unknown {
            _ if !heads.is_empty() => Ok(heads),
            Some(track) => Err(ExportError::Parameters(track.number)),
            None => Err(ExportError::Empty),
        }
    }

    /// Reads from a place on until it is known how these tracks are decoded and that they are there, if that is said there at
    /// all.
    fn begin_tracks(
        &mut self,
        tracks: &mut [Track],
        from: Place,
        is_there: impl Fn(&Track) -> bool,
    ) -> Result<(), ExportError> {
        let is_known = |of: &Track| of.has_begun() && of.head().is_some() && is_there(of);
        if tracks.iter().all(is_known) {
            return Ok(());
        }
        let end = Place {
            serial: from.serial.saturating_add(HEAD_BLOCKS_MAX),
            packet: 0,
        };
        self.packets(&(from..end), u64::MAX, |entry, body| {
            let place = push(tracks, entry, body);
            let is_new = place.is_some_and(|place| is_known(&tracks[place]));
            Ok(match is_new && tracks.iter().all(is_known) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(())
    }

    /// The tracks that would be in an MP4 file if it were known how they are decoded. Where the description says it nothing is
    /// read.
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
                let next = segment.next_ns.and_then(|next| muxer.next(&tracks, next));
                muxer.cut(&tracks, next, emit)
            }
            flow @ ControlFlow::Break(()) => Ok(flow),
        }
    }
}

/// Gives a packet to its track, and says which that is.
fn push(tracks: &mut [Track], entry: &Entry, body: &[u8]) -> Option<usize> {
    let place = tracks
        .iter()
        .position(|track| track.number == usize::from(entry.track))?;
    tracks[place].push(entry.header, body, entry.media_ns);
    Some(place)
}
