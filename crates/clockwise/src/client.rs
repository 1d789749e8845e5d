//! A client of the control API: HTTP/1.1 with JSON bodies over a unix socket.
//!
//! One connection per call: calls are few and a connection to a unix socket costs microseconds.
//! A server that was started just before is waited for: until it listens, which it does soon, and for as long as it answers
//! that its pool is being opened. One that is not there is an error that says how to start it. A call may take as long as its
//! work does, as long as the server answers meanwhile: one that has been stopped or hangs is an error. Deliberately absent:
//! calls that are repeated although something may have been done.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, FailureKind};
use crate::socket;
use crate::wire::{MISSING_BLOCKS, Problem};

/// What to do about a server that is not understood.
const STRANGER: &str = "the server and this command are probably of different versions, or something else listens there";

/// How long a server that was started just before may take until it listens, which it does as soon as it has
/// its disks and its memory.
const LISTENS_WITHIN: Duration = Duration::from_secs(3);

/// The first pause between two attempts. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The longest time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// After so long without an answer the server is asked whether it answers at all, and has as long to say so.
const ANSWERS_OTHERS_WITHIN: Duration = Duration::from_secs(10);

/// The path that it is asked for then. Nothing is there, so the answer needs no look at the pool or a disk.
const ANYTHING: &str = "/v1";

/// How long something that is no control socket may take to say what it is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Where the server listens, and how to ask it something.
#[derive(Clone, Debug)]
pub struct ApiClient {
    socket: PathBuf,
    /// There was a server: one that goes away is not waited for, and another may not know what it knew.
    was_there: Arc<AtomicBool>,
    patience: Duration,
}

/// What was read that is no JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct Downloaded {
    /// How long it is.
    pub bytes: u64,
    /// So many blocks of the recording that it was made of are damaged or gone.
    pub missing_blocks: u64,
}

/// The answer to a call: a body, or the server's account of why not.
type Answer<T> = Result<T, Failure>;

