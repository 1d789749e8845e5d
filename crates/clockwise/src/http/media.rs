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
mod whole;

use std::ops::{ControlFlow, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use hyper::body::{Bytes, Frame};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

pub use visitors::asking;

use super::{App, PathPart, Problem, QueryPart, Shared};
use crate::media::archive::Archive;
use crate::media::archives::Described;
use crate::media::export::{Emit, ExportError, Known, Source};

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

/// The trailer that says how many blocks are missing of a file whose length was not said.
pub const MISSING_BLOCKS: &str = "clockwise-missing-blocks";
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

/// What is being made or sent, each in a place or several.
#[derive(Debug)]
struct Running {
    places: Arc<Semaphore>,
    /// Somebody was refused so many of them, and nobody has got any since; 0: nobody was.
    wanted: AtomicUsize,
    /// The server ends.
    ends: watch::Sender<bool>,
}

impl Running {
    fn new(most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            wanted: AtomicUsize::new(0),
            ends: watch::Sender::new(false),
        }
    }

    fn is_ending(&self) -> bool {
        *self.ends.borrow()
    }

    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits(1)
    }

    fn permits(&self, count: usize) -> Option<OwnedSemaphorePermit> {
        let places = Arc::clone(&self.places);
        let places = places.try_acquire_many_owned(count as u32).ok();
        let places = places.filter(|_| !self.is_ending());
        // Who wants more has not got any.
        let _ =
            self.wanted
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |wanted| {
                    match places.is_some() {
                        true if count < wanted => None,
                        true => Some(0),
                        false => Some(count),
                    }
                });
        places
    }

    /// Whether places are to be given up for somebody by who has so many: as many do as are needed for that.
    fn gives_up(&self, own: usize) -> bool {
        let mut is_needed = false;
        let _ = self
            .wanted
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |wanted| {
                let free = self.places.available_permits();
                is_needed = wanted > free;
                (is_needed && free + own >= wanted).then_some(0)
            });
        is_needed
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

/// What is made of a file, in order.
enum Piece {
    Bytes(Bytes),
    /// All was made, without so many blocks that are missing.
    End(u64),
}

/// A file that is made on a thread of its own, as it is taken.
struct Made {
    pieces: mpsc::Receiver<Result<Piece, ExportError>>,
    /// What was looked at already.
    first: Option<Bytes>,
    /// Whether it is said at the end how many blocks are missing.
    says_missing: bool,
    is_over: bool,
}

impl Made {
    /// Has `make` make it.
    fn begin(
        app: &Shared,
        permit: OwnedSemaphorePermit,
        mut source: Source,
        make: impl FnOnce(&mut Source, &mut Emit<'_>) -> Result<(), ExportError> + Send + 'static,
    ) -> Self {
        let (send, pieces) = mpsc::channel(PIECES_AHEAD);
        let running = Arc::clone(&app.media.running);
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut outlet = Outlet {
                send,
                handle,
                running: Arc::clone(&running),
                within: TAKEN_WITHIN,
                cut: None,
                is_begun: false,
            };
            let mut emit = |bytes| match running.is_ending() {
                true => outlet.end(ExportError::Unwanted),
                false => outlet.put(bytes),
            };
            let made = make(&mut source, &mut emit);
            let made = outlet.cut.take().map_or(made, Err);
            let (of, missing) = (source.recording(), source.missing_blocks());
            let volume = source.volume();
            if missing > 0 {
                let left_out = source.left_out;
                tracing::warn!(
                    volume,
                    recording = of.number,
                    missing,
                    left_out,
                    "blocks of an export are damaged or gone"
                );
            }
            if let Err(error) = &made
                && outlet.is_begun
            {
                tracing::warn!(volume, recording = of.number, %error, "an export ends before its end");
            }
            if let Err(error) = outlet.finish(made.map(|()| Piece::End(missing))) {
                tracing::warn!(volume, recording = of.number, %error, "the end of an export is not taken");
            }
        });
        Self {
            pieces,
            first: None,
            says_missing: false,
            is_over: false,
        }
    }

    /// A file whose length is not known: what is wrong before anything of it is there is an answer of its own.
    fn streamed(mut self, kind: &'static str) -> Result<Response, ExportError> {
        match self.pieces.blocking_recv() {
            Some(Ok(Piece::Bytes(bytes))) => self.first = Some(bytes),
            Some(Ok(Piece::End(_))) => return Err(ExportError::Empty),
            Some(Err(error)) => return Err(error),
            None => return Err(ExportError::Unwanted),
        }
        self.says_missing = true;
        let mut response = plain(kind, Body::new(self));
        let trailer = HeaderValue::from_static(MISSING_BLOCKS);
        response.headers_mut().insert(header::TRAILER, trailer);
        Ok(response)
    }
}

impl hyper::body::Body for Made {
    type Data = Bytes;
    type Error = ExportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExportError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = std::task::ready!(self.pieces.poll_recv(context));
        Poll::Ready(match polled {
            Some(Ok(Piece::Bytes(bytes))) => Some(Ok(Frame::data(bytes))),
            Some(Ok(Piece::End(missing))) => {
                self.is_over = true;
                self.says_missing.then(|| {
                    let trailer = (MISSING_BLOCKS_NAME, HeaderValue::from(missing));
                    Ok(Frame::trailers([trailer].into_iter().collect()))
                })
            }
            Some(Err(error)) => Some(Err(error)),
            None => Some(Err(ExportError::Unwanted)),
        })
    }
}

