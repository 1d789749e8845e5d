//! Recordings: the content of volumes that were recorded to over RTSP.

mod index;
mod timeline;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use engine::pool::PoolError;
use media::archive::ArchiveError;
use media::archive::archives::OpenError;
use media::archive::check::check;
use media::files::{Source, UNDECODABLE, exports};
use sched::units::{Bytes, Nanos};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, App, Body, DisconnectGuard, PathPart, QueryPart, SharedApp, answer};
use crate::wire::Problem;
use crate::wire::recordings::{
    AllRecordings, ChangeRetention, ListedRecording, RecordedTrack, RecordingCheck,
    RecordingDetail, RecordingView, RetentionView, UnreadableVolume,
};

pub(super) fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(list_all))
        .routes(routes!(timeline::show))
        .routes(routes!(show))
        .routes(routes!(examine))
        .routes(routes!(index::outline))
        .routes(routes!(delete))
        .routes(routes!(show_retention, change_retention))
}

/// A recording with its tracks.
#[utoipa::path(get, path = "/v1/volumes/{name}/recordings/{number}",
    params(("name" = String, Path), ("number" = u64, Path)),
    responses((status = 200, body = RecordingDetail), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
async fn show(
    state: State<SharedApp>,
    PathPart((name, number)): PathPart<(String, u64)>,
) -> Answer<RecordingDetail> {
    answer(state.0, move |app| {
        let (archive, of) = app.archives.describe_number(&name, number)?;
        let recording = of.recording;
        let is_on_disks = recording.first < recording.end;
        let undecodable = match of.description.as_ref().filter(|_| is_on_disks) {
            Some(description) => {
                let (archive, client) = (Arc::clone(&archive), app.archives.client()?);
                let mut source = Source::new(archive, client, recording, description.clone());
                // Exporting or checking the recording reports the unreadable block.
                source.undecodable().unwrap_or_else(|error| {
                    tracing::warn!(volume = name, recording = number, %error, "cannot determine which tracks of a recording can be decoded");
                    Vec::new()
                })
            }
            None => Vec::new(),
        };
        let tracks = of.description.iter().flat_map(|of| of.tracks());
        let tracks = tracks.enumerate().map(|(number, track)| {
            let exports = exports(track);
            let why_not = match exports.mp4 {
                Err(why) => Some(why),
                Ok(()) => undecodable.contains(&number).then_some(UNDECODABLE),
            };
            RecordedTrack {
                number: number as u64,
                encoding: track.encoding.clone(),
                clock_rate: track.clock_rate,
                mp4: why_not.is_none(),
                why_not_mp4: why_not.map(str::to_owned),
                raw: exports.raw.map(str::to_owned),
            }
        });
        let begins_ns = of.ends_ns - of.length_ns;
        let ends_ns = (!of.is_recorded).then_some(of.ends_ns);
        let description = of.description.as_ref();
        let text = description.map(|description| description.for_players(begins_ns, ends_ns));
        Ok(RecordingDetail {
            number,
            begun_unix_ns: recording.begun_unix_ns,
            begins_ns,
            ends_ns: of.ends_ns,
            ends_unix_ns: recording.begun_unix_ns.saturating_add(of.ends_ns),
            blocks: recording.end - recording.first,
            block_bytes: archive.header().block_bytes,
            tracks: tracks.collect(),
            is_recorded: of.is_recorded,
            description: String::from_utf8_lossy(&text.unwrap_or_default()).into_owned(),
        })
    })
    .await
}

/// Reads all of a recording as best effort, and checks that its blocks and its index agree.
#[utoipa::path(get, path = "/v1/volumes/{name}/recordings/{number}/check",
    params(("name" = String, Path), ("number" = u64, Path)),
    responses((status = 200, body = RecordingCheck), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 503, body = Problem)))]
