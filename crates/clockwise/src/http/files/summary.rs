//! The facts for the page of a recording: its times, and how its tracks can be shown.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use media::files::cuts::Place;
use media::files::mp4::TrackHead;
use media::files::{HEAD_BLOCKS_MAX, exports, is_for_browsers};
use media::sdp::Description;
use serde::Serialize;

use super::{OpenRecording, PathPart, SharedApp, low, open, open_newest, plain, run_blocking};
use crate::wire::Problem;

const KIND: &str = "application/json";

/// The times and tracks of a recording.
#[derive(Serialize)]
struct Summary {
    /// 0 of a stream that is live only.
    number: u64,
    /// When it began, in milliseconds since 1970.
    begun_unix_ms: u64,
    /// The remaining part, in seconds of the recording.
    begins_s: f64,
    ends_s: f64,
    is_recorded: bool,
    tracks: Vec<TrackSummary>,
}

#[derive(Serialize)]
struct TrackSummary {
    number: usize,
    encoding: String,
    is_picture: bool,
    /// True if WebRTC carries it.
    is_webrtc: bool,
    /// Its name for players (RFC 6381); absent if it is not in segments.
    codec: Option<String>,
    /// Why it is not in segments.
    why_not: Option<&'static str>,
}

/// Reason for leaving out a track without decoder parameters or without packets.
const SILENT: &str = "nothing of it was recorded, or its decoder parameters are missing";

/// Reason for leaving out a track that only files have.
const FOR_FILES: &str = "browsers do not play this encoding; the MP4 file has it";

fn summary(app: &SharedApp, recording: &mut OpenRecording) -> Response {
    let of = &recording.described;
    let begins_ns = of.ends_ns.saturating_sub(of.length_ns);
    let whole = recording.source.recording();
    let from = Place {
        // The oldest blocks of an active recording may be overwritten meanwhile.
        serial: match of.is_recorded {
            true => whole.end.saturating_sub(HEAD_BLOCKS_MAX).max(whole.first),
            false => whole.first,
        },
        packet: 0,
    };
    // Without a track for segments, each track has its own reason.
    let heads = app.media.segments_told.heads(&mut recording.source, from);
    let heads = heads.as_deref().map_or(&[][..], |heads| heads);
    let summary = Summary {
        number: of.recording.number,
        begun_unix_ms: of.recording.begun_unix_ns / 1_000_000,
        begins_s: begins_ns as f64 / 1e9,
        ends_s: of.ends_ns as f64 / 1e9,
        is_recorded: of.is_recorded,
        tracks: tracks(recording.source.description(), heads),
    };
    answer(&summary)
}

/// The tracks of a description, and how those with a head are shown.
fn tracks(description: &Description, heads: &[TrackHead]) -> Vec<TrackSummary> {
    let tracks = description.tracks().iter().enumerate();
    let tracks = tracks.map(|(number, track)| {
        let head = heads.iter().find(|head| head.track() == number);
        TrackSummary {
            number,
            encoding: track.encoding.clone(),
            is_picture: description.is_picture(number),
            is_webrtc: media::webrtc::carries(track),
            codec: head.map(|head| head.codec.clone()),
            why_not: match (head, exports(track).mp4) {
                (Some(_), _) => None,
                (None, Err(why)) => Some(why),
                (None, Ok(())) if !is_for_browsers(track) => Some(FOR_FILES),
                (None, Ok(())) => Some(SILENT),
            },
        }
    });
    tracks.collect()
}

fn answer(summary: &Summary) -> Response {
    // Numbers and text are valid JSON.
    plain(KIND, serde_json::to_vec(summary).unwrap_or_default())
}

pub(super) async fn one(
    state: State<SharedApp>,
    PathPart((volume, number)): PathPart<(String, u64)>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let mut recording = open(app, &volume, number)?;
        Ok(summary(app, &mut recording))
    })
    .await
}

pub(super) async fn newest(
    state: State<SharedApp>,
    PathPart(volume): PathPart<String>,
) -> Result<Response, Problem> {
    let name = volume.clone();
    let app = Arc::clone(&state.0);
    let found = run_blocking(state.0, move |app| {
        let mut recording = open_newest(app, &volume)?;
        // Of a recording that has just begun, nothing may be on the disks yet.
        let number = recording.described.recording.number;
        let feed = app.archives.live().get(&volume);
        let is_newer = feed.is_some_and(|of| of.recording().is_none_or(|of| of > number));
        match is_newer {
            true => Ok(None),
            false => Ok(Some(summary(app, &mut recording))),
        }
    });
    match found.await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => of_live(&app, &name).await,
        // The problem of the recording is the one to tell.
        Err(problem) => of_live(&app, &name).await.map_err(|_| problem),
    }
}

/// The summary of a live stream of which nothing is on the disks.
async fn of_live(app: &SharedApp, name: &str) -> Result<Response, Problem> {
    let (feed, heads) = match low::heads(app, name).await {
        Ok(found) => found,
        // WebRTC may carry what browsers get in no segment.
        Err(problem) => (app.archives.live().get(name).ok_or(problem)?, Vec::new()),
    };
    Ok(answer(&Summary {
        number: feed.recording().unwrap_or(0),
        begun_unix_ms: feed.begun_unix_ns() / 1_000_000,
        begins_s: 0.0,
        ends_s: feed.newest_ns() as f64 / 1e9,
        is_recorded: true,
        tracks: tracks(feed.description(), &heads),
    }))
}
