//! Recordings over HTTP: as files, and as streams for browsers (HLS, RFC 8216).
//!
//! | path | content |
//! |---|---|
//! | `/media/{volume}/export.mp4` | a range of the wall clock as one MP4 file, over recordings and gaps |
//! | `/media/{volume}/{number}/recording.mp4` | an MP4 file, also in byte ranges |
//! | `/media/{volume}/{number}/track{n}` | one track as its source sent it |
//! | `/media/{volume}/{number}/index.m3u8` | the multivariant playlist |
//! | `/media/{volume}/{number}/media.m3u8`, `init.mp4`, `segments/...` | the media playlist, initialization section and segments |
//! | `/media/{volume}/{number}/recording.json` | its times and tracks |
//! | `/media/{volume}/{number}/` | a page that plays the recording |
//! | `/media/{volume}/live/` | the same page, playlists and times of the newest recording |
//! | `/media/{volume}/live/low/...` | what arrives now, in parts (low-latency HLS) |
//! | `/media/{volume}/live/whep` | plays what arrives now, by WebRTC |
//! | `/media/{volume}/whip`, `/media/{volume}/live/whip` | publish by WebRTC: recorded, live only |
//! | `/signin`, `/signout` | a page that signs in, and the requests that sign in and out |
//! | `/player/...` | the script and style of the page |
//! | `/media/` | a page that lists all recordings |
//!
//! These paths are served on the control socket, and over TCP if `[http] listen` is set. All reads are best
//! effort, and nothing can be changed here except by publishing. Files are generated while they are sent, each on a thread of its
//! own, so a slow client delays only its own file.

mod clip;
mod file;
mod generated;
mod hls;
mod in_memory;
mod low;
mod newest;
mod origins;
mod page;
mod playlist;
mod signin;
mod slots;
mod summary;
mod visitors;
mod wanted;
mod webrtc;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use generated::GeneratedBody;
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::wire::MISSING_BLOCKS;
pub use origins::{OriginError, Origins};
pub use signin::Arrival;
pub(super) use signin::SigningIn;
pub(super) use signin::is_safe;
use slots::Slots;
pub use visitors::asking;
pub(super) use visitors::{ConnectionVisitor, StillAdmitted, needed};
pub use webrtc::HttpPeer;

use super::{App, PathPart, QueryPart, SharedApp, run_blocking};
use crate::wire::Problem;
use media::archive::archives::{OpenError, RecordingInfo};
use media::archive::{Archive, ArchiveError, Recording};
use media::files::{Emit, ExportError, SegmentCache, Source};
use media::webrtc::WebRtc;

/// The most exports at a time. Each needs a thread, a block and a fragment in memory.
const EXPORTS_MAX: usize = 16;

/// The most memory for segments that wait for their clients, in MiB.
const SEGMENTS_MIB_MAX: usize = 256;

/// The most pieces of a file that wait for the client.
const PIECES_AHEAD: usize = 2;

/// The most bytes of a piece. Small pieces show early that a client takes data.
const PIECE_BYTES: usize = 64 << 10;

/// An export whose client has taken nothing for this time ends if another one needs its slot.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

const MISSING_BLOCKS_NAME: HeaderName = HeaderName::from_static(MISSING_BLOCKS);

/// State that is kept between requests.
#[derive(Debug)]
pub struct Media {
    /// Slots for exports.
    exports: Arc<Slots>,
    /// Slots for segments in memory, a MiB each.
    segments: Arc<Slots>,
    plans: file::PlanCache,
    segments_told: SegmentCache,
    packaged: low::PackagedStreams,
    webrtc: Mutex<Option<Arc<WebRtc>>>,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            exports: Arc::new(Slots::new(EXPORTS_MAX)),
            segments: Arc::new(Slots::new(SEGMENTS_MIB_MAX)),
            plans: file::PlanCache::default(),
            segments_told: SegmentCache::default(),
            packaged: low::PackagedStreams::default(),
            webrtc: Mutex::default(),
        }
    }
}