/// Where the pieces of a file go.
struct Outlet {
    send: mpsc::Sender<Result<Piece, ExportError>>,
    handle: Handle,
    running: Arc<Running>,
    within: Duration,
    /// Why no more is made.
    cut: Option<ExportError>,
    is_begun: bool,
}

impl Outlet {
    /// Gives bytes to who takes them, as long as somebody does.
    fn put(&mut self, bytes: Vec<u8>) -> ControlFlow<()> {
        // Copies, so that what somebody does not take keeps no more of them in memory than it is.
        for piece in bytes.chunks(PIECE_BYTES).map(Bytes::copy_from_slice) {
            self.put_piece(Ok(Piece::Bytes(piece)))?;
            self.is_begun = true;
        }
        ControlFlow::Continue(())
    }

    /// Who has paused may take the next one when it likes, as long as nobody else needs the place.
    fn put_piece(&mut self, mut piece: Result<Piece, ExportError>) -> ControlFlow<()> {
        let mut ends = self.running.ends.subscribe();
        loop {
            let sent = self.handle.block_on(async {
                tokio::select! {
                    sent = self.send.send_timeout(piece, self.within) => Some(sent),
                    _ = ends.wait_for(|ends| *ends) => None,
                }
            });
            piece = match sent {
                Some(Ok(())) => return ControlFlow::Continue(()),
                Some(Err(SendTimeoutError::Timeout(piece))) => piece,
                // Nobody takes it any more.
                Some(Err(SendTimeoutError::Closed(_))) => return ControlFlow::Break(()),
                None => return self.end(ExportError::Unwanted),
            };
            if self.running.gives_up(1) {
                return self.end(ExportError::Stalled(self.within));
            }
        }
    }

    /// Says how it ended, as long as that is waited for; without an end nobody takes it for all.
    fn finish(mut self, end: Result<Piece, ExportError>) -> Result<(), ExportError> {
        if !matches!(end, Err(ExportError::Stalled(_) | ExportError::Unwanted)) {
            let _ = self.put_piece(end);
        }
        self.cut.map_or(Ok(()), Err)
    }

    fn end(&mut self, why: ExportError) -> ControlFlow<()> {
        self.cut = Some(why);
        ControlFlow::Break(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An outlet for so many exports at a time, what comes of it, and what it takes to block on it.
    fn outlet(most: usize, within: Duration) -> (tokio::runtime::Runtime, Outlet, Pieces) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (send, pieces) = mpsc::channel(PIECES_AHEAD);
        let outlet = Outlet {
            send,
            handle: runtime.handle().clone(),
            running: Arc::new(Running::new(most)),
            within,
            cut: None,
            is_begun: false,
        };
        (runtime, outlet, pieces)
    }

    type Pieces = mpsc::Receiver<Result<Piece, ExportError>>;

    #[test]
    fn an_export_that_nobody_takes_ends_when_there_is_no_place_for_another() {
        let (runtime, mut outlet, mut pieces) = outlet(1, Duration::from_millis(20));
        let running = Arc::clone(&outlet.running);
        let _all = running.permit().unwrap();
        let mut put = runtime.spawn_blocking(move || {
            let flow = outlet.put(vec![7; (PIECES_AHEAD + 1) * PIECE_BYTES]);
            (flow, outlet.cut)
        });
        // As long as nobody else wants one it may take the next piece when it likes.
        let waits = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(200), &mut put)
                .await
                .is_err()
        });
        assert!(waits);
        assert!(running.permit().is_none());
        let (flow, cut) = runtime.block_on(put).unwrap();
        assert!(flow.is_break());
        assert!(matches!(cut, Some(ExportError::Stalled(_))), "{cut:?}");
        let mut made = 0;
        while let Some(Ok(Piece::Bytes(piece))) = pieces.blocking_recv() {
            made += piece.len();
        }
        assert_eq!(made, PIECES_AHEAD * PIECE_BYTES);
        // One for one.
        assert!(!running.gives_up(1));
    }

    /// Also one of which only the end is left to take.
    #[test]
    fn the_end_of_an_export_is_waited_with_no_longer_than_anything_of_it() {
        let (runtime, mut outlet, pieces) = outlet(1, Duration::from_millis(20));
        let running = Arc::clone(&outlet.running);
        let all = running.permit().unwrap();
        assert!(running.permit().is_none());
        let finished = runtime.block_on(runtime.spawn_blocking(move || {
            let flow = outlet.put(vec![7; PIECES_AHEAD * PIECE_BYTES]);
            (flow, outlet.finish(Ok(Piece::End(0))))
        }));
        let (flow, finished) = finished.unwrap();
        assert!(flow.is_continue());
        assert!(matches!(finished, Err(ExportError::Stalled(_))));
        drop(pieces);
        // Who was refused has not come back, and there is room.
        assert!(running.permit().is_none());
        drop(all);
        assert!(!running.gives_up(1));
    }

    #[test]
    fn an_export_that_nobody_takes_ends_with_the_server() {
        let (runtime, mut outlet, _pieces) = outlet(1, Duration::from_secs(3_600));
        let running = Arc::clone(&outlet.running);
        let put = runtime.spawn_blocking(move || {
            let flow = outlet.put(vec![7; (PIECES_AHEAD + 1) * PIECE_BYTES]);
            (flow, outlet.cut)
        });
        running.ends.send_replace(true);
        let (flow, cut) = runtime.block_on(put).unwrap();
        assert!(flow.is_break());
        assert!(matches!(cut, Some(ExportError::Unwanted)), "{cut:?}");
        assert!(running.permit().is_none());
    }
}
