//! What browsers and players play (HLS, RFC 8216, with fragments of MP4).
//!
//! Segments are named by their places in the recording, so that each is the same whenever it is asked for, and nothing
//! has to be known of who plays. Where a recording can be divided is looked for once and noted; one that goes on is
//! looked at as far as it is longer.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use m3u8_rs::{
    Map, MasterPlaylist, MediaPlaylist, MediaPlaylistType, MediaSegment, Resolution, VariantStream,
};

use super::{Opened, PathPart, Problem, Shared, open, plain, respond};
use crate::media::export::cuts::{Cut, Cuts, Place};
use crate::media::export::{ExportError, Segment, mp4};

const PLAYLIST: &str = "application/vnd.apple.mpegurl";

/// A segment begins with the first key frame of each of these times.
const SEGMENT_CUT_NS: u64 = 4_000_000_000;

/// Of so many recordings it is known where they can be divided.
const KNOWN_MAX: usize = 32;

/// A player that holds a copy of what does not change may keep it.
const KEPT: HeaderValue = HeaderValue::from_static("max-age=86400, immutable");

/// Where a recording can be divided, as far as that was looked for.
#[derive(Debug)]
struct Divided {
    cuts: Cuts,
    found: Vec<Cut>,
}

type Entry = (([u8; 16], u64), Arc<Mutex<Divided>>);

/// What is known of recordings, by archive and number.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<VecDeque<Entry>>);

impl Known {
    /// Where a recording can be divided now.
    fn cuts(&self, opened: &mut Opened) -> Result<Vec<Cut>, Problem> {
        let source = &mut opened.source;
        let of = (opened.archive.header().archive, source.recording().number);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let divided = match known.iter().find(|(key, _)| *key == of) {
            Some((_, divided)) => Arc::clone(divided),
            None => {
                drop(known);
                let cuts = Cuts::new(source, 0, SEGMENT_CUT_NS)?;
                let found = vec![cuts.first()];
                let divided = Arc::new(Mutex::new(Divided { cuts, found }));
                known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() == KNOWN_MAX {
                    known.pop_front();
                }
                known.push_back((of, Arc::clone(&divided)));
                divided
            }
        };
        drop(known);
        let mut divided = divided.lock().unwrap_or_else(PoisonError::into_inner);
        let Divided { cuts, found } = &mut *divided;
        while let Some(cut) = cuts.next_cut(source)? {
            found.push(cut);
        }
        let first = source.recording().first;
        found.retain(|cut| cut.place.serial >= first);
        Ok(found.clone())
    }
}

/// What a segment is called.
fn name(places: &Range<Place>) -> String {
    let Range { start, end } = places;
    format!(
        "segments/{}.{}-{}.{}.m4s",
        start.serial, start.packet, end.serial, end.packet
    )
}

/// Which segment is called that.
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

/// The media playlist of a recording that can be divided there, and is so long.
fn written(cuts: &[Cut], end: Place, end_ns: u64, is_recorded: bool) -> Vec<u8> {
    let last = Cut {
        place: end,
        media_ns: end_ns.max(cuts.last().map_or(0, |cut| cut.media_ns)),
    };
    // What is being recorded has no end yet.
    let ends = cuts.iter().skip(1).chain((!is_recorded).then_some(&last));
    let mut segments: Vec<MediaSegment> = cuts
        .iter()
        .zip(ends)
        .map(|(cut, next)| MediaSegment {
            uri: name(&(cut.place..next.place)),
            duration: (next.media_ns - cut.media_ns) as f32 / 1e9,
            ..MediaSegment::default()
        })
        .collect();
    let longest = segments.iter().map(|of| of.duration.ceil() as u64).max();
    if let Some(first) = segments.first_mut() {
        first.map = Some(Map {
            uri: "init.mp4".to_owned(),
            ..Map::default()
        });
    }
    let playlist = MediaPlaylist {
        version: Some(7),
        target_duration: longest.unwrap_or(1).max(1),
        // Counts on while the oldest are overwritten.
        media_sequence: cuts.first().map_or(0, |cut| cut.media_ns / SEGMENT_CUT_NS),
        segments,
        end_list: !is_recorded,
        playlist_type: (!is_recorded).then_some(MediaPlaylistType::Vod),
        independent_segments: true,
        ..MediaPlaylist::default()
    };
    let mut out = Vec::new();
    // Writing into memory does not fail.
    let _ = playlist.write_to(&mut out);
    out
}

pub(super) async fn playlist(
    state: State<Shared>,
    PathPart((volume, number)): PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    respond(state.0, move |app| {
        let mut opened = open(app, &volume, number)?;
        let cuts = app.media.cuts.cuts(&mut opened)?;
        let described = &opened.described;
        let begins_ns = cuts.first().map_or(0, |cut| cut.media_ns);
        let end = Place {
            serial: described.recording.end,
            packet: 0,
        };
        let end_ns = begins_ns.max(described.ends_ns);
        let text = written(&cuts, end, end_ns, described.is_recorded);
        Ok(plain(PLAYLIST, text))
    })
    .await
}

