//! The control API: HTTP and JSON on a Unix socket. The permissions of its file decide who may use it.
//!
//! | method and path | action |
//! |---|---|
//! | `GET /v1/pool`, `/v1/disks`, `/v1/disks/{number}`, `/v1/status` | shows the pool, its disks, and everything at once |
//! | `GET /v1/disks/{number}/profile` | shows a drive profile widened by the overruns over all restarts |
//! | `GET`, `PATCH /v1/disks/{number}/faults` | shows, replaces the faults of an emulated drive |
//! | `POST`, `DELETE /v1/disks/{number}/measurement` | begins, ends a measurement of a disk |
//! | `POST /v1/disks/{number}/measurement/requests` | serves requests of a measurement |
//! | `GET`, `POST /v1/volumes` | lists, creates |
//! | `GET`, `PATCH`, `DELETE /v1/volumes/{name}` | shows, grows or shrinks, deletes |
//! | `GET /v1/volumes/{name}/places` | shows where the extents of a volume lie, in the volume's order |
//! | `GET /v1/recordings` | lists the recordings of all volumes |
//! | `GET /v1/volumes/{name}/recordings` | lists the recordings made there over RTSP |
//! | `GET /v1/volumes/{name}/recordings/{number}`, `/check`, `/index` | shows a recording, checks it for damage, shows its index |
//! | `GET /v1/volumes/{name}/timeline` | shows what was recorded when, and each gap with its cause |
//! | `DELETE /v1/volumes/{name}/recordings/{number}` | deletes a recording |
//! | `POST /v1/volumes/{name}/locks`, `GET /v1/locks`, `DELETE /v1/locks/{name}` | locks a range of times, lists the locks, ends one |
//! | `GET`, `PATCH /v1/volumes/{name}/retention` | shows, changes how much of the recordings is kept |
//! | `POST /v1/cameras` | inspects a camera, creates a volume for it, and adds it as a source |
//! | `GET`, `POST /v1/sources` | lists the cameras to pull from, adds one |
//! | `GET`, `DELETE /v1/sources/{name}` | shows, removes |
//! | `GET /v1/sessions`, `GET`, `PATCH`, `DELETE /v1/sessions/{number}` | lists, shows, changes, ends sessions over RTSP |
//! | `GET`, `POST`, `DELETE /v1/volumes/{name}/move` | shows the progress of a move, moves, stops moving |
//! | `GET`, `POST /v1/streams` | lists, reserves |
//! | `GET`, `PATCH`, `DELETE /v1/streams/{id}` | reports, changes the rate, ends |
//! | `GET /v1/streams/{id}/blocks` | reports on each block |
//! | `GET`, `POST /v1/users`, `GET`, `PATCH`, `DELETE /v1/users/{name}` | lists users, adds one, shows, changes, removes |
//! | `POST /v1/users/{name}/tokens`, `DELETE /v1/users/{name}/tokens/{token}` | makes a token, revokes it |
//! | `POST /v1/window` | begins a new window for best-effort latency |
//! | `GET /v1/events` | sends events as they happen |
//! | `GET /v1/openapi.json` | describes the API for programs |
//! | `GET /metrics` | shows the status to Prometheus |
//!
//! Recordings as files are below `/media`, see [`files`].
//!
//! Calls of the pool may wait for disks, and an admission test may take milliseconds, so every handler does
//! its work on a thread that may block. Data of streams has a socket of its own, see [`crate::session`].

pub mod audit;
mod body;
pub mod cameras;
mod disks;
mod errors;
mod events;
pub mod faults;
pub mod files;
mod locks;
mod losses;
pub mod measurement;
pub mod metrics;
pub mod recordings;
pub mod sessions;
pub mod sources;
mod streams;
mod users;
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
use engine::status::PoolStatus;
use http_body_util::BodyExt;
use media::archive::archives::Archives;
use media::camera::sources::Sources;
use media::rtsp::access::Access;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::events::Events;
use crate::exports::Exports;
use crate::session::Sessions;
use crate::watch::Watch;
use crate::wire::Problem;
use crate::wire::view::{PoolView, SmartView, StatusView, WarningView};
use crate::{log, panics};

/// The state that the handlers share.
pub struct App {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The service times of the disks.
    pub watch: Watch,
    /// The recordings made over RTSP.
    pub archives: Arc<Archives>,
    /// The cameras that are pulled from.
    pub sources: Sources,
    /// The stream sessions.
    pub sessions: Arc<Sessions>,
    /// The path of the socket for the data of streams.
    pub data_socket: String,
    /// The protocols that export volumes.
    pub exports: Arc<Exports>,
    /// The running moves, by volume.
    pub moves: Mutex<BTreeMap<String, Arc<volumes::Move>>>,
    /// The measurements of disks under way.
    pub measurements: measurement::Measurements,
    /// State of the recordings that are served over HTTP.
    pub media: files::Media,
    /// The emulated drives among the disks.
    pub drives: faults::EmulatedDrives,
    /// The drives' own counters.
    pub smart: SmartCounters,
    /// The users of the server; without them everyone may do everything.
    pub access: Option<Arc<Access>>,
    /// The audit log; absent if it cannot be written.
    pub audit: Option<Arc<audit::Audit>>,
    /// State of the metrics.
    pub metrics: metrics::Metrics,
    /// The last events.
    pub events: Arc<Events>,
}

