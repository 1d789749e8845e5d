//! HLS for browsers and players (RFC 8216), with fragmented MP4 segments.
//!
//! Segments are named by their places in the recording. A name always means the same bytes, and the server
//! keeps no state for a player but the numbers of the segments that it was told of.

use axum::body::Body;
use axum::extract;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use media::files::cuts::Place;
use media::files::{Division, ExportError, ListId, Part, SegmentList, mp4};
use tokio::runtime::Handle;

use super::in_memory::MemoryBody;
use super::playlist::{self, Stretch};
use super::wanted::{RANGE_NS_MAX, Span, State, Wanted};
use super::{
    OpenRecording, PathPart, QueryPart, STALL_TIMEOUT, SharedApp, mib, open, plain, run_blocking,
};
use crate::wire::Problem;

pub(super) const PLAYLIST: &str = "application/vnd.apple.mpegurl";

/// The cache policy of complete segments, whose bytes do not change.
pub(super) const IMMUTABLE: HeaderValue = HeaderValue::from_static("max-age=86400, immutable");

impl OpenRecording {
    /// The part of the recording that a player asks for.
    fn span(&self, wanted: &Wanted) -> Result<Span, Problem> {
        let of = &self.described;
        let times = of.ends_ns.saturating_sub(of.length_ns)..of.ends_ns;
        let is_long = of.length_ns > RANGE_NS_MAX;
        let division = self.source.coarsest_division(of.length_ns);
        let is_coarse = is_long && division == Division::Coarse;
        let state = match of.is_recorded {
            true => State::Recorded,
            false => State::Ended { is_coarse },
        };
        wanted.span(&times, of.recording.begun_unix_ns, state)
    }

    /// The segments of a span.
    pub(super) fn list(&mut self, span: &Span) -> Result<SegmentList, ExportError> {
        let division = match span {
            Span::Whole(_) => Division::Coarse,
            Span::End(_) | Span::Range(_) => Division::Usual,
        };
        self.list_divided(span.times(), division)
    }

    fn list_divided(
        &mut self,
        times: &std::ops::Range<u64>,
        division: Division,
    ) -> Result<SegmentList, ExportError> {
        let (ends_ns, is_over) = (self.described.ends_ns, !self.described.is_recorded);
        self.source.list(times, ends_ns, is_over, division)
    }

    /// The listed segment with these places.
    fn part(&mut self, places: &std::ops::Range<Place>) -> Result<Option<Part>, ExportError> {
        let recording = *self.source.recording();
        if !(recording.first..recording.end).contains(&places.start.serial) {
            return Ok(None);
        }
        let times = self.source.times_of_block(places.start.serial)?;
        for division in [Division::Usual, Division::Coarse] {
            let listed = self.list_divided(&times, division)?;
            let mut parts = listed.parts.into_iter();
            if let Some(part) = parts.find(|part| part.places() == *places) {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Limits the export to the wanted tracks among those that players are told of, and returns their heads.
    fn heads(
        &mut self,
        app: &SharedApp,
        from: Place,
        wanted: &Wanted,
    ) -> Result<Vec<mp4::TrackHead>, Problem> {
        let heads = app.media.segments_told.heads(&mut self.source, from)?;
        let Some(tracks) = wanted.tracks()? else {
            return Ok(heads.to_vec());
        };
        let chosen = heads.iter().filter(|head| tracks.contains(&head.track()));
        let chosen: Vec<mp4::TrackHead> = chosen.cloned().collect();
        if chosen.is_empty() {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                "none of these tracks can be in segments",
                "recording.json names the tracks",
            ));
        }
        self.source
            .makes_of(chosen.iter().map(mp4::TrackHead::track).collect());
        Ok(chosen)
    }

    /// The multivariant playlist, which refers to the media playlist at `media`.
    pub(super) fn master(
        &mut self,
        app: &SharedApp,
        wanted: &Wanted,
        media: &str,
    ) -> Result<String, Problem> {
        let span = self.span(wanted)?;
        let first = self.list(&span)?.first.place;
        let heads = self.heads(app, first, wanted)?;
        let of = &self.described.recording;
        let bytes = (of.end - of.first).saturating_mul(self.archive.header().block_bytes);
        let seconds = (self.described.length_ns / 1_000_000_000).max(1);
        let codecs: Vec<&str> = heads.iter().map(|head| &*head.codec).collect();
        let size = heads.iter().find_map(mp4::TrackHead::size);
        let bandwidth = (bytes / seconds).saturating_mul(8);
        let resolution = size.map(|(width, height)| format!(",RESOLUTION={width}x{height}"));
        Ok(format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-STREAM-INF:BANDWIDTH={bandwidth},CODECS=\"{}\"{}\n{media}\n",
            codecs.join(","),
            resolution.unwrap_or_default()
        ))
    }
}