pub(super) async fn master(
    state: State<Shared>,
    PathPart((volume, number)): PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    respond(state.0, move |app| {
        let mut opened = open(app, &volume, number)?;
        let first = app.media.cuts.cuts(&mut opened)?;
        let first = first.first().copied().unwrap_or_default();
        let heads = opened.source.heads(first.place)?;
        let of = &opened.described.recording;
        let bytes = (of.end - of.first).saturating_mul(opened.archive.header().block_bytes);
        let seconds = (opened.described.length_ns / 1_000_000_000).max(1);
        let codecs: Vec<&str> = heads.iter().map(|head| &*head.codec).collect();
        let size = heads.iter().find_map(mp4::TrackHead::size);
        let playlist = MasterPlaylist {
            version: Some(7),
            independent_segments: true,
            variants: vec![VariantStream {
                uri: "media.m3u8".to_owned(),
                bandwidth: (bytes / seconds).saturating_mul(8),
                codecs: Some(codecs.join(",")),
                resolution: size.map(|(width, height)| Resolution {
                    width: width.into(),
                    height: height.into(),
                }),
                ..VariantStream::default()
            }],
            ..MasterPlaylist::default()
        };
        let mut out = Vec::new();
        // Writing into memory does not fail.
        let _ = playlist.write_to(&mut out);
        Ok(plain(PLAYLIST, out))
    })
    .await
}

pub(super) async fn init(
    state: State<Shared>,
    PathPart((volume, number)): PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    respond(state.0, move |app| {
        let mut opened = open(app, &volume, number)?;
        let first = app.media.cuts.cuts(&mut opened)?;
        let first = first.first().copied().unwrap_or_default();
        let heads = opened.source.heads(first.place)?;
        let bytes = mp4::init(&heads, None).map_err(ExportError::from)?;
        Ok(plain("video/mp4", bytes))
    })
    .await
}

pub(super) async fn segment(
    state: State<Shared>,
    PathPart((volume, number, name)): PathPart<(String, u64, String)>,
) -> Result<Response, Problem> {
    respond(state.0, move |app| {
        let none = |why: &str| {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is no segment {name:?}: {why}"),
                "media.m3u8 lists the segments that there are",
            )
        };
        let places = places(&name).ok_or_else(|| none("segments are not called that"))?;
        let _permit = app.media.permit()?;
        let mut opened = open(app, &volume, number)?;
        let of = *opened.source.recording();
        let end = Place {
            serial: of.end,
            packet: 0,
        };
        if places.start.serial < of.first || places.end > end {
            return Err(none("it is not there any more, or not yet"));
        }
        // What somebody makes up must not have the server hold a recording in memory.
        let cuts = app.media.cuts.cuts(&mut opened)?;
        if !cuts.iter().any(|cut| cut.place == places.start)
            || places.end != end && !cuts.iter().any(|cut| cut.place == places.end)
        {
            return Err(none("the recording is not divided there"));
        }
        let segment = Segment {
            number: places.start.serial as u32,
            places,
            times_ns: 0..u64::MAX,
            origin_ns: 0,
        };
        let mut bytes = mp4::segment_head().map_err(ExportError::from)?;
        let flow = opened.source.segment(&segment, &mut |fragment| {
            bytes.extend_from_slice(&fragment);
            ControlFlow::Continue(())
        })?;
        debug_assert!(flow.is_continue());
        let mut response = plain("video/iso.segment", bytes);
        response.headers_mut().insert(header::CACHE_CONTROL, KEPT);
        Ok(response)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(serial: u64, packet: u32, seconds: u64) -> Cut {
        Cut {
            place: Place { serial, packet },
            media_ns: seconds * 1_000_000_000,
        }
    }

    #[test]
    fn a_playlist_names_what_can_be_asked_for() {
        let cuts = [cut(3, 0, 8), cut(5, 17, 12), cut(9, 2, 17)];
        let end = Place {
            serial: 11,
            packet: 0,
        };
        let text = |is_recorded| {
            String::from_utf8(written(&cuts, end, 20_500_000_000, is_recorded)).unwrap()
        };
        insta::assert_snapshot!(text(false), @r#"
        #EXTM3U
        #EXT-X-VERSION:7
        #EXT-X-INDEPENDENT-SEGMENTS
        #EXT-X-TARGETDURATION:5
        #EXT-X-MEDIA-SEQUENCE:2
        #EXT-X-PLAYLIST-TYPE:VOD
        #EXT-X-MAP:URI="init.mp4"
        #EXTINF:4,
        segments/3.0-5.17.m4s
        #EXTINF:5,
        segments/5.17-9.2.m4s
        #EXTINF:3.5,
        segments/9.2-11.0.m4s
        #EXT-X-ENDLIST
        "#);
        let live = text(true);
        assert!(
            !live.contains("ENDLIST") && !live.contains("9.2-11.0"),
            "{live}"
        );
    }

    #[test]
    fn names_are_understood_and_others_are_not() {
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