async fn examine(
    state: State<SharedApp>,
    PathPart((name, number)): PathPart<(String, u64)>,
) -> Answer<RecordingCheck> {
    let (_guard, is_connected) = DisconnectGuard::new();
    answer(state.0, move |app| {
        let (archive, recording) = app.archives.recording(&name, number)?;
        let client = app.archives.client()?;
        let goes_on = || is_connected() && !app.media.is_closed();
        let report = check(&archive, &client, &recording, goes_on).map_err(OpenError::from)?;
        let ends = || {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is ending, and the check of the recording was not completed",
                "repeat the request when the server runs again",
            )
        };
        report.map(RecordingCheck::from).ok_or_else(ends)
    })
    .await
}

/// The recordings in a volume, the oldest first; an empty list for a volume that was never written to.
#[utoipa::path(get, path = "/v1/volumes/{name}/recordings", params(("name" = String, Path)),
    responses((status = 200, body = Vec<RecordingView>), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
async fn list(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
) -> Answer<Vec<RecordingView>> {
    let (_guard, is_connected) = DisconnectGuard::new();
    answer(state.0, move |app| {
        let recordings = app.archives.recordings(&name, is_connected)?;
        Ok(recordings.into_iter().map(RecordingView::from).collect())
    })
    .await
}

/// The recordings in all volumes. Volumes with other contents are left out.
#[utoipa::path(get, path = "/v1/recordings", responses((status = 200, body = AllRecordings)))]
async fn list_all(state: State<SharedApp>) -> Answer<AllRecordings> {
    let (_guard, is_connected) = DisconnectGuard::new();
    answer(state.0, move |app| {
        let mut all = AllRecordings::default();
        for volume in app.pool.volumes().into_iter().map(|of| of.name) {
            match app.archives.recordings(&volume, &is_connected) {
                Ok(found) => all
                    .recordings
                    .extend(found.into_iter().map(|of| ListedRecording {
                        volume: volume.clone(),
                        recording: of.into(),
                    })),
                Err(
                    OpenError::Archive(ArchiveError::Foreign(_))
                    | OpenError::Pool(PoolError::NoSuchVolume(_)),
                ) => {}
                Err(error) => all.unreadable.push(UnreadableVolume {
                    volume,
                    reason: error.to_string(),
                }),
            }
        }
        Ok(all)
    })
    .await
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Pool(error) => error.into(),
            OpenError::Memory(refusal) => refusal.into(),
            error @ OpenError::NoRecording { .. } => Self::new(
                StatusCode::NOT_FOUND,
                error.to_string(),
                "`clockwise recording list` shows the recordings",
            ),
            OpenError::Archive(error) => {
                let (status, help) = match error {
                    ArchiveError::Io { .. } => (
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "`clockwise status` shows the state of its disks",
                    ),
                    ArchiveError::NoSuch { .. } => (
                        StatusCode::NOT_FOUND,
                        "`clockwise recording list` shows the recordings",
                    ),
                    ArchiveError::StillRecorded { .. } => (
                        StatusCode::CONFLICT,
                        "end the recording first, or limit it with `clockwise recording keep`, which drops its oldest part",
                    ),
                    ArchiveError::TooManyGaps { .. } => (
                        StatusCode::CONFLICT,
                        "delete recordings that lie next to deleted ones",
                    ),
                    ArchiveError::SizeLimitTooSmall { .. } => (
                        StatusCode::UNPROCESSABLE_ENTITY,
                        "keep at least that much, or delete the volume",
                    ),
                    ArchiveError::WouldDelete { .. } => (
                        StatusCode::CONFLICT,
                        "keep more, or use --force (`force` in the API)",
                    ),
                    ArchiveError::Locked { .. } => (
                        StatusCode::CONFLICT,
                        "end the lock first: `clockwise recording unlock`",
                    ),
                    ArchiveError::Exported(_) => (
                        StatusCode::CONFLICT,
                        "end that use first, or give another volume",
                    ),
                    ArchiveError::Small { .. } => (
                        StatusCode::UNPROCESSABLE_ENTITY,
                        "grow the volume: `clockwise volume grow`",
                    ),
                    _ => (
                        StatusCode::CONFLICT,
                        "give a volume that was recorded to over RTSP",
                    ),
                };
                Self::new(status, error.to_string(), help)
            }
        }
    }
}

