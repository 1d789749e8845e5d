//! Recordings over HTTP: as files, and as what browsers play (HLS, RFC 8216).
//!
//! | path | what it is |
//! |---|---|
//! | `/media/{volume}/{number}/recording.mp4` | an MP4 file of it, of which parts can be asked for |
//! | `/media/{volume}/{number}/track{n}` | one track as it was sent |
//! | `/media/{volume}/{number}/index.m3u8` | what a player is given |
//! | `/media/{volume}/{number}/media.m3u8`, `init.mp4`, `segments/...` | what that leads to |
//! | `/media/{volume}/{number}/` | a page that plays it |
//! | `/media/` | a page with all that there is |
//!
//! It is served on the control socket, and by TCP where `[http] listen` says so. All of it is read as best effort, and
//! nothing can be changed here. Files are made as they are sent, on a thread of their own; who takes nothing holds up
//! that.

mod file;
mod hls;
mod made;
mod origins;
mod page;
mod running;
mod visitors;
mod whole;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use made::Made;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::wire::MISSING_BLOCKS;
pub use origins::{OriginError, Origins};
use running::Running;
pub use visitors::asking;

use super::{App, PathPart, QueryPart, Shared};
use crate::wire::Problem;
use media::archive::Archive;
use media::archive::archives::Described;
use media::files::{Emit, ExportError, Known, Source};

/// So many exports are made at a time; each has a thread, a block and a fragment.
const EXPORTS_MAX: usize = 16;

/// Segments wait in memory for who takes them, so many MiB of them at most.
const SEGMENTS_MIB_MAX: usize = 256;

/// So many pieces of a file wait for who takes them.
const PIECES_AHEAD: usize = 2;

/// A piece has no more bytes than these, so that who takes some is seen to.
const PIECE_BYTES: usize = 64 << 10;

/// An export of which nothing has been taken for so long ends if there is no place for another.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

const MISSING_BLOCKS_NAME: HeaderName = HeaderName::from_static(MISSING_BLOCKS);

/// What is kept between requests.
#[derive(Debug)]
pub struct Media {
    running: Arc<Running>,
    /// Of segments; a place is a MiB.
    sent: Arc<Running>,
    plans: file::Plans,
    parts: Known,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            running: Arc::new(Running::new(EXPORTS_MAX)),
            sent: Arc::new(Running::new(SEGMENTS_MIB_MAX)),
            plans: file::Plans::default(),
            parts: Known::default(),
        }
    }
}

impl Media {
    /// Ends what is being sent.
    pub fn close(&self) {
        self.running.ends.send_replace(true);
        self.sent.ends.send_replace(true);
    }

    /// Whether the server ends.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.running.is_ending()
    }

    /// Takes the place of an export.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.running.permit().ok_or_else(|| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{EXPORTS_MAX} exports are being made"),
                "ask again when one of them has ended",
            )
        })
    }

    /// Takes room in memory for a segment of so many bytes.
    fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Problem> {
        self.sent.permits(mib(bytes)).ok_or_else(|| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{SEGMENTS_MIB_MAX} MiB of segments wait for who takes them"),
                "ask again when some of them have gone",
            )
        })
    }
}

/// How many MiB of those for segments so many bytes take.
fn mib(bytes: u64) -> usize {
    (bytes.div_ceil(1 << 20) as usize).clamp(1, SEGMENTS_MIB_MAX)
}

/// Of which times of a recording, in nanoseconds of it.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields)]
struct Times {
    from_ns: Option<u64>,
    to_ns: Option<u64>,
    /// Sent as it is made: how long it is is not said, and parts of it cannot be asked for.
    #[serde(default)]
    stream: bool,
}

impl Times {
    fn range(self) -> Result<Range<u64>, Problem> {
        let (from, to) = (self.from_ns.unwrap_or(0), self.to_ns.unwrap_or(u64::MAX));
        if from < to {
            return Ok(from..to);
        }
        Err(Problem::new(
            StatusCode::BAD_REQUEST,
            format!("from {from} ns to {to} ns is no time"),
            "give `from_ns` and a later `to_ns`, in nanoseconds from the beginning of the recording",
        )
        .at("the query"))
    }
}