impl ApiClient {
    /// A client of the server behind `socket`. Nothing is connected yet.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            was_there: Arc::default(),
            patience: ANSWERS_OTHERS_WITHIN,
        }
    }

    /// The same, which asks after so long whether a server answers at all, and waits as long for that.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// When the server is not there or says no.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.call(Method::GET, path, &()).await
    }

    /// Creates a resource, or starts something.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Answer<T> {
        self.call(Method::POST, path, body).await
    }

    /// Changes a resource.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn patch<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Answer<T> {
        self.call(Method::PATCH, path, body).await
    }

    /// Removes a resource.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.call(Method::DELETE, path, &()).await
    }

    async fn call<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &B,
    ) -> Answer<T> {
        let body = if matches!(method, Method::GET | Method::DELETE) {
            Vec::new()
        } else {
            serde_json::to_vec(body)
                .map_err(|error| Failure::bug(format!("cannot write the request: {error}")))?
        };
        let (status, body) = self.exchange(method, path, body.into()).await?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| {
                Failure::failed(format!(
                    "the server's answer to {path} is not what was expected: {error}"
                ))
                .help(STRANGER)
            });
        }
        Err(refused(status, &body))
    }

    /// Waits for as long as the server says that its pool is being opened. For commands that handle signals from then on:
    /// until then, Ctrl-C ends them.
    ///
    /// # Errors
    /// As [`ApiClient::get`].
    pub async fn opened(&self) -> Answer<()> {
        let answered = self.exchange(Method::GET, ANYTHING, Bytes::new());
        answered.await.map(drop)
    }

    /// A call and its answer. It is made again for as long as the server says that its pool is being opened.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<(StatusCode, Bytes)> {
        let mut pauses = Pauses::default();
        let mut was_opening = false;
        loop {
            let ready = self.ready(method.clone(), path, body.clone()).await;
            let (stream, request) = ready.map_err(|failure| match was_opening {
                true => {
                    failure.help("it has ended while its pool was being opened: its log says why")
                }
                false => failure,
            })?;
            match self.patiently(answer(stream, request)).await? {
                Ok((status, body)) if is_opening(status, &body) => was_opening = true,
                Ok(answer) => return Ok(answer),
                Err(error) => return Err(self.lost(&error).await),
            }
            tokio::time::sleep(pauses.next()).await;
        }
    }

    /// A connection, and what is to be said on it.
    async fn ready(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Answer<(tokio::net::UnixStream, Request<Full<Bytes>>)> {
        let stream = self
            .connect()
            .await
            .map_err(|error| self.unreachable(&error))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "clockwise")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| Failure::bug(format!("{path} is not a path of the API: {error}")))?;
        Ok((stream, request))
    }

    /// Reads what is no JSON and may be long; `take` is given its pieces.
    ///
    /// # Errors
    /// When the server is not there, says no or ends before its end, or `take` fails.
    pub async fn download(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Answer<Downloaded> {
        self.opened().await?;
        let (stream, mut request) = self.ready(Method::GET, path, Bytes::new()).await?;
        let trailers = HeaderValue::from_static("trailers");
        request.headers_mut().insert(header::TE, trailers);
        let begun = self.patiently(begin(stream, request)).await?;
        let (status, mut body, _driver) = match begun {
            Ok(begun) => begun,
            Err(error) => return Err(self.lost(&error).await),
        };
        if !status.is_success() {
            let text = match self.patiently(body.collect()).await? {
                Ok(text) => text.to_bytes(),
                Err(error) => return Err(self.lost(&error).await),
            };
            return Err(refused(status, &text));
        }
        let mut got = Downloaded::default();
        while let Some(frame) = self.patiently(body.frame()).await? {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(piece)) => {
                    got.bytes += piece.len() as u64;
                    take(&piece)?;
                }
                Ok(Err(frame)) => {
                    let said = frame.trailers_ref().and_then(|of| of.get(MISSING_BLOCKS));
                    let said = said.and_then(|of| of.to_str().ok()?.parse().ok());
                    got.missing_blocks = said.unwrap_or(got.missing_blocks);
                }
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "what was asked for ends before its end: {error}"
                    ))
                    .help(
                        "the server's log says why; `clockwise status` shows whether it is there",
                    ));
                }
            }
        }
        Ok(got)
    }

    /// Waits for `work` as long as the server answers.
    async fn patiently<T>(&self, work: impl Future<Output = T>) -> Answer<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                answers = self.goes_on() => if !answers {
                    return Err(self.silent());
                },
            }
        }
    }

    /// After a while, whether the server answers. One that is gone says so to whoever waits for something.
    async fn goes_on(&self) -> bool {
        tokio::time::sleep(self.patience).await;
        let asked = async {
            let stream = self.connect().await?;
            let request = Request::get(ANYTHING).header("host", "clockwise");
            let request = request.body(Full::default()).map_err(io::Error::other)?;
            answer(stream, request).await.map_err(io::Error::other)
        };
        match tokio::time::timeout(self.patience, asked).await {
            Ok(Err(error)) => error.kind() != ErrorKind::TimedOut,
            Ok(Ok(_)) => true,
            Err(_) => false,
        }
    }

    fn silent(&self) -> Failure {
        Failure::failed(format!(
            "the server at {} does not answer: nothing for {:?}",
            self.socket.display(),
            self.patience * 2
        ))
        .help("it was stopped (`kill -CONT` lets it go on) or hangs: its log says more; what was asked may still be done")
    }

    /// What to tell of a connection that ended before the answer did.
    async fn lost(&self, error: &hyper::Error) -> Failure {
        let socket = self.socket.clone();
        let asked = tokio::task::spawn_blocking(move || speaks_something_else(&socket));
        if asked.await.unwrap_or(false) {
            return self.no_control_socket();
        }
        Failure::failed(format!("the connection to the server was lost: {error}"))
            .help("the server has ended or is ending: its log says why; `clockwise status` shows whether it is back")
    }

    /// Connects on a thread that may wait: a server that has many connections to accept makes others
    /// wait, where a connect that may not wait would fail.
    async fn connect(&self) -> io::Result<tokio::net::UnixStream> {
        let socket = self.socket.clone();
        let was_there = Arc::clone(&self.was_there);
        let patience = self.patience;
        let connect = move || {
            let stream = if was_there.load(Relaxed) {
                socket::connect(&socket, patience)?
            } else {
                connect_to_one_that_begins(&socket, patience)?
            };
            was_there.store(true, Relaxed);
            Ok::<_, io::Error>(stream)
        };
        let stream = tokio::task::spawn_blocking(connect)
            .await
            .map_err(io::Error::other)??;
        stream.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(stream)
    }

    fn no_control_socket(&self) -> Failure {
        Failure::bad_input(format!(
            "{} is no control socket: what answers there speaks another protocol",
            self.socket.display()
        ))
        .help("name the server's `api` socket; those for byte streams and for NBD are others")
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let socket = self.socket.display();
        let (what, help) = match error.kind() {
            ErrorKind::TimedOut => return self.silent(),
            _ if is_nobody(error) => (
                format!("no server answers at {socket}"),
                "start one with `clockwise serve --config clockwise.toml`, or name its socket with --socket or --config",
            ),
            ErrorKind::PermissionDenied => (
                format!("you may not connect to {socket}"),
                "the permissions of that file say who may; see `permissions` in the server's configuration",
            ),
            _ => (
                format!("cannot connect to {socket}: {error}"),
                "check that the server runs",
            ),
        };
        Failure {
            kind: FailureKind::Failed,
            what,
            place: None,
            help: help.to_owned(),
            refusal: None,
        }
    }
}