/// Deletes a recording, and answers with its last state. The deletion is durable when the answer is sent.
#[utoipa::path(delete, path = "/v1/volumes/{name}/recordings/{number}",
    params(("name" = String, Path), ("number" = u64, Path)),
    responses((status = 200, body = RecordingView), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
async fn delete(
    state: State<SharedApp>,
    PathPart((name, number)): PathPart<(String, u64)>,
) -> Answer<RecordingView> {
    answer(state.0, move |app| {
        Ok(app.archives.delete(&name, number)?.into())
    })
    .await
}

/// Shows how much of the recordings in a volume is kept.
#[utoipa::path(get, path = "/v1/volumes/{name}/retention", params(("name" = String, Path)),
    responses((status = 200, body = RetentionView), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
async fn show_retention(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
) -> Answer<RetentionView> {
    answer(state.0, move |app| {
        Ok(app.archives.retention(&name)?.into())
    })
    .await
}

/// Checks that the volume can grow to the requested size, and that the pool is large enough for the space to
/// leave to others.
fn check_growth(app: &App, name: &str, ask: &ChangeRetention) -> Result<(), Problem> {
    let pool = app.archives.pool();
    let volumes = pool.volumes();
    let extents: u64 = volumes.iter().map(|of| of.extents).sum();
    let most = Bytes(pool.free().get() + extents * pool.extent().get());
    let invalid = |part: &str, what: String, help: String| {
        Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, what, help).at(part))
    };
    for (part, size) in [
        ("grow_to_bytes", ask.grow_to_bytes),
        ("pool_free_bytes", ask.pool_free_bytes),
    ] {
        if let Some(size) = size.map(Bytes).filter(|size| *size > most) {
            return invalid(
                part,
                format!("{size} is more than the pool has for volumes, {most}"),
                format!("give at most {most}, or 0 for no limit"),
            );
        }
    }
    let volume = volumes.iter().find(|of| of.name == name);
    let has = volume.map_or(Bytes::ZERO, |of| Bytes(of.size_bytes));
    match ask.grow_to_bytes.map(Bytes) {
        Some(size) if size > Bytes::ZERO && size < has => invalid(
            "grow_to_bytes",
            format!("{size} is less than the present size of volume {name:?}, {has}"),
            format!(
                "give {has} or more, or 0 to keep the size fixed; `clockwise volume shrink` makes the volume smaller"
            ),
        ),
        _ => Ok(()),
    }
}

/// Changes how much is kept, durably and at once. Recordings beyond the new limits are lost. If that would
/// lose any at once, the change is refused unless it is forced. A volume that was never written to becomes a
/// volume for recordings.
#[utoipa::path(patch, path = "/v1/volumes/{name}/retention", params(("name" = String, Path)),
    request_body = ChangeRetention,
    responses((status = 200, body = RetentionView), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)))]
async fn change_retention(
    state: State<SharedApp>,
    PathPart(name): PathPart<String>,
    Body(ask): Body<ChangeRetention>,
) -> Answer<RetentionView> {
    answer(state.0, move |app| {
        check_growth(app, &name, &ask)?;
        let changed = app.archives.set_retention(&name, ask.force, |mut keep| {
            if let Some(age) = ask.keep_for_ns {
                keep.age = Some(Nanos(age)).filter(|age| !age.is_zero());
            }
            if let Some(size) = ask.keep_bytes {
                keep.size = Some(Bytes(size)).filter(|size| *size > Bytes::ZERO);
            }
            if let Some(size) = ask.grow_to_bytes {
                keep.grow_to = Some(Bytes(size)).filter(|size| *size > Bytes::ZERO);
            }
            if let Some(size) = ask.pool_free_bytes {
                keep.free = Some(Bytes(size)).filter(|size| *size > Bytes::ZERO);
            }
            keep
        })?;
        Ok(changed.into())
    })
    .await
}
