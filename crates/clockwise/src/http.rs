//! The control API: HTTP and JSON on a unix socket whose permissions say who may use it.
//!
//! | method and path | what it does |
//! |---|---|
//! | `GET /v1/pool`, `/v1/disks`, `/v1/disks/{number}`, `/v1/status` | what there is and what happened |
//! | `GET /v1/disks/{number}/profile` | the drive profile that overruns ask for |
//! | `GET`, `POST /v1/volumes` | lists, creates |
//! | `GET`, `PATCH`, `DELETE /v1/volumes/{name}` | shows, grows or shrinks, deletes |
//! | `GET /v1/volumes/{name}/places` | where a volume lies, in its own order |
//! | `GET /v1/volumes/{name}/recordings` | what was recorded there over RTSP |
//! | `GET /v1/volumes/{name}/recordings/{number}`, `/check`, `/index` | one of them, whether it is sound, and what its index says |
//! | `DELETE /v1/volumes/{name}/recordings/{number}` | deletes a recording |
//! | `GET`, `PATCH /v1/volumes/{name}/retention` | how much of what is recorded is kept |
//! | `GET`, `POST /v1/sources` | lists the cameras that are pulled from, adds one |
//! | `GET`, `DELETE /v1/sources/{name}` | shows, removes |
//! | `GET /v1/sessions`, `GET`, `PATCH`, `DELETE /v1/sessions/{number}` | who records and plays over RTSP, and what each has reserved |
//! | `GET`, `POST`, `DELETE /v1/volumes/{name}/move` | progress of a move, moves, stops moving |
//! | `GET`, `POST /v1/streams` | lists, reserves |
//! | `GET`, `PATCH`, `DELETE /v1/streams/{id}` | reports, changes the rate, ends |
//! | `GET /v1/streams/{id}/blocks` | how each block fared |
//! | `POST /v1/window` | begins a new window for best-effort latency |
//! | `GET /v1/openapi.json` | this, for programs |
//!
//! Recordings as files are under `/media`, see [`files`].
//!
//! The pool's own calls may wait for disks, and an admission test may take milliseconds, so every
//! handler does its work on a thread where waiting harms nobody. Data of streams never comes through
//! here, see [`crate::session`].

mod body;
mod disks;
mod errors;
pub mod files;
mod losses;
pub mod recordings;
pub mod sessions;
pub mod sources;
mod streams;
mod volumes;

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Json, Router};
use engine::pool::Pool;
use http_body_util::BodyExt;
use media::archive::archives::Archives;
use media::camera::sources::Sources;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::exports::Exports;
use crate::session::Sessions;
use crate::wire::Problem;
use crate::wire::view::{PoolView, StatusView, WarningView};
use crate::{log, panics};

/// What the handlers work on.
pub struct App {
    /// The pool.
    pub pool: Arc<Pool>,
    /// What was recorded over RTSP.
    pub archives: Arc<Archives>,
    /// The cameras that are pulled from.
    pub sources: Sources,
    /// The stream sessions.
    pub sessions: Arc<Sessions>,
    /// Where streams connect for their data.
    pub data_socket: String,
    /// The protocols that export volumes.
    pub exports: Arc<Exports>,
    /// Moves under way, by volume.
    pub moves: Mutex<BTreeMap<String, Arc<volumes::Move>>>,
    /// What is known of the recordings that are served over HTTP.
    pub media: files::Media,
}

impl App {
    /// A server's state, without moves.
    #[must_use]
    pub fn new(
        pool: Arc<Pool>,
        archives: Arc<Archives>,
        sources: Sources,
        data_socket: String,
        exports: Arc<Exports>,
    ) -> Self {
        Self {
            pool,
            archives,
            sources,
            sessions: Arc::default(),
            data_socket,
            exports,
            moves: Mutex::default(),
            media: files::Media::default(),
        }
    }

    /// Everything at once.
    #[must_use]
    pub fn status(&self) -> StatusView {
        let mut status = StatusView::from(self.pool.status());
        status.planned = self.sessions.planned(engine::clock::now());
        let volumes = std::mem::take(&mut status.volumes).into_iter();
        status.volumes = volumes.map(|of| volumes::moving(self, of)).collect();
        status.exports = self.exports.status().into_iter().map(Into::into).collect();
        for export in self.exports.reserved() {
            if !status.volumes.iter().any(|volume| volume.name == export) {
                status.warnings.push(WarningView {
                    what: format!(
                        "disk time is reserved for export {export}, but there is no such volume"
                    ),
                    concerns: Vec::new(),
                });
            }
        }
        status.warnings.extend(of_the_process());
        status
    }

    /// Ends what runs for clients: moves stop after the extent at hand, streams end.
    pub fn close(&self) {
        for one in self
            .moves
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            one.stop();
        }
        self.media.close();
        self.sessions.close();
    }
}

/// What is wrong with the process itself.
fn of_the_process() -> impl Iterator<Item = WarningView> {
    let lost = match log::lost() {
        0 => None,
        lost => Some(format!(
            "lines of the log that could not be written: {lost}"
        )),
    };
    let survived = match panics::survived() {
        0 => None,
        count => Some(format!(
            "calls, connections and cameras that ended in a panic: {count}; please report them with the log"
        )),
    };
    let concerning_nothing = |what| WarningView {
        what,
        concerns: Vec::new(),
    };
    lost.into_iter().chain(survived).map(concerning_nothing)
}

type Shared = Arc<App>;
type Answer<T> = Result<Json<T>, Problem>;

/// The most bytes of a body: names, numbers, and the disks of a placement.
const BODY_BYTES_MAX: usize = 64 << 10;

