//! HLS for browsers and players (RFC 8216), with fragmented MP4 segments.
//!
//! Segments are named by their places in the recording. A name always means the same bytes, and the server
//! keeps no state for a player.

use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use media::files::cuts::Place;
use media::files::{ExportError, SegmentList, mp4};
use tokio::runtime::Handle;

use super::in_memory::MemoryBody;
use super::{OpenRecording, PathPart, STALL_TIMEOUT, SharedApp, mib, open, plain, run_blocking};
use crate::wire::Problem;

const PLAYLIST: &str = "application/vnd.apple.mpegurl";

/// The cache policy of complete segments, whose bytes do not change.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("max-age=86400, immutable");

/// The URL of a segment, relative to the playlist.
fn name(places: &Range<Place>) -> String {
    let Range { start, end } = places;
    format!(
        "segments/{}.{}-{}.{}.m4s",
        start.serial, start.packet, end.serial, end.packet
    )
}

/// The places of the segment that has this name.
fn places(name: &str) -> Option<Range<Place>> {
    let place = |text: &str| {
        let (serial, packet) = text.split_once('.')?;
        Some(Place {
            serial: serial.parse().ok()?,
            packet: packet.parse().ok()?,
        })
    };
    let (from, to) = name.strip_suffix(".m4s")?.split_once('-')?;
    let places = place(from)?..place(to)?;
    (places.start < places.end).then_some(places)
}

/// The text of the media playlist (RFC 8216, section 4.3).
fn media_playlist(listed: &SegmentList, begun_unix_ns: u64, is_recorded: bool) -> String {
    let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:7\n");
    if listed.parts.iter().all(|part| part.is_independent) {
        text += "#EXT-X-INDEPENDENT-SEGMENTS\n";
    }
    text += &format!(
        "#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
        listed.target_ns.div_ceil(1_000_000_000),
        listed.sequence
    );
    if listed.gaps > 0 {
        text += &format!("#EXT-X-DISCONTINUITY-SEQUENCE:{}\n", listed.gaps);
    }
    if !is_recorded {
        text += "#EXT-X-PLAYLIST-TYPE:VOD\n";
    }
    for (number, part) in listed.parts.iter().enumerate() {
        if part.is_behind_gap {
            text += "#EXT-X-DISCONTINUITY\n";
        }
        if number == 0 {
            text += "#EXT-X-MAP:URI=\"init.mp4\"\n";
        }
        // Across a gap, the durations of segments do not give the time.
        if number == 0 || part.is_behind_gap {
            let at = Duration::from_nanos(begun_unix_ns.saturating_add(part.begins.media_ns));
            let date = humantime::format_rfc3339_millis(UNIX_EPOCH + at);
            text += &format!("#EXT-X-PROGRAM-DATE-TIME:{date}\n");
        }
        let seconds = (part.length_ns() as f64 / 1e9).max(0.001) as f32;
        text += &format!("#EXTINF:{seconds},\n{}\n", name(&part.places()));
    }
    if !is_recorded {
        text += "#EXT-X-ENDLIST\n";
    }
    text
}

/// The present segments of a recording.
fn list(app: &SharedApp, recording: &mut OpenRecording) -> Result<SegmentList, ExportError> {
    let described = &recording.described;
    let (ends_ns, is_over) = (described.ends_ns, !described.is_recorded);
    app.media
        .parts
        .list(&mut recording.source, ends_ns, is_over)
}

/// Opens a recording, lists its segments, and answers with the response of `make`.
async fn with_segments(
    state: State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
    make: impl FnOnce(&SharedApp, &mut OpenRecording, &SegmentList) -> Result<Response, Problem>
    + Send
    + 'static,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let mut recording = open(app, &volume, number)?;
        let listed = list(app, &mut recording)?;
        make(app, &mut recording, &listed)
    })
    .await
}

pub(super) async fn playlist(
    state: State<SharedApp>,
    path: PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    with_segments(state, path, |_, recording, listed| {
        let described = &recording.described;
        let begun = described.recording.begun_unix_ns;
        let text = media_playlist(listed, begun, described.is_recorded);
        Ok(plain(PLAYLIST, text))
    })
    .await
}