/// The server's account of why not.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.into_failure(),
        Err(_) => Failure::failed(format!(
            "the server answers {status}: {}",
            String::from_utf8_lossy(body)
        ))
        .help(STRANGER),
    }
}

/// Whether an answer says that the pool is being opened.
fn is_opening(status: StatusCode, body: &[u8]) -> bool {
    let is_one = |problem: Problem| problem.opening;
    status == StatusCode::SERVICE_UNAVAILABLE && serde_json::from_slice(body).is_ok_and(is_one)
}

/// The pauses between attempts.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let next = (self.0 * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.0, next)
    }
}

/// What does the work of a connection, as long as it is kept.
struct Driver(tokio::task::JoinHandle<Result<(), hyper::Error>>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One request on a connection of its own, and how its answer begins.
async fn begin(
    stream: tokio::net::UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, hyper::body::Incoming, Driver), hyper::Error> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = Driver(tokio::spawn(connection));
    let response = sender.send_request(request).await?;
    Ok((response.status(), response.into_body(), driver))
}

/// One request on a connection of its own, and its answer.
async fn answer(
    stream: tokio::net::UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), hyper::Error> {
    let (status, body, _driver) = begin(stream, request).await?;
    Ok((status, body.collect().await?.to_bytes()))
}

/// Whether what listens at a socket answers, but not in HTTP, as those of byte streams and NBD do.
fn speaks_something_else(socket: &Path) -> bool {
    const HTTP: &[u8] = b"HTTP/";
    let Ok(mut connection) = socket::connect(socket, ANSWERS_WITHIN) else {
        return false;
    };
    let asked = connection
        .set_read_timeout(Some(ANSWERS_WITHIN))
        .and_then(|()| {
            connection
                .write_all(b"GET /v1/pool HTTP/1.1\r\nhost: clockwise\r\nconnection: close\r\n\r\n")
        });
    let mut answer = Vec::with_capacity(HTTP.len());
    // One that closes at once, or says nothing, says nothing else.
    let _ = connection.take(HTTP.len() as u64).read_to_end(&mut answer);
    asked.is_ok() && !HTTP.starts_with(&answer)
}

/// Whether an attempt to connect failed because nobody listens there, or not yet.
fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

/// Connects to a server that listens, or is about to.
fn connect_to_one_that_begins(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + LISTENS_WITHIN;
    let mut pauses = Pauses::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match socket::connect(socket, patience) {
            Err(error) if is_nobody(&error) && !left.is_zero() => {}
            connected => return connected,
        }
        std::thread::sleep(pauses.next().min(left));
    }
}
