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
mod page;
mod visitors;

use std::ops::{ControlFlow, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use hyper::body::{Bytes, Frame};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

pub use visitors::asking;

use super::{App, PathPart, Problem, QueryPart, Shared};
use crate::media::archive::Archive;
use crate::media::archives::Described;
use crate::media::export::{Emit, ExportError, Source};

/// So many exports are made at a time; each has a thread, a block and a fragment.
const EXPORTS_MAX: usize = 16;

/// So many pieces of a file wait for who takes them.
const PIECES_AHEAD: usize = 2;

/// What is kept between requests.
#[derive(Debug)]
pub struct Media {
    running: Arc<Semaphore>,
    plans: file::Plans,
    cuts: hls::Known,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            running: Arc::new(Semaphore::new(EXPORTS_MAX)),
            plans: file::Plans::default(),
            cuts: hls::Known::default(),
        }
    }
}

impl Media {
    /// Ends what is being sent.
    pub fn close(&self) {
        self.running.close();
    }

    /// Whether the server ends.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.running.is_closed()
    }

    /// Takes the place of an export.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.running).try_acquire_owned().map_err(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{EXPORTS_MAX} exports are being made"),
                "ask again when one of them has ended",
            )
        })
    }
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

/// Pieces of a file as they are made.
struct Pieces(mpsc::Receiver<Result<Bytes, ExportError>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = ExportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExportError>>> {
        let polled = self.0.poll_recv(context);
        polled.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A body that `make` makes on a thread of its own, as it is taken.
fn streamed(
    app: &Shared,
    permit: OwnedSemaphorePermit,
    make: impl FnOnce(&mut Emit<'_>) -> Result<(), ExportError> + Send + 'static,
) -> Body {
    let (send, receive) = mpsc::channel(PIECES_AHEAD);
    let running = Arc::clone(&app.media.running);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut emit = |bytes: Vec<u8>| match send.blocking_send(Ok(Bytes::from(bytes))) {
            Ok(()) if !running.is_closed() => ControlFlow::Continue(()),
            // Nobody takes it any more.
            _ => ControlFlow::Break(()),
        };
        if let Err(error) = make(&mut emit) {
            tracing::warn!(%error, "an export ends before its end");
            // What has been sent is not taken for all then.
            let _ = send.blocking_send(Err(error));
        }
    });
    Body::new(Pieces(receive))
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
        let mut source = open(app, &volume, number)?.source;
        source.can_be_raw(wanted)?;
        let make = move |emit: &mut Emit<'_>| source.raw(Some(wanted), &times, emit);
        Ok(plain(
            "application/octet-stream",
            streamed(app, permit, make),
        ))
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
            ExportError::Unwanted => (
                StatusCode::SERVICE_UNAVAILABLE,
                "ask again when the server is back",
            ),
            ExportError::Fragment(_) => (StatusCode::INTERNAL_SERVER_ERROR, "please report it"),
        };
        Self::new(status, error.to_string(), help)
    }
}