/// Counters of the drives themselves, by the disk's name.
#[derive(Default)]
pub struct SmartCounters(Mutex<BTreeMap<String, SmartView>>);

impl SmartCounters {
    fn get(&self, disk: &str) -> Option<SmartView> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(disk).copied()
    }

    /// Takes over what a drive has told. Returns what was known before.
    pub fn set(&self, disk: &str, counters: SmartView) -> Option<SmartView> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(disk.to_owned(), counters)
    }
}

impl App {
    /// The state of a server that has just started.
    #[must_use]
    pub fn new(
        pool: Arc<Pool>,
        watch: Watch,
        archives: Arc<Archives>,
        sources: Sources,
        data_socket: String,
        exports: Arc<Exports>,
        drives: faults::EmulatedDrives,
    ) -> Self {
        Self {
            pool,
            watch,
            archives,
            sources,
            sessions: Arc::default(),
            data_socket,
            exports,
            moves: Mutex::default(),
            measurements: measurement::Measurements::default(),
            media: files::Media::default(),
            drives,
            smart: SmartCounters::default(),
            access: None,
            audit: None,
            metrics: metrics::Metrics::default(),
            events: Arc::default(),
        }
    }

    /// The whole status.
    #[must_use]
    pub fn status(&self) -> StatusView {
        self.complete(self.pool.status())
    }

    /// A status of the pool with everything that others than the pool know.
    fn complete(&self, status: PoolStatus) -> StatusView {
        let mut status = StatusView::from(status);
        self.watch.complete(&mut status);
        for disk in &mut status.disks {
            disk.smart = self.smart.get(&disk.name);
        }
        status.planned = self.sessions.planned(engine::clock::now());
        let volumes = std::mem::take(&mut status.volumes).into_iter();
        status.volumes = volumes.map(|of| volumes::with_move(self, of)).collect();
        status.exports = self.exports.status().into_iter().map(Into::into).collect();
        for export in self.exports.reserved() {
            if !status.volumes.iter().any(|volume| volume.name == export) {
                status.warnings.push(WarningView {
                    what: format!(
                        "disk time is reserved for export {export}, but no volume has that name"
                    ),
                    concerns: Vec::new(),
                });
            }
        }
        status.warnings.extend(process_warnings());
        status
    }

    /// Ends the work for clients: moves stop after the present extent, measurements, downloads and streams end.
    pub fn close(&self) {
        for one in self
            .moves
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            one.stop();
        }
        self.measurements.close();
        self.media.close();
        self.sessions.close();
    }
}

/// Warnings about the process itself.
fn process_warnings() -> impl Iterator<Item = WarningView> {
    let lost = match log::lost() {
        0 => None,
        lost => Some(format!("log lines lost: {lost}")),
    };
    let survived = match panics::survived() {
        0 => None,
        count => Some(format!(
            "calls, connections and cameras ended by a panic: {count}; please report this with the log"
        )),
    };
    let concerning_nothing = |what| WarningView {
        what,
        concerns: Vec::new(),
    };
    lost.into_iter().chain(survived).map(concerning_nothing)
}

type SharedApp = Arc<App>;
type Answer<T> = Result<Json<T>, Problem>;

/// The most bytes of a body. Bodies consist of names, numbers, and the disks of a placement.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Extracts a JSON body of at most `BYTES_MAX` bytes.
struct Body<T, const BYTES_MAX: usize = BODY_BYTES_MAX>(T);

impl<S, T, const BYTES_MAX: usize> FromRequest<S> for Body<T, BYTES_MAX>
where
    S: Send + Sync,
    T: serde::de::DeserializeOwned,
{
    type Rejection = Problem;
    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let read = body::read(request, state, BYTES_MAX, body::TIMEOUT);
        read.await.map(Self)
    }
}

/// A value that must be written as a JSON object. Serde alone would also accept a list of its members.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// The problem of a request whose `part` is not of the described form.
fn malformed(part: &str, status: StatusCode, what: String) -> Problem {
    Problem::new(
        status,
        what,
        "GET /v1/openapi.json describes the parameters of each call",
    )
    .at(part)
}

/// Extracts parameters of the path.
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
                malformed("the path", rejection.status(), rejection.body_text())
            })
    }
}

/// Extracts parameters of the query.
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
                malformed("the query", rejection.status(), rejection.body_text())
            })
    }
}