/// A JSON body of at most so many bytes, or a problem that says what is wrong with it.
struct Body<T, const BYTES_MAX: usize = BODY_BYTES_MAX>(T);

impl<S, T, const BYTES_MAX: usize> FromRequest<S> for Body<T, BYTES_MAX>
where
    S: Send + Sync,
    T: serde::de::DeserializeOwned,
{
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = body::read(request, state, BYTES_MAX, body::WITHIN);
        read.await.map(Self)
    }
}

/// A value that is written as a JSON object, and not as the list of its members either.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersOf(PhantomData))
    }
}

struct MembersOf<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MembersOf<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// A part of the path, or a problem that says what is wrong with it.
struct PathPart<T>(T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned + Send> FromRequestParts<S> for PathPart<T> {
    type Rejection = Problem;
    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, Problem> {
        axum::extract::Path::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(value)| Self(value))
            .map_err(|rejection: PathRejection| {
                Problem::new(
                    rejection.status(),
                    rejection.body_text(),
                    "GET /v1/openapi.json describes what each path takes",
                )
                .at("the path")
            })
    }
}

/// What follows the question mark of a path, or a problem that says what is wrong with it.
struct QueryPart<T>(T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> FromRequestParts<S> for QueryPart<T> {
    type Rejection = Problem;
    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, Problem> {
        axum::extract::Query::<T>::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|rejection: QueryRejection| {
                Problem::new(
                    rejection.status(),
                    rejection.body_text(),
                    "GET /v1/openapi.json describes what each path takes",
                )
                .at("the query")
            })
    }
}

/// Somebody who waits for an answer, until this is dropped: work that takes long looks whether he still does.
struct Waiting(Arc<AtomicBool>);

impl Waiting {
    /// He begins to wait; and what tells whether he does.
    fn begin() -> (Self, impl Fn() -> bool + Send + 'static) {
        let waits = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&waits);
        (Self(waits), move || asked.load(Relaxed))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Does `work` where it may wait.
async fn answer<T: Send + 'static>(
    app: Shared,
    work: impl FnOnce(&Shared) -> Result<T, Problem> + Send + 'static,
) -> Answer<T> {
    apart(app, work).await.map(Json)
}

/// The same, whatever it answers.
async fn apart<T: Send + 'static>(
    app: Shared,
    work: impl FnOnce(&Shared) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let work = move || engine::panics::survive(|| work(&app));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(result)) => result,
        // The log has it from the panic itself.
        Ok(Err(_)) | Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server failed at this call",
            "its log says more; please report it",
        )),
    }
}

/// The pool in short.
#[utoipa::path(get, path = "/v1/pool", responses((status = 200, body = PoolView)))]
async fn pool(state: State<Shared>) -> Answer<PoolView> {
    answer(state.0, |app| Ok(PoolView::from(app.status()))).await
}

/// Everything at once: what is promised and what happened.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusView)))]
async fn status(state: State<Shared>) -> Answer<StatusView> {
    answer(state.0, |app| Ok(app.status())).await
}

/// Begins a new window for best-effort latency and measured utilisation.
#[utoipa::path(post, path = "/v1/window", responses((status = 200, body = StatusView)))]
async fn window(state: State<Shared>) -> Answer<StatusView> {
    answer(state.0, |app| {
        app.pool.reset_window();
        Ok(app.status())
    })
    .await
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Clockwise control API",
    description = "Served on a unix socket; the permissions of its file say who may use it. Times are in nanoseconds, sizes in bytes, shares of 1. Every error is a problem object, `application/problem+json`. Recordings as files are under `/media/`, see the reference. Any other path that is not described here is answered with status 404, a method that a path does not take with 405.",
    license(name = "Apache-2.0 OR MIT")
))]
struct Description;

fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(pool))
        .routes(routes!(status))
        .routes(routes!(window))
        .merge(disks::routes())
        .merge(volumes::routes())
        .merge(recordings::routes())
        .merge(sources::routes())
        .merge(sessions::routes())
        .merge(streams::routes())
}

/// The description that `GET /v1/openapi.json` serves.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    errors::with_errors(routes().into_openapi())
}

/// The whole API.
pub fn router(app: Shared) -> Router {
    let (router, description) = routes().split_for_parts();
    let description = Arc::new(errors::with_errors(description));
    let router = router.merge(files::routes()).route(
        "/v1/openapi.json",
        axum::routing::get(move || async move { Json((*description).clone()) }),
    );
    with_fallbacks(router).with_state(app)
}

/// Answers each call at once that the pool is being opened.
pub fn opening() -> Router {
    Router::new().fallback(|request: Request| async move {
        // Whoever sends a long body reads the answer when all of it was taken.
        let mut body = request.into_body();
        let taken = async { while let Some(Ok(_)) = body.frame().await {} };
        // However much has come by then, the answer is the same.
        let _ = tokio::time::timeout(body::WITHIN, taken).await;
        let mut answer = Problem::opening().into_response();
        // This connection is served by this router to its end.
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(header::CONNECTION, close);
        answer
    })
}

/// What is answered where there is nothing.
fn with_fallbacks(router: Router<Shared>) -> Router<Shared> {
    router
        .fallback(|request: Request| async move {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {}", request.uri().path()),
                "GET /v1/openapi.json lists what there is",
            )
        })
        .method_not_allowed_fallback(|request: Request| async move {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!(
                    "{} does not take {}",
                    request.uri().path(),
                    request.method()
                ),
                "GET /v1/openapi.json lists what there is",
            )
        })
}