impl Media {
    /// Ends all transfers.
    pub fn close(&self) {
        self.exports.close();
        self.segments.close();
        let webrtc = self.webrtc.lock();
        drop(webrtc.unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Offers WebRTC.
    pub fn serve_webrtc(&self, service: WebRtc) {
        let webrtc = self.webrtc.lock();
        *webrtc.unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(service));
    }

    /// The WebRTC service, if the server has one.
    fn webrtc(&self) -> Option<Arc<WebRtc>> {
        let webrtc = self.webrtc.lock();
        webrtc.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if the server is ending.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.exports.is_closed()
    }

    /// Takes the slot of an export.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.exports.permit().ok_or_else(|| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{EXPORTS_MAX} exports are running, the maximum"),
                "repeat the request when one of them has ended",
            )
        })
    }

    /// Takes memory for a segment of `bytes` bytes.
    fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Problem> {
        self.segments.permits(mib(bytes)).ok_or_else(|| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{SEGMENTS_MIB_MAX} MiB of segments wait for their clients, the maximum"),
                "repeat the request when some of them have been sent",
            )
        })
    }
}

/// The slots for a segment of `bytes` bytes, in MiB.
fn mib(bytes: u64) -> usize {
    (bytes.div_ceil(1 << 20) as usize).clamp(1, SEGMENTS_MIB_MAX)
}

/// A range of times of a recording, in nanoseconds from its beginning.
#[derive(Deserialize, Clone, Copy, Debug, Default)]
#[serde(deny_unknown_fields)]
struct TimeRange {
    from_ns: Option<u64>,
    to_ns: Option<u64>,
    /// True to send the file while it is generated, without `Content-Length` and byte ranges.
    #[serde(default)]
    stream: bool,
}

impl TimeRange {
    fn range(self) -> Result<Range<u64>, Problem> {
        let (from, to) = (self.from_ns.unwrap_or(0), self.to_ns.unwrap_or(u64::MAX));
        if from < to {
            return Ok(from..to);
        }
        Err(Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the range from {from} ns to {to} ns is empty"),
            "give `from_ns` and a later `to_ns`, in nanoseconds from the beginning of the recording",
        )
        .at("the query"))
    }
}

/// A recording that is being read.
struct OpenRecording {
    archive: Arc<Archive>,
    described: RecordingInfo,
    source: Source,
}

/// Opens a recording for reading.
fn open(app: &App, volume: &str, number: u64) -> Result<OpenRecording, Problem> {
    let (archive, recording) = app.archives.recording(volume, number)?;
    open_in(app, archive, recording)
}

/// Opens the newest recording of a volume for reading.
fn open_newest(app: &App, volume: &str) -> Result<OpenRecording, Problem> {
    let none = || {
        let what = format!("volume {volume:?} has no recording");
        Problem::new(StatusCode::NOT_FOUND, what, "wait for one to begin")
    };
    let archive = app
        .archives
        .open(volume, None)
        .map_err(|error| match error {
            OpenError::Archive(ArchiveError::Empty(_)) => none(),
            other => other.into(),
        })?;
    let recording = archive.recording(None).ok_or_else(none)?;
    open_in(app, archive, recording)
}

fn open_in(
    app: &App,
    archive: Arc<Archive>,
    recording: Recording,
) -> Result<OpenRecording, Problem> {
    let described = app.archives.describe(&archive, recording)?;
    let description = described
        .description
        .clone()
        .ok_or(ExportError::Undescribed)?;
    let client = app.archives.client().map_err(Problem::from)?;
    let source = Source::new(Arc::clone(&archive), client, recording, description);
    Ok(OpenRecording {
        archive,
        described,
        source,
    })
}