/// Held by a handler while its client waits for the answer. The handler is dropped when the client
/// disconnects, and long work then stops.
struct DisconnectGuard(Arc<AtomicBool>);

impl DisconnectGuard {
    /// Returns a guard, and a function that returns true until the guard is dropped.
    fn new() -> (Self, impl Fn() -> bool + Send + 'static) {
        let is_connected = Arc::new(AtomicBool::new(true));
        let guard = Self(Arc::clone(&is_connected));
        (guard, move || is_connected.load(Relaxed))
    }
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Answers with the result of `work` as JSON.
async fn answer<T: Send + 'static>(
    app: SharedApp,
    work: impl FnOnce(&SharedApp) -> Result<T, Problem> + Send + 'static,
) -> Answer<T> {
    run_blocking(app, work).await.map(Json)
}

/// Runs `work` on a thread that may block. A panic in it is answered with status 500.
async fn run_blocking<T: Send + 'static>(
    app: SharedApp,
    work: impl FnOnce(&SharedApp) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let work = move || engine::panics::survive(|| work(&app));
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(result)) => result,
        // The panic hook has written it to the log.
        Ok(Err(_)) | Err(_) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the server panicked during this call",
            "please report this with the server's log",
        )),
    }
}

/// A summary of the pool.
#[utoipa::path(get, path = "/v1/pool", responses((status = 200, body = PoolView)))]
async fn pool(state: State<SharedApp>) -> Answer<PoolView> {
    answer(state.0, |app| Ok(PoolView::from(app.status()))).await
}

/// The whole status: what is promised and what happened.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusView)))]
async fn status(state: State<SharedApp>) -> Answer<StatusView> {
    answer(state.0, |app| Ok(app.status())).await
}

/// Starts a new window for best-effort latency and measured utilisation.
#[utoipa::path(post, path = "/v1/window", responses((status = 200, body = StatusView)))]
async fn window(state: State<SharedApp>) -> Answer<StatusView> {
    answer(state.0, |app| {
        app.pool.reset_window();
        Ok(app.status())
    })
    .await
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Clockwise control API",
    description = "Served on a Unix socket; the permissions of its file decide who may use it. Times are in nanoseconds, sizes in bytes, shares from 0 to 1. Every error is a problem object, `application/problem+json`. Recordings as files are below `/media/`, see the reference. Any other path is answered with status 404, a method that a path does not have with 405.",
    license(name = "Apache-2.0 OR MIT")
))]
struct Description;

fn routes() -> OpenApiRouter<SharedApp> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(pool))
        .routes(routes!(status))
        .routes(routes!(window))
        .merge(events::routes())
        .merge(disks::routes())
        .merge(faults::routes())
        .merge(measurement::routes())
        .merge(volumes::routes())
        .merge(recordings::routes())
        .merge(locks::routes())
        .merge(sources::routes())
        .merge(cameras::routes())
        .merge(sessions::routes())
        .merge(streams::routes())
        .merge(users::routes())
}

/// The description that `GET /v1/openapi.json` serves.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    errors::with_errors(routes().into_openapi())
}

/// The router of the whole API.
pub fn router(app: SharedApp) -> Router {
    let (router, description) = routes().split_for_parts();
    let description = Arc::new(errors::with_errors(description));
    let router = router
        .merge(files::routes())
        .merge(metrics::routes())
        .route(
            "/v1/openapi.json",
            axum::routing::get(move || async move { Json((*description).clone()) }),
        );
    audited(with_fallbacks(router), &app).with_state(app)
}

/// Adds the audit log.
fn audited(router: Router<SharedApp>, app: &SharedApp) -> Router<SharedApp> {
    let note = axum::middleware::from_fn_with_state(Arc::clone(app), audit::note);
    router.layer(note)
}

/// The router while the pool is being opened: it answers each call with status 503.
pub fn opening() -> Router {
    Router::new().fallback(|request: Request| async move {
        // A client that sends a long body reads the answer only after all of the body was taken.
        let mut body = request.into_body();
        let drain = async { while let Some(Ok(_)) = body.frame().await {} };
        // The answer does not depend on the body, so an incomplete one is ignored.
        let _ = tokio::time::timeout(body::TIMEOUT, drain).await;
        let mut answer = Problem::opening().into_response();
        // This router serves the connection until it closes, so the client must open another one later.
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(header::CONNECTION, close);
        answer
    })
}

/// Adds the answers for unknown paths and methods.
fn with_fallbacks(router: Router<SharedApp>) -> Router<SharedApp> {
    router
        .fallback(|request: Request| async move {
            Problem::new(
                StatusCode::NOT_FOUND,
                format!("there is nothing at {}", request.uri().path()),
                "GET /v1/openapi.json lists the calls",
            )
        })
        .method_not_allowed_fallback(|request: Request| async move {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!(
                    "{} does not support {}",
                    request.uri().path(),
                    request.method()
                ),
                "GET /v1/openapi.json lists the calls",
            )
        })
}