pub(super) async fn playlist(
    state: extract::State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
    QueryPart(wanted): QueryPart<Wanted>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        wanted.tracks()?;
        let mut recording = open(app, &volume, number)?;
        let span = recording.span(&wanted)?;
        let listed = recording.list(&span)?;
        let begun_unix_ns = recording.described.recording.begun_unix_ns;
        let id = match &span {
            Span::End(_) => ListId::End(number),
            Span::Range(times) | Span::Whole(times) => {
                ListId::Range(number, times.start, times.end)
            }
        };
        let at_ns = begun_unix_ns.saturating_add(listed.first.media_ns);
        let source = &recording.source;
        let numbers = app
            .media
            .segments_told
            .numbers(source, id, &listed.parts, at_ns);
        let stretch = Stretch {
            path: String::new(),
            begun_unix_ns,
            parts: listed.parts,
        };
        let query = wanted.of_tracks();
        let text = playlist::media(&[stretch], &numbers, listed.is_complete, &query);
        Ok(plain(PLAYLIST, text))
    })
    .await
}

pub(super) async fn master(
    state: extract::State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
    QueryPart(wanted): QueryPart<Wanted>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let mut recording = open(app, &volume, number)?;
        let media = format!("media.m3u8{}", wanted.query());
        let text = recording.master(app, &wanted, &media)?;
        Ok(plain(PLAYLIST, text))
    })
    .await
}

pub(super) async fn init(
    state: extract::State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
    QueryPart(wanted): QueryPart<Wanted>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let mut recording = open(app, &volume, number)?;
        let span = recording.span(&wanted)?;
        let first = recording.list(&span)?.first.place;
        let heads = recording.heads(app, first, &wanted)?;
        let bytes = mp4::init(&heads, None).map_err(ExportError::from)?;
        Ok(plain("video/mp4", bytes))
    })
    .await
}

pub(super) async fn segment(
    state: extract::State<SharedApp>,
    PathPart((volume, number, name)): PathPart<(String, u64, String)>,
    QueryPart(wanted): QueryPart<Wanted>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let not_found = |why: &str| {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is no segment {name:?}: {why}"),
                "media.m3u8 lists the segments",
            )
        };
        let places = playlist::places(&name)
            .ok_or_else(|| not_found("the name is not of the form of a segment"))?;
        let mut recording = open(app, &volume, number)?;
        // Only listed segments are served: an arbitrary range could make the server hold a whole recording in
        // memory.
        let part = recording.part(&places)?.ok_or_else(|| {
            not_found(
                "it was overwritten, is not recorded yet, or does not match the division into segments",
            )
        })?;
        recording.heads(app, part.begins.place, &wanted)?;
        let _permit = app.media.permit()?;
        let of_blocks = part.blocks() * recording.archive.header().block_bytes;
        let mut room = app.media.room(of_blocks)?;
        let Some(made) = recording.source.alone(&part)? else {
            return Err(not_found("it has just been overwritten"));
        };
        // Adjusts the memory to the segment's real size: larger blocks than needed are common, and with very
        // short frames the tables are larger than the frames.
        let needed = mib(made.bytes.len() as u64);
        match needed.checked_sub(room.num_permits()) {
            None | Some(0) => drop(room.split(room.num_permits() - needed)),
            Some(more) => room.merge(app.media.room((more as u64) << 20)?),
        }
        let handle = Handle::current();
        let segments = &app.media.segments;
        let body = MemoryBody::new(&handle, segments, room, made.bytes, STALL_TIMEOUT);
        let mut response = plain("video/iso.segment", Body::new(body));
        // A block that cannot be read may be readable later.
        if made.is_whole {
            response.headers_mut().insert(header::CACHE_CONTROL, IMMUTABLE);
        }
        Ok(response)
    })
    .await
}