/// The routes of recordings and streams.
pub(super) fn routes() -> Router<SharedApp> {
    let root = get(|| async { axum::response::Redirect::temporary("/media/") });
    Router::new()
        .route("/", root)
        .route(signin::PATH, get(signin::show).post(signin::sign_in))
        .route(signin::OUT_PATH, post(signin::sign_out))
        .route("/media/", get(page::all))
        .route("/media/{volume}/export.mp4", get(clip::mp4))
        .route("/media/{volume}/{number}/", get(page::one))
        .route("/media/{volume}/live/", get(page::newest))
        .route("/media/{volume}/live/index.m3u8", get(newest::master))
        .route("/media/{volume}/live/media.m3u8", get(newest::playlist))
        .route("/media/{volume}/live/recording.json", get(summary::newest))
        .route("/media/{volume}/live/low/index.m3u8", get(low::master))
        .route("/media/{volume}/live/low/media.m3u8", get(low::playlist))
        .route("/media/{volume}/live/low/{file}", get(low::file))
        .route("/media/{volume}/live/whep", post(webrtc::watch))
        .route("/media/{volume}/live/whep/{id}", delete(webrtc::end))
        .route("/media/{volume}/live/whip", post(webrtc::relay))
        .route("/media/{volume}/live/whip/{id}", delete(webrtc::end))
        .route("/media/{volume}/whip", post(webrtc::record))
        .route("/media/{volume}/whip/{id}", delete(webrtc::end))
        .route("/media/{volume}/{number}/recording.json", get(summary::one))
        .route("/player/{file}", get(page::file))
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

/// The router for the TCP address, which has only these routes.
pub fn router(app: SharedApp) -> Router {
    super::audited(super::with_fallbacks(routes()), &app).with_state(app)
}

/// `bytes` in pieces of at most [`PIECE_BYTES`]. Pieces are copies: one that waits for its client must not keep all
/// of `bytes` in memory.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = Bytes> {
    bytes.chunks(PIECE_BYTES).map(Bytes::copy_from_slice)
}

/// A response with a body of media type `kind`.
fn plain(kind: &'static str, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn track(
    state: State<SharedApp>,
    PathPart((volume, number, track)): PathPart<(String, u64, String)>,
    QueryPart(times): QueryPart<TimeRange>,
) -> Result<Response, Problem> {
    run_blocking(state.0, move |app| {
        let number_in_name = track.strip_prefix("track").and_then(|of| of.parse().ok());
        let Some(track) = number_in_name else {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                format!("a recording has no file {track:?}"),
                "request recording.mp4, index.m3u8, or track0, track1, ...",
            ));
        };
        let times = times.range()?;
        let permit = app.media.permit()?;
        let source = open(app, &volume, number)?.source;
        let make =
            move |source: &mut Source, emit: &mut Emit<'_>| source.raw(Some(track), &times, emit);
        let body = GeneratedBody::start(app, permit, source, make);
        Ok(body.stream("application/octet-stream")?)
    })
    .await
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Self {
        let (status, help) = match &error {
            ExportError::Archive(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "`clockwise status` shows the state of its disks",
            ),
            ExportError::Undescribed | ExportError::Parameters(_) => (
                StatusCode::CONFLICT,
                "play it over RTSP; `clockwise recording check` shows what is damaged",
            ),
            ExportError::NoTrack(..) => (
                StatusCode::NOT_FOUND,
                "`clockwise recording show` lists its tracks",
            ),
            ExportError::Nothing { .. } => (
                StatusCode::CONFLICT,
                "`clockwise recording show` shows the possible formats of each track; all tracks can be played over RTSP",
            ),
            ExportError::Empty => (
                StatusCode::CONFLICT,
                "`clockwise recording show` shows when it begins and how long it is",
            ),
            ExportError::Large(_) => (
                StatusCode::CONFLICT,
                "play it over RTSP, or export it as a file",
            ),
            ExportError::Gone { .. } | ExportError::Changed { .. } => (
                StatusCode::NOT_FOUND,
                "`clockwise recording list` shows the recordings",
            ),
            ExportError::Stalled(_) | ExportError::Disconnected => (
                StatusCode::SERVICE_UNAVAILABLE,
                "repeat the request when the server runs again",
            ),
            ExportError::Fragment(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "please report this with the server's log",
            ),
        };
        Self::new(status, error.to_string(), help)
    }
}