pub(super) async fn master(
    state: State<SharedApp>,
    path: PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    with_segments(state, path, |app, recording, listed| {
        let heads = app.media.parts.heads(&mut recording.source, listed)?;
        let of = &recording.described.recording;
        let bytes = (of.end - of.first).saturating_mul(recording.archive.header().block_bytes);
        let seconds = (recording.described.length_ns / 1_000_000_000).max(1);
        let codecs: Vec<&str> = heads.iter().map(|head| &*head.codec).collect();
        let size = heads.iter().find_map(mp4::TrackHead::size);
        let bandwidth = (bytes / seconds).saturating_mul(8);
        let resolution = size.map(|(width, height)| format!(",RESOLUTION={width}x{height}"));
        let text = format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-STREAM-INF:BANDWIDTH={bandwidth},CODECS=\"{}\"{}\nmedia.m3u8\n",
            codecs.join(","),
            resolution.unwrap_or_default()
        );
        Ok(plain(PLAYLIST, text))
    })
    .await
}

pub(super) async fn init(
    state: State<SharedApp>,
    path: PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    with_segments(state, path, |app, recording, listed| {
        let heads = app.media.parts.heads(&mut recording.source, listed)?;
        let bytes = mp4::init(&heads, None).map_err(ExportError::from)?;
        Ok(plain("video/mp4", bytes))
    })
    .await
}

pub(super) async fn segment(
    state: State<SharedApp>,
    PathPart((volume, number, name)): PathPart<(String, u64, String)>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let not_found = |why: &str| {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is no segment {name:?}: {why}"),
                "media.m3u8 lists the segments",
            )
        };
        let places = places(&name).ok_or_else(|| not_found("the name is not of the form of a segment"))?;
        let mut recording = open(app, &volume, number)?;
        // Only listed segments are served: an arbitrary range could make the server hold a whole recording in
        // memory.
        let listed = list(app, &mut recording)?;
        let part = listed.parts.iter().find(|part| part.places() == places);
        let part = part.ok_or_else(|| {
            not_found(
                "it was overwritten, is not recorded yet, or does not match the division into segments",
            )
        })?;
        app.media.parts.heads(&mut recording.source, &listed)?;
        let _permit = app.media.permit()?;
        let of_blocks = part.blocks() * recording.archive.header().block_bytes;
        let mut room = app.media.room(of_blocks)?;
        let Some(made) = recording.source.alone(part)? else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use media::files::Part;
    use media::files::cuts::Cut;

    fn cut(serial: u64, packet: u32, millis: u64) -> Cut {
        Cut {
            place: Place { serial, packet },
            media_ns: millis * 1_000_000,
        }
    }

    #[test]
    fn playlist_lists_segments_gaps_and_the_end() {
        let part = |begins, ends, is_behind_gap| Part {
            begins,
            ends,
            is_behind_gap,
            is_independent: true,
        };
        let listed = SegmentList {
            first: cut(3, 0, 8_000),
            parts: vec![
                part(cut(3, 0, 8_000), cut(5, 17, 12_000), false),
                part(cut(5, 17, 12_000), cut(9, 1, 15_250), false),
                part(cut(9, 2, 600_500), cut(11, 0, 604_000), true),
            ],
            sequence: 2,
            gaps: 1,
            target_ns: 6_500_000_000,
        };
        let text = |is_recorded| media_playlist(&listed, 1_700_000_000_000_000_000, is_recorded);
        insta::assert_snapshot!(text(false), @r#"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-TARGETDURATION:7
        #EXT-X-MEDIA-SEQUENCE:2
        #EXT-X-DISCONTINUITY-SEQUENCE:1
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-MAP:URI="init.mp4"
        #EXT-X-PROGRAM-DATE-TIME:2023-11-14T22:13:28.000Z
        #EXTINF:4,
        segments/3.0-5.17.m4s
        #EXTINF:3.25,
        segments/5.17-9.1.m4s
        #EXT-X-DISCONTINUITY
        #EXT-X-PROGRAM-DATE-TIME:2023-11-14T22:23:20.500Z
        #EXTINF:3.5,
        segments/9.2-11.0.m4s
        #EXT-X-ENDLIST
        "#);
        assert!(!text(true).contains("ENDLIST") && !text(true).contains("VOD"));
    }

    #[test]
    fn segment_names_are_parsed_and_others_refused() {
        let of = Place {
            serial: 3,
            packet: 0,
        }..Place {
            serial: 5,
            packet: 17,
        };
        assert_eq!(
            places(name(&of).strip_prefix("segments/").unwrap()),
            Some(of)
        );
        for nonsense in [
            "",
            "3.0-5.17",
            "5.17-3.0.m4s",
            "3.0-3.0.m4s",
            "3-5.m4s",
            "a.b-c.d.m4s",
            "-1.0-2.0.m4s",
        ] {
            assert_eq!(places(nonsense), None, "{nonsense}");
        }
    }
}
