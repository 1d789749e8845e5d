//! Recordings: what is in a volume that was recorded to over RTSP.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, PathPart, Problem, Shared, answer};
use crate::media::archive::ArchiveError;
use crate::media::archives::{Described, OpenError};

/// A recording, as much of it as has not been overwritten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct RecordingView {
    /// Its number in its volume, from 1.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// How long it is.
    pub length_ns: u64,
    /// Blocks of it.
    pub blocks: u64,
    /// What its tracks are encoded as; none where that is damaged.
    pub tracks: Vec<String>,
    /// Whether it goes on.
    pub is_recorded: bool,
}

impl From<Described> for RecordingView {
    fn from(of: Described) -> Self {
        let tracks = of.description.iter().flat_map(|of| of.tracks());
        Self {
            number: of.recording.number,
            begun_unix_ns: of.recording.begun_unix_ns,
            length_ns: of.length_ns,
            blocks: of.recording.end - of.recording.first,
            tracks: tracks.map(|track| track.encoding.clone()).collect(),
            is_recorded: of.is_recorded,
        }
    }
}

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The recordings in a volume, the oldest first; none where nothing was written.
#[utoipa::path(get, path = "/v1/volumes/{name}/recordings", params(("name" = String, Path)),
    responses((status = 200, body = Vec<RecordingView>), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
async fn list(
    state: State<Shared>,
    PathPart(name): PathPart<String>,
) -> Answer<Vec<RecordingView>> {
    answer(state.0, move |app| {
        let recordings = app.archives.recordings(&name)?;
        Ok(recordings.into_iter().map(RecordingView::from).collect())
    })
    .await
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Pool(error) => error.into(),
            OpenError::Memory(refusal) => refusal.into(),
            OpenError::Archive(error) => {
                let (status, help) = match error {
                    ArchiveError::Io { .. } => (
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "`clockwise status` shows what its disks do",
                    ),
                    _ => (
                        StatusCode::CONFLICT,
                        "name a volume that was recorded to over RTSP",
                    ),
                };
                Self::new(status, error.to_string(), help)
            }
        }
    }
}