/// A recording that was asked for.
struct Opened {
    archive: Arc<Archive>,
    described: Described,
    source: Source,
}

/// Finds a recording.
fn open(app: &App, volume: &str, number: u64) -> Result<Opened, Problem> {
    let (archive, recording) = app.archives.recording(volume, number)?;
    let described = app.archives.describe(&archive, recording)?;
    let description = described
        .description
        .clone()
        .ok_or(ExportError::Undescribed)?;
    let client = app.archives.client().map_err(Problem::from)?;
    let source = Source::new(Arc::clone(&archive), client, recording, description);
    Ok(Opened {
        archive,
        described,
        source,
    })
}

/// The routes, for who may only read.
pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/media/", get(page::all))
        .route("/media/{volume}/{number}/", get(page::one))
        .route("/media/{volume}/{number}/recording.mp4", get(file::mp4))
        .route("/media/{volume}/{number}/{track}", get(track))
        .route("/media/{volume}/{number}/index.m3u8", get(hls::master))
        .route("/media/{volume}/{number}/media.m3u8", get(hls::playlist))
        .route("/media/{volume}/{number}/init.mp4", get(hls::init))
        .route(
            "/media/{volume}/{number}/segments/{segment}",
            get(hls::segment),
        )
}

/// What is served where nothing else is.
pub fn router(app: Shared) -> Router {
    super::with_fallbacks(routes())
        .route(
            "/",
            get(|| async { axum::response::Redirect::temporary("/media/") }),
        )
        .with_state(app)
}

/// Does `work` where it may wait, and answers what it says.
async fn respond(
    app: Shared,
    work: impl FnOnce(&Shared) -> Result<Response, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    super::apart(app, work).await
}

/// Bytes with their type.
fn plain(kind: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn track(
    state: State<Shared>,
    PathPart((volume, number, track)): PathPart<(String, u64, String)>,
    QueryPart(times): QueryPart<Times>,
) -> Result<Response, Problem> {
    respond(state.0, move |app| {
        let wanted = track.strip_prefix("track").and_then(|of| of.parse().ok());
        let Some(wanted) = wanted else {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!("a recording has no {track:?}"),
                "ask for recording.mp4, index.m3u8, or track0, track1, ...",
            ));
        };
        let times = times.range()?;
        let permit = app.media.permit()?;
        let source = open(app, &volume, number)?.source;
        let make =
            move |source: &mut Source, emit: &mut Emit<'_>| source.raw(Some(wanted), &times, emit);
        let made = Made::begin(app, permit, source, make);
        Ok(made.streamed("application/octet-stream")?)
    })
    .await
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Self {
        let (status, help) = match &error {
            ExportError::Archive(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "`clockwise status` shows what its disks do",
            ),
            ExportError::Undescribed | ExportError::Parameters(_) => (
                StatusCode::CONFLICT,
                "play it over RTSP; `clockwise recording check` says what is damaged",
            ),
            ExportError::NoTrack(..) => (
                StatusCode::NOT_FOUND,
                "`clockwise recording show` lists its tracks",
            ),
            ExportError::Nothing { .. } => (
                StatusCode::CONFLICT,
                "`clockwise recording show` says what can be made of each track; anything can be played over RTSP",
            ),
            ExportError::Empty => (
                StatusCode::CONFLICT,
                "`clockwise recording show` says when it begins and how long it is",
            ),
            ExportError::Large(_) => (
                StatusCode::CONFLICT,
                "play it over RTSP, or export it as a file",
            ),
            ExportError::Gone { .. } | ExportError::Changed { .. } => (
                StatusCode::NOT_FOUND,
                "`clockwise recording list` shows what there is",
            ),
            ExportError::Stalled(_) | ExportError::Unwanted => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ask again when the server is back",
            ),
            ExportError::Fragment(_) => (StatusCode::INTERNAL_SERVER_ERROR, "please report it"),
        };
        Self::new(status, error.to_string(), help)
    }
}
